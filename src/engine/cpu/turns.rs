//! Sharing tasks of unequal size among the threads of a pool.

use std::sync::Mutex;

/// Does `work` for every task, each thread taking the next one when it is done with its last: no thread is left with a
/// large task at the end if large ones come first.
pub(super) fn in_turn<T: Send>(tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let tasks = Mutex::new(tasks);
    let take_turns = || {
        loop {
            // A panic in one of the tasks ends all.
            let task = tasks.lock().expect("no task panicked").next();
            match task {
                Some(task) => work(task),
                None => break,
            }
        }
    };
    rayon::scope(|scope| {
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(|_| take_turns());
        }
        take_turns();
    });
}
