//! An iterator that is run ahead of who takes from it.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Scheduler, panicked};
use crate::error::{Error, Result};

/// How long a lane that was told to stop is waited for before it is left to itself.
const GRACE: Duration = Duration::from_millis(500);

/// How often one who waits for an item looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(20);

/// The same for a thread of a pool, which also looks for work that it can do meanwhile.
const POOL_TICK: Duration = Duration::from_micros(100);

/// A lane as others see it.
struct Post {
    name: &'static str,
    /// Nobody wants any more items.
    stop: AtomicBool,
    /// The lane that it is waiting for.
    waits_for: Mutex<Option<Arc<Post>>>,
}

impl Post {
    fn waits_for(&self) -> MutexGuard<'_, Option<Arc<Self>>> {
        self.waits_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane that this one is held up by in the end, which may be itself.
    fn culprit(&self) -> &'static str {
        let next = self.waits_for().clone();
        next.map_or(self.name, |other| other.culprit())
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
        source: impl Iterator<Item = Result<T>> + Send + 'static,
    ) -> Result<Self> {
        let noted = Noted {
            scheduler: scheduler.clone(),
            name,
            number: 0,
            source,
        };
        let post = Arc::new(Post {
            name,
            stop: AtomicBool::new(false),
            waits_for: Mutex::new(None),
        });
        let inner = match scheduler.depth.checked_sub(1) {
            None => Inner::Here(Box::new(noted)),
            // The thread holds one finished item while it waits for room, so the queue holds one fewer.
            Some(queued) => Inner::Thread(spawn(noted, queued, post.clone())?),
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
    queued: usize,
    post: Arc<Post>,
) -> Result<Thread<T>> {
    let (sender, items) = sync_channel(queued);
    let name = source.name;
    let work = move || {
        HERE.set(Some(post.clone()));
        while !post.stop.load(Ordering::Acquire) {
            let Some(item) = source.next() else { break };
            let last = item.is_err();
            let waiting = source.scheduler.trace.wait_for_room(name);
            // An error means that nobody listens any more.
            if sender.send(item).is_err() || last {
                break;
            }
            drop(waiting);
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
    /// Waits for the next item, for as long as anybody wants it.
    fn wait(&self) -> Option<Result<T>> {
        let Inner::Thread(Thread { items, .. }) = &self.inner else {
            return None;
        };
        let here = HERE.with_borrow(Clone::clone);
        let Some(here) = here else {
            return self.receive(items, true, &|| self.scheduler.is_cancelled());
        };
        *here.waits_for() = Some(self.post.clone());
        let _span = self.scheduler.trace.wait_for_input(here.name);
        let unwanted = || here.stop.load(Ordering::Acquire) || self.scheduler.is_cancelled();
        // Only the end of the chain loses patience: it sees who is waiting for whom.
        let item = self.receive(items, false, &unwanted);
        *here.waits_for() = None;
        item
    }

    fn receive(
        &self,
        items: &Receiver<Result<T>>,
        is_end: bool,
        unwanted: &dyn Fn() -> bool,
    ) -> Option<Result<T>> {
        let (since, patience) = (Instant::now(), self.scheduler.patience);
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
                Err(RecvTimeoutError::Timeout) if unwanted() => {
                    return Some(Err(Error::Interrupted));
                }
                Err(RecvTimeoutError::Timeout) if is_end && since.elapsed() >= patience => {
                    return Some(Err(Error::Lane {
                        lane: self.post.culprit().to_owned(),
                        problem: format!("made nothing for {} s", patience.as_secs_f64()),
                    }));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Asks the thread to stop and waits for it, but not for ever: one that is stuck owns all that it works on, and is
    /// left to end by itself.
    fn end(&mut self) {
        self.post.stop.store(true, Ordering::Release);
        let Inner::Thread(Thread { items, handle }) =
            std::mem::replace(&mut self.inner, Inner::Ended)
        else {
            return;
        };
        // With no receiver the thread cannot send, and stops.
        drop(items);
        let asked = Instant::now();
        while !handle.is_finished() {
            if asked.elapsed() > GRACE {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        // Panics of the source were caught and have become items.
        let _ = handle.join();
    }
}

impl<T> Iterator for Lane<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let item = match &mut self.inner {
            Inner::Here(source) => source.next(),
            Inner::Thread(Thread { items, .. }) => match items.try_recv() {
                Ok(item) => Some(item),
                Err(_) => self.wait(),
            },
            Inner::Ended => None,
        };
        if !matches!(item, Some(Ok(_))) {
            self.end();
        }
        item
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
