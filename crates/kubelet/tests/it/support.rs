//! A kubelet root in a temporary directory, a claim service that does what a test tells it,
//! and short names for what every test needs.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use gpu_dra_kubelet::client::{DraApi, Event, Plugin, Watch};
use gpu_dra_kubelet::{
    ClaimService, DeviceHealth, HealthState, Paths, PreparedDevice, RegistrationState, Server,
};
use gpu_dra_model::{
    CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, PoolName, RequestName,
};
use tokio::sync::{Semaphore, watch};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Fails the test instead of hanging it.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("took too long")
}

/// A kubelet's root directory.
pub(crate) struct Root(tempfile::TempDir);

impl Root {
    pub(crate) fn new() -> Self {
        log();
        let root = tempfile::Builder::new().prefix("k").tempdir().unwrap();
        std::fs::create_dir(root.path().join("plugins_registry")).unwrap();
        Self(root)
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.0.path().join("plugins_registry")
    }

    pub(crate) fn paths(&self, pod_uid: Option<&str>) -> Paths {
        Paths::new(self.0.path(), &driver(), pod_uid).unwrap()
    }

    pub(crate) async fn start(&self, service: &Arc<Claims>) -> Server {
        Server::start(self.paths(None), Arc::clone(service)).await.unwrap()
    }

    /// A kubelet that has just started.
    pub(crate) fn kubelet(&self) -> Watch {
        self.kubelet_with(&DraApi::ALL)
    }

    pub(crate) fn kubelet_with(&self, apis: &[DraApi]) -> Watch {
        Watch::new(&self.registry(), Duration::from_millis(10), apis)
    }

    /// The plugin, without registration.
    pub(crate) fn dial(&self, api: DraApi) -> Plugin {
        Plugin::dial(driver(), self.paths(None).service(), api).unwrap()
    }
}

/// The log of all tests so far.
pub(crate) fn logged() -> String {
    let mut bytes = vec![0; usize::try_from(log().metadata().unwrap().len()).unwrap()];
    log().read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One subscriber for the whole process, there before the first event: with one per thread,
/// tracing may take an event that another thread saw first for unwanted.
fn log() -> &'static File {
    static LOG: LazyLock<File> = LazyLock::new(|| {
        let file = tempfile::tempfile().unwrap();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(file.try_clone().unwrap())
            .with_ansi(false)
            .init();
        file
    });
    &LOG
}

pub(crate) fn driver() -> DriverName {
    DriverName::new("gpu.nvidia.com").unwrap()
}

pub(crate) async fn registered(kubelet: &mut Watch) -> Plugin {
    match soon(kubelet.next()).await {
        Event::Registered(plugin) => plugin,
        other => panic!("not registered: {other:?}"),
    }
}

pub(crate) async fn until_registered(server: &Server) {
    soon(server.registration().wait_for(RegistrationState::is_registered)).await.unwrap();
}

/// Claim number `n`.
pub(crate) fn claim(n: u32) -> ClaimRef {
    let uid = ClaimUid::new(format!("{n:08x}-0000-4000-8000-000000000000")).unwrap();
    ClaimRef { uid, namespace: "team".into(), name: format!("claim-{n}") }
}

/// Answers each claim with one shared device. Claim `0xbad` fails, `0xdead` panics.
pub(crate) struct Claims {
    /// Calls that have begun.
    pub(crate) begun: AtomicUsize,
    /// Claims that were prepared or unprepared to the end.
    pub(crate) done: AtomicUsize,
    /// A permit for each claim that may go on.
    pub(crate) gate: Semaphore,
    pub(crate) health: watch::Sender<Arc<Vec<DeviceHealth>>>,
}

impl Claims {
    /// One that answers at once.
    pub(crate) fn quick() -> Arc<Self> {
        let claims = Self::gated();
        claims.gate.add_permits(100_000);
        claims
    }

    /// One that waits for permits.
    pub(crate) fn gated() -> Arc<Self> {
        Arc::new(Self {
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            health: watch::Sender::new(health(HealthState::Healthy)),
        })
    }

    /// Waits until so many calls have begun.
    pub(crate) async fn begun(&self, calls: usize) {
        soon(reaches(&self.begun, calls)).await;
    }

    /// Waits until so many claims are done.
    pub(crate) async fn done(&self, claims: usize) {
        soon(reaches(&self.done, claims)).await;
    }

    async fn each<T>(
        &self,
        claims: Vec<ClaimRef>,
        answer: impl Fn(&ClaimRef) -> T,
    ) -> Vec<(ClaimUid, Result<T, String>)> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut answers = Vec::new();
        for claim in claims {
            self.gate.acquire().await.unwrap().forget();
            let answer = match claim.uid.as_str().split('-').next() {
                Some("00000bad") => Err(format!("ResourceClaim {claim}: no such device")),
                Some("0000dead") => panic!("as the test wants"),
                _ => Ok(answer(&claim)),
            };
            self.done.fetch_add(1, Ordering::SeqCst);
            answers.push((claim.uid, answer));
        }
        answers
    }
}

async fn reaches(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) < wanted {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl ClaimService for Claims {
    async fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)> {
        self.each(claims, |claim| vec![device_of(claim)]).await
    }

    async fn unprepare(&self, claims: Vec<ClaimRef>) -> Vec<(ClaimUid, Result<(), String>)> {
        self.each(claims, |_| ()).await
    }

    fn health(&self) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
        self.health.subscribe()
    }
}

pub(crate) fn device_of(claim: &ClaimRef) -> PreparedDevice {
    PreparedDevice {
        request_names: vec![RequestName::new("gpu").unwrap()],
        pool: PoolName::new("node-1").unwrap(),
        device: DeviceName::new("gpu-0").unwrap(),
        cdi_ids: vec![
            CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={}-gpu-0", claim.uid)).unwrap(),
        ],
        share_id: Some("share-1".into()),
    }
}

pub(crate) fn health(state: HealthState) -> Arc<Vec<DeviceHealth>> {
    let device = |name: &str| DeviceHealth {
        pool: PoolName::new("node-1").unwrap(),
        device: DeviceName::new(name).unwrap(),
        state,
        last_updated: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        message: "Xid 79".into(),
    };
    Arc::new(vec![device("gpu-0"), device("gpu-1")])
}
