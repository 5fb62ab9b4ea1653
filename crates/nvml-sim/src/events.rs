//! Event sets: what they were registered for, and what has happened since.
//!
//! Events come from the control file's list and from changes of the MIG configuration.
//! Whoever waits looks at both files every few milliseconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpu_dra_sim_data::node::Gpu;
use gpu_dra_sim_data::state::GpuState;

use crate::code::{Answer, Code};
use crate::entry::Call;

const SINGLE_BIT_ECC: u64 = 0x1;
const DOUBLE_BIT_ECC: u64 = 0x2;
const PSTATE: u64 = 0x4;
const XID: u64 = 0x8;
const CLOCK: u64 = 0x10;
const MIG_CONFIG_CHANGE: u64 = 0x100;
const GPU_UNAVAILABLE: u64 = 0x4000;
const RECOVERY_ACTION: u64 = 0x8000;

/// How long a wait sleeps between looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Not attributable to an instance.
const NO_INSTANCE: u32 = 0xffff_ffff;

/// What a wait ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) gpu: usize,
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

struct EventSet {
    registered: BTreeMap<usize, Registered>,
    /// So many events of the control file were looked at.
    seen: usize,
    queue: VecDeque<Happened>,
}

struct Registered {
    kinds: u64,
    mig_changes: u64,
    /// A change of the MIG mode resets the GPU, and nothing but that is told after.
    mode_changes: u64,
    lost_told: bool,
}

struct Sets {
    open: BTreeMap<u64, Arc<Mutex<EventSet>>>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { open: BTreeMap::new() });

/// A set is consistent between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kinds of events that a GPU can raise.
pub(crate) fn supported(call: &Call, gpu: &Gpu) -> u64 {
    let ecc = if gpu.model.ecc { SINGLE_BIT_ECC | DOUBLE_BIT_ECC } else { 0 };
    let mig = if gpu.model.mig.is_some() { MIG_CONFIG_CHANGE } else { 0 };
    let new = if call.knows_recovery_action() { GPU_UNAVAILABLE | RECOVERY_ACTION } else { 0 };
    XID | PSTATE | CLOCK | ecc | mig | new
}

/// A new set; gives its number. It sees what happens from now on.
pub(crate) fn create(call: &Call) -> u64 {
    let set = EventSet {
        registered: BTreeMap::new(),
        seen: call.control.events.len(),
        queue: VecDeque::new(),
    };
    let mut sets = lock(&SETS);
    let taken = sets.open.keys().zip(0..).take_while(|(number, next)| *number == next);
    let number = taken.count() as u64;
    sets.open.insert(number, Arc::new(Mutex::new(set)));
    number
}

pub(crate) fn free(number: u64) -> Answer {
    lock(&SETS).open.remove(&number).map(drop).ok_or(Code::INVALID_ARGUMENT)
}

fn open(number: u64) -> Answer<Arc<Mutex<EventSet>>> {
    lock(&SETS).open.get(&number).cloned().ok_or(Code::INVALID_ARGUMENT)
}

/// Adds kinds of events of a GPU to a set.
pub(crate) fn register(call: &Call, number: u64, gpu: usize, kinds: u64) -> Answer {
    let set = open(number)?;
    let mut set = lock(&set);
    set.look(call)?;
    let GpuState { mig_changes, mode_changes, .. } = call.gpu_state(gpu)?;
    let new = Registered { kinds: 0, mig_changes, mode_changes, lost_told: false };
    let registered = set.registered.entry(gpu).or_insert(new);
    registered.kinds |= kinds;
    registered.mode_changes = mode_changes;
    Ok(())
}

/// Waits for the next event, at most so long.
pub(crate) fn wait(call: &Call, number: u64, timeout: Duration) -> Answer<Happened> {
    let set = open(number)?;
    let start = Instant::now();
    loop {
        let now = Call { session: Arc::clone(&call.session), control: call.session.control()? };
        let mut set = lock(&set);
        set.look(&now)?;
        if let Some(event) = set.queue.pop_front() {
            return Ok(event);
        }
        if set.a_gpu_is_lost(&now) {
            return Err(Code::GPU_IS_LOST);
        }
        drop(set);
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

impl EventSet {
    fn look(&mut self, call: &Call) -> Answer {
        let state = call.state()?;
        let mode_changes = |gpu: usize| state.gpus.get(gpu).map_or(0, |state| state.mode_changes);
        let events = &call.control.events;
        // A list that was cut short starts anew from its end.
        for event in events.get(self.seen..).unwrap_or_default() {
            let Some(gpu) = call.node().position(&event.gpu) else { continue };
            let (kind, data) = event.content();
            let told = |registered: &Registered| {
                registered.kinds & kind != 0 && registered.mode_changes == mode_changes(gpu)
            };
            if self.registered.get(&gpu).is_some_and(told) {
                self.queue.push_back(Happened {
                    gpu,
                    kind,
                    data,
                    gpu_instance: event.gpu_instance.unwrap_or(NO_INSTANCE),
                    compute_instance: event.compute_instance.unwrap_or(NO_INSTANCE),
                });
            }
        }
        self.seen = events.len();
        for (gpu, registered) in &mut self.registered {
            let changes = state.gpus.get(*gpu).map_or(0, |state| state.mig_changes);
            if registered.kinds & MIG_CONFIG_CHANGE != 0 && changes != registered.mig_changes {
                self.queue.push_back(Happened {
                    gpu: *gpu,
                    kind: MIG_CONFIG_CHANGE,
                    data: 0,
                    gpu_instance: NO_INSTANCE,
                    compute_instance: NO_INSTANCE,
                });
            }
            registered.mig_changes = changes;
        }
        Ok(())
    }

    /// Told once for each loss, so that a caller who waits again isn't kept spinning.
    fn a_gpu_is_lost(&mut self, call: &Call) -> bool {
        let mut news = false;
        for (gpu, registered) in &mut self.registered {
            let lost = call.not_lost(*gpu).is_err();
            news |= lost && !registered.lost_told;
            registered.lost_told = lost;
        }
        news
    }
}
