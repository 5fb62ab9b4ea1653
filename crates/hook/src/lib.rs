//! The container hook: makes links in a container and lets its loader find the driver's
//! libraries, so that no NVIDIA toolkit and no ldconfig is needed on the host.
//!
//! The OCI runtime calls it as root, in the container's mount namespace, before the
//! container's root is entered. So it never runs a program of the image, never follows a
//! link of the image out of the container's root, reads regular files only, and makes new
//! files beside the old ones and renames them into place.
//!
//! `gpu-dra-driverroot` uses [`args`], [`elf`] and [`inroot`] as well: the side that
//! writes the hook's arguments and the side that reads them can't drift apart.

#![forbid(unsafe_code)]

pub mod args;
pub mod elf;
pub mod inroot;

mod cache_file;
mod error;
mod ldcache;
mod links;
mod params;
mod place;
mod state;

pub use error::HookError;

use std::io::Read;

use args::Action;
use inroot::InRoot;

/// Something that could not be done but doesn't keep the container from starting.
pub type Warning = String;

/// Does the action in the container that the OCI state on `stdin` describes.
///
/// # Errors
/// Anything but the cases that are warnings: a root file system that can't be written, and
/// places that the pod itself has mounted something on. The container starts then; its
/// programs find the libraries by their full paths or by `LD_LIBRARY_PATH`.
pub fn run(action: &Action, stdin: impl Read) -> Result<Vec<Warning>, HookError> {
    let rootfs = state::rootfs(stdin)?;
    let root = InRoot::open(&rootfs).map_err(|source| HookError::Io {
        what: "open root file system",
        path: rootfs,
        source,
    })?;
    match action {
        Action::CreateLinks(links) => links::create(&root, links),
        Action::UpdateLdcache(folders) => ldcache::update(&root, folders),
        Action::DisableDeviceNodeModification => Ok(params::disable_modification(&root)),
    }
}
