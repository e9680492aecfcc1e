//! The C functions, thin.
//!
//! Every function takes the one lock of the driver, checks its handles and either queues work on the
//! [`crate::stream::Engine`] or forces it. A function that is not supported returns `CUDA_ERROR_NOT_SUPPORTED` and
//! says so once on stderr. No call follows a handle or a null pointer, and a panic inside becomes
//! `CUDA_ERROR_UNKNOWN`.

#![allow(non_snake_case, reason = "names of cuda.h")]

pub mod abi;
mod config;
pub mod context;
pub mod devices;
mod image;
pub mod launch;
pub mod memory;
pub mod modules;
pub mod report;
pub mod streams;
pub mod symbols;
pub mod transfer;
pub mod unsupported;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ffi::CString,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::ThreadId,
};

use abi::{CUresult, CUstream, Outcome};
use config::Config;

use crate::{
    check::Kind,
    program::Program,
    stream::{Engine, Recorded, Step, StreamId, StreamKind},
};

/// Defines C functions: each takes the lock and turns its outcome into a code.
macro_rules! export {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($session:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block
    )*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the driver API.")]
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or point to what `cuda.h` says; host memory of copies stays valid as long as it says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::driver::abi::CUresult {
            $crate::driver::call(stringify!($name), |$session: &mut $crate::driver::Session| $body)
        }
    )*};
}
use export;

/// A context.
#[derive(Debug)]
struct Context {
    flags: u32,
    default_stream: StreamId,
    thread_streams: HashMap<ThreadId, StreamId>,
    limits: BTreeMap<u32, usize>,
    cache_config: u32,
}

#[derive(Debug)]
struct StreamEntry {
    id: StreamId,
    context: u64,
    flags: u32,
    priority: i32,
}

#[derive(Debug)]
struct EventEntry {
    context: u64,
    timing: bool,
    recorded: Option<Recorded>,
}

#[derive(Debug)]
struct ModuleEntry {
    context: u64,
    program: Arc<Program>,
}

#[derive(Debug)]
struct FunctionEntry {
    module: u64,
    index: usize,
    name: CString,
    max_dynamic_shared: u32,
}

/// Everything behind the lock.
#[derive(Debug)]
struct State {
    config: Config,
    engine: Engine,
    initialised: bool,
    contexts: BTreeMap<u64, Context>,
    primary: Option<u64>,
    primary_users: u32,
    primary_flags: u32,
    streams: BTreeMap<u64, StreamEntry>,
    events: BTreeMap<u64, EventEntry>,
    modules: BTreeMap<u64, ModuleEntry>,
    functions: BTreeMap<u64, FunctionEntry>,
    pools: BTreeMap<u64, u64>,
    default_pool: u64,
    allocations_made: u64,
    host_allocations_made: u64,
    /// Findings that a synchronising call has already failed for, when strict.
    findings_told: usize,
    /// The thread that runs a host function, which must not call back.
    calling_thread: Option<ThreadId>,
}

impl State {
    fn new(config: Config) -> Self {
        let mut engine = Engine::new(config.device(), config.capacity());
        engine.findings.tolerate = config.tolerate.clone();
        engine.ignored_waits = config.ignore_waits.clone();
        let default_pool = 0;
        Self {
            config,
            engine,
            initialised: false,
            contexts: BTreeMap::new(),
            primary: None,
            primary_users: 0,
            primary_flags: 0,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            pools: BTreeMap::from([(default_pool, 0)]),
            default_pool,
            allocations_made: 0,
            host_allocations_made: 0,
            findings_told: 0,
            calling_thread: None,
        }
    }

    /// A number for a new object; not even a reset gives one out twice.
    fn new_id(&mut self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static HOST_FUNCTION_RETURNED: Condvar = Condvar::new();

thread_local! {
    /// Contexts of this thread, the current one last; 0 stands for none.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A call that holds the lock.
struct Session {
    guard: Option<MutexGuard<'static, Option<State>>>,
    name: &'static str,
}

fn lock() -> MutexGuard<'static, Option<State>> {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        *guard = Some(State::new(Config::from_environment()));
        report::register_exit();
    }
    guard
}

/// Runs the body of a C function.
fn call(name: &'static str, body: impl FnOnce(&mut Session) -> Outcome) -> CUresult {
    let run = || {
        let mut session = Session {
            guard: Some(lock()),
            name,
        };
        if session.calling_thread == Some(std::thread::current().id()) {
            return Err(CUresult::NOT_PERMITTED);
        }
        body(&mut session)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => {
            eprintln!(
                "virtual GPU: {name} panicked; this is a defect of the virtual GPU, not of the program"
            );
            CUresult::UNKNOWN
        }
    }
}

impl std::ops::Deref for Session {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard
            .as_ref()
            .and_then(|g| g.as_ref())
            .expect("a session holds the lock and `lock` filled it")
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut State {
        self.guard
            .as_mut()
            .and_then(|g| g.as_mut())
            .expect("a session holds the lock and `lock` filled it")
    }
}

impl Session {
    /// `cuInit` was called.
    fn initialised(&self) -> Outcome {
        if self.initialised {
            Ok(())
        } else {
            Err(CUresult::NOT_INITIALIZED)
        }
    }

