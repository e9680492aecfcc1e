//! A work queue of independent jobs, with a worker a core.
//!
//! A network that fits a small data set is too small to keep several cores busy with one batch, but a comparison is
//! many trainings. So each worker has a core to itself (a thread pool of its own size, which burn then uses) and takes
//! the next job when it is done. A job's result depends on nothing but the job.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::labels::LabelUpdate;
use crate::progress::{Progress, check};
use crate::train::{Session, Watch};

/// Progress of all jobs together, and the flag that stops them.
#[derive(Debug, Default)]
pub(crate) struct Ticker {
    rows: AtomicU64,
    stop: AtomicBool,
}

/// The [`Watch`] of a job, which adds its rows to the [`Ticker`].
pub(crate) struct Ticking<'a, F> {
    /// Label updates that the job told of.
    pub(crate) updates: Vec<LabelUpdate>,
    ticker: &'a Ticker,
    seen: u64,
    each_epoch: F,
}

impl Ticker {
    /// Returns a watch that counts the rows of a session and calls `each_epoch` after every epoch.
    pub(crate) fn watch<F: FnMut(&Session) -> Result<()>>(&self, each_epoch: F) -> Ticking<'_, F> {
        Ticking {
            updates: Vec::new(),
            ticker: self,
            seen: 0,
            each_epoch,
        }
    }
}

impl<F: FnMut(&Session) -> Result<()>> Watch for Ticking<'_, F> {
    fn rows(&mut self, done: u64, _: u64) -> bool {
        // A method that trains twice starts counting again.
        let new = if done >= self.seen {
            done - self.seen
        } else {
            done
        };
        self.seen = done;
        self.ticker.rows.fetch_add(new, Ordering::Relaxed);
        !self.ticker.stop.load(Ordering::Relaxed)
    }

    fn other(&mut self, _: &str, _: u64, _: u64) -> bool {
        !self.ticker.stop.load(Ordering::Relaxed)
    }

    fn label_update(&mut self, update: &LabelUpdate) {
        self.updates.push(*update);
    }

    fn epoch(&mut self, session: &Session) -> Result<()> {
        (self.each_epoch)(session)
    }
}

/// Runs `work` on every item with `threads` threads in all and returns the results in the order of the items. `total`
/// is about how many rows all jobs will see. The first failure stops the others.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    phase: &str,
    total: u64,
    progress: &mut dyn Progress,
    work: impl Fn(&T, &Ticker) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let workers = threads.min(items.len()).max(1);
    let ticker = Ticker::default();
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    // Nothing is sent: the receiver learns that the last worker has dropped its end.
    let (finished, news) = mpsc::channel::<()>();
    let mut interrupted = Ok(());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let finished = finished.clone();
            let (ticker, next, results, work) = (&ticker, &next, &results, &work);
            // Threads that do not divide evenly go to the first workers.
            let own = threads / workers + usize::from(worker < threads % workers);
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(own.max(1))
                    .build();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= items.len() || ticker.stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let result = match &pool {
                        Ok(pool) => pool.install(|| work(&items[index], ticker)),
                        Err(error) => Err(Error::Unavailable {
                            device: "cpu".into(),
                            why: format!("no threads: {error}"),
                        }),
                    };
                    if result.is_err() {
                        ticker.stop.store(true, Ordering::Relaxed);
                    }
                    *results[index]
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
                drop(finished);
            });
        }
        drop(finished);
        loop {
            let rows = ticker.rows.load(Ordering::Relaxed).min(total);
            if interrupted.is_ok() {
                interrupted = check(progress, phase, rows, total);
                if interrupted.is_err() {
                    ticker.stop.store(true, Ordering::Relaxed);
                }
            }
            match news.recv_timeout(Duration::from_millis(100)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) | Ok(()) => break,
            }
        }
    });
    interrupted?;
    let mut out = Vec::with_capacity(items.len());
    let mut failure = None;
    for result in results {
        match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(value)) => out.push(value),
            Some(Err(Error::Interrupted)) | None => {}
            Some(Err(error)) => {
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(error) => Err(error),
        None if out.len() < items.len() => Err(Error::Interrupted),
        None => Ok(out),
    }
}
