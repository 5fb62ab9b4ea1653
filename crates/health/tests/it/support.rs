//! A tracker with a clock of its own, and short ways to say what happens.

use gpu_dra_health::{
    EventKind, GpuEvent, HealthReading, Occasion, Policy, RecoveryAction, Report, State, Tracker,
    UnixSeconds,
};
use gpu_dra_model::inventory::{ComputeInstance, GpuInstance};
use gpu_dra_model::{
    BootId, ComputeInstanceId, DeviceKind, GpuInstanceId, GpuUuid, MigUuid, Placement, Shares,
};

pub(crate) struct Node {
    pub(crate) tracker: Tracker,
    pub(crate) now: i64,
    pub(crate) instances: Vec<GpuInstance>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(Policy::default())
    }

    pub(crate) fn with(policy: Policy) -> Self {
        Self { tracker: Tracker::new(policy), now: 1000, instances: Vec::new() }
    }

    pub(crate) fn tick(&mut self) -> UnixSeconds {
        self.now += 1;
        UnixSeconds(self.now)
    }

    pub(crate) fn event(&mut self, nth: u8, kind: EventKind) -> bool {
        self.send(&GpuEvent { gpu: gpu(nth), kind, instance: None })
    }

    pub(crate) fn xid(&mut self, nth: u8, xid: u64) -> bool {
        self.event(nth, EventKind::Xid(xid))
    }

    pub(crate) fn send(&mut self, event: &GpuEvent) -> bool {
        let now = self.tick();
        self.tracker.event(event, &self.instances, now)
    }

    pub(crate) fn read(&mut self, nth: u8, reading: &HealthReading) -> bool {
        let now = self.tick();
        self.tracker.reading(&gpu(nth), reading, Occasion::Round, now)
    }

    /// A reading in between, because something has happened on the node.
    pub(crate) fn read_between(&mut self, nth: u8, reading: &HealthReading) -> bool {
        let now = self.tick();
        self.tracker.reading(&gpu(nth), reading, Occasion::News, now)
    }

    /// A reading with nothing wrong, of a driver that knows recovery actions.
    pub(crate) fn read_well(&mut self, nth: u8) -> bool {
        self.read(nth, &action(RecoveryAction::Nothing))
    }

    pub(crate) fn report(&self, nth: u8) -> Report {
        self.tracker.report(&DeviceKind::Gpu {
            gpu: gpu(nth),
            mig_may_be_on: false,
            shares: Shares::Off,
        })
    }

    /// Taints as `xid=79:NoExecute`.
    pub(crate) fn taints(&self, nth: u8) -> Vec<String> {
        shown(&self.report(nth))
    }

    pub(crate) fn state(&self, nth: u8) -> State {
        self.report(nth).state
    }

    /// The node agent starts anew, in the same boot or another.
    pub(crate) fn restart(&mut self, boot: &BootId) {
        let json = self.tracker.to_json(&boot_id(1)).unwrap();
        self.tracker = Tracker::from_json(Policy::default(), &json, boot).unwrap();
    }
}

pub(crate) fn shown(report: &Report) -> Vec<String> {
    report
        .taints
        .iter()
        .map(|taint| {
            let key = taint.key.strip_prefix("gpu.nvidia.com/").unwrap();
            let value = taint.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
            format!("{key}{value}:{}", taint.effect())
        })
        .collect()
}

pub(crate) fn gpu(nth: u8) -> GpuUuid {
    GpuUuid::new(format!("GPU-11111111-0000-0000-0000-{nth:012}")).unwrap()
}

pub(crate) fn boot_id(nth: u8) -> BootId {
    BootId::new(format!("22222222-0000-0000-0000-{nth:012}")).unwrap()
}

/// A GPU that is there and says no more.
pub(crate) fn there() -> HealthReading {
    HealthReading { lost: Some(false), ..HealthReading::default() }
}

pub(crate) fn action(action: RecoveryAction) -> HealthReading {
    HealthReading { recovery_action: Some(action), ..there() }
}

pub(crate) fn lost() -> HealthReading {
    HealthReading { lost: Some(true), ..HealthReading::default() }
}

/// A GPU instance with so many compute instances.
pub(crate) fn instance(id: u32, start: u32, size: u32, computes: u32) -> GpuInstance {
    GpuInstance {
        id: GpuInstanceId(id),
        profile_id: 19,
        placement: Placement { start, size },
        compute_instances: (0..computes)
            .map(|nth| ComputeInstance {
                id: ComputeInstanceId(nth),
                uuid: mig_uuid(id, nth),
                slices: 1,
                multiprocessors: 16,
            })
            .collect(),
    }
}

pub(crate) fn mig_uuid(instance: u32, compute: u32) -> MigUuid {
    MigUuid::new(format!("MIG-33333333-0000-0000-{instance:04}-{compute:012}")).unwrap()
}
