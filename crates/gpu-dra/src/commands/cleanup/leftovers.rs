//! What the driver has put on a node, found by name in the folders where it puts things, in the
//! order in which it is removed. What has any other name is somebody else's.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use gpu_dra_claims::Record;
use gpu_dra_driverroot::DriverRoot;
use gpu_dra_executor::Journal;
use gpu_dra_host::{Boundary, Files as _, RealFiles};
use gpu_dra_model::DriverName;
use gpu_dra_sharing::{
    Journal as MpsJournal, Lifecycle, Patience, RealDaemons, RealFolders, RealMounts, RunDir,
};

/// Files of the plugin folder, beside sockets.
const OWN_FILES: [&str; 11] = [
    "names.json",
    "names.json.bad",
    "missing-gpus.json",
    "health.json",
    "health-asked.json",
    "gpu-dra-hook",
    "health-asked.json.bad",
    "checkpoint.json.bak",
    "checkpoint.json.bad",
    "locks",
    "health.json.bad",
];

/// Where the driver puts things.
pub(super) struct Places {
    pub(super) driver: DriverName,
    pub(super) plugin_dir: PathBuf,
    pub(super) registry: PathBuf,
    pub(super) cdi_root: PathBuf,
    pub(super) mps_socket: PathBuf,
    pub(super) mps_run_dir: PathBuf,
    pub(super) mps_state_dir: PathBuf,
}

impl Places {
    /// A running agent would write again what is removed under it.
    pub(super) fn refuse_while_served(&self) -> anyhow::Result<()> {
        for name in names(&self.plugin_dir)? {
            let socket = self.plugin_dir.join(&name);
            if is_service_socket(&name) && UnixStream::connect(&socket).is_ok() {
                bail!(
                    "a node agent of {} serves {}: delete its DaemonSet first",
                    self.driver,
                    socket.display()
                );
            }
        }
        if UnixStream::connect(&self.mps_socket).is_ok() {
            bail!("an MPS host serves {}: delete its DaemonSet first", self.mps_socket.display());
        }
        Ok(())
    }

    /// The claims in the journal, as far as they can be read. Nothing is written.
    pub(super) fn records(&self) -> anyhow::Result<Vec<Record>> {
        let dir = self.plugin_dir.join("claims");
        let mut records = Vec::new();
        for name in names(&dir)? {
            let Some(uid) = name.to_str().and_then(Journal::claim_of_file_name) else { continue };
            let path = dir.join(&name);
            let bytes =
                std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
            // One that can't be read says nothing that could be undone.
            records.extend(Record::decode(&bytes).ok().or_else(|| Record::stand_in(&uid, &bytes)));
        }
        Ok(records)
    }

    /// Ends the MPS daemons that are left, and removes their folders. Gives their names.
    pub(super) fn end_daemons(
        &self,
        root: DriverRoot,
        boundary: &Boundary,
    ) -> anyhow::Result<Vec<String>> {
        if !self.mps_state_dir.exists() && !self.mps_run_dir.exists() {
            return Ok(Vec::new());
        }
        let files = Arc::new(RealFiles::new(boundary.clone()));
        let daemons = Lifecycle {
            run: RunDir::new(&self.mps_run_dir)?,
            journal: MpsJournal::open(&self.mps_state_dir, files)?,
            folders: Arc::new(RealFolders),
            mounts: Arc::new(RealMounts),
            daemons: Arc::new(RealDaemons::new(root)),
            patience: Patience::default(),
            boundary: boundary.clone(),
        };
        let found = daemons.recover()?;
        let ids = found.records.into_iter().map(|record| record.id).chain(found.unasked);
        let mut ended = Vec::new();
        for id in ids {
            daemons.tear_down(&id)?;
            ended.push(id.to_string());
        }
        Ok(ended)
    }

    fn is_socket_in_registry(&self, name: &OsStr) -> bool {
        let rest = name.to_str().and_then(|name| name.strip_prefix(self.driver.as_str()));
        rest.is_some_and(|rest| {
            rest == "@reg.sock" || (rest.starts_with('-') && rest.ends_with("@reg.sock"))
        })
    }

    fn is_spec(&self, name: &OsStr) -> bool {
        let is = |name: &str| gpu_dra_cdi::claim_of_file_name(&self.driver, name).is_some();
        // One may have been to take the place of the incumbent's spec.
        let half =
            |name: &str| becomes(name).is_some_and(|name| is(&name.replace(".yaml", ".json")));
        name.to_str().is_some_and(|name| is(name) || half(name))
    }
}

/// What is there, and what is left where nothing else was expected.
pub(super) struct Leftovers {
    files: Vec<PathBuf>,
    /// Removed where nothing else is in them, the inner ones first.
    folders: Vec<PathBuf>,
}

