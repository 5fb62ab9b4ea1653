//! The messages as they are on the wire: an MPS host outlives many versions of the node agent.

use gpu_dra_sharing::{Call, DaemonId, DaemonState, Refusal, RefusalKind, Reply, Status, VERSION};
use serde_json::{Value, json};

const UUID: &str = "GPU-11111111-0000-0000-0000-000000000001";
const MIG: &str = "MIG-22222222-0000-0000-0000-000000000001";

fn id() -> DaemonId {
    DaemonId::new("claim-1").unwrap()
}

#[test]
fn calls_are_as_documented() {
    assert_eq!(VERSION, 1);
    let spec = json!({
        "devices": [UUID, MIG],
        "activeThreadPercentage": 50,
        "memoryLimits": { UUID: 10240 },
        "multiUser": true,
    });
    let golden: [(Call, Value); 4] = [
        (
            Call::Ensure { id: id(), spec: serde_json::from_value(spec.clone()).unwrap() },
            json!({"ensure": {"id": "claim-1", "spec": spec}}),
        ),
        (Call::Stop { id: id() }, json!({"stop": {"id": "claim-1"}})),
        (Call::List, json!("list")),
        (Call::Watch, json!("watch")),
    ];
    for (call, written) in golden {
        assert_eq!(serde_json::to_value(&call).unwrap(), written);
        assert_eq!(serde_json::from_value::<Call>(written).unwrap(), call);
    }
}

#[test]
fn replies_are_as_documented() {
    let status = |state, reason: Option<&str>| Status {
        id: id(),
        state,
        starts: 2,
        reason: reason.map(str::to_owned),
    };
    let refusal = Refusal { kind: RefusalKind::NotReady, message: "why".into() };
    let golden: [(Reply, Value); 7] = [
        (
            Reply::Ready(status(DaemonState::Ready { pid: 71 }, None)),
            json!({"ready": {"id": "claim-1", "state": {"is": "ready", "pid": 71}, "starts": 2}}),
        ),
        (Reply::Stopped, json!("stopped")),
        (Reply::Daemons(vec![]), json!({"daemons": []})),
        (
            Reply::Changed(status(DaemonState::Failed { retry_ms: 500 }, Some("why"))),
            json!({"changed": {
                "id": "claim-1",
                "state": {"is": "failed", "retryMs": 500},
                "starts": 2,
                "reason": "why",
            }}),
        ),
        (Reply::Gone { id: id() }, json!({"gone": {"id": "claim-1"}})),
        (Reply::Alive, json!("alive")),
        (Reply::Refused(refusal), json!({"refused": {"kind": "notReady", "message": "why"}})),
    ];
    for (reply, written) in golden {
        assert_eq!(serde_json::to_value(&reply).unwrap(), written);
        assert_eq!(serde_json::from_value::<Reply>(written).unwrap(), reply);
    }
    for (state, name) in [
        (DaemonState::Starting, "starting"),
        (DaemonState::Stopping, "stopping"),
        (DaemonState::Unasked, "unasked"),
    ] {
        assert_eq!(serde_json::to_value(state).unwrap(), json!({ "is": name }));
    }
}

#[test]
fn a_newer_host_may_say_more() {
    let newer = json!({"ready": {
        "id": "claim-1",
        "state": {"is": "dreaming", "of": "sheep"},
        "starts": 1,
        "mood": "good",
    }});
    let Reply::Ready(status) = serde_json::from_value(newer).unwrap() else { panic!() };
    assert_eq!(status.state, DaemonState::Other);
    let refusal = json!({"kind": "tired", "message": "why"});
    assert_eq!(serde_json::from_value::<Refusal>(refusal).unwrap().kind, RefusalKind::Other);
}
