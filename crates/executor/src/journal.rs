//! The journal: one file a claim, in a folder that outlives the process. Two processes of a
//! rolling update share it, so nothing is believed without looking at the file's stamp.
//!
//! It keeps what it is given. It decides nothing and does no step.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gpu_dra_claims::Record;
use gpu_dra_host::{FileError, FileStamp, Files};
use gpu_dra_model::ClaimUid;

/// The record of a claim could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("journal: {0}")]
    File(#[from] FileError),
    /// A record that can't be written as JSON.
    #[error("journal record of claim {claim} can't be written")]
    Encode {
        /// The claim.
        claim: ClaimUid,
        /// serde's words.
        #[source]
        source: serde_json::Error,
    },
}

/// A file that was no record and has been moved out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAside {
    /// Where it lies now.
    pub path: PathBuf,
    /// What was wrong with it.
    pub reason: String,
}

impl std::fmt::Display for MovedAside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "journal file is no record ({}): it is kept as {}, and its claim counts as not prepared",
            self.reason,
            self.path.display()
        )
    }
}

/// All claims that this node holds.
pub struct Journal {
    dir: PathBuf,
    files: Arc<dyn Files>,
    cache: Mutex<HashMap<OsString, (FileStamp, Arc<Record>)>>,
    moved_aside: Mutex<Vec<MovedAside>>,
}

impl Journal {
    /// The journal in `dir`, which is created.
    ///
    /// # Errors
    /// When the folder can't be created.
    pub fn open(dir: &Path, files: Arc<dyn Files>) -> Result<Self, JournalError> {
        files.create_dir(dir, 0o750)?;
        Ok(Self {
            dir: dir.to_owned(),
            files,
            cache: Mutex::default(),
            moved_aside: Mutex::default(),
        })
    }

    /// Every claim's record as it is on disk now. Files that changed since the last look are
    /// read again; a file that is no record is moved aside, and the others are unaffected.
    ///
    /// # Errors
    /// When the folder or a record can't be read: then nobody knows what is held, and nothing
    /// may be given out.
    pub fn all(&self) -> Result<Vec<Arc<Record>>, JournalError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = HashMap::new();
        for (name, stamp) in self.files.list(&self.dir)? {
            if name.to_str().and_then(Self::claim_of_file_name).is_none() {
                continue;
            }
            match cache.remove(&name) {
                Some((known, record)) if known == stamp => {
                    fresh.insert(name, (stamp, record));
                }
                _ => {
                    if let Some(record) = self.load(&self.dir.join(&name))? {
                        fresh.insert(name, (stamp, Arc::new(record)));
                    }
                }
            }
        }
        *cache = fresh;
        let mut records: Vec<_> = cache.values().map(|(_, record)| Arc::clone(record)).collect();
        records.sort_by(|a, b| a.claim.uid.cmp(&b.claim.uid));
        Ok(records)
    }

    /// One claim's record, read from disk.
    ///
    /// # Errors
    /// When the file is there but can't be read.
    pub fn get(&self, uid: &ClaimUid) -> Result<Option<Record>, JournalError> {
        self.load(&self.path(uid))
    }

    /// Writes the record for good.
    ///
    /// # Errors
    /// When the file system refuses; the old record then stays.
    pub fn put(&self, record: &Record) -> Result<(), JournalError> {
        let bytes = record
            .encode()
            .map_err(|source| JournalError::Encode { claim: record.claim.uid.clone(), source })?;
        Ok(self.files.replace(&self.path(&record.claim.uid), &bytes, 0o600)?)
    }

    /// Forgets the claim for good.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove(&self, uid: &ClaimUid) -> Result<(), JournalError> {
        self.files.remove(&self.path(uid))?;
        Ok(())
    }

    /// The files that were moved aside since the last call, for the log and an event.
    pub fn take_moved_aside(&self) -> Vec<MovedAside> {
        std::mem::take(&mut *self.moved_aside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the files lie.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The claim that a file of this name holds.
    #[must_use]
    pub fn claim_of_file_name(name: &str) -> Option<ClaimUid> {
        ClaimUid::new(name.strip_suffix(".json")?).ok()
    }

    fn path(&self, uid: &ClaimUid) -> PathBuf {
        self.dir.join(format!("{uid}.json"))
    }

    fn load(&self, path: &Path) -> Result<Option<Record>, JournalError> {
        let Some(bytes) = self.files.read(path)? else { return Ok(None) };
        let misplaced = |record: &Record| path != self.path(&record.claim.uid);
        let name = path.file_name().and_then(|name| name.to_str());
        let newer = || Record::stand_in(&name.and_then(Self::claim_of_file_name)?, &bytes);
        let reason = match Record::decode(&bytes) {
            Ok(record) if misplaced(&record) => "it holds another claim's record".to_owned(),
            Ok(record) => return Ok(Some(record)),
            Err(error) => match newer() {
                Some(record) => {
                    tracing::error!(
                        file = %path.display(), version = record.version, claim = %record.claim,
                        "journal file is of a newer version; update the node agent on this node, until then its GPUs count as held"
                    );
                    return Ok(Some(record));
                }
                None => error.to_string(),
            },
        };
        let aside = path.with_extension("json.bad");
        self.files.rename(path, &aside)?;
        tracing::error!(
            file = %aside.display(), %reason,
            "journal file is no record; moved aside, the claim counts as not prepared"
        );
        let mut moved = self.moved_aside.lock().unwrap_or_else(PoisonError::into_inner);
        moved.push(MovedAside { path: aside, reason });
        Ok(None)
    }
}
