//! Wakes one thread that waits for a process or for time.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An eventfd: set by anyone, cleared by the one who waits.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// # Errors
    /// When the kernel has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the waiter, now or when it waits next.
    pub fn set(&self) {
        match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
            // Full to the brim is set.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => tracing::error!(%error, "a thread can't be woken"),
        }
    }

    /// Waits until it is set, at most `limit`. True if it was; it is cleared then.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        ready(&[self.0.as_fd()], Some(limit))?;
        Ok(self.clear())
    }

    /// True if it was set.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors can be read, at most `limit`. False when the time is
/// over.
pub(crate) fn ready(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<bool> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut polled, limit.as_ref()) {
        Ok(count) => Ok(count > 0),
        // A signal: the caller looks at what it waits for, and waits again.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
