//! Whether this node serves claims, and if not, why: registered with the kubelet, slices
//! published, NVML answering, nobody else having the GPUs. Each part has a sentence. And
//! whether the process is stuck.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_kubelet::{Paths, RegistrationState};
use gpu_dra_publisher::PublishStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::Flights;
use crate::neighbours::Neighbour;
use crate::node_watch::NodeSeen;
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
    /// What our Node says.
    pub(crate) node: watch::Receiver<Option<NodeSeen>>,
    /// What is under way in NVML.
    pub flights: Arc<Flights>,
    /// How long NVML may take for one thing: longer than the first initialisation of all GPUs,
    /// or a switch of the MIG mode.
    pub nvml_patience: Duration,
}

/// What the parts say at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// All parts are as they should be. A node without a driver, or without a GPU for it, is
    /// ready: it serves what it has, and a rollout must not wait for a driver to be installed.
    /// One whose driver doesn't work isn't.
    pub ready: bool,
    /// Why the process is of no more use as it is, in a sentence; None where it is well.
    pub stuck: Option<String>,
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
        let stuck = self.stuck();
        let gpus = match (&stuck, survey.as_deref()) {
            (Some(stuck), _) => stuck.clone(),
            (None, None) => "not looked at yet".to_owned(),
            (None, Some(Survey { trouble: Some(trouble), .. })) => trouble.to_string(),
            (None, Some(survey)) => format!(
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
        let node = self.node.borrow();
        let is_ours = node.as_ref().is_some_and(|seen| seen.device_plugin.is_none());
        Report {
            ready: is_ours
                && registration.is_registered()
                && published.in_sync
                && survey.as_deref().is_some_and(is_driver_well)
                && stuck.is_none(),
            stuck,
            sentences: vec![
                ("kubelet", registration.sentence(&self.paths, Instant::now())),
                ("slices", slices),
                ("gpus", gpus),
                ("node", node.as_ref().map_or("not read yet".to_owned(), NodeSeen::sentence)),
            ],
        }
    }

    fn stuck(&self) -> Option<String> {
        stuck(&self.flights, self.nvml_patience)
    }
}

fn is_driver_well(survey: &Survey) -> bool {
    survey.trouble.as_ref().is_none_or(|trouble| trouble.is_driver_absent)
}

/// A call of NVML's that doesn't come back holds up claims on its GPU and the survey. Often
/// another process gets an answer; where the kernel driver hangs, none does until a reboot.
pub(crate) fn stuck(flights: &Flights, patience: Duration) -> Option<String> {
    let (operation, time) = flights.oldest()?;
    (time > patience).then(|| {
        format!(
            "NVML has not come back from {operation} for {} s; see `dmesg | grep NVRM`, and \
             reboot the node if a restart of this pod doesn't help",
            time.as_secs()
        )
    })
}

impl Report {
    /// While the agent starts, which may take for as long as what it waits for.
    #[must_use]
    pub fn starting(waits: &str, stuck: Option<String>) -> Self {
        Self { ready: false, stuck, sentences: vec![("start", waits.to_owned())] }
    }

    /// While somebody else has our name.
    #[must_use]
    pub fn held_off(by: &Neighbour) -> Self {
        Self { ready: false, stuck: None, sentences: vec![("kubelet", by.to_string())] }
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

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use gpu_dra_claims::NodeView;
    use gpu_dra_model::{BootId, Inventory, PoolName};
    use gpu_dra_slices::{Names, PackedPool, Policy, build};
    use gpu_dra_testkit::{POOL, driver};

    use super::*;
    use crate::survey::Trouble;

    pub(crate) fn survey(trouble: Option<Trouble>) -> Survey {
        let inventory = Inventory::default();
        let pool = build(&inventory, &Names::default(), &Policy::default(), &BTreeSet::new()).pool;
        Survey {
            inventory,
            pool: Arc::new(PackedPool::new(&pool)),
            view: NodeView {
                pool: PoolName::new(POOL).unwrap(),
                devices: Default::default(),
                gpus: Default::default(),
                boot_id: BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
            },
            trouble,
            missing: BTreeSet::new(),
        }
    }

    /// A node on which all is well.
    fn well() -> Readiness {
        Readiness {
            paths: Paths::new(Path::new("/var/lib/kubelet"), &driver(), None).unwrap(),
            registration: watch::channel(RegistrationState::Registered).1,
            published: watch::channel(PublishStatus { in_sync: true, ..Default::default() }).1,
            survey: watch::channel(Some(Arc::new(survey(None)))).1,
            node: watch::channel(Some(NodeSeen::default())).1,
            flights: Arc::default(),
            nvml_patience: Duration::from_millis(20),
        }
    }

    #[test]
    fn ready_is_all_parts_and_each_says_what_is_wrong() {
        assert!(well().report().ready, "{}", well().report());
        let refused = RegistrationState::Refused { error: "no".to_owned() };
        for (not_ready, part) in [
            (Readiness { registration: watch::channel(refused).1, ..well() }, "kubelet"),
            (
                Readiness { published: watch::channel(PublishStatus::default()).1, ..well() },
                "slices",
            ),
            (Readiness { survey: watch::channel(None).1, ..well() }, "gpus"),
            (Readiness { node: watch::channel(None).1, ..well() }, "node"),
        ] {
            let report = not_ready.report();
            assert!(!report.ready && report.stuck.is_none(), "{part}: {report}");
            let as_ever = well().report();
            let (is, was) = (report.sentences.iter(), as_ever.sentences.iter());
            let changed: Vec<_> =
                is.zip(was).filter(|(is, was)| is != was).map(|(is, _)| is.0).collect();
            assert_eq!(changed, [part]);
        }
    }

    #[test]
    fn a_node_without_a_driver_is_ready_and_one_whose_driver_does_not_work_is_not() {
        for (is_driver_absent, sentence) in [
            (true, "the NVIDIA kernel driver is not loaded"),
            (false, "NVIDIA library 570.1 doesn't match kernel driver 550.2"),
        ] {
            let trouble = Trouble { sentence: sentence.to_owned(), is_driver_absent };
            let survey = watch::channel(Some(Arc::new(survey(Some(trouble))))).1;
            let report = Readiness { survey, ..well() }.report();
            assert_eq!(report.ready, is_driver_absent, "{report}");
            assert!(report.to_string().contains(&format!("gpus: {sentence}")), "{report}");
            assert_eq!(report.stuck, None, "a restart wouldn't help");
        }
    }

    #[test]
    fn what_nvml_owes_for_too_long_is_stuck_until_it_comes() {
        let node = well();
        let flights = Arc::clone(&node.flights);
        let slow = flights.begin("probe");
        assert!(node.report().ready, "not yet");
        std::thread::sleep(Duration::from_millis(30));
        let quick = flights.begin("health");
        let report = node.report();
        let stuck = report.stuck.clone().unwrap();
        assert!(stuck.contains("has not come back from probe for 0 s"), "{stuck}");
        assert!(!report.ready && report.to_string().contains(&stuck), "{report}");
        drop(slow);
        assert_eq!(node.report().stuck, None);
        drop(quick);
        assert_eq!(flights.oldest(), None);
    }
}
