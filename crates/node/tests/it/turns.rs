//! Calls for one claim run in the order in which they came, whatever waits inside; calls for
//! other claims don't wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use gpu_dra_claims::{KnownStep, NodeView, Record};
use gpu_dra_executor::{CdiNaming, Done, EffectError, Effects, Executor, Journal};
use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Files, Locks};
use gpu_dra_kubelet::ClaimService as _;
use gpu_dra_model::{BootId, ClaimRef, DeviceKind, DeviceName, Inventory, PoolName, Shares};
use gpu_dra_node::claim_source::{ClaimSource, ClaimSourceError};
use gpu_dra_node::service::Service;
use gpu_dra_node::survey::Survey;
use gpu_dra_slices::{Names, PackedPool, Policy, build};
use gpu_dra_testkit::{ClaimBuilder, POOL, claim, driver, gpu_uuid};
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::sync::{Semaphore, watch};

/// GPUs that need nothing done.
pub(crate) struct NoEffects;

impl Effects for NoEffects {
    fn look(&self, plan: Record) -> Result<Record, EffectError> {
        Ok(plan)
    }
    fn holds(&self, _record: &Record) -> Result<bool, EffectError> {
        Ok(true)
    }
    fn apply(&self, _step: &KnownStep, _begun: &Record) -> Result<Done, EffectError> {
        Ok(Done::AsPlanned)
    }
    fn undo(&self, _step: &KnownStep) -> Result<(), EffectError> {
        Ok(())
    }
    fn cdi_spec(&self, _record: &Record) -> Result<Vec<u8>, EffectError> {
        Ok(b"spec".to_vec())
    }
}

/// A claim, and what its answer waits for.
type Slow = (ResourceClaim, Option<Arc<Semaphore>>);

/// An API server whose answers about some claims wait until they are let go.
#[derive(Clone, Default)]
pub(crate) struct SlowServer {
    objects: Arc<Mutex<BTreeMap<String, Slow>>>,
}

impl SlowServer {
    pub(crate) fn has(&self, claim: &ClaimBuilder, gate: Option<Arc<Semaphore>>) {
        let name = claim.reference().name;
        self.objects.lock().unwrap().insert(name, (claim.object(), gate));
    }

    pub(crate) fn has_object(&self, object: ResourceClaim) {
        let name = object.metadata.name.clone().unwrap();
        self.objects.lock().unwrap().insert(name, (object, None));
    }
}

impl ClaimSource for SlowServer {
    fn get<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<ResourceClaim, ClaimSourceError>> {
        let found = self.objects.lock().unwrap().get(&claim.name).cloned();
        Box::pin(async move {
            let (object, gate) = found.ok_or_else(|| ClaimSourceError::NotFound(claim.clone()))?;
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            Ok(object)
        })
    }
}

/// Two GPUs that need nothing done.
pub(crate) fn view() -> NodeView {
    let device = |n| {
        let kind = DeviceKind::Gpu { gpu: gpu_uuid(n), mig_may_be_on: false, shares: Shares::Off };
        (DeviceName::new(format!("gpu-{n}")).unwrap(), kind)
    };
    NodeView {
        pool: PoolName::new(POOL).unwrap(),
        devices: BTreeMap::from([device(0), device(1)]),
        gpus: BTreeMap::new(),
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
    }
}

pub(crate) fn service(
    server: &SlowServer,
    files: &Arc<SimFiles>,
) -> (Arc<Service>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let files: Arc<dyn Files> = Arc::<SimFiles>::clone(files);
    let boot = view().boot_id;
    let executor = Executor::new(
        Arc::new(Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap()),
        Arc::new(NoEffects),
        files,
        Locks::open(&dir.path().join("locks")).unwrap(),
        CdiNaming { dir: "/cdi".into(), driver: driver() },
    )
    .unwrap();
    let inventory = Inventory::default();
    let pool = build(&inventory, &Names::default(), &Policy::default(), &BTreeSet::new()).pool;
    let view = view();
    let survey = Survey {
        inventory,
        pool: Arc::new(PackedPool::new(&pool)),
        view,
        trouble: None,
        missing: BTreeSet::new(),
    };
    let (_survey, survey) = watch::channel(Some(Arc::new(survey)));
    let (_health, health) = watch::channel(Arc::default());
    let source = Box::new(server.clone());
    let service = Service::new(driver(), boot, source, Arc::new(executor), survey, health);
    (Arc::new(service), dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepare_that_came_before_an_unprepare_never_commits_after_it() {
    let files = Arc::new(SimFiles::default());
    let server = SlowServer::default();
    let gate = Arc::new(Semaphore::new(0));
    let train = claim("train").gets("gpu", "gpu-0");
    server.has(&train, Some(Arc::clone(&gate)));
    let other = claim("other").uid(2).gets("gpu", "gpu-1");
    server.has(&other, None);
    let (service, _dir) = service(&server, &files);

    // The API server is slow, the kubelet gives up, the pod is deleted.
    let prepare = tokio::spawn({
        let (service, claim) = (Arc::clone(&service), train.reference());
        async move { service.prepare(vec![claim]).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let unprepare = tokio::spawn({
        let (service, claim) = (Arc::clone(&service), train.reference());
        async move { service.unprepare(vec![claim]).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;

    // Another claim doesn't wait for any of this.
    let answers = service.prepare(vec![other.reference()]).await;
    assert_eq!(answers[0].1.as_ref().unwrap().len(), 1);
    assert!(!prepare.is_finished() && !unprepare.is_finished());

    gate.add_permits(1);
    prepare.await.unwrap()[0].1.as_ref().unwrap();
    unprepare.await.unwrap()[0].1.as_ref().unwrap();
    let left: Vec<_> = files.contents().into_keys().collect();
    assert_eq!(left.len(), 2, "only the other claim's record and spec: {left:?}");
    assert!(
        left.iter().all(|path| { path.to_string_lossy().contains(other.reference().uid.as_str()) })
    );
}

/// Also field report K24: as many pods as the API lets use a claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k24_repeated_and_overlapping_prepares_give_one_answer() {
    let files = Arc::new(SimFiles::default());
    let server = SlowServer::default();
    let train = claim("train").gets("gpu", "gpu-0");
    server.has(&train, None);
    let (service, _dir) = service(&server, &files);
    let calls = (0..256).map(|_| service.prepare(vec![train.reference()]));
    let answers = futures::future::join_all(calls).await;
    let first = answers[0][0].1.as_ref().unwrap();
    assert!(answers.iter().all(|answer| answer[0].1.as_ref().unwrap() == first));
    assert_eq!(files.contents().len(), 2);
}
