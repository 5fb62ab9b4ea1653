//! What comes before the node agent serves: being alone, the hook in its place, a first look at
//! the GPUs; and what the probes are told meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_host::Files;
use tokio::sync::watch;

use crate::events::Announcer;
use crate::http::Serving;
use crate::metrics::Flights;
use crate::neighbours;
use crate::readiness::{self, Report};
use crate::run::NodeError;
use crate::settings::Settings;
use crate::survey::Survey;

/// Returns when no other driver of our name serves the kubelet; until then `says` is told who.
pub(crate) async fn alone(settings: &Settings, announcer: &Announcer, says: impl Fn(Report)) {
    let (root, driver) = (&settings.kubelet_root, &settings.driver);
    if let Some(first) = neighbours::publisher(root, driver).await {
        says(Report::held_off(&first));
        neighbours::wait_until_alone(root, driver, settings.retry, announcer).await;
    }
}

/// What the probes are told before the agent runs: it lives, and isn't ready.
pub(crate) struct Start {
    pub(crate) flights: Arc<Flights>,
    pub(crate) patience: Duration,
}

impl Start {
    /// With what it waits for, in words.
    pub(crate) fn waits(&self, why: &str) -> Serving {
        let (why, flights, patience) = (why.to_owned(), Arc::clone(&self.flights), self.patience);
        let ask = move || Report::starting(&why, readiness::stuck(&flights, patience));
        Serving { ask: Arc::new(ask), scrape: None }
    }
}

/// The same while somebody else has our name.
pub(crate) fn held_off(report: Report) -> Serving {
    Serving { ask: Arc::new(move || report.clone()), scrape: None }
}

/// Lays the hook where the host finds it under the same path, so that nothing has to be
/// installed on the host.
pub(crate) fn install_hook(
    files: &dyn Files,
    source: Option<&Path>,
    plugin_dir: &Path,
) -> Result<PathBuf, NodeError> {
    let installed = plugin_dir.join("gpu-dra-hook");
    let source = source.ok_or_else(|| NodeError::Hook { path: "gpu-dra-hook".into() })?;
    let bytes = files.read(source)?;
    let bytes = bytes.ok_or_else(|| NodeError::Hook { path: source.to_owned() })?;
    if files.read(&installed)?.as_ref() != Some(&bytes) {
        files.replace(&installed, &bytes, 0o755)?;
    }
    Ok(installed)
}

/// Returns when the GPUs have been looked at once.
pub(crate) async fn first_survey(
    mut survey: watch::Receiver<Option<Arc<Survey>>>,
) -> Result<(), NodeError> {
    let looked = survey.wait_for(Option::is_some).await;
    looked.map(drop).map_err(|_| NodeError::Ended("the surveyor"))
}
