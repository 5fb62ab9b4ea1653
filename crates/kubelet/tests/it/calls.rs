//! Prepare and Unprepare over the socket, in both versions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gpu_dra_kubelet::PreparedDevice;
use gpu_dra_kubelet::client::{CallError, DraApi};
use gpu_dra_kubelet::proto::dra_v1::dra_plugin_client::DraPluginClient;
use gpu_dra_kubelet::proto::dra_v1::{
    Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use gpu_dra_kubelet::proto::registration::InfoRequest;
use gpu_dra_kubelet::proto::registration::registration_client::RegistrationClient;
use tonic::transport::{Channel, Endpoint};

use crate::support::{Claims, Root, claim, device_of, logged, soon};

fn channel(root: &Root) -> Channel {
    let endpoint = format!("unix://{}", root.paths(None).endpoint());
    Endpoint::from_shared(endpoint).unwrap().connect_lazy()
}

#[tokio::test]
async fn both_versions_answer_alike_but_for_the_share() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    for (api, share_id) in [(DraApi::V1, Some("share-1".into())), (DraApi::V1Beta1, None)] {
        let plugin = root.dial(api);
        let claims = [claim(1), claim(0xbad), claim(2)];
        let answers = plugin.prepare(&claims).await.unwrap();
        assert_eq!(answers.len(), 3);
        for good in [claim(1), claim(2)] {
            let expected = PreparedDevice { share_id: share_id.clone(), ..device_of(&good) };
            assert_eq!(answers[&good.uid], Ok(vec![expected]), "{api:?}");
        }
        let failed = answers[&claim(0xbad).uid].as_ref().unwrap_err();
        assert_eq!(failed, "ResourceClaim team/claim-2989: no such device");

        let answers = plugin.unprepare(&claims).await.unwrap();
        assert_eq!(answers[&claim(1).uid], Ok(()));
        assert!(answers[&claim(0xbad).uid].is_err());
        assert_eq!(answers[&claim(2).uid], Ok(()));
    }
    drop(server);
}

#[tokio::test]
async fn a_malformed_claim_is_answered_by_itself_and_as_it_was_sent() {
    let root = Root::new();
    let claims = Claims::quick();
    let server = root.start(&claims).await;
    let mut client = DraPluginClient::new(channel(&root));
    let claim_as = |uid: &str| Claim { namespace: "n".into(), uid: uid.into(), name: "c".into() };
    let good = claim(1).uid.to_string();
    let bad = ["", "../../../etc/passwd", "00000001-0000-4000-8000-00000000000G", "\u{0}\n"];
    let sent: Vec<_> = [good.as_str()].into_iter().chain(bad).map(claim_as).collect();

    let request = NodePrepareResourcesRequest { claims: sent.clone() };
    let prepared = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    let request = NodeUnprepareResourcesRequest { claims: sent };
    let unprepared = client.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!((prepared.len(), unprepared.len()), (5, 5));
    assert_eq!(prepared[&good].error, "");
    assert_eq!(prepared[&good].devices.len(), 1);
    assert_eq!(unprepared[&good].error, "");
    for uid in bad {
        assert!(prepared[uid].error.contains("claim UID"), "{uid:?}: {}", prepared[uid].error);
        assert!(prepared[uid].devices.is_empty());
        assert!(unprepared[uid].error.contains("claim UID"), "{uid:?}");
    }

    // Only bad ones: the claim service isn't even asked.
    let request = NodePrepareResourcesRequest { claims: vec![claim_as("x")] };
    let answer = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answer.len(), 1);
    assert_eq!(claims.begun.load(Ordering::SeqCst), 2, "one Prepare, one Unprepare");
    drop(server);
}

#[tokio::test]
async fn an_empty_request_has_an_empty_answer() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    assert!(root.dial(DraApi::V1).prepare(&[]).await.unwrap().is_empty());
    drop(server);
}

#[tokio::test]
async fn a_kubelet_that_hangs_up_does_not_cut_the_work_short() {
    let root = Root::new();
    let claims = Claims::gated();
    let server = root.start(&claims).await;
    let plugin = root.dial(DraApi::V1);
    let call = tokio::spawn(async move { plugin.prepare(&[claim(1), claim(2)]).await });
    claims.begun(1).await;
    claims.gate.add_permits(1);
    claims.done(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The stream is reset and the connection closed; the second claim goes on all the same.
    tokio::time::sleep(Duration::from_millis(50)).await;
    claims.gate.add_permits(1);
    claims.done(2).await;
    drop(server);
}

#[tokio::test]
async fn after_its_timeout_the_kubelet_may_call_again_while_the_first_call_runs() {
    let root = Root::new();
    let claims = Claims::gated();
    let server = root.start(&claims).await;
    let hasty = root.dial(DraApi::V1).with_timeout(Duration::from_millis(50));
    let error = soon(hasty.prepare(&[claim(1)])).await.unwrap_err();
    assert!(matches!(&error, CallError::Rpc { call: "NodePrepareResources", .. }), "{error}");
    claims.begun(1).await;

    let patient = root.dial(DraApi::V1);
    let again = tokio::spawn(async move { patient.prepare(&[claim(1)]).await });
    claims.begun(2).await;
    claims.gate.add_permits(2);
    assert_eq!(soon(again).await.unwrap().unwrap().len(), 1);
    claims.done(2).await;
    drop(server);
}

#[tokio::test]
async fn calls_on_one_connection_do_not_wait_for_each_other() {
    let root = Root::new();
    let claims = Claims::gated();
    let server = root.start(&claims).await;
    let plugin = root.dial(DraApi::V1);
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let plugin = plugin.clone();
            tokio::spawn(async move { plugin.prepare(&[claim(n)]).await })
        })
        .collect();
    claims.begun(50).await;
    claims.gate.add_permits(50);
    for call in calls {
        assert_eq!(soon(call).await.unwrap().unwrap().len(), 1);
    }
    drop(server);
}

#[tokio::test]
async fn a_panic_fails_its_call_and_nothing_else() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let plugin = root.dial(DraApi::V1);
    let answers = plugin.prepare(&[claim(0xdead), claim(1)]).await.unwrap();
    for answer in answers.values() {
        let error = answer.as_ref().unwrap_err();
        assert!(error.contains("internal error"), "{error}");
    }
    assert!(plugin.prepare(&[claim(1)]).await.unwrap()[&claim(1).uid].is_ok());
    drop(server);
}

#[tokio::test]
async fn what_is_not_served_is_unimplemented() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let status =
        RegistrationClient::new(channel(&root)).get_info(InfoRequest {}).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    drop(server);
}

#[tokio::test]
async fn the_service_socket_may_come_after_the_dial() {
    let root = Root::new();
    let plugin = root.dial(DraApi::V1);
    assert!(plugin.prepare(&[claim(1)]).await.is_err());
    let server = root.start(&Claims::quick()).await;
    assert_eq!(plugin.prepare(&[claim(1)]).await.unwrap().len(), 1);
    drop(server);
}

#[tokio::test]
async fn the_log_tells_who_called() {
    let root = Root::new();
    let server = root.start(&Claims::quick()).await;
    let claims: Vec<_> = (0..17).map(claim).collect();
    root.dial(DraApi::V1).prepare(&claims).await.unwrap();
    let log = logged();
    let line = log.lines().find(|line| line.contains("called") && line.contains("claims=17"));
    let line = line.expect("no other test has calls with 17 claims");
    assert!(line.contains("prepare"), "{line}");
    assert!(line.contains(&format!("pid={} uid=", std::process::id())), "{line}");
    drop(server);
}
