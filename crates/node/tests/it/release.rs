//! A device that another claim still holds is waited for, within bounds (field report K11): a
//! pod that was deleted by force is gone for the scheduler, and not yet for the node.

use std::sync::Arc;
use std::time::Duration;

use gpu_dra_host::sim::SimFiles;
use gpu_dra_kubelet::{ClaimService as _, PreparedDevice};
use gpu_dra_node::service::Service;
use gpu_dra_testkit::{ClaimBuilder, claim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::turns::{SlowServer, service};

type Answer<T> = Result<T, String>;

/// Two claims that were given the same GPU, and one with another.
fn claims() -> [ClaimBuilder; 3] {
    [
        claim("old").uid(1).gets("gpu", "gpu-0"),
        claim("new").uid(2).gets("gpu", "gpu-0"),
        claim("other").uid(3).gets("gpu", "gpu-1"),
    ]
}

fn server() -> SlowServer {
    let server = SlowServer::default();
    claims().iter().for_each(|claim| server.has(claim, None));
    server
}

fn prepare(on: &Arc<Service>, claim: &ClaimBuilder) -> JoinHandle<Answer<Vec<PreparedDevice>>> {
    let (service, claim) = (Arc::clone(on), claim.reference());
    tokio::spawn(async move { service.prepare(vec![claim]).await.remove(0).1 })
}

fn unprepare(on: &Arc<Service>, claim: &ClaimBuilder) -> JoinHandle<Answer<()>> {
    let (service, claim) = (Arc::clone(on), claim.reference());
    tokio::spawn(async move { service.unprepare(vec![claim]).await.remove(0).1 })
}

#[tokio::test(start_paused = true)]
async fn k11_a_device_is_had_as_soon_as_its_last_holder_gives_it_back() {
    let files = Arc::new(SimFiles::default());
    let (service, _dir) = service(&server(), &files);
    let [old, new, other] = claims();
    prepare(&service, &old).await.unwrap().unwrap();
    let begun = Instant::now();
    let waiting = prepare(&service, &new);
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    // Nobody else waits for it meanwhile.
    prepare(&service, &other).await.unwrap().unwrap();
    unprepare(&service, &other).await.unwrap().unwrap();
    assert!(!waiting.is_finished());
    unprepare(&service, &old).await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn k11_a_device_that_is_not_given_back_is_refused_with_its_holders_name() {
    let files = Arc::new(SimFiles::default());
    let (service, _dir) = service(&server(), &files);
    let [old, new, _] = claims();
    prepare(&service, &old).await.unwrap().unwrap();
    let begun = Instant::now();
    let refused = prepare(&service, &new).await.unwrap().unwrap_err();
    assert!(refused.contains("still in use by claim team-a/old"), "{refused}");
    assert_eq!(begun.elapsed().as_secs(), 5);
    unprepare(&service, &old).await.unwrap().unwrap();
    prepare(&service, &new).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unprepare_of_the_waiting_claim_comes_after_it_and_leaves_nothing() {
    let files = Arc::new(SimFiles::default());
    let (service, _dir) = service(&server(), &files);
    let [old, new, _] = claims();
    prepare(&service, &old).await.unwrap().unwrap();
    let waiting = prepare(&service, &new);
    sleep(Duration::from_secs(1)).await;
    let undone = unprepare(&service, &new);
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && !undone.is_finished());
    unprepare(&service, &old).await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    undone.await.unwrap().unwrap();
    assert!(files.contents().is_empty(), "{:?}", files.contents().keys());
}

#[tokio::test(start_paused = true)]
async fn what_the_other_process_of_an_update_gives_back_is_seen_at_the_end() {
    let files = Arc::new(SimFiles::default());
    let (before, _dir) = service(&server(), &files);
    let (after, _dir_of_after) = service(&server(), &files);
    let [old, new, _] = claims();
    prepare(&before, &old).await.unwrap().unwrap();
    let waiting = prepare(&after, &new);
    sleep(Duration::from_secs(1)).await;
    unprepare(&before, &old).await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

/// A claim that nobody knows any more is given up while another one waits for its device.
#[tokio::test(start_paused = true)]
async fn whoever_ends_a_claim_wakes_who_waits_for_its_device() {
    let files = Arc::new(SimFiles::default());
    let (sweeping, _dir) = service(&server(), &files);
    let (serving, _dir_of_serving) = service(&server(), &files);
    let [old, new, _] = claims();
    prepare(&sweeping, &old).await.unwrap().unwrap();
    let begun = Instant::now();
    let waiting = prepare(&serving, &new);
    sleep(Duration::from_secs(1)).await;
    unprepare(&sweeping, &old).await.unwrap().unwrap();
    serving.released().note(&old.reference().uid);
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pods_are_remembered_of_claims_that_are_held_and_of_no_others() {
    let files = Arc::new(SimFiles::default());
    let server = server();
    let (service, _dir) = service(&server, &files);
    let [old, ..] = claims();
    let pods = service.pods();
    server.has_object(used(&old, "trainer"));
    prepare(&service, &old).await.unwrap().unwrap();
    // Many are refused meanwhile, more than there could ever be of.
    for nth in 10..1300 {
        let refused = claim(&format!("refused-{nth}")).uid(nth).gets("gpu", "gpu-7");
        server.has_object(used(&refused, "other"));
        prepare(&service, &refused).await.unwrap().unwrap_err();
        assert_eq!(pods.names(&refused.reference().uid), "");
    }
    assert_eq!(pods.names(&old.reference().uid), "trainer");
    unprepare(&service, &old).await.unwrap().unwrap();
    assert_eq!(pods.names(&old.reference().uid), "");
}

fn used(claim: &ClaimBuilder, pod: &str) -> ResourceClaim {
    let mut object = claim.object();
    object.status.as_mut().unwrap().reserved_for = Some(vec![ResourceClaimConsumerReference {
        resource: "pods".to_owned(),
        name: pod.to_owned(),
        uid: "8dbc5577-d0e2-4706-8787-57d52c03ddf2".to_owned(),
        ..ResourceClaimConsumerReference::default()
    }]);
    object
}
