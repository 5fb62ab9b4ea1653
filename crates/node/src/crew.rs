//! The tasks and threads that the agent is made of. One that ends when it should go on, above
//! all by a panic, ends the process, which is started again: an agent that runs without one of
//! its parts looks well and isn't.
//!
//! It knows who they are and what they are called, and nothing of what they do.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// All of them. Those that are tasks end when this is dropped.
pub(crate) struct Crew {
    ended: mpsc::UnboundedSender<&'static str>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Hears who has ended.
pub(crate) struct Roll(mpsc::UnboundedReceiver<&'static str>);

/// Held by a thread or task for as long as it works.
pub(crate) struct Duty {
    what: &'static str,
    may_end: bool,
    ended: mpsc::UnboundedSender<&'static str>,
}

impl Crew {
    /// Nobody yet.
    pub(crate) fn new() -> (Self, Roll) {
        let (ended, roll) = mpsc::unbounded_channel();
        (Self { ended, tasks: Mutex::default() }, Roll(roll))
    }

    /// For a thread of one's own, which must hold it to its end.
    pub(crate) fn duty(&self, what: &'static str) -> Duty {
        Duty { what, may_end: false, ended: self.ended.clone() }
    }

    /// A task that must not end.
    pub(crate) fn spawn(
        &self,
        what: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.start(self.duty(what), work);
    }

    /// A task that has an end, and must not fail inside.
    pub(crate) fn spawn_finite(
        &self,
        what: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut duty = self.duty(what);
        duty.may_end = true;
        self.start(duty, work);
    }

    /// A thread that may block, and must not end.
    pub(crate) fn spawn_blocking(&self, what: &'static str, work: impl FnOnce() + Send + 'static) {
        let duty = self.duty(what);
        drop(tokio::task::spawn_blocking(move || {
            let _duty = duty;
            work();
        }));
    }

    fn start(&self, duty: Duty, work: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(async move {
            let _duty = duty;
            work.await;
        });
        // Nothing in here can panic half-way.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task.abort_handle());
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if !self.may_end || std::thread::panicking() {
            let is_heard = self.ended.send(self.what).is_ok();
            tracing::debug!(what = self.what, is_heard, "ended");
        }
    }
}

impl Roll {
    /// Returns when one has ended that should not have, with what it was.
    pub(crate) async fn ended(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(what) => what,
            // Nobody is left who could end.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn ended(roll: &mut Roll) -> Option<&'static str> {
        timeout(Duration::from_millis(300), roll.ended()).await.ok()
    }

    #[tokio::test]
    async fn whoever_dies_or_ends_too_soon_is_told_by_name() {
        let (crew, mut roll) = Crew::new();
        crew.spawn("the patient one", std::future::pending());
        crew.spawn_finite("the finite one", async {});
        assert_eq!(ended(&mut roll).await, None);
        crew.spawn("the lazy one", async {});
        assert_eq!(ended(&mut roll).await, Some("the lazy one"));
        crew.spawn("the weak one", async { panic!("as the test wants") });
        assert_eq!(ended(&mut roll).await, Some("the weak one"));
        crew.spawn_finite("the finite one", async {
            tokio::task::yield_now().await;
            panic!("as the test wants");
        });
        assert_eq!(ended(&mut roll).await, Some("the finite one"));
        crew.spawn_blocking("the thread", || panic!("as the test wants"));
        assert_eq!(ended(&mut roll).await, Some("the thread"));
        let duty = crew.duty("the listener");
        let thread = std::thread::spawn(move || {
            let _duty = duty;
            panic!("as the test wants");
        });
        assert_eq!(ended(&mut roll).await, Some("the listener"));
        assert!(thread.join().is_err());
    }

    #[tokio::test]
    async fn all_end_with_the_crew() {
        let (crew, mut roll) = Crew::new();
        crew.spawn("the patient one", std::future::pending());
        drop(crew);
        assert_eq!(ended(&mut roll).await, Some("the patient one"));
    }
}
