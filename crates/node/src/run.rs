//! Puts the parts of the node agent together, starts them in the right order and stops them
//! in the right order. Slices are never withdrawn here: a restart must find them as they were.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gpu_dra_driverroot::{DriverFilesCache, DriverRoot, NodeFinder};
use gpu_dra_executor::{CdiNaming, ExecuteError, Executor, Journal};
use gpu_dra_host::{FileError, Files, Locks, RealFiles, RealProcesses};
use gpu_dra_kubelet::{Paths, Server, Stopped};
use gpu_dra_model::{BootId, IdError, PoolName};
use gpu_dra_nvml::{Driver, Gpus, OpenError, Trees};
use gpu_dra_publisher::Publisher;
use gpu_dra_sharing::RunDir;
use gpu_dra_slices::PoolRef;
use tokio::sync::watch;

use crate::adopt::TakeOver;
use crate::claim_source::ApiServer;
use crate::crew::Crew;
use crate::desired::desired;
use crate::events::{self, Announcer};
use crate::health::{HealthWatch, Parts};
use crate::http::Serving;
use crate::machine::{Machine, MpsHost};
use crate::metrics::{
    MeasuredEffects, MeasuredFiles, MeasuredGpus, Metrics, Scrape, State, UsageSampler,
};
use crate::mps_watch::MpsWatch;
use crate::neighbours::{self, Neighbour};
use crate::node_watch::NodeWatch;
use crate::readiness::Readiness;
use crate::recovery::{self, keep_recovering, recover_once};
use crate::service::Service;
use crate::settings::Settings;
use crate::small::keep_small;
use crate::start::{Start, alone, first_survey, held_off, install_hook};
use crate::survey::{Place, Surveyor};
use crate::sweep::{SweepTimes, Sweeper};
use crate::{health_run, health_stream, http};

/// How long calls under way get when the agent is told to stop.
const DRAIN: Duration = Duration::from_secs(20);

