//! One event set over all GPUs of one session: who is registered, and whose event it is.
//!
//! It doesn't decide when a set is made anew.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_health::{EventInstance, EventKind, GpuEvent};
use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::MigMode;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings as sys;
use tracing::{debug, warn};

use crate::code::{CallError, Code, if_possible};
use crate::raw_events::{self, EventSet, RawEvent};
use crate::session::Session;
use crate::{mig, probe};

const XID: u64 = sys::nvmlEventTypeXidCriticalError as u64;
const DOUBLE_BIT_ECC: u64 = sys::nvmlEventTypeDoubleBitEccError as u64;
const SINGLE_BIT_ECC_STORM: u64 = sys::nvmlEventTypeSingleBitEccErrorStorm as u64;
const DRAM_RETIREMENT: u64 = sys::nvmlEventTypeDramRetirementEvent as u64;
const DRAM_RETIREMENT_FAILURE: u64 = sys::nvmlEventTypeDramRetirementFailure as u64;
const NON_FATAL_POISON: u64 = sys::nvmlEventTypeNonFatalPoisonError as u64;
const FATAL_POISON: u64 = sys::nvmlEventTypeFatalPoisonError as u64;
const GPU_UNAVAILABLE: u64 = sys::nvmlEventTypeGpuUnavailableError as u64;
const RECOVERY_ACTION: u64 = sys::nvmlEventTypeGpuRecoveryAction as u64;
const MIG_CONFIG_CHANGE: u64 = sys::nvmlEventMigConfigChange as u64;

/// Corrected errors one by one, clocks and power are other people's business.
const WANTED: u64 = XID
    | DOUBLE_BIT_ECC
    | SINGLE_BIT_ECC_STORM
    | DRAM_RETIREMENT
    | DRAM_RETIREMENT_FAILURE
    | NON_FATAL_POISON
    | FATAL_POISON
    | GPU_UNAVAILABLE
    | RECOVERY_ACTION
    | MIG_CONFIG_CHANGE;

/// Whose events can be had, by UUID. GPUs that don't tell their UUID are in neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watching {
    /// Those of these GPUs.
    pub watched: BTreeSet<GpuUuid>,
    /// Not the Xids of these, and why not.
    pub unmonitored: BTreeMap<GpuUuid, CallError>,
}

/// A set in which each GPU is registered that can be.
pub(crate) struct Watch<'s> {
    session: &'s Session,
    set: EventSet<'s>,
    gpus: BTreeMap<usize, Registered>,
}

struct Registered {
    uuid: GpuUuid,
    mode: Option<(MigMode, MigMode)>,
}

impl<'s> Watch<'s> {
    /// Registers each GPU for what it can tell of what is wanted. None where events can't be
    /// had of any.
    pub(crate) fn start(session: &'s Session) -> (Option<Self>, Watching) {
        let mut watching = Watching::default();
        // A failed registration may spoil the set, so it's begun anew without that GPU.
        loop {
            match Self::register_all(session, &mut watching) {
                Ok(watch) => return (watch, watching),
                Err(Spoilt) => watching.watched.clear(),
            }
        }
    }

    fn register_all(session: &'s Session, watching: &mut Watching) -> Result<Option<Self>, Spoilt> {
        let nvml = session.nvml();
        let set = EventSet::create(nvml);
        let mut gpus = BTreeMap::new();
        // A session that can't count ends, and whoever asks next sees why.
        for index in 0..session.device_count().unwrap_or_default() {
            let Some((device, uuid)) = identified(session, index) else { continue };
            if watching.unmonitored.contains_key(&uuid) {
                continue;
            }
            let done = match &set {
                Ok(set) => register(session, set, &device),
                Err(error) => Err(*error),
            };
            match done {
                Ok(()) => {
                    let mode = if_possible(mig::mode(&device)).ok().flatten().flatten();
                    watching.watched.insert(uuid.clone());
                    gpus.insert(raw_events::address(&device), Registered { uuid, mode });
                }
                Err(error) => {
                    watching.unmonitored.insert(uuid, error);
                    if error.code == Code::UNKNOWN && set.is_ok() {
                        return Err(Spoilt);
                    }
                }
            }
        }
        let set = set.ok().filter(|_| !gpus.is_empty());
        Ok(set.map(|set| Self { session, set, gpus }))
    }

