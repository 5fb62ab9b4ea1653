//! Whether this node serves claims, and if not, why: registered with the kubelet, slices
//! published, NVML answering. Each part has a sentence.

use std::fmt;
use std::sync::Arc;

use gpu_dra_kubelet::{Paths, RegistrationState};
use gpu_dra_publisher::PublishStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::survey::Survey;

/// Looks at what the parts say.
pub struct Readiness {
    /// The sockets, for sentences.
    pub paths: Paths,
    /// Where we stand with the kubelet.
    pub registration: watch::Receiver<RegistrationState>,
    /// Where we stand with the API server.
    pub published: watch::Receiver<PublishStatus>,
    /// What was found on the node.
    pub survey: watch::Receiver<Option<Arc<Survey>>>,
}

/// What the parts say at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// All parts are as they should be. A node without a driver is ready: it serves what it
    /// has, and a rollout must not wait for a driver to be installed.
    pub ready: bool,
    /// One sentence a part.
    pub sentences: Vec<(&'static str, String)>,
}

impl Readiness {
    /// Asks every part now.
    #[must_use]
    pub fn report(&self) -> Report {
        let registration = self.registration.borrow();
        let published = self.published.borrow();
        let survey = self.survey.borrow();
        let gpus = match survey.as_deref() {
            None => "not looked at yet".to_owned(),
            Some(Survey { trouble: Some(trouble), .. }) => trouble.clone(),
            Some(survey) => format!(
                "{} GPUs answer, {} don't",
                survey.inventory.gpus.len(),
                survey.inventory.broken.len()
            ),
        };
        let slices = match (&published.last_error, published.in_sync) {
            (Some(error), _) => error.to_string(),
            (None, true) => {
                format!("{} devices in {} slices", published.devices, published.slices)
            }
            (None, false) => "being written".to_owned(),
        };
        Report {
            ready: registration.is_registered() && published.in_sync && survey.is_some(),
            sentences: vec![
                ("kubelet", registration.sentence(&self.paths, Instant::now())),
                ("slices", slices),
                ("gpus", gpus),
            ],
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.ready { "ready" } else { "not ready" })?;
        for (part, sentence) in &self.sentences {
            writeln!(f, "{part}: {sentence}")?;
        }
        Ok(())
    }
}
