//! Where we stand with the kubelet: not called, asked, registered or refused, with a
//! sentence for people for each. Readiness and the log take it from here.
//!
//! Nobody calls the kubelet: it finds our socket, asks (`GetInfo`) and tells its verdict
//! (`NotifyRegistrationStatus`). A restarted kubelet does so again. `GetInfo` alone never
//! takes a verdict back.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::calls::Caller;
use crate::paths::Paths;
use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// What a DRA driver is among the kubelet's plugin types.
pub(crate) const PLUGIN_TYPE: &str = "DRAPlugin";

/// The services behind the service socket. Kubelets up to 1.36 take the first entry that
/// they know as a DRAPlugin service and skip all others (`validateSupportedServices`), so
/// that the newest DRA version stands first and strings of the future do no harm; 1.37
/// looks for a health service in the same list.
pub(crate) const SERVICES: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// After how long silence is worth a warning. A kubelet looks once a second.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Where we stand with the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistrationState {
    /// The kubelet has not called yet.
    NotCalled {
        /// Since when our socket is there.
        since: Instant,
    },
    /// The kubelet has asked who we are, and has not said what it makes of it.
    InfoServed {
        /// When it first asked.
        at: Instant,
    },
    /// The kubelet sends us claims.
    Registered,
    /// The kubelet doesn't want us. It tries again by itself, less and less often (up to
    /// two minutes between).
    Refused {
        /// Why, in the kubelet's words.
        error: String,
    },
}

impl RegistrationState {
    /// Whether the kubelet sends us claims.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered)
    }

    /// A sentence for people: what is, and if that's bad, what to do.
    #[must_use]
    pub fn sentence(&self, paths: &Paths, now: Instant) -> String {
        let driver = paths.driver();
        match self {
            Self::NotCalled { since } => {
                let waited = now.saturating_duration_since(*since);
                let socket = paths.registration().display();
                if waited < SILENCE_LIMIT {
                    return format!("waiting for the kubelet to call {socket}");
                }
                format!(
                    "the kubelet has not called {socket} for {} s. Either {} is not its --root-dir, \
                     or not mounted here at that path, or it has DynamicResourceAllocation off",
                    waited.as_secs(),
                    paths.kubelet_root().display()
                )
            }
            Self::InfoServed { at } => format!(
                "the kubelet asked for {driver} {} s ago and has not answered yet: if that stays \
                 so, look for {driver} in the kubelet's log",
                now.saturating_duration_since(*at).as_secs()
            ),
            Self::Registered => format!("{driver} is registered with the kubelet"),
            Self::Refused { error } => {
                format!("the kubelet refused {driver}: {error}. {}", remedy(error))
            }
        }
    }
}

/// What usually helps against a refusal, by the words of the kubelet's plugin manager.
fn remedy(error: &str) -> &'static str {
    if error.contains("no handler registered") {
        "It knows no DRA: turn on DynamicResourceAllocation, or use Kubernetes 1.34 or later"
    } else if error.contains("already registered") {
        "Another instance of the driver has the same socket: remove it, or give each its pod UID"
    } else if error.contains("supported gRPC") || error.contains("are supported by the kubelet") {
        "It speaks neither DRA v1 nor v1beta1: use Kubernetes 1.34 or later"
    } else {
        "It tries again by itself; look for the driver in the kubelet's log"
    }
}