    /// The current context, which has not failed.
    fn context(&self) -> Result<u64, CUresult> {
        let id = self.context_even_failed()?;
        self.failed().map_or(Ok(id), Err)
    }

    /// The current context, for calls that work after a failure.
    fn context_even_failed(&self) -> Result<u64, CUresult> {
        self.initialised()?;
        let id = CURRENT
            .with_borrow(|stack| stack.last().copied())
            .filter(|&id| id != 0);
        let id = id.ok_or(CUresult::INVALID_CONTEXT)?;
        if self.contexts.contains_key(&id) {
            Ok(id)
        } else {
            Err(CUresult::CONTEXT_IS_DESTROYED)
        }
    }

    /// The code of the defect that stopped the device.
    fn failed(&self) -> Option<CUresult> {
        Some(match self.engine.fault()? {
            Kind::OutOfBounds | Kind::UseAfterFree => CUresult::ILLEGAL_ADDRESS,
            Kind::Misaligned => CUresult::MISALIGNED_ADDRESS,
            Kind::Stuck => CUresult::LAUNCH_TIMEOUT,
            _ => CUresult::LAUNCH_FAILED,
        })
    }

    /// The stream of a handle, in the current context for the default ones.
    fn stream(&mut self, handle: CUstream) -> Result<StreamId, CUresult> {
        let context = self.context()?;
        match handle.0 {
            0 | 1 => Ok(self.contexts[&context].default_stream),
            2 => {
                let thread = std::thread::current().id();
                if let Some(&id) = self.contexts[&context].thread_streams.get(&thread) {
                    return Ok(id);
                }
                let id = self.engine.create_stream(context, StreamKind::Blocking);
                if let Some(context) = self.contexts.get_mut(&context) {
                    context.thread_streams.insert(thread, id);
                }
                Ok(id)
            }
            _ => {
                let entry = handle.id().and_then(|id| self.streams.get(&id));
                entry.map(|s| s.id).ok_or(CUresult::INVALID_HANDLE)
            }
        }
    }

    /// Runs work until every one of `targets` has run.
    fn drive(&mut self, targets: &[Recorded]) {
        for target in targets {
            loop {
                while self.engine.is_calling() {
                    // Another thread runs a function of the program; nothing else can run before it returns.
                    let Some(guard) = self.guard.take() else {
                        return;
                    };
                    let waited = HOST_FUNCTION_RETURNED.wait(guard);
                    self.guard = Some(waited.unwrap_or_else(PoisonError::into_inner));
                }
                match self.engine.step(target.point) {
                    Step::Done => break,
                    Step::Call(function) => {
                        self.calling_thread = Some(std::thread::current().id());
                        self.guard = None;
                        function.call();
                        self.guard = Some(lock());
                        self.calling_thread = None;
                        self.engine.called();
                        HOST_FUNCTION_RETURNED.notify_all();
                    }
                }
            }
        }
    }

    /// Runs work, makes the host wait for it, and tells what went wrong meanwhile.
    fn synchronise(&mut self, targets: &[Recorded]) -> Outcome {
        self.drive(targets);
        for target in targets {
            self.engine.host_waited(target);
        }
        self.verdict()
    }

    /// The failure that a synchronising call returns: a stopped device or, when strict, any finding not yet told.
    fn verdict(&mut self) -> Outcome {
        if let Some(code) = self.failed() {
            return Err(code);
        }
        let found = self.engine.findings.list().len();
        if self.config.strict && found > self.findings_told {
            for finding in &self.engine.findings.list()[self.findings_told..] {
                eprintln!("virtual GPU: {finding}");
            }
            self.findings_told = found;
            return Err(CUresult::LAUNCH_FAILED);
        }
        Ok(())
    }

    /// Runs all that is queued and gives back what was freed on the way.
    fn make_room(&mut self) {
        let tails = self.engine.tails(None);
        self.drive(&tails);
        self.engine.bury();
    }

    /// Runs queued work when it holds back much memory, as a device with a finite queue would.
    fn relieve(&mut self) {
        if self.engine.is_holding_back() {
            self.make_room();
        }
    }
}
