//! The events that GPUs raise, heard on a thread of its own for as long as [`Events`] lives.
//!
//! It follows the [`Driver`]'s session and never opens one: where none is open there is
//! nothing to hear. GPUs are registered anew with each session, when the MIG mode of one has
//! changed, when one is lost, and when it's told to.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpu_dra_health::GpuEvent;
use tracing::{debug, warn};

use crate::code::{CallError, Code};
use crate::current::Turn;
use crate::driver::Driver;
use crate::watch::{Watch, Watching};

/// How long one wait lasts, in milliseconds: so long a session that was closed stays open.
const WAIT_MS: u32 = 250;
/// How often a session is looked for while there is none, or while there is nothing to hear.
const IDLE: Duration = Duration::from_millis(250);
/// Between failures: an event set that fails at once must not make this thread spin.
const PAUSE: Duration = Duration::from_secs(1);

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Something happened to a GPU.
    Event(GpuEvent),
    /// From now on, whose events can be had; told when that has changed.
    Watching(Watching),
}

/// The listening thread. Dropping it ends the thread and waits for that: a quarter of a
/// second, or for as long as `deliver` takes.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    register: AtomicBool,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl Events {
    /// Begins to listen. `deliver` is called on the listening thread, one call at a time;
    /// while it runs nothing is heard, but nothing is missed either. It must not call the
    /// driver, which may wait for this thread: hand it on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        driver: Arc<Driver>,
        deliver: impl FnMut(Heard) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut listener = Listener {
            driver,
            shared: Arc::clone(&shared),
            deliver: Box::new(deliver),
            told: Watching::default(),
        };
        let thread = thread::Builder::new().name("gpu-events".to_owned());
        let thread = thread.spawn(move || listener.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Registers all GPUs anew at the next occasion, within a quarter of a second: to be
    /// called when a GPU was reset or is back on the bus, which NVML raises no event for.
    pub fn register_again(&self) {
        self.shared.register.store(true, Ordering::SeqCst);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stop.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread that hears GPU events had panicked");
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn must_register(&self) -> bool {
        self.register.swap(false, Ordering::SeqCst)
    }

    /// Sleeps, unless it is to stop.
    fn pause(&self, time: Duration) {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.stop.wait_timeout_while(stopped, time, |stopped| !*stopped));
    }
}

/// What lives on the thread.
struct Listener {
    driver: Arc<Driver>,
    shared: Arc<Shared>,
    deliver: Box<dyn FnMut(Heard) + Send>,
    told: Watching,
}

impl Listener {
    fn run(&mut self) {
        while !self.shared.is_stopped() {
            match self.driver.turn() {
                Some(turn) => self.follow(&turn),
                None => {
                    self.tell(Watching::default());
                    self.shared.pause(IDLE);
                }
            }
        }
    }

    fn goes_on(&self, turn: &Turn) -> bool {
        !self.shared.is_stopped() && self.driver.is_current(turn)
    }

    /// Listens for as long as the session is the driver's. Event sets are freed before it is
    /// let go.
    fn follow(&mut self, turn: &Turn) {
        let mut last: Option<Watch<'_>> = None;
        while self.goes_on(turn) {
            let begun = Instant::now();
            let (watch, watching) = Watch::start(&turn.session);
            // What the last set has heard until now; what comes from now on, the new one has.
            if let Some(last) = last.take() {
                while let Ok(Some(event)) = last.wait(0) {
                    (self.deliver)(Heard::Event(event));
                }
            }
            let Some(watch) = watch else {
                self.tell(watching);
                self.idle(turn);
                continue;
            };
            match self.listen(turn, &watch, watching) {
                Ok(()) => last = Some(watch),
                Err(error) => {
                    debug!(%error, "events are registered anew");
                    // One GPU's end is no reason to miss what others have to say.
                    last = (error.code == Code::GPU_IS_LOST).then_some(watch);
                    if begun.elapsed() < PAUSE {
                        self.shared.pause(PAUSE);
                    }
                }
            }
        }
    }

    /// Listens until the set is to be made anew, or the session isn't the driver's any more.
    fn listen(
        &mut self,
        turn: &Turn,
        watch: &Watch<'_>,
        watching: Watching,
    ) -> Result<(), CallError> {
        // Who is registered with a set that can't be waited for isn't heard.
        let mut news = Some(watching);
        while self.goes_on(turn) && !self.shared.must_register() {
            let heard = watch.wait(if news.is_some() { 0 } else { WAIT_MS });
            let event = heard.inspect_err(|error| self.tell_blind(news.take(), *error))?;
            if let Some(watching) = news.take() {
                self.tell(watching);
            }
            let Some(event) = event else { continue };
            let outdated = watch.is_outdated_by(&event);
            (self.deliver)(Heard::Event(event));
            if outdated {
                break;
            }
        }
        Ok(())
    }

    /// No GPU of this session can be heard: until that may have changed.
    fn idle(&self, turn: &Turn) {
        while self.goes_on(turn) && !self.shared.must_register() {
            self.shared.pause(IDLE);
        }
    }

    /// A set that failed for no reason of one GPU's leaves all unheard until the next.
    fn tell_blind(&mut self, registered: Option<Watching>, error: CallError) {
        if error.code == Code::GPU_IS_LOST || error.code.ends_session() {
            return;
        }
        let mut blind = registered.unwrap_or_else(|| self.told.clone());
        for uuid in std::mem::take(&mut blind.watched) {
            blind.unmonitored.insert(uuid, error);
        }
        self.tell(blind);
    }

    fn tell(&mut self, watching: Watching) {
        if watching != self.told {
            self.told = watching.clone();
            (self.deliver)(Heard::Watching(watching));
        }
    }
}
