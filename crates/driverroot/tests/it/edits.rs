//! What was found, as the spec that a runtime reads.

use std::path::Path;

use gpu_dra_cdi::{ContainerEdits, Spec, SpecDevice, claim_spec};
use gpu_dra_driverroot::{DeviceNodes, DriverFiles, Hook, common_edits, gpu_edits};
use gpu_dra_model::ids::{ClaimUid, DeviceName, DriverName, Minor};
use gpu_dra_sim_data::{self as sim, Layout};

use crate::support::{Staged, VERSION, is_root};

/// The claim of the second of the node's GPUs.
pub(crate) fn spec(staged: &Staged, policy: DeviceNodes, hook: &Hook) -> Spec<'static> {
    let finder = staged.finder(policy);
    let files = DriverFiles::collect(&finder.root, VERSION).unwrap();
    let common = common_edits(&files, &finder.common().unwrap(), hook);
    let gpu = SpecDevice {
        device: DeviceName::new("gpu-1").unwrap(),
        share: None,
        edits: gpu_edits(&finder.gpu(Minor(1), &staged.pci()[1]).unwrap(), hook),
    };
    let claim = ClaimUid::new("3f6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap();
    let driver = DriverName::new("gpu.nvidia.com").unwrap();
    claim_spec(&driver, &claim, vec![gpu].leak(), Box::leak(Box::new(common))).unwrap()
}

/// The whole spec of a simulated node, recorded. After a wanted change run with
/// `UPDATE_GOLDEN=1` and read the difference.
#[test]
fn golden_spec_of_a_gpu_operator_node() {
    let staged = Staged::plain(Layout::GpuOperator);
    let spec = spec(&staged, DeviceNodes::AllowPlainFiles, &staged.hook());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gpu-operator-plain.json");
    let bytes = spec.to_bytes().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), std::fs::read_to_string(&path).unwrap());
}

/// Field report P07: somebody runs an MPS daemon by hand where CUDA looks for one. It isn't
/// given to containers: what a claim shares, it shares through a daemon of its own.
#[test]
fn p07_the_hosts_own_mps_daemon_changes_nothing() {
    let staged = Staged::plain(Layout::Host);
    let hook = staged.hook();
    let before = spec(&staged, DeviceNodes::AllowPlainFiles, &hook);
    let pipe = staged.node.driver_root.join("tmp/nvidia-mps");
    std::fs::create_dir_all(&pipe).unwrap();
    let _daemon = std::os::unix::net::UnixListener::bind(pipe.join("control")).unwrap();
    assert_eq!(spec(&staged, DeviceNodes::AllowPlainFiles, &hook), before);
    let mounts = before.all_edits().flat_map(|edits| &edits.mounts);
    let shadowed = |at: &str| at.starts_with("/tmp") || at.starts_with("/dev/shm");
    assert!(mounts.into_iter().all(|mount| !shadowed(&mount.container_path)));
}

/// Field reports P03 and P08: every node with type, numbers and permissions, so that
/// systemd keeps it after a daemon-reload; and nothing for nvidia-container-runtime to add.
#[test]
fn p03_p08_nodes_are_complete_and_the_runtime_adds_nothing() {
    if !is_root("p03_p08_nodes_are_complete_and_the_runtime_adds_nothing") {
        return;
    }
    let staged = Staged::new(Layout::Host, sim::DeviceNodes::Real);
    let spec = spec(&staged, DeviceNodes::MustExist, &staged.hook());
    assert_eq!(spec.container_edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
    let nodes: Vec<_> = spec.all_edits().flat_map(|edits| &edits.device_nodes).collect();
    let listed: Vec<_> =
        nodes.iter().map(|n| (n.path.as_str(), n.major, n.minor, n.file_mode.unwrap())).collect();
    assert_eq!(
        listed,
        [
            ("/dev/nvidia-modeset", 195, 254, 0o666),
            ("/dev/nvidia-uvm", 510, 0, 0o666),
            ("/dev/nvidia-uvm-tools", 510, 1, 0o666),
            ("/dev/nvidiactl", 195, 255, 0o666),
            // 0660 on the host.
            ("/dev/dri/card2", 226, 2, 0o666),
            ("/dev/dri/renderD129", 226, 129, 0o666),
            ("/dev/nvidia1", 195, 1, 0o666),
        ]
    );
    assert!(nodes.iter().all(|node| node.permissions.as_deref() == Some("rwm")));
    assert!(nodes.iter().all(|node| node.host_path.is_none()), "the host's own /dev");
    assert_eq!(spec.cdi_version.to_string(), "0.5.0");
}

/// An administrator who gave the nodes to a group means it: the container's processes get
/// the group, at the price of CDI 0.7.
#[test]
fn a_restricted_node_brings_its_group() {
    if !is_root("a_restricted_node_brings_its_group") {
        return;
    }
    let staged = Staged::new(Layout::Host, sim::DeviceNodes::Real);
    let node = staged.node.dev_root.join("dev/nvidia1");
    std::os::unix::fs::chown(&node, None, Some(44)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    std::fs::set_permissions(&node, mode).unwrap();
    let spec = spec(&staged, DeviceNodes::MustExist, &staged.hook());
    let edits: &ContainerEdits = &spec.devices[0].container_edits;
    assert_eq!(edits.additional_gids, [44]);
    let gpu = edits.device_nodes.iter().find(|node| node.path == "/dev/nvidia1").unwrap();
    assert_eq!((gpu.gid, gpu.file_mode), (Some(44), Some(0o660)));
    assert_eq!(spec.cdi_version.to_string(), "0.7.0");
}

/// Field report N35: a hook that isn't on the host fails every container start.
#[test]
fn n35_a_missing_hook_is_an_error_before_any_spec() {
    let staged = Staged::plain(Layout::Host);
    let here = staged.dir.path().join("hook");
    let host = Path::new("/var/lib/kubelet/plugins/gpu.nvidia.com/gpu-dra-hook");
    assert!(Hook::find(host, &here).unwrap_err().to_string().contains("install"));
    std::fs::write(&here, "").unwrap();
    assert!(Hook::find(host, &here).is_err(), "not executable");
    assert!(Hook::find(host, staged.dir.path()).is_err(), "a folder");
}
