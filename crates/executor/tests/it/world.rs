//! A node in memory: files that lose unsynced data, GPUs whose time slice outlives the
//! process, and an executor that is thrown away and started again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu_dra_claims::{
    Allocation, GpuFacts, HeldPart, KnownStep, NodeView, Record, Step, check, share_daemon,
};
use gpu_dra_executor::{
    CdiNaming, Done, EffectError, Effects, ExecuteError, Executor, Journal, JournalError, adopt,
};
use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Files, Locks};
use gpu_dra_model::config::Interval;
use gpu_dra_model::{
    BootId, ComputeInstanceId, ComputeMode, DeviceKind, DeviceName, GpuInstanceId, GpuUuid,
    MigDevice, MigUuid, Partition, Placement, PoolName, Shares,
};
use gpu_dra_testkit::{ClaimBuilder, POOL, driver, gpu_uuid};

pub(crate) const GPUS: u32 = 3;

/// Further GPUs, which are given out in shares: `gpu-10` to `gpu-17`.
pub(crate) const SHARED_FROM: u32 = 10;
pub(crate) const SHARED: u32 = 8;
pub(crate) const MEMORY_MIB: u64 = 80_000;

/// The hardware: what is set on the GPUs, whoever lives.
pub(crate) struct Hardware {
    files: Arc<SimFiles>,
    slices: Mutex<BTreeMap<GpuUuid, Interval>>,
    mig: Mutex<Mig>,
}

/// MIG modes, GPU instances, compute modes and MPS daemons.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Mig {
    pub(crate) on: BTreeSet<GpuUuid>,
    pub(crate) instances: BTreeMap<(GpuUuid, Partition), Instance>,
    pub(crate) modes: BTreeMap<GpuUuid, ComputeMode>,
    pub(crate) daemons: BTreeSet<String>,
}

/// One GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    /// Made by hand; nobody may touch it.
    Foreign,
    /// Without compute instance yet, or no more.
    Bare,
    /// Complete.
    Whole,
}

impl Effects for Hardware {
    fn look(&self, mut plan: Record) -> Result<Record, EffectError> {
        let mig = self.mig.lock().unwrap();
        for device in plan.devices.iter().filter(|device| !device.admin) {
            let meets = |at: &Partition| {
                let own = device.part.as_ref().map(HeldPart::placement);
                own.is_none_or(|own| own.overlaps(at.placement))
            };
            let mut others = mig.instances.keys();
            if let Some((gpu, at)) = others.find(|(gpu, at)| *gpu == device.gpu && meets(at)) {
                return Err(EffectError::ForeignInstance {
                    gpu: gpu.clone(),
                    instance: GpuInstanceId(at.placement.start),
                    placement: at.placement,
                });
            }
        }
        for step in &mut plan.steps {
            if let Step::Known(
                KnownStep::ExclusiveProcess { gpu, before }
                | KnownStep::ShareDaemon { gpu, before },
            ) = step
            {
                *before = mig.modes.get(gpu).copied().unwrap_or_default();
            }
        }
        Ok(plan)
    }

    fn holds(&self, record: &Record) -> Result<bool, EffectError> {
        let mig = self.mig.lock().unwrap();
        Ok(record.known_steps().unwrap().into_iter().all(|step| match step {
            KnownStep::CreatePartition { gpu, partition, .. } => {
                mig.instances.get(&(gpu.clone(), *partition)) == Some(&Instance::Whole)
            }
            KnownStep::MpsDaemon { daemon, .. } => mig.daemons.contains(daemon),
            KnownStep::ShareDaemon { gpu, .. } => mig.daemons.contains(&share_daemon(gpu)),
            _ => true,
        }))
    }

    fn apply(&self, step: &KnownStep, _begun: &Record) -> Result<Done, EffectError> {
        match step {
            KnownStep::TimeSlice { gpu, interval } => self.set(gpu, *interval),
            KnownStep::MigModeOff { gpu } => {
                self.effect("before mode off").map_err(EffectError::MigModeStays)?;
                self.mig.lock().unwrap().on.remove(gpu);
                self.effect("after mode off").map_err(EffectError::DriverFiles)
            }
            KnownStep::CreatePartition { gpu, partition, .. } => {
                return self.make(gpu, *partition).map(Done::Made);
            }
            KnownStep::ExclusiveProcess { gpu, .. } => {
                self.mode(gpu, ComputeMode::ExclusiveProcess)
            }
            KnownStep::MpsDaemon { daemon, .. } => self.daemon(daemon, true),
            KnownStep::ShareDaemon { gpu, .. } => self
                .mode(gpu, ComputeMode::ExclusiveProcess)
                .and_then(|()| self.daemon(&share_daemon(gpu), true)),
        }?;
        Ok(Done::AsPlanned)
    }

    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        match step {
            KnownStep::TimeSlice { gpu, .. } => self.set(gpu, Interval::Default),
            KnownStep::MigModeOff { .. } => Ok(()),
            KnownStep::CreatePartition { gpu, partition, .. } => {
                self.unmake(gpu, *partition).map_err(EffectError::PartitionNotRemoved)
            }
            KnownStep::ExclusiveProcess { gpu, before } => self.mode(gpu, *before),
            KnownStep::MpsDaemon { daemon, .. } => self.daemon(daemon, false),
            KnownStep::ShareDaemon { gpu, before } => {
                self.daemon(&share_daemon(gpu), false)?;
                self.mode(gpu, *before)
            }
        }
    }

    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError> {
        let names: Vec<_> = record.devices.iter().map(|d| d.cdi_device.to_string()).collect();
        Ok(names.join("\n").into_bytes())
    }
}