impl Leftovers {
    /// Looks.
    pub(super) fn find(places: &Places) -> anyhow::Result<Self> {
        let (plugin, claims) = (&places.plugin_dir, places.plugin_dir.join("claims"));
        let mut files = Vec::new();
        let mut add = |dir: &Path, is_ours: &dyn Fn(&OsStr) -> bool| -> anyhow::Result<()> {
            let ours = names(dir)?.into_iter().filter(|name| is_ours(name));
            files.extend(ours.map(|name| dir.join(name)).filter(|path| !path.is_dir()));
            Ok(())
        };
        add(&places.registry, &|name| places.is_socket_in_registry(name))?;
        add(&places.cdi_root, &|name| places.is_spec(name))?;
        add(&claims, &|name| is_record(name))?;
        add(plugin, &|name| is_own_file(name) || is_service_socket(name))?;
        add(&places.mps_state_dir, &|name| name == "lock" || is_json(name))?;
        files.extend(places.mps_socket.exists().then(|| places.mps_socket.clone()));
        let mut folders = vec![claims, plugin.clone()];
        for dir in [&places.mps_run_dir, &places.mps_state_dir] {
            folders.push(dir.clone());
            let parent = dir.parent().filter(|dir| dir.file_name() == Some(OsStr::new("gpu-dra")));
            folders.extend(parent.map(Path::to_owned));
        }
        folders.retain(|dir| dir.is_dir());
        Ok(Self { files, folders })
    }

    /// Says what would be removed.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        for file in &self.files {
            anstream::println!("would remove {}", file.display());
        }
        for folder in &self.folders {
            anstream::println!("would remove {}/ if nothing else is in it", folder.display());
        }
        Ok(())
    }

    /// Removes it.
    pub(super) fn remove(&self, boundary: &Boundary) -> anyhow::Result<()> {
        let files = RealFiles::new(boundary.clone());
        for file in &self.files {
            if files.remove(file)? {
                anstream::println!("removed {}", file.display());
            }
        }
        for folder in &self.folders {
            boundary.pass("remove folder");
            match std::fs::remove_dir(folder) {
                Ok(()) => anstream::println!("removed {}/", folder.display()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let others: Vec<_> = names(folder)?
                        .iter()
                        .map(|name| name.to_string_lossy().into_owned())
                        .collect();
                    let why = if others.is_empty() { error.to_string() } else { others.join(", ") };
                    anstream::println!("{}/ stays: {why}", folder.display());
                }
            }
        }
        anstream::println!("nothing of this driver is left here");
        Ok(())
    }
}

fn is_service_socket(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("dra") && name.ends_with("@plugin.sock"))
}

fn is_own_file(name: &OsStr) -> bool {
    let is = |name: &str| OWN_FILES.contains(&name);
    name.to_str().is_some_and(|name| is(name) || becomes(name).is_some_and(is))
}

fn is_record(name: &OsStr) -> bool {
    let is = |name: &str| {
        Journal::claim_of_file_name(name.strip_suffix(".bad").unwrap_or(name)).is_some()
    };
    name.to_str().is_some_and(|name| is(name) || becomes(name).is_some_and(is))
}

fn is_json(name: &OsStr) -> bool {
    let is = |name: &str| name.strip_suffix(".bad").unwrap_or(name).ends_with(".json");
    name.to_str().is_some_and(|name| is(name) || becomes(name).is_some_and(is))
}

/// What a half-written file was to become: `.NAME.PID-SERIAL.tmp`.
fn becomes(name: &str) -> Option<&str> {
    Some(name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?.0)
}

/// What is in a folder, by name; nothing where there is none.
fn names(dir: &Path) -> anyhow::Result<Vec<std::ffi::OsString>> {
    let entries = match std::fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("can't look into {}", dir.display()));
        }
    };
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_are_told_from_others() {
        let places = Places {
            driver: DriverName::new("gpu.nvidia.com").unwrap(),
            plugin_dir: "/p".into(),
            registry: "/r".into(),
            cdi_root: "/c".into(),
            mps_socket: "/m".into(),
            mps_run_dir: "/run".into(),
            mps_state_dir: "/state".into(),
        };
        let uid = "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01";
        let spec = format!("k8s.gpu.nvidia.com-claim_{uid}");
        for (is, yes, no) in [
            (
                &(|name: &OsStr| places.is_socket_in_registry(name)) as &dyn Fn(&OsStr) -> bool,
                vec!["gpu.nvidia.com@reg.sock".into(), "gpu.nvidia.com-abc@reg.sock".into()],
                vec!["gpu.nvidia.com-reg.sock".into(), "gpu.nvidia.community@reg.sock".to_owned()],
            ),
            (
                &|name| places.is_spec(name),
                vec![
                    format!("{spec}.json"),
                    format!(".{spec}.json.12-3.tmp"),
                    format!(".{spec}.yaml.12-3.tmp"),
                ],
                vec![format!("{spec}.yaml"), "nvidia.json".into()],
            ),
            (
                &is_record,
                vec![
                    format!("{uid}.json"),
                    format!("{uid}.json.bad"),
                    format!(".{uid}.json.1-2.tmp"),
                ],
                vec!["notes.json".into(), uid.to_owned()],
            ),
            (
                &is_own_file,
                vec!["names.json".into(), ".names.json.1-2.tmp".into(), "gpu-dra-hook".into()],
                vec![
                    "nvidia-cdi-hook".into(),
                    "checkpoint.json".into(),
                    "cp.lock".into(),
                    "mps".into(),
                ],
            ),
            (
                &is_service_socket,
                vec!["dra@plugin.sock".into(), "dra-abc@plugin.sock".into()],
                vec!["dra.sock".into()],
            ),
        ] {
            for name in yes {
                assert!(is(OsStr::new(&name)), "{name}");
            }
            for name in no {
                assert!(!is(OsStr::new(&name)), "{name}");
            }
        }
    }
}
