//! Named locks that hold between threads of this process and between two processes of a
//! rolling update. One file serves all of them: each name locks its own byte of it, so
//! that no lock file is ever created or removed under somebody's feet.
//!
//! A lock is given back when its guard is dropped, and by the kernel when the process dies.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// A lock that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file can't be used.
    #[error("lock file {}: the node agent needs a writable plugin folder", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Somebody else held it all the time.
    #[error("{name} is busy with an earlier call; it will be tried again")]
    Busy {
        /// The name that is locked.
        name: String,
    },
}

/// All locks of one kind.
#[derive(Debug)]
pub struct Locks {
    path: PathBuf,
    file: File,
    held: Mutex<HashSet<u64>>,
    freed: Condvar,
}

/// Keeps one name locked while it lives.
#[derive(Debug)]
#[must_use]
pub struct LockGuard {
    locks: Arc<Locks>,
    byte: u64,
}

impl Locks {
    /// Opens or creates the lock file.
    ///
    /// # Errors
    /// When the file can't be opened for writing.
    pub fn open(path: &Path) -> Result<Arc<Self>, LockError> {
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let file = file.map_err(|source| LockError::File { path: path.to_owned(), source })?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            file,
            held: Mutex::default(),
            freed: Condvar::new(),
        }))
    }

    /// Waits until `name` is ours, at most `patience`.
    ///
    /// # Errors
    /// [`LockError::Busy`] when the time is over.
    pub fn lock(self: &Arc<Self>, name: &str, patience: Duration) -> Result<LockGuard, LockError> {
        let deadline = Instant::now() + patience;
        let busy = || LockError::Busy { name: name.to_owned() };
        let byte = byte_of(name);
        {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            while !held.insert(byte) {
                let left = deadline.checked_duration_since(Instant::now()).ok_or_else(busy)?;
                held =
                    self.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        // From here on the guard's drop gives the name back, also when another process has it.
        let guard = LockGuard { locks: Arc::clone(self), byte };
        let mut pause = Duration::from_millis(1);
        while !self.set(byte, libc_lock::WRITE)? {
            if Instant::now() + pause > deadline {
                return Err(busy());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(guard)
    }

    /// False where another process holds the byte.
    fn set(&self, byte: u64, kind: i16) -> Result<bool, LockError> {
        let lock = libc_lock::one_byte(byte, kind);
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(LockError::File { path: self.path.clone(), source: error.into() }),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Err(error) = self.locks.set(self.byte, libc_lock::UNLOCK) {
            tracing::error!(%error, "lock not given back to other processes");
        }
        self.locks.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.byte);
        self.locks.freed.notify_all();
    }
}

/// The byte that stands for a name: its FNV-1a hash, so that it is the same in every process
/// of every version. Two names on one byte only wait for each other.
fn byte_of(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 2
}

mod libc_lock {
    use nix::libc;

    pub(super) const WRITE: i16 = libc::F_WRLCK as i16;
    pub(super) const UNLOCK: i16 = libc::F_UNLCK as i16;

    pub(super) fn one_byte(byte: u64, kind: i16) -> libc::flock {
        libc::flock {
            l_type: kind,
            l_whence: libc::SEEK_SET as i16,
            l_start: byte.cast_signed(),
            l_len: 1,
            l_pid: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_excludes_itself_between_processes_and_threads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks");
        let ours = Locks::open(&path).unwrap();
        // Another open file description stands for another process.
        let theirs = Locks::open(&path).unwrap();
        let guard = ours.lock("a", Duration::from_secs(1)).unwrap();
        assert!(matches!(ours.lock("a", Duration::ZERO), Err(LockError::Busy { .. })));
        assert!(matches!(theirs.lock("a", Duration::ZERO), Err(LockError::Busy { .. })));
        let _other = theirs.lock("b", Duration::ZERO).unwrap();
        drop(guard);
        let _again = theirs.lock("a", Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_freed() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::open(&dir.path().join("locks")).unwrap();
        let guard = locks.lock("a", Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| locks.lock("a", Duration::from_secs(10)).map(drop));
            std::thread::sleep(Duration::from_millis(20));
            drop(guard);
            waiter.join().unwrap().unwrap();
        });
    }
}
