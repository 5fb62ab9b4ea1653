//! Device nodes: missing, wrong, made, simulated.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use gpu_dra_driverroot::{DeviceNodes, Node, NodeError};
use gpu_dra_model::ids::Minor;
use gpu_dra_sim_data::{self as sim, Layout};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::support::{Staged, is_root};

fn paths(nodes: &[Node]) -> Vec<String> {
    nodes
        .iter()
        .map(|node| match node {
            Node::Char(node) => format!("{} {}:{}", node.path, node.major, node.minor),
            Node::PlainFile(file) => format!("{} plain", file.container_path),
        })
        .collect()
}

#[test]
fn real_nodes_are_found_with_their_numbers() {
    if !is_root("real_nodes_are_found_with_their_numbers") {
        return;
    }
    for layout in [Layout::Host, Layout::GpuOperator] {
        let staged = Staged::new(layout, sim::DeviceNodes::Real);
        let finder = staged.finder(DeviceNodes::MustExist);
        let common = finder.common().unwrap();
        assert_eq!(
            paths(&common.nodes),
            [
                "/dev/nvidiactl 195:255",
                "/dev/nvidia-uvm 510:0",
                "/dev/nvidia-uvm-tools 510:1",
                "/dev/nvidia-modeset 195:254",
            ]
        );
        assert!(common.absent.is_empty());
        let pci = &staged.pci()[1];
        let gpu = finder.gpu(Minor(1), pci).unwrap();
        assert_eq!(
            paths(&gpu.nodes),
            ["/dev/nvidia1 195:1", "/dev/dri/card2 226:2", "/dev/dri/renderD129 226:129"]
        );
        let links: Vec<_> = gpu.links.iter().map(|l| (l.target.as_str(), l.path.clone())).collect();
        assert_eq!(
            links,
            [
                ("../card2", format!("/dev/dri/by-path/pci-{pci}-card")),
                ("../renderD129", format!("/dev/dri/by-path/pci-{pci}-render")),
            ]
        );
        let Node::Char(node) = &gpu.nodes[0] else { panic!("a device") };
        let expected = if layout == Layout::Host { "" } else { "/run/nvidia/driver" };
        assert_eq!(node.host_path, format!("{expected}/dev/nvidia1"));
        assert_eq!((node.mode, node.uid, node.gid), (0o666, 0, 0));
    }
}

/// Field report N03: on a fresh node no program of the driver has made its nodes yet.
#[test]
fn n03_missing_at_the_first_prepare_and_there_at_the_second() {
    if !is_root("n03_missing_at_the_first_prepare_and_there_at_the_second") {
        return;
    }
    let staged = Staged::new(Layout::GpuOperator, sim::DeviceNodes::Real);
    let finder = staged.finder(DeviceNodes::MustExist);
    let path = staged.node.dev_root.join("dev/nvidia0");
    fs::remove_file(&path).unwrap();
    let error = finder.gpu(Minor(0), &staged.pci()[0]).unwrap_err();
    assert!(matches!(error, NodeError::Missing { .. }));
    let text = error.to_string();
    assert!(text.contains("/run/nvidia/driver/dev/nvidia0"), "{text}");
    assert!(text.contains("nvidia-modprobe"), "{text}");
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::RWXU, makedev(195, 0)).unwrap();
    assert!(finder.gpu(Minor(0), &staged.pci()[0]).is_ok());
}

#[test]
fn n03_missing_nodes_are_made_by_the_drivers_rules() {
    if !is_root("n03_missing_nodes_are_made_by_the_drivers_rules") {
        return;
    }
    let staged = Staged::new(Layout::GpuOperator, sim::DeviceNodes::Real);
    let dev = staged.node.dev_root.join("dev");
    fs::remove_dir_all(&dev).unwrap();
    fs::create_dir(&dev).unwrap();
    let params = staged.node.proc_root.join("driver/nvidia/params");
    let finder = staged.finder(DeviceNodes::CreateMissing);

    fs::write(&params, "ModifyDeviceFiles: 0\n").unwrap();
    assert!(matches!(finder.common(), Err(NodeError::CreationForbidden { .. })));

    fs::write(&params, "ModifyDeviceFiles: 1\nDeviceFileGID: 44\nDeviceFileMode: 432\n").unwrap();
    assert_eq!(finder.common().unwrap().absent, ["/dev/nvidia-modeset"], "optional");
    let gpu = finder.gpu(Minor(1), &staged.pci()[1]).unwrap();
    assert_eq!(paths(&gpu.nodes), ["/dev/nvidia1 195:1"]);
    assert_eq!(gpu.absent, ["/dev/dri/card2", "/dev/dri/renderD129"]);
    let made = fs::metadata(dev.join("nvidia1")).unwrap();
    assert!(made.file_type().is_char_device());
    assert_eq!((made.gid(), made.permissions().mode() & 0o777), (44, 0o660));
    assert!(!dev.join("nvidia0").exists(), "only what is asked for");

    fs::remove_file(&params).unwrap();
    finder.gpu(Minor(0), &staged.pci()[0]).unwrap();
    let made = fs::metadata(dev.join("nvidia0")).unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o666);
}

#[test]
fn nodes_of_another_device_are_refused() {
    if !is_root("nodes_of_another_device_are_refused") {
        return;
    }
    let staged = Staged::new(Layout::Host, sim::DeviceNodes::Real);
    let dev = staged.node.dev_root.join("dev");
    fs::rename(dev.join("nvidia1"), dev.join("nvidia0")).unwrap();
    let finder = staged.finder(DeviceNodes::CreateMissing);
    let error = finder.gpu(Minor(0), &staged.pci()[0]).unwrap_err();
    assert!(
        matches!(error, NodeError::WrongNumbers { found: (195, 1), wanted: (195, 0), .. }),
        "{error}"
    );
    assert!(error.to_string().len() < 200, "{error}");
    // The module was loaded again and got another major number.
    let devices = staged.node.proc_root.join("devices");
    let text = fs::read_to_string(&devices).unwrap().replace("510 nvidia-uvm", "509 nvidia-uvm");
    fs::write(&devices, text).unwrap();
    assert!(matches!(finder.common(), Err(NodeError::WrongNumbers { wanted: (509, 0), .. })));
    fs::write(&devices, "Character devices:\n195 nvidia\n\nBlock devices:\n").unwrap();
    assert!(matches!(finder.common(), Err(NodeError::UvmNotLoaded)));
}

#[test]
fn plain_files_stand_for_devices_only_where_that_is_set() {
    let staged = Staged::plain(Layout::Host);
    let finder = staged.finder(DeviceNodes::AllowPlainFiles);
    let pci = &staged.pci()[0];
    assert_eq!(
        paths(&finder.gpu(Minor(0), pci).unwrap().nodes),
        ["/dev/nvidia0 plain", "/dev/dri/card1 plain", "/dev/dri/renderD128 plain"]
    );
    assert_eq!(finder.common().unwrap().nodes.len(), 4);
    for policy in [DeviceNodes::MustExist, DeviceNodes::CreateMissing] {
        let error = staged.finder(policy).gpu(Minor(0), pci).unwrap_err();
        assert!(matches!(error, NodeError::NotADevice { .. }), "{error}");
    }
    assert!(matches!(finder.gpu(Minor(5), pci), Err(NodeError::Missing { .. })));
}
