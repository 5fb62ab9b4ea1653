//! `/dev` of the staged machine: real character devices, or plain files that say what they
//! stand for.
//!
//! The numbers are those that drivers use; without a driver a real node leads nowhere.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde::{Deserialize, Serialize};

use super::{StageError, Tree, make};
use crate::node::Node;
use crate::state_dir::{StateError, io_error};

/// Major of `/dev/nvidiaN`, `nvidiactl` and `nvidia-modeset`.
pub(crate) const MAJOR_NVIDIA: u32 = 195;
/// Major of `/dev/nvidia-uvm` and its tools; the kernel chooses it, this is a usual one.
pub(crate) const MAJOR_UVM: u32 = 510;
/// Major of `/dev/nvidia-caps/*`; the kernel chooses it, this is a usual one.
pub(crate) const MAJOR_CAPS: u32 = 236;
/// Major of `/dev/dri/*`.
pub(crate) const MAJOR_DRM: u32 = 226;

/// What stands in `/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceNodes {
    /// Files with one line of text; no privilege needed.
    #[default]
    PlainFiles,
    /// Character devices; needs root.
    Real,
}

pub(crate) fn write(tree: &Tree<'_>, node: &Node) -> Result<(), StageError> {
    let make_node = |name: &str, major, minor, mode| {
        let path = tree.parented(&format!("dev/{name}"))?;
        device(node.device_nodes, &path, name, (major, minor), mode)
    };
    make_node("nvidiactl", MAJOR_NVIDIA, 255, 0o666)?;
    make_node("nvidia-modeset", MAJOR_NVIDIA, 254, 0o666)?;
    make_node("nvidia-uvm", MAJOR_UVM, 0, 0o666)?;
    make_node("nvidia-uvm-tools", MAJOR_UVM, 1, 0o666)?;
    for (gpu, drm) in node.gpus.iter().zip(0..) {
        make_node(&format!("nvidia{}", gpu.minor), MAJOR_NVIDIA, gpu.minor, 0o666)?;
        let (card, render) = drm_names(drm);
        make_node(&format!("dri/{card}"), MAJOR_DRM, drm + 1, 0o660)?;
        make_node(&format!("dri/{render}"), MAJOR_DRM, drm + 128, 0o666)?;
        let pci = gpu.place.pci;
        tree.link(&format!("dev/dri/by-path/pci-{pci}-card"), &format!("../{card}"))?;
        tree.link(&format!("dev/dri/by-path/pci-{pci}-render"), &format!("../{render}"))?;
    }
    if node.gpus.iter().any(|gpu| gpu.model.mig.is_some()) {
        make_node("nvidia-caps/nvidia-cap1", MAJOR_CAPS, 1, 0o400)?;
        make_node("nvidia-caps/nvidia-cap2", MAJOR_CAPS, 2, 0o444)?;
    }
    Ok(())
}

/// The DRM names of the nth GPU; card0 is the display of the machine's own controller.
pub(crate) fn drm_names(nth: u32) -> (String, String) {
    (format!("card{}", nth + 1), format!("renderD{}", nth + 128))
}

/// The node of a MIG capability; `dev` stands for `/dev`.
pub(crate) fn make_capability(dev: &Path, node: &Node, minor: u32) -> Result<(), StateError> {
    let name = format!("nvidia-caps/nvidia-cap{minor}");
    let path = dev.join(&name);
    let folder = dev.join("nvidia-caps");
    fs::create_dir_all(&folder).map_err(|source| io_error("create", &folder, source))?;
    match device(node.device_nodes, &path, &name, (MAJOR_CAPS, minor), 0o444) {
        Err(StageError::Mknod { source, .. } | StageError::Make { source, .. }) => {
            Err(io_error("make device node", &path, source))
        }
        _ => Ok(()),
    }
}

/// Makes a node unless one is there; the folder is.
fn device(
    kind: DeviceNodes,
    path: &Path,
    name: &str,
    (major, minor): (u32, u32),
    mode: u32,
) -> Result<(), StageError> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    match kind {
        DeviceNodes::PlainFiles => {
            let text = format!("simulated device node /dev/{name}, c {major}:{minor}\n");
            fs::write(path, text).map_err(make(path))
        }
        DeviceNodes::Real => {
            let mknod = |source: rustix::io::Errno| StageError::Mknod {
                path: path.to_owned(),
                source: source.into(),
            };
            let bits = Mode::from_raw_mode(mode);
            mknodat(CWD, path, FileType::CharacterDevice, bits, makedev(major, minor))
                .map_err(mknod)?;
            // mknod's mode goes through the umask.
            rustix::fs::chmod(path, bits).map_err(mknod)
        }
    }
}
