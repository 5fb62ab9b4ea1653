//! Events: who is tainted how, the worst stays, applications' own errors only count.

use gpu_dra_health::{EventKind, Policy, State, Verdict};

use crate::support::{Node, gpu};

#[test]
fn application_xids_do_nothing_but_count() {
    let mut node = Node::new();
    node.read_well(0);
    for xid in [8, 13, 31, 43, 45, 68, 69, 94, 128, 154] {
        assert!(!node.xid(0, xid), "{xid}");
        assert!(!node.xid(0, xid), "{xid}");
        assert_eq!(node.taints(0), [""; 0], "{xid}");
        let report = node.report(0);
        assert_eq!((report.state, report.message.as_str()), (State::Healthy, ""), "{xid}");
    }
    let counted: Vec<_> = node.tracker.counts().collect();
    assert_eq!(counted.len(), 10);
    assert!(counted.iter().all(|(of, _, count)| **of == gpu(0) && *count == 2), "{counted:?}");
}

#[test]
fn each_event_has_its_taint_and_a_sentence_that_says_what_to_do() {
    for (kind, taint, words) in [
        (EventKind::Xid(79), "xid=79:NoExecute", "fallen off the bus; drain and reboot"),
        (EventKind::Xid(95), "xid=95:NoExecute", "nvidia-smi --gpu-reset"),
        (EventKind::Xid(48), "xid=48:NoSchedule", "uncorrectable memory error"),
        (EventKind::Xid(74), "xid=74:NoSchedule", "check NVLink"),
        (EventKind::Xid(92), "xid=92:None", "corrected memory errors"),
        (EventKind::Xid(999), "xid=999:None", "not in the catalogue"),
        (EventKind::DoubleBitEcc, "ecc=double-bit:NoSchedule", "reset"),
        (EventKind::SingleBitEccStorm, "ecc=single-bit-storm:None", "diagnostics"),
        (EventKind::DramRetirement, "ecc=retirement:None", "reset"),
        (EventKind::DramRetirementFailure, "ecc=retirement-failure:NoSchedule", "replace"),
        (EventKind::NonFatalPoison, "ecc=poison:NoSchedule", "reset"),
        (EventKind::FatalPoison, "ecc=fatal-poison:NoExecute", "reset"),
        (EventKind::GpuUnavailable, "unavailable:NoExecute", "reboot"),
    ] {
        let mut node = Node::new();
        node.read_well(0);
        node.read_well(1);
        assert!(node.event(0, kind), "{kind:?}");
        assert_eq!(node.taints(0), [taint]);
        let report = node.report(0);
        assert!(report.message.contains(words), "{kind:?}: {}", report.message);
        assert!(report.message.len() < 200, "{}", report.message);
        assert_eq!(report.taints[0].since.0, node.now);
        let milder = taint.ends_with(":None");
        assert_eq!(report.state == State::Healthy, milder, "{kind:?}");
        assert_eq!(node.taints(1), [""; 0], "{kind:?}: nothing is wrong with the neighbour");
        assert_eq!(node.state(1), State::Healthy);
    }
    for kind in [EventKind::RecoveryAction, EventKind::MigConfigChange] {
        let mut node = Node::new();
        assert!(!node.event(0, kind));
        assert_eq!(node.taints(0), [""; 0]);
    }
}

#[test]
fn the_worst_stays_in_any_order() {
    for order in [[48, 43], [43, 48], [48, 92], [92, 48]] {
        let mut node = Node::new();
        for xid in order {
            node.xid(0, xid);
        }
        assert_eq!(node.taints(0), ["xid=48:NoSchedule"], "{order:?}");
    }
    let mut node = Node::new();
    assert!(node.xid(0, 48));
    let first = node.now;
    assert!(!node.xid(0, 74), "as bad: the first stays, and nothing is written");
    assert_eq!(node.report(0).taints[0].since.0, first);
    assert!(node.xid(0, 79));
    assert!(!node.xid(0, 48));
    assert_eq!(node.taints(0), ["xid=79:NoExecute"]);
}

#[test]
fn a_thousand_events_are_one_change() {
    let mut node = Node::new();
    let changes = (0..1000).filter(|_| node.xid(0, 119)).count();
    assert_eq!(changes, 1);
    assert_eq!(node.tracker.counts().next().unwrap().2, 1000);
}

#[test]
fn taints_of_one_key_are_one_and_the_worst_comes_first() {
    let mut node = Node::new();
    node.xid(0, 92);
    node.event(0, EventKind::DramRetirement);
    node.event(0, EventKind::DoubleBitEcc);
    node.event(0, EventKind::GpuUnavailable);
    assert_eq!(
        node.taints(0),
        ["unavailable:NoExecute", "ecc=double-bit:NoSchedule", "xid=92:None"]
    );
}

#[test]
fn the_administrator_has_the_last_word() {
    let policy: Policy = serde_json::from_str(
        r#"{"xids": {"79": "Warn", "13": "NoSchedule"}, "unlistedXid": "NoSchedule"}"#,
    )
    .unwrap();
    let mut node = Node::with(policy.ignoring([48, 119]));
    for (nth, xid, taint) in [
        (0, 79, Some("xid=79:None")),
        (1, 13, Some("xid=13:NoSchedule")),
        (2, 4711, Some("xid=4711:NoSchedule")),
        (3, 48, None),
        (4, 119, None),
        (5, 95, Some("xid=95:NoExecute")),
    ] {
        node.xid(nth, xid);
        assert_eq!(node.taints(nth), taint.into_iter().collect::<Vec<_>>(), "{xid}");
    }
    for wrong in [r#"{"xids": {"79": "Evict"}}"#, r#"{"xid": {}}"#, r#"{"xids": {"all": "Warn"}}"#]
    {
        assert!(serde_json::from_str::<Policy>(wrong).is_err(), "{wrong}");
    }
    assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::default());
    assert!(Verdict::Ignore < Verdict::Warn && Verdict::NoSchedule < Verdict::NoExecute);
}