impl Hardware {
    fn effect(&self, name: &'static str) -> Result<(), String> {
        self.files.effect(name).map_err(|error| error.to_string())
    }

    fn set(&self, gpu: &GpuUuid, interval: Interval) -> Result<(), EffectError> {
        self.effect("before time slice").map_err(EffectError::DriverFiles)?;
        let mut slices = self.slices.lock().unwrap();
        if interval == Interval::Default {
            slices.remove(gpu);
        } else {
            slices.insert(gpu.clone(), interval);
        }
        self.effect("after time slice").map_err(EffectError::DriverFiles)
    }

    fn mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), EffectError> {
        self.effect("before compute mode").map_err(EffectError::Mps)?;
        let modes = &mut self.mig.lock().unwrap().modes;
        if mode == ComputeMode::Default {
            modes.remove(gpu);
        } else {
            modes.insert(gpu.clone(), mode);
        }
        self.effect("after compute mode").map_err(EffectError::Mps)
    }

    fn daemon(&self, daemon: &str, runs: bool) -> Result<(), EffectError> {
        self.effect("before daemon").map_err(EffectError::Mps)?;
        let daemons = &mut self.mig.lock().unwrap().daemons;
        if runs {
            daemons.insert(daemon.to_owned());
        } else {
            daemons.remove(daemon);
        }
        self.effect("after daemon").map_err(EffectError::Mps)
    }

    fn make(&self, gpu: &GpuUuid, partition: Partition) -> Result<MigDevice, EffectError> {
        let at = (gpu.clone(), partition);
        self.effect("before mode on").map_err(EffectError::PartitionNotMade)?;
        self.mig.lock().unwrap().on.insert(gpu.clone());
        self.effect("mode is on").map_err(EffectError::PartitionHalfMade)?;
        let taken = self
            .mig
            .lock()
            .unwrap()
            .instances
            .keys()
            .any(|(other, part)| other == gpu && part.placement.overlaps(partition.placement));
        assert!(!taken, "the driver would refuse {at:?}");
        self.mig.lock().unwrap().instances.insert(at.clone(), Instance::Bare);
        self.effect("GPU instance made").map_err(EffectError::PartitionHalfMade)?;
        self.mig.lock().unwrap().instances.insert(at, Instance::Whole);
        self.effect("compute instance made").map_err(EffectError::PartitionHalfMade)?;
        Ok(MigDevice {
            instance: GpuInstanceId(partition.placement.start),
            compute: ComputeInstanceId(0),
            uuid: MigUuid::new(format!(
                "MIG-22222222-0000-0000-0000-{:012x}",
                partition.placement.start
            ))
            .unwrap(),
        })
    }

    fn unmake(&self, gpu: &GpuUuid, partition: Partition) -> Result<(), String> {
        let at = (gpu.clone(), partition);
        self.effect("before compute instance goes")?;
        if let Some(instance) = self.mig.lock().unwrap().instances.get_mut(&at) {
            assert_ne!(*instance, Instance::Foreign, "destroying what others made");
            *instance = Instance::Bare;
        }
        self.effect("compute instance gone")?;
        self.mig.lock().unwrap().instances.remove(&at);
        self.effect("GPU instance gone")?;
        let mut mig = self.mig.lock().unwrap();
        if mig.instances.keys().all(|(other, _)| other != gpu) {
            mig.on.remove(gpu);
        }
        drop(mig);
        self.effect("mode is off")
    }
}

/// A partition of `size` memory slices from `start` on.
pub(crate) fn partition(start: u32, size: u32) -> Partition {
    Partition { profile_id: 20 - size, placement: Placement { start, size } }
}