/// Logs each change for people, and a silence that lasts too long. Ends with the server.
pub(crate) async fn report(mut state: watch::Receiver<RegistrationState>, paths: Paths) {
    loop {
        let now = state.borrow_and_update().clone();
        match &now {
            RegistrationState::NotCalled { since } => {
                let silence = tokio::time::sleep_until(*since + SILENCE_LIMIT);
                tokio::select! {
                    changed = state.changed() => match changed {
                        Ok(()) => continue,
                        Err(_closed) => return,
                    },
                    () = silence => tracing::warn!("{}", now.sentence(&paths, Instant::now())),
                }
            }
            RegistrationState::Refused { .. } => {
                tracing::warn!("{}", now.sentence(&paths, Instant::now()));
            }
            RegistrationState::InfoServed { .. } | RegistrationState::Registered => {
                tracing::info!("{}", now.sentence(&paths, Instant::now()));
            }
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// The Registration service.
pub(crate) struct Registrar {
    paths: Paths,
    state: watch::Sender<RegistrationState>,
}

impl Registrar {
    pub(crate) fn new(paths: Paths) -> (Self, watch::Receiver<RegistrationState>) {
        let start = RegistrationState::NotCalled { since: Instant::now() };
        let (state, receiver) = watch::channel(start);
        (Self { paths, state }, receiver)
    }

    fn verdict(&self, verdict: RegistrationState) {
        self.state.send_if_modified(|state| {
            let changed = *state != verdict;
            *state = verdict;
            changed
        });
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(
        &self,
        request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        let caller = Caller::of(&request);
        tracing::debug!(pid = caller.pid, uid = caller.uid, "asked who we are");
        self.state.send_if_modified(|state| {
            let first = matches!(state, RegistrationState::NotCalled { .. });
            if first {
                *state = RegistrationState::InfoServed { at: Instant::now() };
            }
            first
        });
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.into(),
            name: self.paths.driver().as_str().into(),
            endpoint: self.paths.endpoint().into(),
            supported_versions: SERVICES.map(String::from).into(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let caller = Caller::of(&request);
        let status = request.into_inner();
        tracing::debug!(
            pid = caller.pid,
            uid = caller.uid,
            registered = status.plugin_registered,
            "told the kubelet's verdict"
        );
        self.verdict(if status.plugin_registered {
            RegistrationState::Registered
        } else {
            RegistrationState::Refused { error: status.error }
        });
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpu_dra_model::DriverName;

    use super::*;

    fn paths() -> Paths {
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        Paths::new(Path::new("/var/lib/kubelet"), &driver, None).unwrap()
    }

    async fn notify(registrar: &Registrar, plugin_registered: bool, error: &str) {
        let status = RegistrationStatus { plugin_registered, error: error.into() };
        registrar.notify_registration_status(Request::new(status)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_kubelets_sequence_moves_the_state() {
        let (registrar, state) = Registrar::new(paths());
        assert!(matches!(*state.borrow(), RegistrationState::NotCalled { .. }));
        let info = registrar.get_info(Request::new(InfoRequest {})).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "gpu.nvidia.com"));
        assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/gpu.nvidia.com/dra@plugin.sock");
        assert_eq!(info.supported_versions[0], "v1.DRAPlugin", "kubelets take the first they know");
        assert!(matches!(*state.borrow(), RegistrationState::InfoServed { .. }));
        notify(&registrar, true, "").await;
        assert!(state.borrow().is_registered());

        // A restarted kubelet asks again: until its verdict the old one stands.
        registrar.get_info(Request::new(InfoRequest {})).await.unwrap();
        assert!(state.borrow().is_registered());
        notify(&registrar, false, "boom").await;
        assert_eq!(*state.borrow(), RegistrationState::Refused { error: "boom".into() });
        registrar.get_info(Request::new(InfoRequest {})).await.unwrap();
        assert!(matches!(*state.borrow(), RegistrationState::Refused { .. }));
        notify(&registrar, true, "").await;
        assert!(state.borrow().is_registered());
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_verdict_is_no_change() {
        let (registrar, mut state) = Registrar::new(paths());
        notify(&registrar, false, "boom").await;
        state.mark_unchanged();
        notify(&registrar, false, "boom").await;
        assert!(!state.has_changed().unwrap(), "the same refusal is not logged over and over");
    }

    /// What the log says while `scene` plays.
    async fn logged(scene: impl Future<Output = ()>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt()
            .with_writer(file.reopen().unwrap())
            .with_ansi(false)
            .without_time()
            .finish();
        let _guard = tracing::subscriber::set_default(log);
        scene.await;
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_logged_once_after_a_minute_and_each_verdict_once() {
        let log = logged(async {
            let (registrar, state) = Registrar::new(paths());
            let play = async {
                tokio::time::sleep(Duration::from_secs(59)).await;
                tracing::info!("after 59 s");
                tokio::time::sleep(Duration::from_secs(300)).await;
                registrar.get_info(Request::new(InfoRequest {})).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
                notify(&registrar, false, "no handler registered").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                notify(&registrar, false, "no handler registered").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                notify(&registrar, true, "").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(registrar);
            };
            futures::future::join(report(state, paths()), play).await;
        })
        .await;
        let lines: Vec<_> = log.lines().collect();
        let expected = [
            (" INFO", "after 59 s"),
            (" WARN", "has not called"),
            (" INFO", "has not answered yet"),
            (" WARN", "refused gpu.nvidia.com: no handler"),
            (" INFO", "is registered"),
        ];
        assert_eq!(lines.len(), expected.len(), "{log}");
        for (line, (level, text)) in lines.iter().zip(expected) {
            assert!(line.starts_with(level) && line.contains(text), "{text}: {log}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_has_a_sentence_that_helps() {
        let since = Instant::now();
        let sentence = |state: RegistrationState, after: u64| {
            state.sentence(&paths(), since + Duration::from_secs(after))
        };
        let silent = RegistrationState::NotCalled { since };
        let early = sentence(silent.clone(), 59);
        assert!(early.contains("waiting") && early.contains("gpu.nvidia.com@reg.sock"), "{early}");
        let late = sentence(silent, 60);
        for part in ["60 s", "--root-dir", "/var/lib/kubelet", "mounted", "DynamicResource"] {
            assert!(late.contains(part), "{part}: {late}");
        }
        let asked = sentence(RegistrationState::InfoServed { at: since }, 7);
        assert!(asked.contains("7 s ago") && asked.contains("kubelet's log"), "{asked}");
        for (error, remedy) in [
            ("no handler registered for plugin type: DRAPlugin at socket /x", "Kubernetes 1.34"),
            ("endpoint /x already registered for DRA driver plugin y", "pod UID"),
            ("none of services supported by the plugin are supported by the kubelet", "v1beta1"),
            ("something new", "kubelet's log"),
        ] {
            let refused = sentence(RegistrationState::Refused { error: error.into() }, 0);
            assert!(refused.contains(error) && refused.contains(remedy), "{refused}");
        }
    }
}
