//! Looking at the GPUs: what is news, and what a driver that doesn't answer changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use gpu_dra_executor::Journal;
use gpu_dra_health::HealthReading;
use gpu_dra_host::Files;
use gpu_dra_host::sim::SimFiles;
use gpu_dra_model::inventory::{
    ComputeCapability, ComputeInstance, DriverVersions, GpuInstance, Mig, MigMode, MigProfile,
};
use gpu_dra_model::{
    BootId, ComputeInstanceId, Gpu, GpuInstanceId, GpuUuid, Inventory, MigUuid, Minor, PciBusId,
    Placement, PoolName,
};
use gpu_dra_node::events::Announcer;
use gpu_dra_node::survey::{Place, Survey, Surveyor};
use gpu_dra_nvml::{ComputeMode, Fingerprint, GpuError, GpuProcess, Gpus, OpenError};
use gpu_dra_slices::Policy;
use gpu_dra_testkit::{POOL, claim, gpu_uuid};

/// GPUs as a test sets them; None is a driver that isn't loaded.
#[derive(Default)]
pub(crate) struct FakeGpus(
    Mutex<Option<Inventory>>,
    Mutex<BTreeMap<GpuUuid, HealthReading>>,
    AtomicUsize,
    Mutex<BTreeSet<GpuUuid>>,
);

impl FakeGpus {
    pub(crate) fn are(&self, gpus: &[(u32, u32)]) {
        let gpus = gpus.iter().map(|&(uuid, minor)| gpu(uuid, minor)).collect();
        let driver = DriverVersions { driver: "580.105.08".into(), ..DriverVersions::default() };
        *self.0.lock().unwrap() = Some(Inventory { driver, gpus, broken: Vec::new() });
    }

    /// So many processes compute on each GPU.
    pub(crate) fn runs(&self, processes: usize) {
        self.2.store(processes, Ordering::SeqCst);
    }

    /// Whether the driver doesn't come back from questions about a GPU's health.
    pub(crate) fn hangs(&self, gpu: u32, hangs: bool) {
        let mut all = self.3.lock().unwrap();
        let _ = if hangs { all.insert(gpu_uuid(gpu)) } else { all.remove(&gpu_uuid(gpu)) };
    }

    fn gone(&self) {
        *self.0.lock().unwrap() = None;
    }

    pub(crate) fn say(&self, gpu: u32, reading: HealthReading) {
        self.1.lock().unwrap().insert(gpu_uuid(gpu), reading);
    }
}

fn gpu(uuid: u32, minor: u32) -> Gpu {
    Gpu {
        uuid: gpu_uuid(uuid),
        minor: Minor(minor),
        index: minor,
        pci_bus_id: PciBusId::new(format!("0000:{uuid:02x}:00.0")).unwrap(),
        product_name: "NVIDIA L4".into(),
        brand: None,
        architecture: None,
        compute_capability: None,
        memory_bytes: None,
        memory_bus_width_bits: None,
        pcie_root: None,
        numa_node: None,
        addressing_mode: None,
        module_id: None,
        fabric: None,
        vgpu_guest: false,
        mig: Mig::Unsupported,
    }
}

