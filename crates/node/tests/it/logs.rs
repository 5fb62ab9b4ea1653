//! Every line that is logged in a call says which call, claim and pod it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use gpu_dra_claims::{GpuFacts, KnownStep, NodeView, Record};
use gpu_dra_executor::{CdiNaming, Done, EffectError, Effects, Executor, Journal};
use gpu_dra_host::sim::SimFiles;
use gpu_dra_host::{Files, Locks};
use gpu_dra_kubelet::ClaimService as _;
use gpu_dra_model::{BootId, ClaimRef, DeviceKind, DeviceName, Inventory, PoolName, Shares};
use gpu_dra_node::claim_source::{ClaimSource, ClaimSourceError};
use gpu_dra_node::service::Service;
use gpu_dra_node::survey::Survey;
use gpu_dra_slices::{Names, PackedPool, Policy, build};
use gpu_dra_testkit::{ClaimBuilder, POOL, claim, driver, gpu_uuid, time_slicing};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use serde_json::Value;
use tokio::sync::watch;
use tracing::Dispatch;

/// Each act says so; those on the second GPU fail, forth and back.
struct Talking;

impl Talking {
    fn act(&self, step: &KnownStep, what: &'static str) -> Result<(), EffectError> {
        tracing::info!(what, "acting");
        match step {
            KnownStep::TimeSlice { gpu, .. } if *gpu == gpu_uuid(1) => {
                Err(EffectError::DriverFiles("as the test wants it".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl Effects for Talking {
    fn look(&self, plan: Record) -> Result<Record, EffectError> {
        tracing::trace!("looking");
        Ok(plan)
    }
    fn holds(&self, _record: &Record) -> Result<bool, EffectError> {
        Ok(true)
    }
    fn apply(&self, step: &KnownStep, _begun: &Record) -> Result<Done, EffectError> {
        self.act(step, "apply").map(|()| Done::AsPlanned)
    }
    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        self.act(step, "undo")
    }
    fn cdi_spec(&self, _record: &Record) -> Result<Vec<u8>, EffectError> {
        Ok(b"spec".to_vec())
    }
}

#[derive(Clone)]
struct Claims(BTreeMap<String, ResourceClaim>);

impl ClaimSource for Claims {
    fn get<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<ResourceClaim, ClaimSourceError>> {
        Box::pin(async move {
            tracing::debug!("reading");
            let found = self.0.get(&claim.name).cloned();
            found.ok_or_else(|| ClaimSourceError::NotFound(claim.clone()))
        })
    }
}

/// A claim for one GPU, used by the pod that has its name.
fn used(name: &str, n: u32) -> ClaimBuilder {
    claim(name).uid(n + 1).gets("gpu", &format!("gpu-{n}")).with_config(&[], time_slicing("Short"))
}

fn object(claim: &ClaimBuilder) -> ResourceClaim {
    let mut object = claim.object();
    object.status.as_mut().unwrap().reserved_for = Some(vec![ResourceClaimConsumerReference {
        resource: "pods".to_owned(),
        name: format!("pod-of-{}", claim.reference().name),
        uid: "8dbc5577-d0e2-4706-8787-57d52c03ddf2".to_owned(),
        ..ResourceClaimConsumerReference::default()
    }]);
    object
}

fn service(claims: &[&ClaimBuilder], dir: &Path) -> Service {
    let files: Arc<dyn Files> = Arc::new(SimFiles::default());
    let boot_id = BootId::new("11111111-2222-3333-4444-555555555555").unwrap();
    let executor = Executor::new(
        Arc::new(Journal::open(Path::new("/journal"), Arc::clone(&files)).unwrap()),
        Arc::new(Talking),
        files,
        Locks::open(&dir.join("locks")).unwrap(),
        CdiNaming { dir: "/cdi".into(), driver: driver() },
    )
    .unwrap();
    let device = |n| {
        let kind = DeviceKind::Gpu { gpu: gpu_uuid(n), mig_may_be_on: false, shares: Shares::Off };
        (DeviceName::new(format!("gpu-{n}")).unwrap(), kind)
    };
    let facts = |n| (gpu_uuid(n), GpuFacts { before_volta: false, memory_mib: 1024 });
    let inventory = Inventory::default();
    let pool = build(&inventory, &Names::default(), &Policy::default(), &BTreeSet::new()).pool;
    let view = NodeView {
        pool: PoolName::new(POOL).unwrap(),
        devices: BTreeMap::from([device(0), device(1)]),
        gpus: BTreeMap::from([facts(0), facts(1)]),
        boot_id: boot_id.clone(),
    };
    let survey = Survey {
        inventory,
        pool: Arc::new(PackedPool::new(&pool)),
        view,
        trouble: None,
        missing: BTreeSet::new(),
    };
    let (_survey, survey) = watch::channel(Some(Arc::new(survey)));
    let (_health, health) = watch::channel(Arc::default());
    let objects = claims.iter().map(|claim| (claim.reference().name, object(claim))).collect();
    Service::new(driver(), boot_id, Box::new(Claims(objects)), Arc::new(executor), survey, health)
}

/// What is logged, as JSON, one object a line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The lines since the last call.
    fn take(&self) -> Vec<Value> {
        let text = String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Each line of this level and above is about this call; gives the messages. The pod is in
/// those that come after the claim was read.
fn all_about(lines: &[Value], operation: &str, claim: &ClaimRef, pod: Option<&str>) -> Vec<String> {
    let mut was_read = pod.is_some() && operation == "unprepare";
    let mut messages = Vec::new();
    for line in lines {
        let span = &line["span"];
        assert_eq!(span["name"], "claim", "{line}");
        assert_eq!(span["operation"], operation, "{line}");
        assert_eq!(span["claim"], claim.to_string(), "{line}");
        assert_eq!(span["uid"], claim.uid.as_str(), "{line}");
        let message = line["fields"]["message"].as_str().unwrap().to_owned();
        if was_read {
            assert_eq!(span["pods"].as_str(), pod, "{line}");
        }
        was_read |= message == "reading";
        messages.push(message);
    }
    messages
}

#[test]
fn each_line_of_a_call_names_its_claim_and_pod() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let dispatch = Dispatch::new(subscriber);
    // Every thread of this runtime logs here, also those that may block, and no other test does.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start(move || {
            std::mem::forget(tracing::dispatcher::set_default(&dispatch));
        })
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (good, bad, gone) = (used("train", 0), used("serve", 1), used("gone", 0));
    let service = Arc::new(service(&[&good, &bad], dir.path()));
    let call = |operation: &'static str, claim: &ClaimBuilder| {
        let (service, claims) = (Arc::clone(&service), vec![claim.reference()]);
        let answered = runtime.spawn(async move {
            match operation {
                "prepare" => service.prepare(claims).await.remove(0).1.map(drop),
                _ => service.unprepare(claims).await.remove(0).1,
            }
        });
        let answer = runtime.block_on(answered).unwrap();
        (answer, log.take())
    };

    let (answer, lines) = call("prepare", &good);
    answer.unwrap();
    let said = all_about(&lines, "prepare", &good.reference(), Some("pod-of-train"));
    assert_eq!(said, ["reading", "looking", "acting", "done"]);
    let (answer, lines) = call("unprepare", &good);
    answer.unwrap();
    let said = all_about(&lines, "unprepare", &good.reference(), Some("pod-of-train"));
    assert_eq!(said, ["acting", "done"]);

    let (answer, lines) = call("prepare", &bad);
    assert!(answer.unwrap_err().contains("as the test wants it"));
    let said = all_about(&lines, "prepare", &bad.reference(), Some("pod-of-serve"));
    assert_eq!(said, ["reading", "looking", "acting", "acting", "not undone yet", "failed"]);
    let (answer, lines) = call("unprepare", &bad);
    answer.unwrap_err();
    let said = all_about(&lines, "unprepare", &bad.reference(), Some("pod-of-serve"));
    assert_eq!(said, ["acting", "failed"]);

    // A claim that can't be read has no pods, but a name.
    let (answer, lines) = call("prepare", &gone);
    answer.unwrap_err();
    let said = all_about(&lines, "prepare", &gone.reference(), None);
    assert_eq!(said, ["reading", "failed"]);
}

/// A filter that hides what is routine doesn't hide whose trouble it is.
#[test]
fn a_filter_for_warnings_leaves_the_claim_in_them() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    let dir = tempfile::tempdir().unwrap();
    let bad = used("serve", 1);
    let service = service(&[], dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(service.prepare(vec![bad.reference()])).remove(0).1.unwrap_err();
    });
    let said = all_about(&log.take(), "prepare", &bad.reference(), None);
    assert_eq!(said, ["failed"]);
}
