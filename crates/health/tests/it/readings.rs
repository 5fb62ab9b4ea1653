//! What is read: so as long as it is read, and silence is no news.

use gpu_dra_health::{
    FailedCall, HealthReading, NvLinks, Occasion, Policy, RecoveryAction, RowRemap, State,
    UnixSeconds, Verdict,
};

use crate::support::{Node, action, gpu, there};

fn ecc(count: u64) -> HealthReading {
    HealthReading { uncorrected_ecc: Some(count), ..there() }
}

fn rows(pending: bool, failed: bool) -> HealthReading {
    HealthReading { row_remap: Some(RowRemap { pending, failed }), ..there() }
}

fn pages(pending: bool) -> HealthReading {
    HealthReading { retired_pages_pending: Some(pending), ..there() }
}

fn links(up: u32, down: u32) -> HealthReading {
    HealthReading { nvlinks: Some(NvLinks { up, down }), ..there() }
}

#[test]
fn each_is_told_and_goes_with_its_cause() {
    let actions = [
        (RecoveryAction::Reset, "recovery-action=reset:NoExecute"),
        (RecoveryAction::Reboot, "recovery-action=reboot:NoExecute"),
        (RecoveryAction::DrainP2p, "recovery-action=drain-p2p:NoSchedule"),
        (RecoveryAction::DrainAndReset, "recovery-action=drain-and-reset:NoSchedule"),
        (RecoveryAction::RecoverImexDomain, "recovery-action=recover-imex-domain:NoSchedule"),
        (RecoveryAction::Other(17), "recovery-action=17:NoSchedule"),
    ]
    .map(|(asked, taint)| (action(asked), action(RecoveryAction::Nothing), taint));
    let others = [
        (ecc(2), ecc(0), "ecc=uncorrected:None"),
        (rows(true, false), rows(false, false), "row-remap=pending:None"),
        (rows(false, true), rows(false, false), "row-remap=failure:NoSchedule"),
        (rows(true, true), rows(false, false), "row-remap=failure:NoSchedule"),
        (pages(true), pages(false), "retired-pages=pending:None"),
        (links(17, 1), links(18, 0), "nvlink-down:None"),
    ];
    for (bad, good, taint) in actions.into_iter().chain(others) {
        let mut node = Node::new();
        node.read(0, &good);
        assert!(node.read(0, &bad), "{taint}");
        assert_eq!(node.taints(0), [taint]);
        let since = node.report(0).taints[0].since;
        assert!(!node.read(0, &bad), "{taint}: no news");
        for silent in [there(), HealthReading::default()] {
            assert!(!node.read(0, &silent));
            assert_eq!(node.taints(0), [taint], "{taint}: silence is no recovery");
        }
        assert_eq!(node.report(0).taints[0].since, since);
        assert!(node.report(0).message.len() < 200);
        assert!(node.read(0, &good), "{taint}");
        assert_eq!(node.taints(0), [""; 0], "{taint}");
        assert_eq!(node.state(0), State::Healthy);
    }
}

#[test]
fn more_errors_change_the_message_and_not_the_taint() {
    let mut node = Node::new();
    node.read(0, &ecc(1));
    let taints = node.report(0).taints;
    node.read(0, &ecc(5));
    assert_eq!(node.report(0).taints, taints);
    assert!(node.report(0).message.starts_with("5 uncorrected"), "{}", node.report(0).message);
}

#[test]
fn errors_that_were_accepted_are_not_told_again() {
    let mut node = Node::new();
    node.read(0, &ecc(5));
    node.tracker.clear(&gpu(0), None, None);
    node.read(0, &ecc(5));
    assert_eq!(node.taints(0), [""; 0]);
    node.read(0, &ecc(6));
    assert_eq!(node.taints(0), ["ecc=uncorrected:None"], "one more is");
    // After a reset it counts from zero.
    node.read(0, &ecc(0));
    node.read(0, &ecc(1));
    assert_eq!(node.taints(0), ["ecc=uncorrected:None"]);
}

