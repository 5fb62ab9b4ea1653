//! The driver's files that containers get, libraries first.

use std::collections::BTreeSet;
use std::path::Path;

use gpu_dra_hook::elf;

use crate::error::FilesError;
use crate::extras;
use crate::root::DriverRoot;
use crate::scan::{FolderStates, Scan};

/// One file of the host and where a container sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostFile {
    /// The file as the host sees it, with no link left in the path.
    pub host_path: String,
    /// Where a container sees it.
    pub container_path: String,
}

impl HostFile {
    pub(crate) fn new(host: &Path, container: &Path) -> Result<Self, FilesError> {
        let utf8 = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .ok_or_else(|| FilesError::NotUtf8 { path: path.to_path_buf() })
        };
        Ok(Self { host_path: utf8(host)?, container_path: utf8(container)? })
    }
}

/// One shared library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The file, under its versioned name.
    pub file: HostFile,
    /// `DT_SONAME`: the name that programs load it by.
    pub soname: Option<String>,
}

/// Everything that a container gets of the driver besides device nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverFiles {
    /// The driver's version, the suffix of its libraries.
    pub version: String,
    /// The driver's libraries.
    pub libraries: Vec<Library>,
    /// `nvidia-smi` and its like.
    pub programs: Vec<HostFile>,
    /// GSP firmware.
    pub firmware: Vec<HostFile>,
    /// Configuration of loaders (EGL, Vulkan, OpenCL, X), and the X server's modules.
    pub configs: Vec<HostFile>,
    /// Sockets of the driver's daemons.
    pub sockets: Vec<HostFile>,
}

impl DriverFiles {
    /// Collects the files of this driver version (as NVML reports it, e.g. `570.124.06`)
    /// that exist now.
    ///
    /// # Errors
    /// No library of that version (the driver is being replaced, say), or a part of the
    /// root that can't be looked at.
    pub fn collect(root: &DriverRoot, version: &str) -> Result<Self, FilesError> {
        Self::collect_noting(root, version).map(|(files, _)| files)
    }

    /// The same, with the folders that the answer depends on.
    pub(crate) fn collect_noting(
        root: &DriverRoot,
        version: &str,
    ) -> Result<(Self, FolderStates), FilesError> {
        let mut scan = Scan::start(root)?;
        let libraries = libraries(&mut scan, version, root)?;
        let files = Self {
            version: version.to_owned(),
            libraries,
            programs: extras::programs(&mut scan, version)?,
            firmware: extras::firmware(&mut scan, version)?,
            configs: extras::configs(&mut scan, version)?,
            sockets: extras::sockets(&mut scan)?,
        };
        Ok((files, scan.folders))
    }
}

/// The libraries of every folder that holds this version's libcuda or NVML.
fn libraries(
    scan: &mut Scan<'_>,
    version: &str,
    root: &DriverRoot,
) -> Result<Vec<Library>, FilesError> {
    // One folder of an older Bottlerocket is named by the version.
    let folders = scan.layout.library_folders(|folder| vec![folder.join(version)]);
    let marks = [format!("libcuda.so.{version}"), format!("libnvidia-ml.so.{version}")];
    let mut libraries = Vec::new();
    let mut other_versions = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for folder in folders {
        let Some(state) = scan.folder(&folder)? else { continue };
        if !seen.insert(state.identity()) {
            continue;
        }
        let names = scan.names(&folder)?;
        if !names.iter().any(|name| marks.contains(name)) {
            other_versions.extend(names.iter().filter_map(|name| version_of_nvml(name)));
            continue;
        }
        for name in &names {
            // Of those with a version of their own the file counts, not the links to it.
            if has_version(name, version) && !shadows_glvnd(name)
                || has_own_version(name) && !scan.is_link(&folder.join(name))
            {
                libraries.extend(library(scan, &folder, name)?);
            }
        }
        let vdpau = folder.join("vdpau");
        for name in scan.names(&vdpau)? {
            if has_version(&name, version) {
                libraries.extend(library(scan, &vdpau, &name)?);
            }
        }
    }
    if libraries.is_empty() {
        let found = other_versions.into_iter().collect();
        let (root, version) = (root.host.clone(), version.to_owned());
        return Err(FilesError::NoLibraries { root, version, found });
    }
    Ok(libraries)
}

/// `None` for what isn't a library of this machine: 32-bit ones, text, folders.
fn library(scan: &mut Scan<'_>, folder: &Path, name: &str) -> Result<Option<Library>, FilesError> {
    let path = folder.join(name);
    let Some(found) = scan.find(&path)?.filter(|found| found.metadata.is_file()) else {
        return Ok(None);
    };
    let Some(file) = scan.read(&path)? else { return Ok(None) };
    let Some(object) = elf::read(&file).filter(elf::SharedObject::is_native) else {
        return Ok(None);
    };
    let container_path = scan.layout.in_container(folder).join(name);
    let file = scan.mount_of(&path, &found, &container_path)?;
    Ok(Some(Library { file, soname: object.soname }))
}

fn has_version(name: &str, version: &str) -> bool {
    name.strip_suffix(version).is_some_and(|stem| stem.ends_with(".so."))
}

/// Libraries that are the driver's but don't carry its version: the compiler of the 470
/// branch, and the EGL platforms, which are released on their own.
const OTHERWISE_VERSIONED: &[&str] = &[
    "libnvidia-nvvm.so.4.",
    "libnvidia-nvvm70.so.",
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
];

/// Installed by drivers without GLVND under the SONAMEs of GLVND's own libraries; in a
/// container they would shadow the image's.
const SHADOWING: &[&str] = &["libEGL.so.", "libGL.so."];

fn has_own_version(name: &str) -> bool {
    OTHERWISE_VERSIONED.iter().any(|prefix| name.starts_with(prefix))
}

fn shadows_glvnd(name: &str) -> bool {
    SHADOWING.iter().any(|prefix| name.starts_with(prefix))
}

fn version_of_nvml(name: &str) -> Option<String> {
    name.strip_prefix("libnvidia-ml.so.").filter(|rest| rest.contains('.')).map(str::to_owned)
}
