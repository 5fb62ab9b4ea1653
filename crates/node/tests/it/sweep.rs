//! Claims that are long gone are given up, in compressed time, and nothing else is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use gpu_dra_claims::incumbent::UNKNOWN_NAMESPACE;
use gpu_dra_claims::{Allocation, Record};
use gpu_dra_executor::{CdiNaming, Executor, Journal};
use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Files, Locks};
use gpu_dra_kubelet::RegistrationState;
use gpu_dra_model::ClaimRef;
use gpu_dra_node::claim_pods::Released;
use gpu_dra_node::claim_source::{ClaimSource, ClaimSourceError};
use gpu_dra_node::events::{Announcer, Happening};
use gpu_dra_node::sweep::{SweepTimes, Sweeper};
use gpu_dra_testkit::{ClaimBuilder, claim, driver};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use tokio::sync::{Notify, mpsc, watch};

use crate::survey::FakeGpus;
use crate::turns::{NoEffects, view};

/// Compressed: minutes and hours.
const TIMES: SweepTimes =
    SweepTimes { pause: Duration::from_millis(300), every: Duration::from_secs(3600) };

/// An API server that counts what it is asked; None is one that is away.
#[derive(Clone, Default)]
struct Server {
    objects: Arc<Mutex<Option<BTreeMap<String, ResourceClaim>>>>,
    asked: Arc<Mutex<u32>>,
}

impl ClaimSource for Server {
    fn get<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<ResourceClaim, ClaimSourceError>> {
        *self.asked.lock().unwrap() += 1;
        let answer = match &*self.objects.lock().unwrap() {
            None => {
                Err(ClaimSourceError::Unavailable { claim: claim.clone(), reason: "away".into() })
            }
            Some(objects) => {
                objects.get(&claim.name).cloned().ok_or(ClaimSourceError::NotFound(claim.clone()))
            }
        };
        Box::pin(async move { answer })
    }
}

