//! Asks GPUs about their health, each with a deadline: one GPU whose driver calls hang must not
//! keep what happens to the others from being seen.
//!
//! A call in the driver can't be broken off. Its thread is left alone with it and another one
//! goes on; a GPU that still owes an answer is not asked again. So there is one thread more for
//! each GPU that hangs, and never more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use gpu_dra_model::GpuUuid;
use gpu_dra_nvml::Gpus;

/// How long a GPU may take. A reading takes a few milliseconds; when NVML is being opened for it,
/// the first is given up, and the next one has an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce(&dyn Gpus) + Send>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The call hasn't come back. How long it takes is not told, since it grows.
    #[error("NVML doesn't come back from it")]
    Hangs,
    /// It has panicked.
    #[error("asking it failed inside; see the node agent's log")]
    Failed,
    /// No thread.
    #[error("no thread can be started; is the pod's limit of processes reached?")]
    NoThread(#[source] std::io::Error),
}

/// Asks one GPU at a time.
pub(crate) struct Asker {
    gpus: Arc<dyn Gpus>,
    patience: Duration,
    worker: Option<Sender<Job>>,
    /// GPUs that owe an answer, and whether it has come meanwhile.
    hanging: BTreeMap<GpuUuid, Arc<AtomicBool>>,
}

impl Asker {
    pub(crate) fn new(gpus: Arc<dyn Gpus>, patience: Duration) -> Self {
        Self { gpus, patience, worker: None, hanging: BTreeMap::new() }
    }

    /// Asks something of a GPU, and waits for the answer for some time.
    pub(crate) fn ask<T: Send + 'static>(
        &mut self,
        gpu: &GpuUuid,
        question: impl FnOnce(&dyn Gpus) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        match self.hanging.get(gpu) {
            Some(is_back) if !is_back.load(Ordering::SeqCst) => return Err(NoAnswer::Hangs),
            // What it has said at last is of long ago.
            Some(_) => drop(self.hanging.remove(gpu)),
            None => {}
        }
        let is_back = Arc::new(AtomicBool::new(false));
        let back = Back(Arc::clone(&is_back));
        let (answer, answers) = mpsc::channel();
        let job = Box::new(move |gpus: &dyn Gpus| {
            let _back = back;
            // An error says that nobody waits any more.
            drop(answer.send(question(gpus)));
        });
        self.hand_on(job)?;
        match answers.recv_timeout(self.patience) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // Its thread ends with this call, since nobody can give it another.
                self.worker = None;
                self.hanging.insert(gpu.clone(), is_back);
                Err(NoAnswer::Hangs)
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.worker = None;
                Err(NoAnswer::Failed)
            }
        }
    }

    fn hand_on(&mut self, job: Job) -> Result<(), NoAnswer> {
        let job = match &self.worker {
            Some(worker) => match worker.send(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => job,
        };
        let (worker, jobs) = mpsc::channel::<Job>();
        let gpus = Arc::clone(&self.gpus);
        let thread = thread::Builder::new().name("gpu-health".to_owned());
        let work = move || jobs.iter().for_each(|job| job(gpus.as_ref()));
        thread.spawn(work).map_err(NoAnswer::NoThread)?;
        // A thread that has just begun takes it.
        worker.send(job).map_err(|_| NoAnswer::Failed)?;
        self.worker = Some(worker);
        Ok(())
    }
}

/// The call is back, even if it has panicked.
struct Back(Arc<AtomicBool>);

impl Drop for Back {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
