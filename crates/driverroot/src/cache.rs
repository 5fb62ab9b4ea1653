//! The last answer of [`DriverFiles::collect`], and the edits last made of one, kept while
//! they can't be wrong.
//!
//! Prepare asks for the files each time. Between two times they hardly ever change, but
//! when they do (a driver upgrade, a restarted driver container, a fabric manager that
//! comes up) the next answer must show it. So each use looks at every folder that the
//! kept answer was derived from; files are replaced by new entries, which change their
//! folder.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use gpu_dra_cdi::ContainerEdits;

use crate::edits::{Hook, common_edits};
use crate::error::FilesError;
use crate::files::DriverFiles;
use crate::nodes::CommonNodes;
use crate::root::DriverRoot;
use crate::scan::{self, FolderStates};

/// Folders that changed less than this long ago aren't trusted to show their next change:
/// a file system's clock advances in steps (10 ms and less on disks and tmpfs, up to two
/// seconds on others).
const SETTLE_SECONDS: i64 = 3;

/// The files of one driver root, collected again when anything may have changed.
#[derive(Debug, Default)]
pub struct DriverFilesCache {
    kept: Mutex<Option<Kept>>,
    edits: Mutex<Option<KeptEdits>>,
}

#[derive(Debug)]
struct Kept {
    root: DriverRoot,
    files: Arc<DriverFiles>,
    folders: FolderStates,
}

#[derive(Debug)]
struct KeptEdits {
    files: Arc<DriverFiles>,
    nodes: CommonNodes,
    hook: Hook,
    edits: Arc<ContainerEdits>,
}

impl DriverFilesCache {
    /// As [`DriverFiles::collect`], at the price of a few file system look-ups where
    /// nothing changed. Failures are not kept.
    ///
    /// # Errors
    /// As [`DriverFiles::collect`].
    pub fn get(&self, root: &DriverRoot, version: &str) -> Result<Arc<DriverFiles>, FilesError> {
        self.get_at(root, version, SystemTime::now())
    }

    /// As [`common_edits`] of what [`DriverFilesCache::get`] gave; made anew when the files,
    /// the nodes or the hook are others than last time.
    pub fn common_edits(
        &self,
        files: &Arc<DriverFiles>,
        nodes: CommonNodes,
        hook: &Hook,
    ) -> Arc<ContainerEdits> {
        let mut kept = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref()
            && Arc::ptr_eq(&kept.files, files)
            && kept.nodes == nodes
            && kept.hook == *hook
        {
            return Arc::clone(&kept.edits);
        }
        let edits = Arc::new(common_edits(files, &nodes, hook));
        let (files, hook) = (Arc::clone(files), hook.clone());
        *kept = Some(KeptEdits { files, nodes, hook, edits: Arc::clone(&edits) });
        edits
    }

    fn get_at(
        &self,
        root: &DriverRoot,
        version: &str,
        now: SystemTime,
    ) -> Result<Arc<DriverFiles>, FilesError> {
        // The value is replaced whole, so a panicking holder can't leave half of one.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref()
            && kept.root == *root
            && kept.files.version == version
            && scan::unchanged(root, &kept.folders)
        {
            return Ok(Arc::clone(&kept.files));
        }
        *kept = None;
        let (files, folders) = DriverFiles::collect_noting(root, version)?;
        let files = Arc::new(files);
        if settled(&folders, now) {
            *kept = Some(Kept { root: root.clone(), files: Arc::clone(&files), folders });
        }
        Ok(files)
    }
}