/// `gpu-<n>` whole, and its partitions `gpu-<n>-mig-<size>-<start>`.
fn devices() -> BTreeMap<DeviceName, DeviceKind> {
    let mut devices = BTreeMap::new();
    for n in 0..GPUS {
        let gpu = gpu_uuid(n);
        let name = DeviceName::new(format!("gpu-{n}")).unwrap();
        devices.insert(
            name,
            DeviceKind::Gpu { gpu: gpu.clone(), mig_may_be_on: true, shares: Shares::Off },
        );
        for (start, size) in [(0, 4), (0, 2), (2, 2), (0, 1), (1, 1), (2, 1), (3, 1)] {
            let name = DeviceName::new(format!("gpu-{n}-mig-{size}-{start}")).unwrap();
            let partition = partition(start, size);
            let kind = DeviceKind::Partition { gpu: gpu.clone(), partition, mode_is_free: true };
            devices.insert(name, kind);
        }
    }
    for n in SHARED_FROM..SHARED_FROM + SHARED {
        let name = DeviceName::new(format!("gpu-{n}")).unwrap();
        let (gpu, shares) = (gpu_uuid(n), Shares::Mps);
        devices.insert(name, DeviceKind::Gpu { gpu, mig_may_be_on: false, shares });
    }
    devices
}

/// Everything outside the process, and the process.
pub(crate) struct World {
    pub(crate) files: Arc<SimFiles>,
    hardware: Arc<Hardware>,
    lock_file: tempfile::NamedTempFile,
    pub(crate) node: NodeView,
    executor: Executor,
}

/// What is to be seen from outside: files (journal and CDI specs) and GPU settings.
pub(crate) type Outside = (BTreeMap<PathBuf, Vec<u8>>, BTreeMap<GpuUuid, Interval>, Mig);

impl World {
    pub(crate) fn new() -> Self {
        let files = Arc::new(SimFiles::default());
        let hardware = Arc::new(Hardware {
            files: Arc::clone(&files),
            slices: Mutex::default(),
            mig: Mutex::default(),
        });
        let node = NodeView {
            pool: PoolName::new(POOL).unwrap(),
            devices: devices(),
            gpus: (0..SHARED_FROM + SHARED)
                .map(|n| (gpu_uuid(n), GpuFacts { before_volta: false, memory_mib: MEMORY_MIB }))
                .collect(),
            boot_id: boot(1),
        };
        let lock_file = tempfile::NamedTempFile::new().unwrap();
        let executor = start(&files, &hardware, lock_file.path());
        Self { files, hardware, lock_file, node, executor }
    }

    pub(crate) fn prepare(&self, claim: &ClaimBuilder) -> Result<Record, ExecuteError> {
        let reference = claim.reference();
        let allocation = Allocation::of(&claim.object(), &reference, &driver())?;
        let lock = self.executor.lock_claim(&reference.uid, Duration::ZERO)?;
        self.executor.prepare(&lock, &allocation, &self.node)
    }

    pub(crate) fn unprepare(&self, claim: &ClaimBuilder) -> Result<(), ExecuteError> {
        let lock = self.executor.lock_claim(&claim.reference().uid, Duration::ZERO)?;
        self.executor.unprepare(&lock, &self.node.boot_id)
    }

