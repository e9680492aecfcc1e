//! A work queue: tasks of unequal size, shared among the threads of a pool.

use std::sync::Mutex;

/// Runs `work` for every task of the queue. Each thread takes the next task when it is done with its last, so that no
/// thread is left with a large one at the end if large ones come first.
pub(super) fn drain<T: Send>(tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let tasks = Mutex::new(tasks);
    let work_off = || {
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
            scope.spawn(|_| work_off());
        }
        work_off();
    });
}
