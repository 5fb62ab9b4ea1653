//! What the demo shows: one line a happening, in colour on a terminal.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use gpu_dra_lab::{Applied, Lab, LabEvent, Selector, kinds};
use owo_colors::OwoColorize as _;

use super::progress::Progress;

/// Prints lines with the time since the start.
pub(super) struct Display {
    started: Instant,
}

impl Display {
    pub(super) fn new(started: Instant) -> Self {
        Self { started }
    }

    fn line(&self, mark: &str, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        anstream::println!("{} {mark} {what}", format!("{seconds:6.3}").dimmed());
    }

    pub(super) fn title(&self, what: &str) {
        self.line(&"gpu-dra demo".bold().to_string(), what);
    }

    pub(super) fn kubeconfig(&self, path: &Path) {
        self.line("", &format!("export KUBECONFIG={}", path.display()));
    }

    pub(super) fn applied(&self, name: &str, applied: &[Applied]) {
        let objects: Vec<_> =
            applied.iter().map(|object| format!("{} {}", object.kind, object.name)).collect();
        self.line(&"apply".blue().to_string(), &format!("{name}: {}", objects.join(", ")));
    }

    pub(super) fn event(&self, event: &LabEvent) {
        match event {
            LabEvent::DriverRegistered { driver, .. } => {
                self.line(&"kubelet".magenta().to_string(), &format!("registered {driver}"));
            }
            LabEvent::DriverRefused { reason } => {
                self.line(&"kubelet".red().to_string(), reason);
            }
            LabEvent::SlicePublished { name, devices, .. } => self
                .line(&"slice".cyan().to_string(), &format!("{name} published, {devices} devices")),
            LabEvent::ClaimAllocated { namespace, name, devices } => self.line(
                &"claim".yellow().to_string(),
                &format!("{namespace}/{name} allocated {}", devices.join(", ")),
            ),
            LabEvent::ClaimPrepared { namespace, name, cdi_ids, .. } => self.line(
                &"claim".yellow().to_string(),
                &format!("{namespace}/{name} prepared: {} CDI devices", cdi_ids.len()),
            ),
            LabEvent::ClaimUnprepared { namespace, name } => {
                self.line(&"claim".yellow().to_string(), &format!("{namespace}/{name} unprepared"));
            }
            LabEvent::PodPhase { namespace, name, phase, .. } => {
                let mark = if phase == "Running" {
                    "pod".green().to_string()
                } else {
                    "pod".dimmed().to_string()
                };
                self.line(&mark, &format!("{namespace}/{name} {phase}"));
            }
            LabEvent::Warning { object, reason, message } => {
                self.line(&"warning".red().to_string(), &format!("{object} {reason}: {message}"));
            }
            LabEvent::DriverGone { .. }
            | LabEvent::SliceDeleted { .. }
            | LabEvent::ClaimDeallocated { .. }
            | LabEvent::ContainerStarted(_) => {}
        }
    }

    /// The GPUs as they are published, and how often each MIG profile is.
    pub(super) fn devices(&self, lab: &Lab) {
        let (slices, _) = lab.api().list(&kinds::RESOURCE_SLICE, "", &Selector::default());
        let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
        for device in
            slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten()
        {
            let attribute = |name: &str| {
                let value = &device["attributes"][name];
                value["string"].as_str().unwrap_or_default().to_owned()
            };
            let memory = device["capacity"]["memory"]["value"].as_str().unwrap_or("-");
            if attribute("type") == "mig" {
                *places.entry((attribute("profile"), memory.to_owned())).or_default() += 1;
                continue;
            }
            // The same GPU once more, for those who only look.
            if attribute("type") == "monitor" {
                continue;
            }
            let name = device["name"].as_str().unwrap_or_default();
            let what = format!(
                "{name}: {}, {memory}, {}",
                attribute("productName"),
                attribute("resource.kubernetes.io/pciBusID")
            );
            self.line(&"gpu".cyan().to_string(), &what);
        }
        for ((profile, memory), places) in places {
            self.line(&"mig".cyan().to_string(), &format!("{profile}: {memory}, {places} places"));
        }
    }

    /// What one container got.
    pub(super) fn container(&self, lab: &Lab, cdi_root: &Path) {
        let with_gpus = lab.containers().into_iter().filter(|c| !c.cdi_ids.is_empty());
        let Some(container) = with_gpus.min_by_key(|c| c.cdi_ids.len()) else { return };
        let who = format!("{}/{} container {}", container.namespace, container.pod, container.name);
        self.line(&"CDI".bold().to_string(), &format!("what {who} gets:"));
        for id in &container.cdi_ids {
            anstream::println!("         device {id}");
        }
        for env in &container.env {
            anstream::println!("         env    {env}");
        }
        for node in &container.device_nodes {
            anstream::println!("         node   {node}");
        }
        let (simulated, files): (Vec<_>, Vec<_>) =
            container.mounts.iter().partition(|mount| mount.container_path.starts_with("/dev/"));
        for mount in simulated {
            anstream::println!(
                "         node   {} (a plain file here: no root)",
                mount.container_path
            );
        }
        anstream::println!("         mounts {} driver files, such as", files.len());
        for mount in files.iter().take(3) {
            anstream::println!("                {}", mount.container_path);
        }
        for (when, hook) in &container.hooks {
            let name = hook.get(1).map_or("", String::as_str);
            anstream::println!("         hook   {when}: gpu-dra-hook {name}");
        }
        anstream::println!("         from   {}", cdi_root.display());
    }

    pub(super) fn summary(&self, progress: &Progress) {
        let (running, all) = progress.running();
        let mark =
            if running == all { "done".green().to_string() } else { "done".red().to_string() };
        self.line(&mark, &format!("{running} of {all} pods run"));
        for pod in progress.not_running() {
            self.line(&"waiting".red().to_string(), &pod);
        }
    }

    pub(super) fn cleaned(&self, left: &[String]) {
        let what = if left.is_empty() {
            "all pods deleted, nothing left in the journal or the CDI folder".to_owned()
        } else {
            format!("left over: {}", left.join(", "))
        };
        self.line(&"clean".green().to_string(), &what);
    }

    pub(super) fn stay(&self, kubeconfig: &Path, log: &Path) {
        self.line("", &format!("the node agent's log is {}", log.display()));
        self.line(
            "",
            &format!(
                "try: kubectl --kubeconfig {} get resourceslices,pods,resourceclaims -A",
                kubeconfig.display()
            ),
        );
        self.line("", "Ctrl-C ends it");
    }
}