    /// The process starts again after it died or was stopped.
    pub(crate) fn restart(&mut self) {
        self.files.restart();
        self.executor = start(&self.files, &self.hardware, self.lock_file.path());
        let failures = self.executor.recover(&self.node.boot_id).unwrap();
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// The node reboots: hardware settings and the CDI folder (a tmpfs) are gone.
    pub(crate) fn reboot(&mut self, n: u32) {
        self.hardware.slices.lock().unwrap().clear();
        *self.hardware.mig.lock().unwrap() = Mig::default();
        self.files.restart();
        for path in self.files.contents().into_keys().filter(|path| path.starts_with("/cdi")) {
            self.files.remove(&path).unwrap();
        }
        self.node.boot_id = boot(n);
        self.restart();
    }

    pub(crate) fn outside(&self) -> Outside {
        (
            self.files.contents(),
            self.hardware.slices.lock().unwrap().clone(),
            self.hardware.mig.lock().unwrap().clone(),
        )
    }

    /// Somebody makes a GPU instance by hand.
    pub(crate) fn make_foreign(&self, gpu: u32, partition: Partition) {
        let mut mig = self.hardware.mig.lock().unwrap();
        mig.on.insert(gpu_uuid(gpu));
        mig.instances.insert((gpu_uuid(gpu), partition), Instance::Foreign);
    }

    /// Another driver has made a GPU instance for a claim.
    pub(crate) fn make_theirs(&self, gpu: u32, partition: Partition) {
        let mut mig = self.hardware.mig.lock().unwrap();
        mig.on.insert(gpu_uuid(gpu));
        mig.instances.insert((gpu_uuid(gpu), partition), Instance::Whole);
    }

    /// Takes over from another driver, whose state is in this file.
    pub(crate) fn adopt(&self, records: &[Record], state: &str) -> Result<(), JournalError> {
        let (journal, files) = (&self.executor.journal, self.files.as_ref());
        let aside = format!("{state}.bak");
        adopt(journal, files, records, Path::new(state), Path::new(&aside))
    }

    /// The process has started: what it finds half done is undone.
    pub(crate) fn recover(&mut self) -> Result<Vec<ExecuteError>, ExecuteError> {
        self.executor = start(&self.files, &self.hardware, self.lock_file.path());
        self.executor.recover(&self.node.boot_id)
    }

    /// Somebody destroys what lies there.
    pub(crate) fn destroy(&self, gpu: u32, partition: Partition) {
        self.hardware.mig.lock().unwrap().instances.remove(&(gpu_uuid(gpu), partition)).unwrap();
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.executor.journal.all().unwrap().iter().map(|record| (**record).clone()).collect()
    }

    pub(crate) fn moved_aside(&self) -> Vec<gpu_dra_executor::MovedAside> {
        self.executor.journal.take_moved_aside()
    }

    /// What must hold whenever no call is under way.
    pub(crate) fn check_invariants(&self) {
        let records = self.records();
        check::no_device_in_two_exclusive_claims(&records).unwrap();
        check::partitions_do_not_overlap(&records).unwrap();
        check::shares_fit(&records, |_| MEMORY_MIB).unwrap();
        for record in &records {
            check::plan(record).unwrap();
        }
        let (files, slices, mig) = self.outside();
        for path in files.keys().filter(|path| path.starts_with("/cdi")) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let uid = gpu_dra_cdi::claim_of_file_name(&driver(), name).unwrap();
            assert!(
                records.iter().any(|record| record.claim.uid == uid),
                "invariant every CDI file has a claim: {name}"
            );
        }
        for gpu in slices.keys() {
            let owned =
                |record: &Record| {
                    record.known_steps().into_iter().flatten().any(
                        |step| matches!(step, KnownStep::TimeSlice { gpu: own, .. } if own == gpu),
                    )
                };
            assert!(
                records.iter().any(owned),
                "invariant every changed GPU has a claim that changed it: {gpu}"
            );
        }
        for (at, _) in mig.instances.iter().filter(|(_, what)| **what != Instance::Foreign) {
            let owned = |record: &Record| {
                record.known_steps().into_iter().flatten().any(|step| {
                    matches!(step, KnownStep::CreatePartition { gpu, partition, .. }
                        if (gpu, *partition) == (&at.0, at.1))
                })
            };
            assert!(
                records.iter().any(owned),
                "invariant every GPU instance of ours has a claim that made it: {at:?}"
            );
        }
        let all: Vec<_> = records.iter().flat_map(|record| record.known_steps().unwrap()).collect();
        for gpu in mig.modes.keys() {
            let owned = |step: &&KnownStep| {
                matches!(step, KnownStep::ExclusiveProcess { gpu: own, .. }
                    | KnownStep::ShareDaemon { gpu: own, .. } if own == gpu)
            };
            assert!(all.iter().any(owned), "invariant every compute mode has a claim: {gpu}");
        }
        for daemon in &mig.daemons {
            let owned = |step: &&KnownStep| match step {
                KnownStep::MpsDaemon { daemon: own, .. } => own == daemon,
                KnownStep::ShareDaemon { gpu, .. } => share_daemon(gpu) == *daemon,
                _ => false,
            };
            assert!(all.iter().any(owned), "invariant every daemon has a claim: {daemon}");
        }
        for gpu in &mig.on {
            let needed = records.iter().any(|record| record.gpus().contains(&gpu))
                || mig.instances.keys().any(|(other, _)| other == gpu);
            assert!(needed, "invariant MIG mode is on only where a partition needs it: {gpu}");
        }
    }
}

fn boot(n: u32) -> BootId {
    BootId::new(format!("11111111-2222-3333-4444-{n:012x}")).unwrap()
}

fn start(files: &Arc<SimFiles>, hardware: &Arc<Hardware>, locks: &Path) -> Executor {
    let files: Arc<dyn Files> = Arc::<SimFiles>::clone(files);
    let naming = CdiNaming { dir: "/cdi".into(), driver: driver() };
    Executor::new(
        Arc::new(Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap()),
        Arc::<Hardware>::clone(hardware),
        files,
        Locks::open(locks).unwrap(),
        naming,
    )
    .unwrap()
}
