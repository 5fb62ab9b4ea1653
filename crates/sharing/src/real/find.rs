//! Processes that use a daemon's pipe directory, whoever started them: found by their
//! environment, which control daemons pass on to their servers.
//!
//! A pid file is never believed. A process in a container is never ours, whatever its
//! environment says: it has another root directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::process::RealProcess;

pub(super) fn using_pipe(pipe: &Path) -> io::Result<Vec<RealProcess>> {
    let mut entry = b"CUDA_MPS_PIPE_DIRECTORY=".to_vec();
    entry.extend_from_slice(pipe.as_os_str().as_bytes());
    let root = fs::metadata("/")?;
    let root = (root.dev(), root.ino());
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")? {
        let name = process?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() || !uses(pid, &entry, root) {
            continue;
        }
        // Looked at again once it is held: before, the number may have been given away.
        if let Some(process) = RealProcess::open(pid)?
            && uses(pid, &entry, root)
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// A process that can't be looked at is gone, or none of ours.
fn uses(pid: u32, entry: &[u8], root: (u64, u64)) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry)
        && fs::metadata(format!("/proc/{pid}/root")).is_ok_and(|of| (of.dev(), of.ino()) == root)
}
