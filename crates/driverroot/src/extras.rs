//! The driver's files that are no libraries. All are optional: a driver without firmware
//! or an X server is complete.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::FilesError;
use crate::files::HostFile;
use crate::layout::{CONFIGS, PROGRAMS, SOCKETS, XORG_MODULES};
use crate::scan::Scan;

fn regular_file(
    scan: &mut Scan<'_>,
    path: &Path,
    container_path: &Path,
) -> Result<Option<HostFile>, FilesError> {
    match scan.find(path)?.filter(|found| found.metadata.is_file()) {
        Some(found) => scan.mount_of(path, &found, container_path).map(Some),
        None => Ok(None),
    }
}

/// The first of several places that has the file.
fn first_of(
    scan: &mut Scan<'_>,
    paths: impl IntoIterator<Item = PathBuf>,
    container_path: &Path,
) -> Result<Option<HostFile>, FilesError> {
    for path in paths {
        if let Some(file) = regular_file(scan, &path, container_path)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

pub(crate) fn programs(scan: &mut Scan<'_>, version: &str) -> Result<Vec<HostFile>, FilesError> {
    let folders = scan.layout.program_folders(version);
    let destination = Path::new(scan.layout.program_destination());
    let mut files = Vec::new();
    for name in PROGRAMS {
        let paths = folders.iter().map(|folder| folder.join(name));
        files.extend(first_of(scan, paths, &destination.join(name))?);
    }
    Ok(files)
}

pub(crate) fn firmware(scan: &mut Scan<'_>, version: &str) -> Result<Vec<HostFile>, FilesError> {
    let destination = Path::new("/lib/firmware/nvidia").join(version);
    for folder in scan.layout.firmware_folders(version) {
        let mut files = Vec::new();
        for name in scan.names(&folder)? {
            if name.starts_with("gsp") && name.ends_with(".bin") {
                files.extend(regular_file(scan, &folder.join(&name), &destination.join(&name))?);
            }
        }
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Ok(Vec::new())
}

pub(crate) fn configs(scan: &mut Scan<'_>, version: &str) -> Result<Vec<HostFile>, FilesError> {
    let mut files = Vec::new();
    for (name, destination) in CONFIGS {
        let paths = scan.layout.config_folders().iter().map(|folder| Path::new(folder).join(name));
        files.extend(first_of(scan, paths, &Path::new(destination).join(name))?);
    }
    for modules in XORG_MODULES {
        for name in [
            "drivers/nvidia_drv.so".to_owned(),
            format!("extensions/libglxserver_nvidia.so.{version}"),
        ] {
            let path = Path::new(modules).join(name);
            files.extend(regular_file(scan, &path, &Path::new("/").join(&path))?);
        }
    }
    Ok(files)
}

pub(crate) fn sockets(scan: &mut Scan<'_>) -> Result<Vec<HostFile>, FilesError> {
    let mut files = Vec::new();
    for path in SOCKETS {
        for path in [PathBuf::from(path), Path::new("var").join(path)] {
            let found = scan.find(&path)?;
            if let Some(found) = found.filter(|found| found.metadata.file_type().is_socket()) {
                files.push(scan.mount_of(&path, &found, &Path::new("/").join(&path))?);
                break;
            }
        }
    }
    Ok(files)
}