/// What keeps a node agent from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A folder or file of ours can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal or the CDI folder can't be used.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The lock file can't be used.
    #[error(transparent)]
    Lock(#[from] gpu_dra_host::LockError),
    /// The journal of MPS daemons can't be used.
    #[error(transparent)]
    MpsJournal(#[from] gpu_dra_sharing::JournalError),
    /// The folder of MPS daemons is not possible.
    #[error(transparent)]
    MpsFolder(#[from] gpu_dra_sharing::RunDirError),
    /// A socket path is not possible.
    #[error(transparent)]
    Paths(#[from] gpu_dra_kubelet::PathsError),
    /// No thread to follow the MPS host, or to hear the GPUs' events.
    #[error("no thread can be started; is the pod's limit of processes reached?")]
    Thread {
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// A socket can't be served.
    #[error(transparent)]
    Socket(#[from] gpu_dra_kubelet::SocketError),
    /// The kernel's boot id can't be read.
    #[error("{} holds no boot id; is /proc mounted there?", path.display())]
    BootId {
        /// The file.
        path: PathBuf,
    },
    /// The node's name is no pool name.
    #[error(transparent)]
    Pool(#[from] IdError),
    /// The hook isn't there to be installed.
    #[error("container hook {} is missing; it is shipped beside the gpu-dra program", path.display())]
    Hook {
        /// Where it should be.
        path: PathBuf,
    },
    /// Another driver of our name has come.
    #[error("{0}")]
    Neighbour(Neighbour),
    /// A thread or task of ours has ended that should not.
    #[error("{0} ended unexpectedly; the agent ends too, to be started again")]
    Ended(&'static str),
    /// The probe endpoint can't be served.
    #[error("can't serve probes on {address}; is the port taken?")]
    Http {
        /// The address.
        address: std::net::SocketAddr,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// Runs a node agent until `stop` is done, then shuts it down in order.
///
/// # Errors
/// What keeps it from starting, or a part that failed for good.
pub async fn run(
    settings: Settings,
    client: kube::Client,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let files: Arc<dyn Files> = Arc::new(RealFiles::new(settings.boundary.clone()));
    let paths = Paths::new(&settings.kubelet_root, &settings.driver, settings.pod_uid.as_deref())?;
    let pool = PoolName::new(settings.node.as_str())?;
    let boot_id = boot_id(&settings.trees.proc)?;
    let plugin_dir = settings.plugin_dir();
    files.create_dir(&plugin_dir, 0o750)?;

    let (metrics, mut page) = Metrics::new();
    // Reading a claim is on a call's way, and timed there.
    let claims = ApiServer(client.clone());
    let client = metrics.api.counted(client);
    let nvml = Arc::new(driver(settings.root.clone(), settings.trees.clone()));
    let gpus = MeasuredGpus::new(Arc::<Driver>::clone(&nvml), metrics.nvml.clone());
    let gpus: Arc<dyn Gpus> = Arc::new(gpus);
    let files = MeasuredFiles { files, cdi: settings.cdi_root.clone() };
    let files: Arc<dyn Files> = Arc::new(files);
    let journal = Journal::open(&plugin_dir.join("claims"), Arc::clone(&files))
        .map_err(ExecuteError::from)?;
    let journal = Arc::new(journal);
    let (crew, mut roll) = Crew::new();
    let (announcer, happenings) = Announcer::new();
    page.register(
        "kubernetes_events_lost",
        "Kubernetes Events never written: refused, not taken for long, or too many waited",
        announcer.lost(),
    );
    let post = events::post(
        happenings,
        client.clone(),
        settings.node.clone(),
        settings.driver.clone(),
        announcer.lost(),
    );
    crew.spawn("posting Events", post);
    let start =
        Start { flights: Arc::clone(metrics.nvml.flights()), patience: settings.nvml_patience };
    let (serving, served) = watch::channel(start.waits("has just begun"));
    if let Some(address) = settings.http {
        let listener = http::bind(address).await;
        let listener = listener.map_err(|source| NodeError::Http { address, source })?;
        crew.spawn("the probe endpoint", http::serve(listener, served));
    }
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        () = &mut stop => return Ok(()),
        what = roll.ended() => return Err(NodeError::Ended(what)),
        () = alone(&settings, &announcer, |report| drop(serving.send_replace(held_off(report)))) => {}
    }
    let locks = Locks::open(&plugin_dir.join("locks"))?;
    let take_over = TakeOver {
        driver: settings.driver.clone(),
        node: settings.node.clone(),
        pool: pool.clone(),
        boot_id: boot_id.clone(),
        plugin_dir: plugin_dir.clone(),
        cdi_root: settings.cdi_root.clone(),
        mig: settings.adopted_mig,
        gpus: Arc::clone(&gpus),
        files: Arc::clone(&files),
        locks: Arc::clone(&locks),
        journal: Arc::clone(&journal),
        announcer: announcer.clone(),
        client: client.clone(),
    };
    serving.send_replace(start.waits("looks for claims of NVIDIA's driver"));
    let waits = |why: &str| drop(serving.send_replace(start.waits(why)));
    tokio::select! {
        () = &mut stop => return Ok(()),
        what = roll.ended() => return Err(NodeError::Ended(what)),
        taken = take_over.run(settings.retry, waits) => taken?,
    }
    serving.send_replace(start.waits("looks at the GPUs for the first time"));
    let node_watch = NodeWatch {
        client: client.clone(),
        node: settings.node.clone(),
        kubelet_root: settings.kubelet_root.clone(),
        cdi_root: settings.cdi_root.clone(),
        // With hostPID this is the host's; else our own, which has no such files.
        host_root: settings.host_proc.join("1/root"),
        announcer: announcer.clone(),
        interval: settings.rescan,
    };
    let (node_sender, node) = watch::channel(None);
    crew.spawn("watching the Node", node_watch.run(node_sender));
    crew.spawn("keeping memory small", keep_small());
    let surveyor = Surveyor::new(Place {
        gpus: Arc::clone(&gpus),
        files: Arc::clone(&files),
        names_file: plugin_dir.join("names.json"),
        pool: pool.clone(),
        boot_id: boot_id.clone(),
        policy: settings.policy.clone(),
        journal: Arc::clone(&journal),
        announcer: announcer.clone(),
    })?;
    let (survey_sender, survey) = watch::channel(None);
    let (_stop_surveyor, surveyor_stop) = mpsc::channel();
    let (rescan, retry) = (settings.rescan, settings.retry);
    crew.spawn_blocking("the surveyor", move || {
        surveyor.run(&survey_sender, &surveyor_stop, rescan, retry);
    });

    let pool_ref = PoolRef { driver: settings.driver.clone(), node: settings.node.clone(), pool };
    let (health_watch, told) = HealthWatch::new(Parts {
        gpus: Arc::clone(&gpus),
        files: Arc::clone(&files),
        dir: &plugin_dir,
        boot_id: boot_id.clone(),
        policy: settings.health_policy.clone(),
        journal: Arc::clone(&journal),
        announcer: announcer.clone(),
    })?;
    let asked = (client.clone(), settings.node.clone());
    let health = health_run::start(
        &crew,
        (health_watch, told.clone()),
        nvml,
        survey.clone(),
        asked,
        settings.health,
        (settings.health_policy, metrics.events.clone()),
    );
    let health = health.map_err(|source| NodeError::Thread { source })?;
    let pools = desired(&crew, told.clone(), node.clone());
    let (publisher, published) = Publisher::new(client.clone(), pool_ref, pools);
    crew.spawn("the publisher", publisher.run());

    let hook = install_hook(files.as_ref(), settings.hook.as_deref(), &plugin_dir)?;
    let nodes = NodeFinder {
        root: settings.root.clone(),
        policy: settings.device_nodes,
        proc: settings.trees.proc,
        sys: settings.trees.sysfs,
    };
    let mps = MpsHost::new(&settings.mps_socket, RunDir::new(&settings.mps_run_dir)?);
    let machine = Machine {
        driver: settings.driver.clone(),
        gpus: Arc::clone(&gpus),
        survey: survey.clone(),
        root: settings.root,
        nodes,
        hook,
        processes: Arc::new(RealProcesses),
        files: DriverFilesCache::default(),
        boundary: settings.boundary.clone(),
        mps: mps.clone(),
        announcer: announcer.clone(),
    };
    let (mut mps_watch, mps_troubles) =
        MpsWatch::new(mps.client().clone(), Arc::clone(&journal), announcer.clone());
    let mps_metrics = metrics.mps.clone();
    let duty = crew.duty("following the MPS host");
    let follow = mps.client().follow(move |event| {
        // It is there for as long as this is.
        let _duty = &duty;
        mps_metrics.note(&event);
        mps_watch.note(event);
    });
    let _follow = follow.map_err(|source| NodeError::Thread { source })?;
    let naming = CdiNaming { dir: settings.cdi_root.clone(), driver: settings.driver.clone() };
    let effects = Arc::new(MeasuredEffects(Arc::new(machine)));
    let executor = Executor::new(Arc::clone(&journal), effects, Arc::clone(&files), locks, naming)?;
    let executor = Arc::new(executor);

    // The kubelet may call as soon as it finds us; then the GPUs must have been looked at and
    // what an earlier process left half done be undone.
    tokio::select! {
        () = &mut stop => return Ok(()),
        what = roll.ended() => return Err(NodeError::Ended(what)),
        looked = first_survey(survey.clone()) => looked?,
    }
    let recovered = recover_once(&executor, &boot_id).await;
    let recovery =
        keep_recovering(recovered, Arc::clone(&executor), boot_id.clone(), survey.clone());
    crew.spawn_finite("mending what an earlier process left", recovery);
    recovery::tell(&executor, &announcer);
    let service = Service::new(
        settings.driver.clone(),
        boot_id.clone(),
        Box::new(claims),
        Arc::clone(&executor),
        survey.clone(),
        health_stream::healths(
            &crew,
            told.clone(),
            mps_troubles,
            health.rounds.clone(),
            settings.health,
        ),
    );
    service.metrics().register(&mut page);
    let pods = service.pods();
    let conflicts = service.conflicts();
    let sweeper = Sweeper {
        claims: Box::new(ApiServer(client.clone())),
        executor,
        gpus: Arc::clone(&gpus),
        driver: settings.driver.clone(),
        boot_id,
        announcer,
        released: service.released(),
        times: SweepTimes::default(),
    };
    let server = Server::start(paths.clone(), Arc::new(service)).await?;
    let registration = server.registration();
    crew.spawn("the sweeper", sweeper.run(registration.clone(), conflicts));
    let readiness = Arc::new(Readiness {
        paths,
        registration,
        published,
        survey: survey.clone(),
        node,
        flights: Arc::clone(metrics.nvml.flights()),
        nvml_patience: settings.nvml_patience,
    });
    let state = State {
        readiness: Arc::clone(&readiness),
        told,
        journal: Arc::clone(&journal),
        files,
        mps: metrics.mps,
        sampled: std::sync::Mutex::default(),
    };
    let usage = UsageSampler {
        gpus,
        survey,
        journal,
        pods,
        claims: Box::new(ApiServer(client)),
        host_proc: settings.host_proc,
        last: tokio::sync::Mutex::default(),
    };
    let scrape = Arc::new(Scrape::new(page, state, usage));
    let ask: http::Ask = Arc::new(move || readiness.report());
    serving.send_replace(Serving { ask, scrape: Some(scrape) });

    let ended = tokio::select! {
        () = stop => Ok(()),
        other = neighbours::appears(&settings.kubelet_root, &settings.driver, settings.rescan) => {
            Err(NodeError::Neighbour(other))
        }
        () = server.failed() => Err(NodeError::Ended("a socket of the kubelet's")),
        what = roll.ended() => Err(NodeError::Ended(what)),
    };
    drop(crew);
    if let Stopped::StillRunning(calls) = server.stop(DRAIN).await {
        tracing::warn!(calls, "stopped while calls were under way; the next start resumes them");
    }
    ended
}

pub(crate) fn boot_id(proc: &Path) -> Result<BootId, NodeError> {
    let path = proc.join("sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    BootId::new(text.trim()).map_err(|_| NodeError::BootId { path })
}

/// NVML, found under the driver root anew each time it has to be opened.
#[must_use]
pub fn driver(root: DriverRoot, trees: Trees) -> Driver {
    let seen = trees.clone();
    let locate = move || {
        root.find_nvml().map_err(|missing| match missing.rejected.first() {
            Some(rejected) if rejected.path.is_dir() => {
                OpenError::IsDirectory { path: rejected.path.clone() }
            }
            Some(rejected) => OpenError::no_library(&rejected.path, &seen),
            None => OpenError::no_library(&root.host, &seen),
        })
    };
    Driver::new(locate, trees)
}
