//! When it is over: recovery, reboot, a person; never a restart of the node agent.

use gpu_dra_health::{EventKind, HealthReading, RecoveryAction, State, Tracker, UnixSeconds};

use crate::support::{Node, action, boot_id, gpu, lost, there};

#[test]
fn the_driver_takes_its_recovery_action_back() {
    let mut node = Node::new();
    node.xid(0, 119);
    // Before the driver has made up its mind.
    node.read_well(0);
    assert_eq!(node.taints(0), ["xid=119:NoExecute"]);
    node.read(0, &action(RecoveryAction::Reset));
    assert_eq!(node.taints(0), ["xid=119:NoExecute", "recovery-action=reset:NoExecute"]);
    assert_eq!(node.state(0), State::Unhealthy);
    assert!(!node.read(0, &action(RecoveryAction::Reset)), "no news");
    assert!(node.read_well(0));
    assert_eq!(node.taints(0), [""; 0]);
    let report = node.report(0);
    assert_eq!((report.state, report.message.as_str()), (State::Healthy, ""));
}

#[test]
fn what_evicts_pods_is_not_over_because_time_passes() {
    let mut node = Node::new();
    node.xid(0, 54);
    for _ in 0..100 {
        node.read_well(0);
    }
    assert_eq!(node.taints(0), ["xid=54:NoExecute"]);
}

#[test]
fn what_keeps_pods_away_is_over_when_the_driver_asks_for_nothing_for_long_enough() {
    for (xid, taint) in [(48, "xid=48:NoSchedule"), (92, "xid=92:None")] {
        let mut node = Node::new();
        node.xid(0, xid);
        node.read_well(0);
        node.read_well(0);
        // Another event, even a milder one: wait anew.
        node.xid(0, 92);
        node.read_well(0);
        node.read_well(0);
        assert_eq!(node.taints(0), [taint]);
        assert!(node.read_well(0));
        assert_eq!(node.taints(0), [""; 0], "{xid}");
    }
}

/// Field report N28, "the worst one stays": an Xid 48 comes with a burst of 45s, one for each
/// channel that is torn down, and each is followed by a reading.
#[test]
fn n28_a_burst_of_events_with_readings_between_settles_nothing() {
    for (kind, taint) in [
        (EventKind::Xid(45), "xid=48:NoSchedule"),
        (EventKind::MigConfigChange, "xid=48:NoSchedule"),
        (EventKind::Xid(13), "xid=48:NoSchedule"),
    ] {
        let mut node = Node::new();
        let well = action(RecoveryAction::Nothing);
        node.read_well(0);
        node.xid(0, 48);
        node.read_between(0, &well);
        for _ in 0..20 {
            node.event(0, kind);
            node.read_between(0, &well);
        }
        assert_eq!(node.taints(0), [taint], "{kind:?}");
        // It settles after what came last, however mild that is.
        node.read_well(0);
        node.read_well(0);
        node.event(0, kind);
        node.read_well(0);
        node.read_well(0);
        assert_eq!(node.taints(0), [taint], "{kind:?}");
        node.read_well(0);
        assert_eq!(node.taints(0), [""; 0], "{kind:?}");
    }
}

/// A survey of a node with MIG made on demand reads all GPUs whenever one is partitioned anew.
#[test]
fn what_happens_on_another_gpu_settles_nothing_here() {
    let mut node = Node::new();
    node.xid(3, 48);
    for _ in 0..20 {
        node.event(0, EventKind::MigConfigChange);
        node.read_between(3, &action(RecoveryAction::Nothing));
    }
    assert_eq!(node.taints(3), ["xid=48:NoSchedule"]);
    // Nor does it take longer for that.
    for _ in 0..2 {
        node.read_well(3);
        node.read_between(3, &action(RecoveryAction::Nothing));
    }
    assert_eq!(node.taints(3), ["xid=48:NoSchedule"]);
    node.read_well(3);
    assert_eq!(node.taints(3), [""; 0]);
}

#[test]
fn what_the_driver_takes_back_is_over_whenever_it_is_read() {
    let mut node = Node::new();
    node.xid(0, 119);
    node.read_between(0, &action(RecoveryAction::Reset));
    node.read_between(0, &action(RecoveryAction::Nothing));
    assert_eq!(node.taints(0), [""; 0]);
}