fn settled(folders: &FolderStates, now: SystemTime) -> bool {
    let Ok(now) = now.duration_since(UNIX_EPOCH) else { return false };
    let Ok(now) = i64::try_from(now.as_secs()) else { return false };
    folders.values().flatten().all(|state| state.last_change() < now - SETTLE_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::thread::sleep;
    use std::time::Duration;

    use gpu_dra_sim_data::elf::shared_object;

    use super::*;
    use crate::files::HostFile;
    use crate::nodes::Node;

    const FOLDER: &str = "usr/lib64";

    fn install(root: &Path, version: &str) {
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("libcuda.so.{version}"));
        fs::write(path, shared_object("libcuda.so.1")).unwrap();
    }

    fn new() -> (tempfile::TempDir, DriverRoot, DriverFilesCache) {
        let dir = tempfile::tempdir().unwrap();
        install(dir.path(), "550.1");
        let root = DriverRoot::same(dir.path());
        (dir, root, DriverFilesCache::default())
    }

    /// Long after the folders' last change, by which an answer may be kept.
    fn later() -> SystemTime {
        // The next change must have a time of its own in the file system's clock.
        sleep(Duration::from_millis(20));
        SystemTime::now() + Duration::from_secs(3600)
    }

    #[test]
    fn an_answer_is_kept_while_nothing_changes() {
        let (_dir, root, cache) = new();
        let first = cache.get_at(&root, "550.1", later()).unwrap();
        let second = cache.get_at(&root, "550.1", later()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn every_change_gives_a_new_answer() {
        let (dir, root, cache) = new();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        };
        link("opt-elsewhere", "opt");
        let changes: [(&str, &dyn Fn()); 8] = [
            ("a program in a folder that was missing", &|| {
                fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
                fs::write(dir.path().join("usr/bin/nvidia-smi"), "").unwrap();
            }),
            ("another program", &|| {
                fs::write(dir.path().join("usr/bin/nvidia-debugdump"), "").unwrap();
            }),
            ("firmware", &|| {
                let folder = dir.path().join("lib/firmware/nvidia/550.1");
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("gsp_tu10x.bin"), "").unwrap();
            }),
            ("a library", &|| {
                let path = dir.path().join(FOLDER).join("libnvidia-cfg.so.550.1");
                fs::write(path, shared_object("libnvidia-cfg.so.1")).unwrap();
            }),
            ("a program where a dangling link led", &|| {
                fs::create_dir_all(dir.path().join("opt-elsewhere/bin")).unwrap();
                fs::write(dir.path().join("opt-elsewhere/bin/nvidia-imex"), "").unwrap();
            }),
            ("a folder far below the one that was there", &|| {
                let folder = dir.path().join("usr/share/vulkan/icd.d");
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("nvidia_icd.json"), "").unwrap();
            }),
            ("a daemon's socket", &|| {
                let folder = dir.path().join("run/nvidia-persistenced");
                fs::create_dir_all(&folder).unwrap();
                drop(UnixListener::bind(folder.join("socket")).unwrap());
            }),
            ("a library less", &|| {
                let path = dir.path().join(FOLDER).join("libnvidia-cfg.so.550.1");
                fs::remove_file(path).unwrap();
            }),
        ];
        let mut last = cache.get_at(&root, "550.1", later()).unwrap();
        for (what, change) in changes {
            change();
            let next = cache.get_at(&root, "550.1", later()).unwrap();
            assert_ne!(last, next, "{what}");
            last = next;
        }
    }

    #[test]
    fn another_folder_in_the_roots_place_gives_a_new_answer() {
        let (dir, root, cache) = new();
        let first = cache.get_at(&root, "550.1", later()).unwrap();
        fs::rename(dir.path().join("usr"), dir.path().join("old-usr")).unwrap();
        install(dir.path(), "550.1");
        let second = cache.get_at(&root, "550.1", later()).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
    }

    /// Field report N36: a driver is replaced under the running agent.
    #[test]
    fn n36_a_replaced_driver_is_seen_and_a_failure_is_not_kept() {
        let (dir, root, cache) = new();
        cache.get_at(&root, "550.1", later()).unwrap();
        fs::rename(
            dir.path().join(FOLDER).join("libcuda.so.550.1"),
            dir.path().join(FOLDER).join("libcuda.so.580.2"),
        )
        .unwrap();
        let error = cache.get_at(&root, "550.1", later()).unwrap_err();
        assert!(error.to_string().contains("550.1"), "{error}");
        let files = cache.get_at(&root, "580.2", later()).unwrap();
        assert!(files.libraries[0].file.host_path.ends_with("libcuda.so.580.2"));
    }

    #[test]
    fn entries_that_come_and_go_in_run_change_nothing() {
        let (dir, root, cache) = new();
        fs::create_dir(dir.path().join("run")).unwrap();
        let first = cache.get_at(&root, "550.1", later()).unwrap();
        fs::write(dir.path().join("run/some.pid"), "1").unwrap();
        let second = cache.get_at(&root, "550.1", later()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn edits_are_kept_while_what_they_are_made_of_is() {
        let (dir, root, cache) = new();
        let here = dir.path().join("hook");
        fs::write(&here, "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&here, mode).unwrap();
        let hook = |host: &str| Hook::find(Path::new(host), &here).unwrap();
        let files = cache.get(&root, "550.1").unwrap();
        let none = CommonNodes { nodes: Vec::new(), absent: Vec::new() };
        let file = HostFile { host_path: "/x".to_owned(), container_path: "/x".to_owned() };
        let other = CommonNodes { nodes: vec![Node::PlainFile(file)], absent: Vec::new() };
        let first = cache.common_edits(&files, none.clone(), &hook("/a"));
        assert_eq!(*first, common_edits(&files, &none, &hook("/a")));
        let same = cache.common_edits(&files, none.clone(), &hook("/a"));
        assert!(Arc::ptr_eq(&first, &same));
        let copy = Arc::new(DriverFiles::clone(&files));
        for (files, nodes, host) in
            [(&copy, &none, "/a"), (&copy, &other, "/a"), (&copy, &other, "/b")]
        {
            let edits = cache.common_edits(files, nodes.clone(), &hook(host));
            assert!(!Arc::ptr_eq(&first, &edits));
            assert_eq!(*edits, common_edits(files, nodes, &hook(host)));
        }
    }

    #[test]
    fn a_fresh_folder_is_not_trusted() {
        let (_dir, root, cache) = new();
        let first = cache.get(&root, "550.1").unwrap();
        let second = cache.get(&root, "550.1").unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
    }
}
