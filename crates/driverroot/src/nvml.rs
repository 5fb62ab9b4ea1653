//! Which NVML library to load. The answer is a path without links, so that loading it
//! can't lead out of the driver root.

use std::collections::BTreeSet;
use std::fs::FileType;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use gpu_dra_hook::elf;
use gpu_dra_hook::inroot::InRoot;

use crate::error::{NvmlNotFound, Rejected};
use crate::layout::Layout;
use crate::root::DriverRoot;

const NVML: &str = "libnvidia-ml.so.1";

impl DriverRoot {
    /// Finds `libnvidia-ml.so.1`, as a path that this process can load.
    ///
    /// Takes regular files only: container runtimes leave a directory of that name where a
    /// missing file was to be mounted.
    ///
    /// # Errors
    /// With everything that has the name but is no loadable library.
    pub fn find_nvml(&self) -> Result<PathBuf, NvmlNotFound> {
        let mut rejected = Vec::new();
        let mut reject = |folder: &Path, why: String| {
            rejected.push(Rejected { path: self.host.join(folder).join(NVML), why });
        };
        let tree = match InRoot::open(&self.here) {
            Ok(tree) => tree,
            Err(error) => {
                let why = format!("can't be opened: {error}");
                let rejected = vec![Rejected { path: self.here.clone(), why }];
                return Err(NvmlNotFound { root: self.host.clone(), rejected });
            }
        };
        let folders = Layout::of(&tree).library_folders(|folder| {
            let names = tree.names(folder).unwrap_or_default();
            names.into_iter().map(|name| folder.join(name)).collect()
        });
        let mut seen = BTreeSet::new();
        for folder in folders {
            let Ok(opened) = tree.find(&folder) else { continue };
            if !seen.insert((opened.metadata.dev(), opened.metadata.ino())) {
                continue;
            }
            match candidate(&tree, &folder.join(NVML)) {
                Candidate::Library(path) => return Ok(self.here.join(path)),
                Candidate::Absent => {}
                Candidate::Rejected(why) => reject(&folder, why),
            }
        }
        Err(NvmlNotFound { root: self.host.clone(), rejected })
    }
}

enum Candidate {
    Library(PathBuf),
    Absent,
    Rejected(String),
}

fn candidate(tree: &InRoot, path: &Path) -> Candidate {
    let found = match tree.find(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if tree.is_link(path) {
                Candidate::Rejected("is a link to nothing inside the driver root".to_owned())
            } else {
                Candidate::Absent
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Candidate::Absent,
        Err(error) => return Candidate::Rejected(format!("can't be looked at: {error}")),
    };
    if !found.metadata.is_file() {
        return Candidate::Rejected(format!("is a {}", kind(found.metadata.file_type())));
    }
    match tree.read(path).map(|file| elf::read(&file)) {
        Err(error) => Candidate::Rejected(format!("can't be read: {error}")),
        Ok(Some(library)) if library.is_native() => match tree.real_path(&found) {
            Ok(real) => Candidate::Library(real),
            Err(error) => Candidate::Rejected(format!("can't be resolved: {error}")),
        },
        Ok(Some(_)) => Candidate::Rejected("is for another machine".to_owned()),
        Ok(None) => Candidate::Rejected("is no shared library".to_owned()),
    }
}

fn kind(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "directory"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "special file"
    }
}
