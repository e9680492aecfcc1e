//! A prefetching iterator: a thread of its own runs it ahead of its consumer, through a bounded queue.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Scheduler, Trace, panicked};
use crate::error::{Error, Result};

/// Time that a lane has to stop before it is detached.
const GRACE: Duration = Duration::from_millis(500);

/// Time that it has where its consumer was told to stop too, and is being waited for.
const SHORT_GRACE: Duration = Duration::from_millis(100);

/// Interval at which a waiting consumer checks whether the item is still wanted.
const TICK: Duration = Duration::from_millis(20);

/// Interval for a thread of a pool, which also looks for work to do meanwhile.
const POOL_TICK: Duration = Duration::from_micros(100);

/// The shared state of a lane, as its neighbours see it.
pub(super) struct Post {
    name: &'static str,
    /// Set when nobody wants any more items.
    stop: AtomicBool,
    /// Counts everything that happens in it, so that one who waits can tell slow from stuck.
    pulse: AtomicU64,
    /// Free places in the bounded queue.
    room: Mutex<usize>,
    room_changed: Condvar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The lane that it is waiting for.
    waits_for: Option<Arc<Post>>,
    /// The steps of other names that it is in, the innermost last.
    doing: Vec<&'static str>,
    /// The lanes that it takes from and those that were made in it: they end with it.
    below: Vec<Weak<Post>>,
}

impl Post {
    fn new(name: &'static str, depth: usize) -> Self {
        Self {
            name,
            stop: AtomicBool::new(false),
            pulse: AtomicU64::new(0),
            room: Mutex::new(depth),
            room_changed: Condvar::new(),
            state: Mutex::default(),
        }
    }

    fn room(&self) -> MutexGuard<'_, usize> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another item may be made; false when none is wanted any more.
    fn take_room(&self, trace: &Trace) -> bool {
        let mut room = self.room();
        if *room == 0 && !self.is_stopped() {
            let _waiting = trace.wait_for_room(self.name);
            while *room == 0 && !self.is_stopped() {
                room = self
                    .room_changed
                    .wait(room)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        *room = room.saturating_sub(1);
        !self.is_stopped()
    }

    fn give_room(&self) {
        *self.room() += 1;
        self.room_changed.notify_one();
    }

    /// Another lane ends when this one does.
    fn keep(&self, other: &Arc<Self>) {
        let mut state = self.state();
        state.below.retain(|post| post.strong_count() > 0);
        state.below.push(Arc::downgrade(other));
        drop(state);
        if self.is_stopped() {
            other.stop();
        }
    }

    /// Tells it and all below it that nothing more is wanted, even if it is stuck and cannot tell them itself.
    fn stop(&self) {
        {
            let _room = self.room();
            self.stop.store(true, Ordering::Release);
        }
        self.room_changed.notify_one();
        let below = std::mem::take(&mut self.state().below);
        for post in below.iter().filter_map(Weak::upgrade) {
            post.stop();
        }
    }

    fn beat(&self) {
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.beat();
        self.look()
    }

    fn look(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane or step that this one is held up by in the end, which may be itself.
    fn culprit(&self) -> &'static str {
        let state = self.look();
        let own = state.doing.last().copied().unwrap_or(self.name);
        let next = state.waits_for.clone();
        drop(state);
        next.map_or(own, |other| other.culprit())
    }

    /// Changes when anything has happened in this lane or in those that it is waiting for.
    fn pulse(&self) -> (usize, u64) {
        let next = self.look().waits_for.clone();
        let (lanes, beats) = next.map_or((0, 0), |other| other.pulse());
        (
            lanes + 1,
            beats.wrapping_add(self.pulse.load(Ordering::Relaxed)),
        )
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A step of another name that the lane of this thread is in.
pub(super) struct Doing(Option<Arc<Post>>);

/// Begins one; it ends when it is dropped.
pub(super) fn doing(step: &'static str) -> Doing {
    let here = HERE.with_borrow(Clone::clone);
    if let Some(here) = &here {
        here.state().doing.push(step);
    }
    Doing(here)
}

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(here) = &self.0 {
            here.state().doing.pop();
        }
    }
}

thread_local! {
    /// The lane that this thread is.
    static HERE: RefCell<Option<Arc<Post>>> = const { RefCell::new(None) };
}

/// Items made ahead of time. The first error ends it, and so does dropping it, which also ends the lanes it takes from.
pub struct Lane<T> {
    scheduler: Scheduler,
    post: Arc<Post>,
    inner: Inner<T>,
}

enum Inner<T> {
    /// Nothing is made ahead.
    Here(Box<dyn Iterator<Item = Result<T>> + Send>),
    Thread(Thread<T>),
    Ended,
}

struct Thread<T> {
    items: Receiver<Result<T>>,
    handle: JoinHandle<()>,
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("name", &self.post.name)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Lane<T> {
    pub(super) fn new(
        scheduler: &Scheduler,
        name: &'static str,
        below: Option<&Arc<Post>>,
        source: impl Iterator<Item = Result<T>> + Send + 'static,
    ) -> Result<Self> {
        let noted = Noted {
            scheduler: scheduler.clone(),
            name,
            number: 0,
            source,
        };
        let post = Arc::new(Post::new(name, scheduler.depth));
        if let Some(below) = below {
            post.keep(below);
        }
        if let Some(here) = HERE.with_borrow(Clone::clone) {
            here.keep(&post);
        }
        let inner = match scheduler.depth {
            0 => Inner::Here(Box::new(noted)),
            _ => Inner::Thread(spawn(noted, post.clone())?),
        };
        Ok(Self {
            scheduler: scheduler.clone(),
            post,
            inner,
        })
    }
}

/// The source with its spans in the trace; a panic in it is its last item.
struct Noted<S> {
    scheduler: Scheduler,
    name: &'static str,
    number: u64,
    source: S,
}

impl<T, S: Iterator<Item = Result<T>>> Iterator for Noted<S> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let (name, number) = (self.name, self.number);
        self.number += 1;
        let source = &mut self.source;
        // After a panic the source is not asked again: every caller stops at the first error.
        let made = catch_unwind(AssertUnwindSafe(|| {
            if let Err(error) = self.scheduler.before(name, number) {
                return Some(Err(error));
            }
            let span = self.scheduler.trace.span(name, number);
            let item = source.next();
            if item.is_none() {
                span.discard();
            }
            item
        }));
        made.unwrap_or_else(|panic| Some(Err(panicked(name, &*panic))))
    }
}

fn spawn<T: Send + 'static, S: Iterator<Item = Result<T>> + Send + 'static>(
    mut source: Noted<S>,
    post: Arc<Post>,
) -> Result<Thread<T>> {
    // It never holds more than there is room for.
    let (sender, items) = channel();
    let name = source.name;
    let work = move || {
        HERE.set(Some(post.clone()));
        while post.take_room(&source.scheduler.trace) {
            let Some(item) = source.next() else { break };
            post.beat();
            let last = item.is_err();
            // An error means that nobody listens any more.
            if sender.send(item).is_err() || last {
                break;
            }
        }
    };
    let handle = std::thread::Builder::new()
        .name(format!("muso-{name}"))
        .spawn(work)
        .map_err(|e| Error::Unavailable {
            device: format!("a thread for {name}"),
            why: e.to_string(),
        })?;
    Ok(Thread { items, handle })
}

impl<T> Lane<T> {
    pub(super) fn post(&self) -> &Arc<Post> {
        &self.post
    }