struct World {
    server: Server,
    executor: Arc<Executor>,
    files: Arc<SimFiles>,
    registration: watch::Sender<RegistrationState>,
    conflicts: Arc<Notify>,
    told: mpsc::Receiver<Happening>,
    released: Released,
    gpus: Arc<FakeGpus>,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl World {
    /// A node that holds the claims, with a sweeper, of which the API server knows `known`.
    fn new(held: &[ClaimBuilder], known: &[ClaimBuilder]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Arc::new(SimFiles::default());
        let files: Arc<dyn Files> = Arc::<SimFiles>::clone(&sim);
        let executor = Executor::new(
            Arc::new(Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap()),
            Arc::new(NoEffects),
            files,
            Locks::open(&dir.path().join("locks")).unwrap(),
            CdiNaming { dir: "/cdi".into(), driver: driver() },
        );
        let executor = Arc::new(executor.unwrap());
        for claim in held {
            let reference = claim.reference();
            let allocation = Allocation::of(&claim.object(), &reference, &driver()).unwrap();
            let lock = executor.lock_claim(&reference.uid, Duration::ZERO).unwrap();
            executor.prepare(&lock, &allocation, &view()).unwrap();
        }
        let server = Server::default();
        let objects = known.iter().map(|claim| (claim.reference().name, claim.object()));
        *server.objects.lock().unwrap() = Some(objects.collect());
        let (registration, registered) = watch::channel(RegistrationState::Registered);
        let (announcer, told) = Announcer::new();
        let released = Released::default();
        for claim in held {
            released.pods().learn(&claim.reference().uid, &used(claim));
        }
        // It was refused long ago.
        let refused = claim("refused").uid(77);
        released.pods().learn(&refused.reference().uid, &used(&refused));
        let (conflicts, gpus) = (Arc::new(Notify::new()), Arc::new(FakeGpus::default()));
        let sweeper = Sweeper {
            claims: Box::new(server.clone()),
            executor: Arc::clone(&executor),
            gpus: Arc::<FakeGpus>::clone(&gpus),
            driver: driver(),
            boot_id: view().boot_id,
            announcer,
            released: released.clone(),
            times: TIMES,
        };
        let task = tokio::spawn(sweeper.run(registered, Arc::clone(&conflicts)));
        Self {
            server,
            executor,
            files: sim,
            registration,
            conflicts,
            told,
            released,
            gpus,
            task,
            _dir: dir,
        }
    }

    fn held(&self) -> Vec<Arc<Record>> {
        self.executor.journal.all().unwrap()
    }

    fn asked(&self) -> u32 {
        *self.server.asked.lock().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// So many pauses between two looks, and a little.
async fn pauses(n: u32) {
    tokio::time::sleep(TIMES.pause * n + TIMES.pause / 2).await;
}

/// With a pod that uses it.
fn used(claim: &ClaimBuilder) -> ResourceClaim {
    let mut object = claim.object();
    object.status.as_mut().unwrap().reserved_for = Some(vec![ResourceClaimConsumerReference {
        resource: "pods".to_owned(),
        name: "pod".to_owned(),
        uid: "8dbc5577-d0e2-4706-8787-57d52c03ddf2".to_owned(),
        ..ResourceClaimConsumerReference::default()
    }]);
    object
}

fn train() -> ClaimBuilder {
    claim("train").gets("gpu", "gpu-0")
}

/// Field report N32: deleted while the agent was down, or made again under its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n32_a_claim_that_is_gone_is_given_up_after_the_second_look() {
    let other = claim("other").uid(2).gets("gpu", "gpu-1");
    for known in [vec![other.clone()], vec![other.clone(), train().uid(9)]] {
        let mut world = World::new(&[train(), other.clone()], &known);
        pauses(0).await;
        assert_eq!((world.held().len(), world.asked()), (2, 2), "one GET a claim");
        let pods = |claim: &ClaimBuilder| world.released.pods().names(&claim.reference().uid);
        assert_eq!(pods(&train()), "pod");
        assert_eq!(pods(&claim("refused").uid(77)), "", "what isn't held is forgotten");
        pauses(1).await;
        let held = world.held();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].claim, other.reference());
        assert_eq!((pods(&train()).as_str(), pods(&other).as_str()), ("", "pod"));
        assert_eq!(world.files.contents().len(), 2, "no file of it is left");
        let told = world.told.recv().await.unwrap();
        assert_eq!(told.reason, "ClaimGivenUp");
        assert!(told.message.contains("team-a/train"), "{}", told.message);
        let asked = world.asked();
        pauses(2).await;
        assert_eq!(world.asked(), asked, "a node with nothing wrong asks nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_kept_while_it_is_there_used_unknown_or_nobody_could_end_it() {
    let there = World::new(&[train()], &[train()]);
    let away = World::new(&[train()], &[]);
    *away.server.objects.lock().unwrap() = None;
    let used = World::new(&[train()], &[]);
    used.gpus.runs(1);
    let no_kubelet = World::new(&[train()], &[]);
    no_kubelet.registration.send_replace(RegistrationState::Refused { error: "no".into() });
    // Taken over, and nobody knows its name.
    let nameless = World::new(&[train()], &[]);
    let mut record = (*nameless.held()[0]).clone();
    record.claim.namespace = UNKNOWN_NAMESPACE.to_owned();
    nameless.executor.journal.put(&record).unwrap();
    pauses(4).await;
    for (world, why) in [
        (&there, "it is there"),
        (&away, "the API server is away"),
        (&used, "something computes"),
        (&no_kubelet, "no kubelet"),
        (&nameless, "its name isn't known"),
    ] {
        assert_eq!(world.held().len(), 1, "{why}");
    }
    used.gpus.runs(0);
    pauses(2).await;
    assert_eq!(used.held().len(), 0, "nothing computes any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_has_it_look_at_once_and_not_again_and_again() {
    let world = World::new(&[train()], &[train()]);
    pauses(1).await;
    assert_eq!(world.asked(), 1);
    world.server.objects.lock().unwrap().as_mut().unwrap().clear();
    for _ in 0..20 {
        world.conflicts.notify_one();
    }
    pauses(0).await;
    assert!((2..=3).contains(&world.asked()), "{}", world.asked());
    pauses(3).await;
    assert_eq!(world.held().len(), 0);
}
