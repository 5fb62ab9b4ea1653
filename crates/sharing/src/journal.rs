//! The MPS host's journal: one small file a daemon, in a folder that outlives the process.
//! It keeps what was asked, not what runs: that is found out by looking.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_dra_host::{FileError, Files};
use serde::{Deserialize, Serialize};

use crate::spec::{DaemonId, DaemonSpec};

/// The only version of the file so far.
const VERSION: u32 = 1;

/// What somebody wants of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wish {
    /// It runs.
    Run,
    /// It is stopped and everything of it removed; then the record goes too.
    Stop,
}

/// One daemon that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub id: DaemonId,
    /// What it serves.
    pub spec: DaemonSpec,
    /// What is wanted of it.
    pub wish: Wish,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    #[serde(flatten)]
    record: Record,
}

/// A record that can't be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("MPS journal: {0}")]
    File(#[from] FileError),
    /// A record that can't be written as JSON.
    #[error("MPS journal record of {id} can't be written")]
    Encode {
        /// The daemon.
        id: DaemonId,
        /// serde's words.
        #[source]
        source: serde_json::Error,
    },
}

/// All daemons that were asked for.
pub struct Journal {
    dir: PathBuf,
    files: Arc<dyn Files>,
    /// What this life has written and synced. A file that can be read may still be lost.
    synced: Mutex<BTreeMap<DaemonId, Record>>,
}

impl Journal {
    /// The journal in `dir`, which is created.
    ///
    /// # Errors
    /// When the folder can't be created.
    pub fn open(dir: &Path, files: Arc<dyn Files>) -> Result<Self, JournalError> {
        files.create_dir(dir, 0o700)?;
        Ok(Self { dir: dir.to_owned(), files, synced: Mutex::default() })
    }

    /// Every record, and what a process that died while it wrote has left is removed. A file
    /// that is no record is moved aside; its daemon shows as one that nobody asked for.
    ///
    /// # Errors
    /// When the folder or a file can't be read.
    pub fn all(&self) -> Result<Vec<Record>, JournalError> {
        for (leftover, _) in self.files.leftovers(&self.dir)? {
            self.files.remove(&self.dir.join(leftover))?;
        }
        let mut records = Vec::new();
        for (name, _) in self.files.list(&self.dir)? {
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = id.and_then(|id| DaemonId::new(id).ok()) else { continue };
            records.extend(self.get(&id)?);
        }
        Ok(records)
    }

    /// One record.
    ///
    /// # Errors
    /// When the file is there but can't be read.
    pub fn get(&self, id: &DaemonId) -> Result<Option<Record>, JournalError> {
        let path = self.path(id);
        let Some(bytes) = self.files.read(&path)? else { return Ok(None) };
        let reason = match decode(&bytes) {
            Ok(record) if record.id == *id => return Ok(Some(record)),
            Ok(_) => "it holds another daemon's record".to_owned(),
            Err(reason) => reason,
        };
        let aside = path.with_extension("json.bad");
        self.files.rename(&path, &aside)?;
        tracing::error!(file = %aside.display(), %reason, "MPS journal file is no record; moved aside");
        Ok(None)
    }

    /// Writes the record for good. What this life has written isn't written again: nothing
    /// has to be synced while clients wait for a daemon that died.
    ///
    /// # Errors
    /// When the file system refuses; the old record then stays.
    pub fn put(&self, record: &Record) -> Result<(), JournalError> {
        if self.synced().get(&record.id) == Some(record) {
            return Ok(());
        }
        self.synced().remove(&record.id);
        let written = Written { version: VERSION, record: record.clone() };
        let bytes = serde_json::to_vec_pretty(&written)
            .map_err(|source| JournalError::Encode { id: record.id.clone(), source })?;
        self.files.replace(&self.path(&record.id), &bytes, 0o600)?;
        self.synced().insert(record.id.clone(), record.clone());
        Ok(())
    }

    /// Forgets the daemon for good.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove(&self, id: &DaemonId) -> Result<(), JournalError> {
        self.synced().remove(id);
        self.files.remove(&self.path(id))?;
        Ok(())
    }

    fn synced(&self) -> MutexGuard<'_, BTreeMap<DaemonId, Record>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: &DaemonId) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }
}

fn decode(bytes: &[u8]) -> Result<Record, String> {
    let mut value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let version = value.as_object_mut().and_then(|object| object.remove("version"));
    if version != Some(VERSION.into()) {
        return Err(format!("its version is not {VERSION}; was the MPS host downgraded?"));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use gpu_dra_host::sim::SimFiles;

    use super::*;

    fn record() -> Record {
        Record {
            id: DaemonId::new("claim-1").unwrap(),
            spec: serde_json::from_str(
                r#"{"devices": ["GPU-11111111-0000-0000-0000-000000000001"], "multiUser": true}"#,
            )
            .unwrap(),
            wish: Wish::Run,
        }
    }

    #[test]
    fn what_is_put_comes_back_until_it_is_removed() {
        let files = Arc::new(SimFiles::default());
        let journal = Journal::open(Path::new("/j"), files).unwrap();
        journal.put(&record()).unwrap();
        assert_eq!(journal.all().unwrap(), [record()]);
        journal.remove(&record().id).unwrap();
        assert_eq!(journal.all().unwrap(), []);
        assert_eq!(journal.get(&record().id).unwrap(), None);
    }

    #[test]
    fn what_is_no_record_is_moved_aside() {
        for bad in [
            "",
            "{}",
            r#"{"version": 2, "id": "claim-1"}"#,
            r#"{"version": 1, "id": "claim-1", "wish": "run", "more": 1}"#,
        ] {
            let files = Arc::new(SimFiles::default());
            let journal = Journal::open(Path::new("/j"), Arc::<SimFiles>::clone(&files)).unwrap();
            journal.put(&Record { id: DaemonId::new("good").unwrap(), ..record() }).unwrap();
            files.replace(Path::new("/j/claim-1.json"), bad.as_bytes(), 0o600).unwrap();
            assert_eq!(journal.all().unwrap().len(), 1, "{bad}");
            assert!(files.contents().contains_key(Path::new("/j/claim-1.json.bad")), "{bad}");
        }
    }

    #[test]
    fn the_file_is_as_documented() {
        let files = Arc::new(SimFiles::default());
        let journal = Journal::open(Path::new("/j"), Arc::<SimFiles>::clone(&files)).unwrap();
        journal.put(&record()).unwrap();
        let written = files.contents().remove(Path::new("/j/claim-1.json")).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "version": 1,
                "id": "claim-1",
                "spec": {
                    "devices": ["GPU-11111111-0000-0000-0000-000000000001"],
                    "multiUser": true,
                },
                "wish": "run",
            })
        );
    }
}
