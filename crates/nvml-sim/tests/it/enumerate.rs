//! Whole GPUs through nvml-wrapper, against the node's data.

use gpu_dra_sim_data::{Layout, NodeType};
use nvml_wrapper::error::NvmlError;

use crate::support::Machine;

#[test]
fn every_type_is_what_its_data_says() {
    for name in NodeType::all().keys() {
        let machine = Machine::new(&format!("2x{name}"));
        let nvml = machine.nvml();
        let node = machine.node.state_dir.node().unwrap();
        assert_eq!(nvml.sys_driver_version().unwrap(), node.driver.version);
        assert_eq!(nvml.sys_nvml_version().unwrap(), node.driver.nvml());
        assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13000);
        assert_eq!(nvml.device_count().unwrap(), 2);
        for (index, gpu) in (0..).zip(&node.gpus) {
            let device = nvml.device_by_index(index).unwrap();
            assert_eq!(device.index().unwrap(), index);
            assert_eq!(device.name().unwrap(), gpu.model.name);
            assert_eq!(device.uuid().unwrap(), gpu.uuid);
            assert_eq!(device.serial().unwrap(), gpu.serial);
            assert_eq!(device.minor_number().unwrap(), gpu.minor);
            let pci = device.pci_info().unwrap();
            assert_eq!(pci.bus_id, gpu.place.pci.nvml());
            assert_eq!(pci.pci_device_id, gpu.model.pci.device.0 << 16 | 0x10de);
            let capability = device.cuda_compute_capability().unwrap();
            assert_eq!(capability.major, gpu.model.compute_capability.major);
            device.architecture().unwrap();
            device.brand().unwrap();
            match (device.memory_info(), gpu.model.memory) {
                (Ok(info), Some(memory)) => assert_eq!(info.total, memory.total_mib << 20),
                (Err(NvmlError::NotSupported), None) => {}
                other => panic!("{name}: {other:?}"),
            }
            match (device.mig_mode(), &gpu.model.mig) {
                (Ok(mode), Some(_)) => assert_eq!((mode.current, mode.pending), (0, 0)),
                (Err(NvmlError::NotSupported), None) => {}
                other => panic!("{name}: {other:?}"),
            }
            for found in [
                nvml.device_by_uuid(gpu.uuid.as_str()),
                nvml.device_by_pci_bus_id(gpu.place.pci.to_string()),
                nvml.device_by_pci_bus_id(gpu.place.pci.nvml()),
            ] {
                assert_eq!(found.unwrap().index().unwrap(), index, "{name}");
            }
        }
        assert!(matches!(nvml.device_by_index(2), Err(NvmlError::InvalidArg)));
        assert!(matches!(nvml.device_by_uuid("GPU-nothing"), Err(NvmlError::NotFound)));
    }
}

#[test]
fn the_library_finds_its_node_in_every_layout() {
    for layout in [Layout::Host, Layout::GpuOperator, Layout::Gke, Layout::Bottlerocket] {
        let machine = Machine::with_layout("3xl4", layout);
        assert_eq!(machine.nvml().device_count().unwrap(), 3, "{layout:?}");
        let dev = machine.node.dev_root.join("dev/nvidia2");
        let text = std::fs::read_to_string(&dev).unwrap();
        assert_eq!(text, "simulated device node /dev/nvidia2, c 195:2\n");
    }
}

/// As in a container that got the libraries by CDI and one GPU.
#[test]
fn alone_in_a_container_the_library_knows_its_node_and_shows_what_it_may() {
    let machine = Machine::new("4xh100");
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("libnvidia-ml.so.1");
    std::fs::copy(&machine.node.library, &copy).unwrap();
    let nvml = nvml_wrapper::Nvml::builder().lib_path(copy.as_os_str()).init().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.105.08");
    let here = (0..4).filter(|minor| std::path::Path::new(&format!("/dev/nvidia{minor}")).exists());
    assert_eq!(nvml.device_count().unwrap() as usize, here.count());
}

#[test]
fn handles_that_were_never_given_are_refused() {
    let machine = Machine::new("t4");
    let nvml = machine.nvml();
    let stranger = 0x1234 as nvml_wrapper_sys::bindings::nvmlDevice_t;
    // SAFETY: the library must not look behind a handle that it didn't give.
    let device = unsafe { nvml_wrapper::Device::new(stranger, &nvml) };
    assert!(matches!(device.name(), Err(NvmlError::InvalidArg)));
}

#[test]
fn sysfs_and_nvml_agree() {
    let machine = Machine::new("8xh100+2xgb10");
    let nvml = machine.nvml();
    for index in 0..10 {
        let device = nvml.device_by_index(index).unwrap();
        let bus_id = device.pci_info().unwrap().bus_id.to_lowercase();
        let sysfs = machine.node.sysfs_root.join("bus/pci/devices").join(&bus_id[4..]);
        let real = sysfs.canonicalize().unwrap();
        let root =
            real.strip_prefix(machine.node.sysfs_root.join("devices").canonicalize().unwrap());
        let root = root.unwrap().iter().next().unwrap().to_str().unwrap().to_owned();
        assert!(root.starts_with("pci0"), "{root}");
        let numa = std::fs::read_to_string(sysfs.join("numa_node")).unwrap();
        let expected = if device.name().unwrap().contains("GB10") { "-1\n" } else { numa.as_str() };
        assert_eq!(numa, expected);
        assert!(sysfs.join("drm").read_dir().unwrap().count() == 2);
        assert!(sysfs.join("driver").canonicalize().unwrap().ends_with("bus/pci/drivers/nvidia"));
        let information = machine.node.proc_root.join("driver/nvidia/gpus").join(&bus_id[4..]);
        let text = std::fs::read_to_string(information.join("information")).unwrap();
        assert!(text.contains(&device.uuid().unwrap()));
    }
}

#[test]
fn the_loader_takes_every_library_of_the_driver() {
    let machine = Machine::new("l4");
    let folder = machine.node.library.parent().unwrap();
    let mut loaded = 0;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.contains(".so") && !name.starts_with("libnvidia-ml") {
            // SAFETY: these libraries have no code at all.
            let library = unsafe { libloading::Library::new(&path) };
            assert!(library.is_ok(), "{name}: {:?}", library.err());
            loaded += 1;
        }
    }
    assert!(loaded > 60, "{loaded}");
}

#[test]
fn the_environment_names_another_node() {
    let (here, there) = (Machine::new("l4"), Machine::new("3xt4"));
    let output = std::process::Command::new(here.program("nvidia-smi"))
        .arg("-L")
        .env(gpu_dra_sim_data::STATE_ENV, there.node.state_dir.path())
        .output()
        .unwrap();
    let (code, text) = crate::support::finished(output);
    assert_eq!((code, text.lines().count()), (0, 3), "{text}");
    let output = std::process::Command::new(here.program("nvidia-smi"))
        .arg("-L")
        .env(gpu_dra_sim_data::STATE_ENV, "/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(9));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere has no node.json"));
}
