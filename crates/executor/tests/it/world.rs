//! A node in memory: files that lose unsynced data, GPUs whose time slice outlives the
//! process, and an executor that is thrown away and started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu_dra_claims::record::KnownStep;
use gpu_dra_claims::{Allocation, KnownDevice, NodeView, Record, check};
use gpu_dra_executor::{CdiNaming, EffectError, Effects, ExecuteError, Executor, Journal};
use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Files, Locks};
use gpu_dra_model::config::Interval;
use gpu_dra_model::{BootId, DeviceName, GpuUuid, PoolName};
use gpu_dra_testkit::{ClaimBuilder, POOL, driver, gpu_uuid};

pub(crate) const GPUS: u32 = 3;

/// The hardware: what is set on the GPUs, whoever lives.
pub(crate) struct Hardware {
    files: Arc<SimFiles>,
    slices: Mutex<BTreeMap<GpuUuid, Interval>>,
}

impl Effects for Hardware {
    fn apply(&self, step: &KnownStep) -> Result<(), EffectError> {
        let KnownStep::TimeSlice { gpu, interval } = step;
        self.set(gpu, *interval)
    }

    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        let KnownStep::TimeSlice { gpu, .. } = step;
        self.set(gpu, Interval::Default)
    }

    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError> {
        let names: Vec<_> = record.devices.iter().map(|d| d.cdi_device.to_string()).collect();
        Ok(names.join("\n").into_bytes())
    }
}

impl Hardware {
    fn set(&self, gpu: &GpuUuid, interval: Interval) -> Result<(), EffectError> {
        let failed = |error: gpu_dra_host::FileError| EffectError::DriverFiles(error.to_string());
        self.files.effect("before time slice").map_err(failed)?;
        let mut slices = self.slices.lock().unwrap();
        if interval == Interval::Default {
            slices.remove(gpu);
        } else {
            slices.insert(gpu.clone(), interval);
        }
        self.files.effect("after time slice").map_err(failed)
    }
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
pub(crate) type Outside = (BTreeMap<PathBuf, Vec<u8>>, BTreeMap<GpuUuid, Interval>);

impl World {
    pub(crate) fn new() -> Self {
        let files = Arc::new(SimFiles::default());
        let hardware = Arc::new(Hardware { files: Arc::clone(&files), slices: Mutex::default() });
        let device = |n| {
            let name = DeviceName::new(format!("gpu-{n}")).unwrap();
            (name, KnownDevice { gpu: gpu_uuid(n) })
        };
        let node = NodeView {
            pool: PoolName::new(POOL).unwrap(),
            devices: (0..GPUS).map(device).collect(),
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
        self.files.restart();
        for path in self.files.contents().into_keys().filter(|path| path.starts_with("/cdi")) {
            self.files.remove(&path).unwrap();
        }
        self.node.boot_id = boot(n);
        self.restart();
    }

    pub(crate) fn outside(&self) -> Outside {
        (self.files.contents(), self.hardware.slices.lock().unwrap().clone())
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
        for record in &records {
            check::plan(record).unwrap();
        }
        let (files, slices) = self.outside();
        for path in files.keys().filter(|path| path.starts_with("/cdi")) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let uid = gpu_dra_cdi::claim_of_file_name(&driver(), name).unwrap();
            assert!(
                records.iter().any(|record| record.claim.uid == uid),
                "invariant every CDI file has a claim: {name}"
            );
        }
        for gpu in slices.keys() {
            let owned = |record: &Record| {
                record.known_steps().into_iter().flatten().any(|step| {
                    let KnownStep::TimeSlice { gpu: own, .. } = step;
                    own == gpu
                })
            };
            assert!(
                records.iter().any(owned),
                "invariant every changed GPU has a claim that changed it: {gpu}"
            );
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
        Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap(),
        Arc::<Hardware>::clone(hardware),
        files,
        Locks::open(locks).unwrap(),
        naming,
    )
    .unwrap()
}