#[test]
fn a_driver_that_knows_no_recovery_action_leaves_it_to_people() {
    let mut node = Node::new();
    node.xid(0, 48);
    for _ in 0..100 {
        node.read(0, &there());
    }
    assert_eq!(node.taints(0), ["xid=48:NoSchedule"]);
    let cleared = node.tracker.clear(&gpu(0), None, None);
    assert_eq!(cleared.len(), 1);
    assert_eq!(cleared[0].key, "gpu.nvidia.com/xid");
    assert!(cleared[0].message.starts_with("Xid 48: "), "{}", cleared[0].message);
    assert_eq!(node.taints(0), [""; 0]);
    assert_eq!(node.tracker.clear(&gpu(0), None, None), []);
}

#[test]
fn a_lost_gpu_that_is_back_was_reset() {
    let mut node = Node::new();
    node.read_well(1);
    node.xid(0, 79);
    assert!(node.read(0, &lost()));
    assert_eq!(node.taints(0), ["xid=79:NoExecute", "gpu-lost:NoExecute"]);
    assert!(!node.read(0, &lost()));
    assert_eq!(node.taints(1), [""; 0], "that GPU alone");
    assert!(!node.read(0, &HealthReading::default()), "not asked is not back");
    // Back, but not as it should be.
    node.read(0, &action(RecoveryAction::Reset));
    assert_eq!(node.taints(0), ["xid=79:NoExecute", "recovery-action=reset:NoExecute"]);
    node.read(0, &lost());
    node.read_well(0);
    assert_eq!(node.taints(0), [""; 0]);

    node.xid(0, 79);
    node.read(0, &lost());
    node.read(0, &there());
    assert_eq!(node.taints(0), [""; 0], "with a driver that knows no recovery action");
}

#[test]
fn a_restart_alone_clears_nothing_and_a_reboot_does() {
    let mut node = Node::new();
    node.xid(0, 69);
    node.xid(0, 119);
    node.event(1, EventKind::FatalPoison);
    node.read(2, &lost());
    let before: Vec<_> = (0..3).map(|nth| node.report(nth).taints).collect();
    node.restart(&boot_id(1));
    let after: Vec<_> = (0..3).map(|nth| node.report(nth).taints).collect();
    assert_eq!(after, before, "with their times");
    node.read(0, &there());
    assert_eq!(node.taints(0), ["xid=119:NoExecute"]);

    node.restart(&boot_id(2));
    for nth in 0..3 {
        assert_eq!(node.taints(nth), [""; 0], "{nth}");
        assert_eq!(node.state(nth), State::Unknown, "not read yet");
    }
}

#[test]
fn a_recovery_between_two_lives_of_the_agent_is_seen() {
    let mut node = Node::new();
    node.xid(0, 119);
    node.read(0, &action(RecoveryAction::Reset));
    node.restart(&boot_id(1));
    node.read_well(0);
    assert_eq!(node.taints(0), [""; 0]);
}

#[test]
fn one_key_can_be_cleared() {
    let mut node = Node::new();
    node.xid(0, 48);
    node.event(0, EventKind::DoubleBitEcc);
    let cleared = node.tracker.clear(&gpu(0), None, Some("gpu.nvidia.com/ecc"));
    assert_eq!(cleared.len(), 1);
    assert_eq!(node.taints(0), ["xid=48:NoSchedule"]);
    assert_eq!(node.tracker.clear(&gpu(0), None, Some("gpu.nvidia.com/gone")), []);
}

#[test]
fn what_is_still_so_comes_again_after_a_clear() {
    let mut node = Node::new();
    node.read(0, &action(RecoveryAction::Reboot));
    assert_eq!(node.tracker.clear(&gpu(0), None, None).len(), 1);
    assert_eq!(node.taints(0), [""; 0]);
    node.read(0, &action(RecoveryAction::Reboot));
    assert_eq!(node.taints(0), ["recovery-action=reboot:NoExecute"]);
}

#[test]
fn a_gpu_without_events_says_so_and_is_watched_by_readings() {
    let mut node = Node::new();
    let told = |tracker: &mut Tracker, trouble: Option<&str>| {
        tracker.monitoring(&gpu(0), trouble.map(str::to_owned), UnixSeconds(7))
    };
    assert!(told(&mut node.tracker, Some("not supported")));
    assert!(!told(&mut node.tracker, Some("not supported")));
    node.read_well(0);
    assert_eq!(node.taints(0), ["unmonitored:None"]);
    assert_eq!(node.state(0), State::Healthy);
    assert!(node.report(0).message.contains("not supported"));
    node.xid(0, 54);
    assert!(told(&mut node.tracker, None));
    assert_eq!(node.taints(0), ["xid=54:NoExecute"]);
}