#[test]
fn links_that_never_were_up_are_not_wired() {
    let mut node = Node::new();
    node.read(0, &links(0, 12));
    assert_eq!(node.taints(0), [""; 0]);
    node.read(0, &links(12, 6));
    node.read(0, &links(10, 8));
    assert_eq!(node.taints(0), ["nvlink-down:None"]);
    assert!(node.report(0).message.starts_with("2 of 12 NVLinks"), "{}", node.report(0).message);
    node.tracker.clear(&gpu(0), None, None);
    node.read(0, &links(10, 8));
    assert_eq!(node.taints(0), [""; 0], "taken out for good");
}

#[test]
fn a_worse_action_in_place_of_a_milder_one_has_a_time_of_its_own() {
    let mut node = Node::new();
    node.read(0, &action(RecoveryAction::DrainAndReset));
    node.read(0, &action(RecoveryAction::Reboot));
    assert_eq!(node.taints(0), ["recovery-action=reboot:NoExecute"]);
    assert_eq!(node.report(0).taints[0].since.0, node.now);
}

#[test]
fn a_gpu_that_cannot_be_read_for_three_rounds_is_unknown_until_it_can() {
    let void = HealthReading {
        failed: vec![FailedCall { call: "nvmlDeviceGetFieldValues", code: 999 }],
        ..HealthReading::default()
    };
    let mut node = Node::new();
    node.read_well(0);
    node.xid(1, 92);
    assert!(!node.read(0, &void) && !node.read(0, &void));
    // Readings in between are no rounds.
    assert!(!node.read_between(0, &void) && !node.read_between(0, &void));
    assert_eq!((node.state(0), node.taints(0)), (State::Healthy, vec![]));
    assert!(node.read(0, &void), "it is told");
    let since = node.now;
    assert_eq!(node.taints(0), ["unreadable:None"]);
    assert_eq!(node.state(0), State::Unknown);
    let message = node.report(0).message;
    assert!(message.contains("nvmlDeviceGetFieldValues answers 999"), "{message}");
    assert!(message.len() < 200);
    assert!(!node.read(0, &void), "once");
    assert_eq!(node.report(0).taints[0].since.0, since);
    assert_eq!(node.taints(1), ["xid=92:None"], "that GPU alone");
    // What is known of it stays, and the worse decides.
    node.xid(0, 79);
    assert_eq!(node.taints(0), ["xid=79:NoExecute", "unreadable:None"]);
    assert_eq!(node.state(0), State::Unhealthy);
    assert!(node.read(0, &there()));
    assert_eq!(node.taints(0), ["xid=79:NoExecute"]);
    assert!(!node.read(0, &void) && !node.read(0, &void), "counted anew");
}

#[test]
fn what_cannot_be_read_is_as_bad_as_the_policy_says() {
    for (unreadable, taint, state) in [
        (Verdict::Ignore, [].as_slice(), State::Unknown),
        (Verdict::NoSchedule, &["unreadable:NoSchedule"], State::Unhealthy),
        (Verdict::NoExecute, &["unreadable:NoExecute"], State::Unhealthy),
    ] {
        let mut node = Node::with(Policy { unreadable, ..Policy::default() });
        node.read_well(0);
        for now in 0..3 {
            node.tracker.unread(&gpu(0), "it hangs", Occasion::Round, UnixSeconds(now));
        }
        assert_eq!(
            (node.taints(0), node.state(0)),
            (taint.iter().map(|t| (*t).to_owned()).collect(), state)
        );
        let cleared = node.tracker.clear(&gpu(0), None, Some("gpu.nvidia.com/unreadable"));
        assert_eq!(cleared.len(), 1);
        assert_eq!(node.taints(0), [""; 0]);
    }
}

#[test]
fn what_is_counted_of_gpus_that_were_replaced_is_forgotten_and_what_is_wrong_is_not() {
    let mut node = Node::new();
    for nth in 0..2 {
        node.xid(nth, 79);
        node.read_well(nth);
    }
    node.tracker.retain(|there| *there == gpu(1));
    assert_eq!(node.tracker.counts().count(), 1);
    assert_eq!(node.taints(0), ["xid=79:NoExecute"], "it may come back");
    assert_eq!(node.taints(1), ["xid=79:NoExecute"]);
}
