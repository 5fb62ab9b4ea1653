//! Where the node is described: the environment, the driver root, or this file's own end.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gpu_dra_sim_data::{Node, STATE_ENV, StateDir, trailer};

use crate::code::{Answer, Code};

/// Where a node was found.
pub(crate) enum Found {
    /// With its state directory.
    Dir(StateDir),
    /// Behind the end of this library: as in a container that sees no more of the driver
    /// root than its libraries.
    Alone(Box<Node>),
}

/// Looks for a node, nearest first.
pub(crate) fn node() -> Answer<Found> {
    if let Some(path) = std::env::var_os(STATE_ENV) {
        let path = PathBuf::from(path);
        return StateDir::open(&path).map(Found::Dir).ok_or_else(|| {
            eprintln!("simulated NVML: {STATE_ENV}={} has no node.json", path.display());
            Code::DRIVER_NOT_LOADED
        });
    }
    let library = own_file().ok_or(Code::DRIVER_NOT_LOADED)?;
    if let Some(dir) = StateDir::near(&library) {
        return Ok(Found::Dir(dir));
    }
    match trailer::read(&library) {
        Ok(Some(node)) => Ok(Found::Alone(Box::new(node))),
        Ok(None) => Err(Code::DRIVER_NOT_LOADED),
        Err(error) => Err(error.into()),
    }
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let inside = own_file as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: dladdr only writes to `info`, which is valid for it.
    if unsafe { libc::dladdr(inside, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name is a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}