    /// The next event that can be told of a GPU, at most after so many milliseconds.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Result<Option<GpuEvent>, CallError> {
        let Some(raw) = self.set.wait(timeout_ms)? else { return Ok(None) };
        let Some(gpu) = self.whose(&raw) else {
            warn!(kind = raw.kind, data = raw.data, "an event of a GPU that can't be told");
            return Ok(None);
        };
        let Some(kind) = kind(raw.kind, raw.data) else {
            debug!(%gpu, kind = raw.kind, data = raw.data, "an event of no known kind");
            return Ok(None);
        };
        let instance = raw
            .gpu_instance
            .map(|instance| EventInstance { gpu: instance, compute: raw.compute_instance });
        Ok(Some(GpuEvent { gpu, kind, instance }))
    }

    /// A GPU that has fallen off the bus tells its UUID no more, but its handle is known.
    fn whose(&self, event: &RawEvent<'_>) -> Option<GpuUuid> {
        match self.gpus.get(&raw_events::address(&event.device)) {
            Some(gpu) => Some(gpu.uuid.clone()),
            None => probe::uuid(&event.device).ok(),
        }
    }

    /// Whether the MIG mode of a GPU is another than when it was registered: that resets it.
    pub(crate) fn is_outdated_by(&self, event: &GpuEvent) -> bool {
        let of = self.gpus.values().find(|known| known.uuid == event.gpu);
        let (EventKind::MigConfigChange, Some(known)) = (event.kind, of) else { return false };
        let now = self.session.device(&event.gpu).ok().map(|device| mig::mode(&device));
        !matches!(now, Some(Ok(mode)) if mode == known.mode)
    }
}

/// A set to which NVML's UNKNOWN was answered.
struct Spoilt;

/// Registers all GPUs, and hears without waiting what happens `meanwhile`: what the listening
/// thread does, in one call.
#[cfg(feature = "fuzzing")]
pub fn hear(session: &Session, meanwhile: impl FnOnce()) -> (Watching, Vec<GpuEvent>) {
    let (watch, watching) = Watch::start(session);
    meanwhile();
    let mut events = Vec::new();
    while let Some(Ok(Some(event))) = watch.as_ref().map(|watch| watch.wait(0)) {
        let _ = watch.as_ref().is_some_and(|watch| watch.is_outdated_by(&event));
        events.push(event);
    }
    (watching, events)
}

fn identified(session: &Session, index: u32) -> Option<(Device<'_>, GpuUuid)> {
    let device = probe::handle(session.nvml(), index).ok()?;
    let uuid = probe::uuid(&device).ok()?;
    Some((device, uuid))
}

fn register(session: &Session, set: &EventSet<'_>, device: &Device<'_>) -> Result<(), CallError> {
    let supported = raw_events::supported(session.nvml(), device)?;
    if supported & XID == 0 {
        let call = "nvmlDeviceGetSupportedEventTypes";
        return Err(CallError { call, code: Code::NOT_SUPPORTED });
    }
    set.register(device, supported & WANTED)
}

fn kind(bit: u64, data: u64) -> Option<EventKind> {
    Some(match bit {
        XID => EventKind::Xid(data),
        DOUBLE_BIT_ECC => EventKind::DoubleBitEcc,
        SINGLE_BIT_ECC_STORM => EventKind::SingleBitEccStorm,
        DRAM_RETIREMENT => EventKind::DramRetirement,
        DRAM_RETIREMENT_FAILURE => EventKind::DramRetirementFailure,
        NON_FATAL_POISON => EventKind::NonFatalPoison,
        FATAL_POISON => EventKind::FatalPoison,
        GPU_UNAVAILABLE => EventKind::GpuUnavailable,
        RECOVERY_ACTION => EventKind::RecoveryAction,
        MIG_CONFIG_CHANGE => EventKind::MigConfigChange,
        _ => return None,
    })
}
