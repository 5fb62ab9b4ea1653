//! Makes a missing device node of the driver, by the rules that nvidia-modprobe follows.
//! The numbers come from the kernel, never from a guess.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use gpu_dra_hook::inroot::Mounts;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};

use crate::error::NodeError;
use crate::kernel::{DeviceFileRules, device_file_rules};
use crate::nodes::{Dev, Numbers};

/// The folder of capability nodes below `dev`.
pub(crate) const CAPABILITIES: &str = "nvidia-caps";

/// Makes `dev/<name>`. One that appears meanwhile is left as it is: the caller looks again.
pub(crate) fn node(dev: &Dev, name: &str, numbers: Numbers, proc: &Path) -> Result<(), NodeError> {
    let path = dev.host_path(name);
    let rules = rules(proc)?;
    if !rules.modify {
        return Err(NodeError::CreationForbidden { path });
    }
    let made = dev
        .tree
        .folder(Path::new("dev"), Mounts::Cross)
        .and_then(|folder| make(&folder, name, numbers, rules));
    made.map_err(|source| NodeError::Create { path, source })
}

/// Makes `dev/nvidia-caps/<name>` and its folder, owned by root and with the mode that the
/// driver says for this capability.
pub(crate) fn capability(
    dev: &Dev,
    name: &str,
    numbers: Numbers,
    mode: u32,
) -> Result<(), NodeError> {
    let rules = DeviceFileRules { mode, ..DeviceFileRules::default() };
    let made = capabilities_folder(dev).and_then(|folder| make(&folder, name, numbers, rules));
    made.map_err(|source| NodeError::Create {
        path: dev.host_path(&format!("{CAPABILITIES}/{name}")),
        source,
    })
}

fn capabilities_folder(dev: &Dev) -> io::Result<OwnedFd> {
    let above = dev.tree.folder(Path::new("dev"), Mounts::Cross)?;
    let mode = Mode::from_raw_mode(0o755);
    match rustix::fs::mkdirat(&above, CAPABILITIES, mode) {
        // The umask cuts the mode.
        Ok(()) => rustix::fs::chmodat(&above, CAPABILITIES, mode, AtFlags::empty())?,
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    dev.tree.folder(&Path::new("dev").join(CAPABILITIES), Mounts::Cross)
}

fn make(folder: &OwnedFd, name: &str, numbers: Numbers, rules: DeviceFileRules) -> io::Result<()> {
    let device = rustix::fs::makedev(numbers.major, numbers.minor);
    // Private until its owner and mode are right: the umask would cut the mode anyway.
    match rustix::fs::mknodat(folder, name, FileType::CharacterDevice, Mode::empty(), device) {
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        result => result?,
    }
    let (uid, gid) = (Uid::from_raw(rules.uid), Gid::from_raw(rules.gid));
    rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::chmodat(folder, name, Mode::from_raw_mode(rules.mode), AtFlags::empty())?;
    Ok(())
}

fn rules(proc: &Path) -> Result<DeviceFileRules, NodeError> {
    let path: PathBuf = proc.join("driver/nvidia/params");
    match std::fs::read_to_string(&path) {
        Ok(params) => Ok(device_file_rules(&params)),
        // Hidden in some containers; then the driver's defaults hold.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DeviceFileRules::default()),
        Err(source) => Err(NodeError::Io { path, source }),
    }
}
