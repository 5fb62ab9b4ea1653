//! How far the pods are, from what the control plane tells.

use std::collections::BTreeMap;

use anyhow::Context as _;
use gpu_dra_lab::{DeleteOptions, Lab, LabEvent, Selector, kinds};

/// The pods, and what is known of each.
pub(super) struct Progress {
    pods: BTreeMap<String, Pod>,
}

#[derive(Default)]
struct Pod {
    phase: String,
    trouble: Option<String>,
}

impl Progress {
    /// Begins with the pods that are there.
    pub(super) fn new(lab: &Lab) -> Self {
        let (pods, _) = lab.api().list(&kinds::POD, "", &Selector::default());
        let pods = pods.iter().map(|pod| {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
            let phase = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
            (format!("{}/{}", text("namespace"), text("name")), Pod { phase, trouble: None })
        });
        Self { pods: pods.collect() }
    }

    /// Takes in what happened.
    pub(super) fn note(&mut self, event: &LabEvent) {
        match event {
            LabEvent::PodPhase { namespace, name, phase, .. } => {
                let pod = self.pods.entry(format!("{namespace}/{name}")).or_default();
                pod.phase.clone_from(phase);
            }
            LabEvent::Warning { object, message, .. } => {
                let pod = object.strip_prefix("pod ").and_then(|name| self.pods.get_mut(name));
                if let Some(pod) = pod {
                    pod.trouble = Some(message.clone());
                }
            }
            _ => {}
        }
    }

    /// All pods run.
    pub(super) fn is_settled(&self) -> bool {
        !self.pods.is_empty() && self.pods.values().all(|pod| pod.phase == "Running")
    }

    /// How many pods run, of how many.
    pub(super) fn running(&self) -> (usize, usize) {
        let running = self.pods.values().filter(|pod| pod.phase == "Running").count();
        (running, self.pods.len())
    }

    /// The pods that don't, each with the last that was said of it.
    pub(super) fn not_running(&self) -> Vec<String> {
        let waiting = self.pods.iter().filter(|(_, pod)| pod.phase != "Running");
        waiting
            .map(|(name, pod)| match &pod.trouble {
                Some(trouble) => format!("{name} ({trouble})"),
                None => name.clone(),
            })
            .collect()
    }
}

/// Every pod, by namespace and name.
pub(super) fn pods(lab: &Lab) -> Vec<String> {
    let (pods, _) = lab.api().list(&kinds::POD, "", &Selector::default());
    let text = |pod: &serde_json::Value, field: &str| {
        pod["metadata"][field].as_str().unwrap_or_default().to_owned()
    };
    pods.iter().map(|pod| format!("{}/{}", text(pod, "namespace"), text(pod, "name"))).collect()
}

/// Deletes every pod, as a person would.
pub(super) async fn delete_pods(lab: &Lab) -> anyhow::Result<()> {
    let (pods, _) = lab.api().list(&kinds::POD, "", &Selector::default());
    for pod in &pods {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        lab.api()
            .delete(&kinds::POD, text("namespace"), text("name"), &DeleteOptions::default())
            .with_context(|| format!("can't delete pod {}", text("name")))?;
    }
    Ok(())
}
