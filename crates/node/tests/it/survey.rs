//! Looking at the GPUs: what is news, and what a driver that doesn't answer changes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gpu_dra_host::Files as _;
use gpu_dra_host::sim::SimFiles;
use gpu_dra_model::inventory::{DriverVersions, Mig};
use gpu_dra_model::{BootId, Gpu, GpuUuid, Inventory, Minor, PciBusId, PoolName};
use gpu_dra_node::survey::{Survey, Surveyor};
use gpu_dra_nvml::{ComputeMode, Fingerprint, GpuError, Gpus, OpenError};
use gpu_dra_testkit::{POOL, gpu_uuid};

/// GPUs as a test sets them; None is a driver that isn't loaded.
#[derive(Default)]
struct FakeGpus(Mutex<Option<Inventory>>);

impl FakeGpus {
    fn are(&self, gpus: &[(u32, u32)]) {
        let gpus = gpus.iter().map(|&(uuid, minor)| gpu(uuid, minor)).collect();
        let driver = DriverVersions { driver: "580.105.08".into(), ..DriverVersions::default() };
        *self.0.lock().unwrap() = Some(Inventory { driver, gpus, broken: Vec::new() });
    }

    fn gone(&self) {
        *self.0.lock().unwrap() = None;
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
}

fn surveyor(gpus: &Arc<FakeGpus>, files: &Arc<SimFiles>) -> Surveyor {
    Surveyor::new(
        Arc::<FakeGpus>::clone(gpus),
        Arc::<SimFiles>::clone(files),
        PathBuf::from("/names.json"),
        PoolName::new(POOL).unwrap(),
        BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
    )
    .unwrap()
}

fn names(survey: &Survey) -> Vec<(String, GpuUuid)> {
    survey
        .view
        .devices
        .iter()
        .map(|(name, device)| (name.to_string(), device.gpu.clone()))
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
    assert_eq!(names(&surveyor.look().unwrap()).len(), 1);
    assert_eq!(surveyor.look(), None);
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
    assert!(empty.view.devices.is_empty() && empty.trouble.unwrap().contains("modprobe"));
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