    /// Returns the next item if it is there already. There may be none because it is not made yet, or because there are
    /// no more.
    pub fn ready(&mut self) -> Option<Result<T>> {
        let Inner::Thread(Thread { items, .. }) = &self.inner else {
            return None;
        };
        let item = items.try_recv().ok()?;
        self.post.give_room();
        if item.is_err() {
            self.end();
        }
        Some(item)
    }

    /// Waits for the next item, for as long as anybody wants it.
    fn wait(&self, here: Option<&Post>) -> Option<Result<T>> {
        let Inner::Thread(Thread { items, .. }) = &self.inner else {
            return None;
        };
        let _span = self.scheduler.trace.wait_for_input();
        let Some(here) = here else {
            return self.receive(items, None);
        };
        here.state().waits_for = Some(self.post.clone());
        let item = self.receive(items, Some(here));
        here.state().waits_for = None;
        item
    }

    /// Returns whether nobody wants anything more of the lane that this thread is, or of the run.
    fn is_unwanted(&self, here: Option<&Post>) -> bool {
        here.is_some_and(Post::is_stopped) || self.scheduler.is_cancelled()
    }

    fn receive(&self, items: &Receiver<Result<T>>, here: Option<&Post>) -> Option<Result<T>> {
        let (mut since, mut pulse) = (Instant::now(), self.post.pulse());
        let patience = self.scheduler.patience;
        loop {
            // A thread of a pool that waits for what the pool computes lends a hand.
            let helped = rayon::yield_now() == Some(rayon::Yield::Executed);
            let tick = match rayon::current_thread_index() {
                None => TICK,
                Some(_) if helped => Duration::ZERO,
                Some(_) => POOL_TICK,
            };
            match items.recv_timeout(tick) {
                Ok(item) => return Some(item),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.is_unwanted(here) => {
                    return Some(Err(Error::Interrupted));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.post.pulse();
            if now != pulse {
                (since, pulse) = (Instant::now(), now);
            }
            // Only the end of the chain loses patience: it sees who is waiting for whom.
            if here.is_none() && since.elapsed() >= patience {
                return Some(Err(Error::Lane {
                    lane: self.post.culprit().to_owned(),
                    problem: format!("made nothing for {} s", patience.as_secs_f64()),
                }));
            }
        }
    }

    /// Asks the thread to stop and waits for it, but not for ever: one that is stuck owns all that it works on, and is
    /// left to end by itself. Returns what it panicked with outside of its items, such as in letting go of its source.
    fn end(&mut self) -> Option<Error> {
        self.post.stop();
        let Inner::Thread(Thread { items, handle }) =
            std::mem::replace(&mut self.inner, Inner::Ended)
        else {
            return None;
        };
        drop(items);
        let here = HERE.with_borrow(Clone::clone);
        let asked = Instant::now();
        while !handle.is_finished() {
            let is_stopped = here.as_deref().is_some_and(Post::is_stopped);
            if asked.elapsed() > if is_stopped { SHORT_GRACE } else { GRACE } {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let panic = handle.join().err()?;
        Some(panicked(self.post.name, &*panic))
    }
}

impl<T> Iterator for Lane<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let here = HERE.with_borrow(Clone::clone);
        if let Some(here) = &here {
            here.beat();
        }
        let item = match &mut self.inner {
            Inner::Here(source) => source.next(),
            Inner::Thread(Thread { items, .. }) => match items.try_recv() {
                Ok(item) => Some(item),
                Err(_) => self.wait(here.as_deref()),
            },
            Inner::Ended => return None,
        };
        // An error is a cause; that nobody wants what was made is only its consequence.
        let item = match item {
            Some(Err(error)) => Some(Err(error)),
            _ if self.is_unwanted(here.as_deref()) => Some(Err(Error::Interrupted)),
            other => other,
        };
        match item {
            Some(Ok(item)) => {
                self.post.give_room();
                Some(Ok(item))
            }
            Some(Err(error)) => {
                self.end();
                Some(Err(error))
            }
            // A thread that died has no more items either, but that was not the end of them.
            None => self.end().map(Err),
        }
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn numbers(count: u64) -> impl Iterator<Item = Result<u64>> + Send {
        (0..count).map(Ok)
    }

    #[test]
    fn items_come_in_order_at_any_depth() {
        for depth in 0..4 {
            let scheduler = Scheduler {
                depth,
                ..Scheduler::default()
            };
            let first = scheduler.lane("first", numbers(50)).unwrap();
            let second = scheduler
                .lane("second", first.map(|n| n.map(|n| 3 * n)))
                .unwrap();
            let all: Vec<u64> = second.collect::<Result<_>>().unwrap();
            assert_eq!(
                all,
                (0..50).map(|n| 3 * n).collect::<Vec<_>>(),
                "depth {depth}"
            );
        }
    }

    #[test]
    fn a_lane_is_never_further_ahead_than_its_depth() {
        for depth in 1..4 {
            let made = Arc::new(AtomicU64::new(0));
            let count = made.clone();
            let scheduler = Scheduler {
                depth: depth as usize,
                ..Scheduler::default()
            };
            let counted = numbers(100).inspect(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            });
            let mut lane = scheduler.lane("ahead", counted).unwrap();
            for taken in 1..=20 {
                lane.next().unwrap().unwrap();
                std::thread::sleep(Duration::from_millis(2));
                let ahead = made.load(Ordering::SeqCst) - taken;
                assert!(ahead <= depth, "{ahead} ahead at depth {depth}");
            }
            assert_eq!(
                made.load(Ordering::SeqCst),
                20 + depth,
                "and it does get ahead"
            );
        }
    }

    #[test]
    fn the_first_error_comes_out_and_nothing_after_it() {
        for depth in [0, 2] {
            let scheduler = Scheduler {
                depth,
                ..Scheduler::default()
            };
            let source = (0..10).map(|n| if n == 3 { Err(Error::Overflow) } else { Ok(n) });
            let first = scheduler.lane("first", source).unwrap();
            let mut second = scheduler
                .lane("second", first.map(|n| n.map(|n| n + 1)))
                .unwrap();
            assert_eq!(
                second.by_ref().take(3).collect::<Result<Vec<_>>>().unwrap(),
                [1, 2, 3]
            );
            assert!(matches!(second.next(), Some(Err(Error::Overflow))));
            assert!(second.next().is_none());
        }
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_lane() {
        for depth in [0, 2] {
            let scheduler = Scheduler {
                depth,
                ..Scheduler::default()
            };
            let source = (0..10).map(|n| {
                if n == 3 {
                    panic!("dropped the {n}")
                } else {
                    Ok(n)
                }
            });
            let first = scheduler.lane("juggler", source).unwrap();
            let second = scheduler.lane("second", first).unwrap();
            let error = second.collect::<Result<Vec<i32>>>().unwrap_err();
            assert_eq!(
                error.to_string(),
                "the lane `juggler` panicked: dropped the 3"
            );
        }
    }

    #[test]
    fn a_panic_after_the_last_item_is_not_an_end() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("went off");
            }
        }
        let bomb = Bomb;
        let source = numbers(3).inspect(move |_| {
            let _ = &bomb;
        });
        let lane = Scheduler::default().lane("bomb", source).unwrap();
        let error = lane.collect::<Result<Vec<_>>>().unwrap_err();
        assert_eq!(error.to_string(), "the lane `bomb` panicked: went off");
    }

