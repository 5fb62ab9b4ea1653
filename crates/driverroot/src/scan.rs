//! One pass over a driver root: looks things up inside the root, and remembers each folder
//! that it looked into, so that a later pass can tell whether anything could have changed.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpu_dra_hook::inroot::{Found, InRoot};

use crate::error::FilesError;
use crate::files::HostFile;
use crate::layout::Layout;
use crate::root::DriverRoot;

/// A folder's state: any entry made, removed or replaced in it changes this, and so does
/// another folder in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderState {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl FolderState {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Which folder it is, whatever path led to it.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// The time of its last change, in seconds since the epoch.
    pub(crate) fn last_change(&self) -> i64 {
        self.changed.0.max(self.modified.0)
    }
}

/// Folders and their states; `None` for one that isn't there.
pub(crate) type FolderStates = BTreeMap<PathBuf, Option<FolderState>>;

/// Entries come and go in these all the time, which says nothing about the driver: what is
/// missing in them is looked for by its own name.
const BUSY: &[&str] = &["run", "var/run"];

pub(crate) struct Scan<'a> {
    root: &'a DriverRoot,
    tree: InRoot,
    pub(crate) layout: Layout,
    /// The state of each folder that the answer depends on, before it was first looked into.
    /// One that is missing isn't here where the folder that it is missing in is.
    pub(crate) folders: FolderStates,
    /// Every folder asked for.
    known: FolderStates,
}

impl<'a> Scan<'a> {
    pub(crate) fn start(root: &'a DriverRoot) -> Result<Self, FilesError> {
        let tree = open(root)?;
        let layout = Layout::of(&tree);
        let (folders, known) = (BTreeMap::new(), BTreeMap::new());
        let mut scan = Self { root, tree, layout, folders, known };
        scan.folder(Path::new(""))?;
        Ok(scan)
    }

    /// Notes the folder; says its state, or `None` where there is no such folder.
    pub(crate) fn folder(&mut self, path: &Path) -> Result<Option<FolderState>, FilesError> {
        if let Some(state) = self.known.get(path) {
            return Ok(*state);
        }
        let above =
            path.parent().filter(|above| !BUSY.iter().any(|busy| *above == Path::new(*busy)));
        // The one above is noted first: then what comes into it later changes what was noted.
        let state = match above {
            Some(above) if self.folder(above)?.is_none() => None,
            _ => {
                let state = folder_state(&self.tree, path)?;
                let follows = state.is_none() && above.is_some() && !self.tree.has_entry(path);
                if !follows {
                    self.folders.insert(path.to_path_buf(), state);
                }
                state
            }
        };
        self.known.insert(path.to_path_buf(), state);
        Ok(state)
    }

    /// The sorted names in a folder; none where there is no such folder.
    pub(crate) fn names(&mut self, folder: &Path) -> Result<Vec<String>, FilesError> {
        if self.folder(folder)?.is_none() {
            return Ok(Vec::new());
        }
        let mut names = absent_is_none(folder, self.tree.names(folder))?.unwrap_or_default();
        names.sort_unstable();
        Ok(names)
    }

    /// Looks up one path and notes its folder.
    pub(crate) fn find(&mut self, path: &Path) -> Result<Option<Found>, FilesError> {
        if let Some(folder) = path.parent()
            && self.folder(folder)?.is_none()
        {
            return Ok(None);
        }
        absent_is_none(path, self.tree.find(path))
    }

    /// Whether the path itself is a link; its folder has been noted.
    pub(crate) fn is_link(&self, path: &Path) -> bool {
        self.tree.is_link(path)
    }

    /// Opens a regular file; `None` where it is gone or is something else by now.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<std::fs::File>, FilesError> {
        match self.tree.read(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            result => absent_is_none(path, result),
        }
    }

    /// What was found, as a mount to `container_path`. The host's path has no links left:
    /// an absolute link in a driver container's root means another file to the host.
    pub(crate) fn mount_of(
        &self,
        path: &Path,
        found: &Found,
        container_path: &Path,
    ) -> Result<HostFile, FilesError> {
        let real = self
            .tree
            .real_path(found)
            .map_err(|source| FilesError::Io { path: path.to_path_buf(), source })?;
        HostFile::new(&self.root.host.join(real), container_path)
    }
}

fn open(root: &DriverRoot) -> Result<InRoot, FilesError> {
    InRoot::open(&root.here).map_err(|source| FilesError::Root { root: root.here.clone(), source })
}

fn folder_state(tree: &InRoot, path: &Path) -> Result<Option<FolderState>, FilesError> {
    let found = absent_is_none(path, tree.find(path))?;
    Ok(found.filter(|found| found.metadata.is_dir()).map(|found| FolderState::of(&found.metadata)))
}

/// Whether every folder is as it was.
pub(crate) fn unchanged(root: &DriverRoot, folders: &FolderStates) -> bool {
    open(root).is_ok_and(|tree| {
        folders.iter().all(|(path, state)| folder_state(&tree, path).is_ok_and(|now| now == *state))
    })
}

fn absent_is_none<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, FilesError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(source) => Err(FilesError::Io { path: path.to_path_buf(), source }),
    }
}
