//! The staged trees, with a file in the library's place.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use super::*;
use crate::trailer;

fn staged(spec: &str, dir: &Path, layout: Layout, device_nodes: DeviceNodes) -> StagedNode {
    let lib = dir.join("built.so");
    fs::write(&lib, "stands for the library").unwrap();
    let root = dir.join("root");
    let options = StageOptions { dir: &root, lib: &lib, programs: None, device_nodes, layout };
    stage(&NodeSpec::parse(spec).unwrap(), &options).unwrap()
}

#[test]
fn each_layout_puts_the_driver_where_its_hosts_have_it() {
    for (layout, driver_root, library) in [
        (Layout::Host, "", "usr/lib"),
        (Layout::GpuOperator, "run/nvidia/driver", "usr/lib64"),
        (Layout::Gke, "home/kubernetes/bin/nvidia", "lib64"),
        (Layout::Bottlerocket, "", "bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let node = staged("2xl4", dir.path(), layout, DeviceNodes::PlainFiles);
        assert_eq!(node.driver_root, node.host_root.join(driver_root));
        let below = node.library.strip_prefix(&node.driver_root).unwrap().to_str().unwrap();
        assert!(below.contains(library), "{layout:?}: {below}");
        assert!(node.dev_root.join("dev/nvidiactl").is_file(), "{layout:?}");
        assert!(node.sysfs_root.join("bus/pci/devices").is_dir());
        let found = StateDir::near(&node.library).unwrap();
        assert_eq!(
            found.path().canonicalize().unwrap(),
            node.state_dir.path().canonicalize().unwrap()
        );
        let described = found.node().unwrap();
        let proc_root = found.path().join(&described.proc_root).canonicalize().unwrap();
        assert_eq!(proc_root, node.proc_root.canonicalize().unwrap(), "{layout:?}");
        let dev = found.path().join(&described.dev_root).canonicalize().unwrap();
        assert_eq!(dev, node.dev_root.join("dev").canonicalize().unwrap(), "{layout:?}");
        let carried = trailer::read(&node.library).unwrap().unwrap();
        assert_eq!(carried, described, "{layout:?}");
    }
}

#[test]
fn links_lead_from_sonames_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let node = staged("l4:driver=570.124.06", dir.path(), Layout::Host, DeviceNodes::PlainFiles);
    let folder = node.library.parent().unwrap();
    for (link, file) in [
        ("libnvidia-ml.so.1", "libnvidia-ml.so.570.124.06"),
        ("libcuda.so", "libcuda.so.570.124.06"),
        ("libnvidia-nvvm.so.4", "libnvidia-nvvm.so.570.124.06"),
        ("libGLX_nvidia.so.0", "libGLX_nvidia.so.570.124.06"),
        ("libnvidia-egl-gbm.so.1", "libnvidia-egl-gbm.so.1.1.2"),
    ] {
        let real = folder.join(link).canonicalize().unwrap();
        assert_eq!(real.file_name().unwrap().to_str(), Some(file), "{link}");
    }
    assert!(folder.join("vdpau/libvdpau_nvidia.so.1").exists());
    let firmware = node.driver_root.join("lib/firmware/nvidia/570.124.06/gsp_ga10x.bin");
    assert!(firmware.is_file());
}

#[test]
fn a_node_can_be_staged_twice_over_itself() {
    let dir = tempfile::tempdir().unwrap();
    staged("2xh100", dir.path(), Layout::Host, DeviceNodes::PlainFiles);
    let node = staged("2xh100", dir.path(), Layout::Host, DeviceNodes::PlainFiles);
    assert_eq!(node.state_dir.node().unwrap().gpus.len(), 2);
}

#[test]
fn real_device_nodes_are_character_devices() {
    if !rustix::process::geteuid().is_root() {
        // Past the capture of output, so that CI sees it.
        io::stderr().write_all(b"SKIPPED: making device nodes needs root\n").unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = staged("2xh100:mig=on", dir.path(), Layout::Host, DeviceNodes::Real);
    let check = |name: &str, major: u32, minor: u32| {
        let data = fs::metadata(node.dev_root.join("dev").join(name)).unwrap();
        assert!(data.file_type().is_char_device(), "{name}");
        assert_eq!(data.rdev(), rustix::fs::makedev(major, minor), "{name}");
    };
    check("nvidia1", 195, 1);
    check("nvidiactl", 195, 255);
    check("nvidia-uvm", 510, 0);
    check("nvidia-caps/nvidia-cap1", 236, 1);
    check("dri/renderD129", 226, 129);
    node.state_dir
        .update(|described, state| {
            let table = described.gpus[0].model.mig.clone().unwrap();
            state.gpus[0].create_gpu_instance(&table, 9, None).unwrap();
            Ok::<_, StateError>(())
        })
        .unwrap();
    // GPU instance 1 of minor 0.
    check("nvidia-caps/nvidia-cap12", 236, 12);
}

#[test]
fn a_missing_library_is_named_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let options = StageOptions {
        dir: dir.path(),
        lib: Path::new("/nowhere/libnvml_sim.so"),
        programs: None,
        device_nodes: DeviceNodes::PlainFiles,
        layout: Layout::Host,
    };
    let error = stage(&NodeSpec::parse("l4").unwrap(), &options).unwrap_err().to_string();
    assert!(error.contains("/nowhere/libnvml_sim.so") && error.contains("cargo build"), "{error}");
}