impl Gpus for FakeGpus {
    fn probe(&self) -> Result<Inventory, OpenError> {
        self.0.lock().unwrap().clone().ok_or(OpenError::DriverNotLoaded)
    }
    fn fingerprint(&self) -> Result<Fingerprint, OpenError> {
        self.probe().map(|inventory| Fingerprint::of(&inventory))
    }
    fn health(&self, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
        while self.3.lock().unwrap().contains(uuid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let there = self.probe()?.gpu(uuid).is_some();
        let said = self.1.lock().unwrap().get(uuid).cloned().unwrap_or_default();
        Ok(HealthReading { lost: Some(!there), ..said })
    }
    fn processes(&self, _uuid: &GpuUuid, _since: SystemTime) -> Result<Vec<GpuProcess>, GpuError> {
        let process = |pid| GpuProcess {
            pid,
            instance: None,
            memory_bytes: None,
            sm_percent: None,
            memory_percent: None,
        };
        Ok((0..self.2.load(Ordering::SeqCst)).map(|n| process(n as u32)).collect())
    }
    fn minor_of(&self, uuid: &GpuUuid) -> Result<Minor, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn compute_mode(&self, uuid: &GpuUuid) -> Result<ComputeMode, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn set_compute_mode(&self, uuid: &GpuUuid, _mode: ComputeMode) -> Result<(), GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn persistence(&self, uuid: &GpuUuid) -> Result<bool, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn set_persistence(&self, uuid: &GpuUuid, _on: bool) -> Result<(), GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn mig_mode(&self, uuid: &GpuUuid) -> Result<Option<(MigMode, MigMode)>, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn set_mig_mode(&self, uuid: &GpuUuid, _mode: MigMode) -> Result<(), GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn gpu_instances(&self, uuid: &GpuUuid) -> Result<Vec<GpuInstance>, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn create_gpu_instance(
        &self,
        uuid: &GpuUuid,
        _profile_id: u32,
        _placement: Placement,
    ) -> Result<GpuInstanceId, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn create_compute_instance(
        &self,
        uuid: &GpuUuid,
        _instance: GpuInstanceId,
    ) -> Result<ComputeInstance, GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn destroy_compute_instance(
        &self,
        uuid: &GpuUuid,
        _instance: GpuInstanceId,
        _compute: ComputeInstanceId,
    ) -> Result<(), GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
    fn destroy_gpu_instance(
        &self,
        uuid: &GpuUuid,
        _instance: GpuInstanceId,
    ) -> Result<(), GpuError> {
        Err(GpuError::Gone { uuid: uuid.clone() })
    }
}

pub(crate) fn surveyor(gpus: &Arc<FakeGpus>, files: &Arc<SimFiles>) -> Surveyor {
    let files: Arc<dyn Files> = Arc::<SimFiles>::clone(files);
    let journal = Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap();
    Surveyor::new(Place {
        gpus: Arc::<FakeGpus>::clone(gpus),
        files,
        names_file: PathBuf::from("/names.json"),
        pool: PoolName::new(POOL).unwrap(),
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
        policy: Policy::default(),
        journal: Arc::new(journal),
        announcer: Announcer::new().0,
    })
    .unwrap()
}

fn names(survey: &Survey) -> Vec<(String, GpuUuid)> {
    survey
        .view
        .devices
        .iter()
        .map(|(name, device)| (name.to_string(), device.gpu().clone()))
        .collect()
}

#[test]
fn only_changes_are_news() {
    let (gpus, files) = (Arc::new(FakeGpus::default()), Arc::default());
    let mut surveyor = surveyor(&gpus, &files);
    gpus.are(&[(0, 0), (1, 1)]);
    assert_eq!(names(&surveyor.look().unwrap()).len(), 2);
    assert_eq!(surveyor.look(), None);
    gpus.are(&[(0, 0)]);
    assert_eq!(surveyor.look().unwrap().inventory.gpus.len(), 1);
    assert_eq!(surveyor.look(), None);
}

#[test]
fn a_gpu_that_is_lost_stays_in_the_pool_until_it_is_back_or_replaced() {
    let (gpus, files) = (Arc::new(FakeGpus::default()), Arc::default());
    let mut agent = surveyor(&gpus, &files);
    gpus.are(&[(0, 0), (1, 1)]);
    let whole = agent.look().unwrap();
    assert!(whole.missing.is_empty());
    gpus.are(&[(0, 0)]);
    let lost = agent.look().unwrap();
    assert_eq!(lost.missing, BTreeSet::from([gpu_uuid(1)]));
    assert_eq!((&lost.pool, names(&lost)), (&whole.pool, names(&whole)));
    // The agent is restarted.
    let mut agent = surveyor(&gpus, &files);
    assert_eq!(agent.look().unwrap().missing, lost.missing);
    gpus.are(&[(0, 0), (1, 1)]);
    let back = agent.look().unwrap();
    assert!(back.missing.is_empty());
    assert_eq!(back.pool, whole.pool);
    // Another card in its place.
    let mut replaced = gpu(7, 1);
    replaced.pci_bus_id = gpu(1, 1).pci_bus_id;
    let found = Inventory { gpus: vec![gpu(0, 0), replaced], ..Inventory::default() };
    *gpus.0.lock().unwrap() = Some(found);
    let replaced = agent.look().unwrap();
    assert!(replaced.missing.is_empty());
    assert_eq!(names(&replaced).len(), 2);
}

#[test]
fn names_belong_to_uuids_over_a_reboot_with_permuted_minors() {
    let (gpus, files) = (Arc::new(FakeGpus::default()), Arc::default());
    gpus.are(&[(0, 0), (1, 1), (2, 2)]);
    let before = names(&surveyor(&gpus, &files).look().unwrap());
    // After the reboot one GPU is gone and the others have other numbers.
    gpus.are(&[(1, 0), (2, 1)]);
    let after = names(&surveyor(&gpus, &files).look().unwrap());
    assert_eq!(after, before[1..]);
}

#[test]
fn a_driver_that_reloads_keeps_its_devices_and_one_that_stays_away_does_not() {
    let (gpus, files) = (Arc::new(FakeGpus::default()), Arc::default());
    let mut surveyor = surveyor(&gpus, &files);
    gpus.are(&[(0, 0)]);
    surveyor.look().unwrap();
    gpus.gone();
    assert_eq!(surveyor.look(), None, "a second or two of reloading");
    assert_eq!(surveyor.look(), None);
    let empty = surveyor.look().unwrap();
    assert!(empty.view.devices.is_empty() && empty.trouble.unwrap().sentence.contains("modprobe"));
    gpus.are(&[(0, 0)]);
    let back = surveyor.look().unwrap();
    assert!(back.trouble.is_none() && back.view.devices.len() == 1);
}

#[test]
fn an_unreadable_file_of_names_is_moved_aside() {
    let gpus = Arc::new(FakeGpus::default());
    let files: Arc<SimFiles> = Arc::default();
    files.replace("/names.json".as_ref(), b"garbage", 0o600).unwrap();
    gpus.are(&[(0, 3)]);
    let survey = surveyor(&gpus, &files).look().unwrap();
    assert_eq!(names(&survey)[0].0, "gpu-3");
    assert_eq!(files.contents()[&PathBuf::from("/names.json.bad")], b"garbage");
}

/// A Hopper GPU with one kind of partition, one of which exists.
fn partitioned(instance: GpuInstanceId) -> Gpu {
    let placement = Placement { start: 4, size: 1 };
    let profile = MigProfile {
        id: 19,
        name: "1g.10gb".into(),
        slices: 1,
        max_instances: 7,
        memory_mib: 9984,
        multiprocessors: 16,
        copy_engines: 1,
        decoders: 1,
        encoders: 0,
        jpeg_engines: 1,
        ofa_engines: 0,
        placements: vec![placement, Placement { start: 6, size: 1 }],
    };
    let compute = ComputeInstance {
        id: ComputeInstanceId(0),
        uuid: MigUuid::new("MIG-22222222-0000-0000-0000-000000000000").unwrap(),
        slices: 1,
        multiprocessors: 16,
    };
    Gpu {
        compute_capability: Some(ComputeCapability { major: 9, minor: 0 }),
        mig: Mig::Supported {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            profiles: vec![profile],
            instances: vec![GpuInstance {
                id: instance,
                profile_id: 19,
                placement,
                compute_instances: vec![compute],
            }],
        },
        ..gpu(0, 0)
    }
}

#[test]
fn an_instance_is_ours_if_a_claim_has_it_and_foreign_if_not() {
    let kinds = |survey: &Survey| -> Vec<String> {
        survey.view.devices.keys().map(ToString::to_string).collect()
    };
    let gpus = Arc::new(FakeGpus::default());
    let found = Inventory { gpus: vec![partitioned(GpuInstanceId(11))], ..Inventory::default() };
    *gpus.0.lock().unwrap() = Some(found);

    // Nobody's claim: made by hand, so the GPU is as it is.
    let files: Arc<SimFiles> = Arc::default();
    let foreign = surveyor(&gpus, &files).look().unwrap();
    assert_eq!(kinds(&foreign), ["gpu-0-mig-1g10gb-19-4"]);

    // A claim that is being prepared right now has it.
    let reference = claim("train").reference();
    let record = serde_json::json!({
        "version": 1, "claim": reference, "phase": "preparing",
        "bootId": "11111111-2222-3333-4444-555555555555", "devices": [],
        "steps": [{
            "step": "createPartition", "gpu": gpu_uuid(0), "switchMode": true,
            "partition": {"profileId": 19, "placement": {"start": 4, "size": 1}},
        }],
    });
    let file = format!("/journal/{}.json", reference.uid);
    let mut surveyor = surveyor(&gpus, &files);
    files.replace(file.as_ref(), record.to_string().as_bytes(), 0o600).unwrap();
    let ours = surveyor.look().unwrap();
    let all = ["gpu-0", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-1g10gb-19-6", "gpu-0-monitor"];
    assert_eq!(kinds(&ours), all);
}
