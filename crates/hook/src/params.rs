//! The action `disable-device-node-modification`.
//!
//! NVML and CUDA make the device nodes of every GPU that the kernel has when they start, if
//! they may (containers have CAP_MKNOD by default). The device cgroup still keeps the other
//! GPUs away, but their nodes appear. The libraries ask `/proc/driver/nvidia/params` whether
//! nodes are theirs to make; the container sees a copy that says no.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::Warning;
use crate::inroot::{InRoot, Mounts};

const FOLDER: &str = "proc/driver/nvidia";
const PARAMS: &str = "params";
const MODIFY: &str = "ModifyDeviceFiles:";

/// A failure is a warning: the container is no less contained without this.
pub(crate) fn disable_modification(root: &InRoot) -> Vec<Warning> {
    match cover_params(root) {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!("/{FOLDER}/{PARAMS} left as it is: {error}")],
    }
}

fn cover_params(root: &InRoot) -> io::Result<()> {
    let path = Path::new(FOLDER).join(PARAMS);
    let mut text = String::new();
    match root.read(&path) {
        Ok(file) => file.take(64 * 1024).read_to_string(&mut text)?,
        // No driver is loaded, or the runtime hides it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(changed) = without_modification(&text) else { return Ok(()) };
    let folder = root.folder(Path::new(FOLDER), Mounts::Cross)?;
    let target = root.find(&path)?;
    let cover = file_on_tmpfs(&folder, &changed)?;
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&cover, "", target, "", onto)?)
}

/// The parameters with the answer "no"; `None` where that is the answer already.
fn without_modification(params: &str) -> Option<String> {
    let is_no = |line: &str| line.strip_prefix(MODIFY).is_some_and(|value| value.trim() == "0");
    if params.lines().any(is_no) {
        return None;
    }
    let others = params.lines().filter(|line| !line.starts_with(MODIFY));
    let lines: String = others.flat_map(|line| [line, "\n"]).collect();
    Some(format!("{lines}{MODIFY} 0\n"))
}

/// A mount of one read-only file. Its tmpfs lies on `folder` for a moment, since older
/// kernels copy nothing out of a mount that isn't in the tree.
fn file_on_tmpfs(folder: &OwnedFd, content: &str) -> io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "mode", "0755")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tmpfs = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&tmpfs, PARAMS, flags, Mode::from_raw_mode(0o444))?;
    File::from(file).write_all(content.as_bytes())?;

    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tmpfs, "", folder, "", onto)?;
    let copy = open_tree(
        &tmpfs,
        PARAMS,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    );
    // Off again whether or not the copy was had.
    unmount(format!("/proc/self/fd/{}", tmpfs.as_raw_fd()), UnmountFlags::DETACH)?;
    Ok(copy?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_answer_is_changed() {
        let params = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        let changed = "ResmanDebugLevel: 4294967295\nDeviceFileUID: 0\nModifyDeviceFiles: 0\n";
        assert_eq!(without_modification(params).as_deref(), Some(changed));
        assert_eq!(without_modification(changed), None);
        assert_eq!(without_modification("").as_deref(), Some("ModifyDeviceFiles: 0\n"));
    }
}