    #[test]
    fn steps_and_lanes_below_are_named_and_end_with_what_is_stuck() {
        let scheduler = Scheduler::default().with_patience(Duration::from_millis(100));
        let release = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        struct Ends(Arc<AtomicBool>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let ends = Ends(ended.clone());
        let source = numbers(100).inspect(move |_| {
            let _ = &ends;
        });
        let below = scheduler.lane("below", source).unwrap();
        let (released, inner) = (release.clone(), scheduler.clone());
        let mut stuck = scheduler
            .through("stuck", below, move |number, item| {
                inner.step("step", number, || {
                    while !released.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(item)
                })
            })
            .unwrap();
        let error = stuck.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the lane `step` made nothing for 0.1 s");
        // The stuck thread owns the lane below, yet that one is gone.
        assert!(ended.load(Ordering::Acquire));
        release.store(true, Ordering::Release);
    }

    #[test]
    fn a_slow_lane_is_not_a_stuck_one() {
        let scheduler = Scheduler::default().with_patience(Duration::from_millis(100));
        let slow = scheduler
            .lane(
                "slow",
                numbers(8).inspect(|_| std::thread::sleep(Duration::from_millis(40))),
            )
            .unwrap();
        // Its one item takes longer than the patience of who waits for it, but something goes on all the time.
        let mut sums = Some(slow);
        let sum =
            std::iter::from_fn(move || Some(sums.take()?.try_fold(0, |sum, item| Ok(sum + item?))));
        let sums = scheduler.lane("sum", sum).unwrap();
        assert_eq!(sums.collect::<Result<Vec<_>>>().unwrap(), [28]);
    }

    #[test]
    fn the_lane_that_is_stuck_is_the_one_that_is_named() {
        let scheduler = Scheduler {
            patience: Duration::from_millis(100),
            ..Scheduler::default()
        };
        let release = Arc::new(AtomicBool::new(false));
        let released = release.clone();
        let source = (0..10).map(move |n| {
            while n == 3 && !released.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(n)
        });
        let first = scheduler.lane("stuck", source).unwrap();
        let second = scheduler.lane("second", first).unwrap();
        let third = scheduler.lane("third", second).unwrap();
        let begun = Instant::now();
        let error = third.collect::<Result<Vec<i32>>>().unwrap_err();
        assert_eq!(error.to_string(), "the lane `stuck` made nothing for 0.1 s");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        release.store(true, Ordering::Release);
    }

    #[test]
    fn giving_up_does_not_wait_for_an_item() {
        let cancel = Arc::new(AtomicBool::new(false));
        let asked = cancel.clone();
        let scheduler = Scheduler::default().with_cancelled(move || asked.load(Ordering::Acquire));
        let stop = cancel;
        let source = (0..10).map(move |n| {
            if n == 3 {
                stop.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_millis(200));
            }
            Ok(n)
        });
        let lane = scheduler.lane("slow", source).unwrap();
        let error = lane.collect::<Result<Vec<i32>>>().unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
    }

    #[test]
    fn dropping_the_end_ends_every_lane() {
        struct Alive(Arc<AtomicU64>);
        impl Drop for Alive {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let alive = Arc::new(AtomicU64::new(3));
        let scheduler = Scheduler::default();
        let guard = || Alive(alive.clone());
        let (a, b, c) = (guard(), guard(), guard());
        let first = scheduler
            .lane(
                "a",
                numbers(1_000_000).inspect(move |_| {
                    let _ = &a;
                }),
            )
            .unwrap();
        let second = scheduler
            .lane(
                "b",
                first.inspect(move |_| {
                    let _ = &b;
                }),
            )
            .unwrap();
        let mut third = scheduler
            .lane(
                "c",
                second.inspect(move |_| {
                    let _ = &c;
                }),
            )
            .unwrap();
        assert_eq!(third.next().unwrap().unwrap(), 0);
        drop(third);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "a thread is still there");
    }
}
