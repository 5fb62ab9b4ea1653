//! What is read: so as long as it is read, and silence is no news.

use gpu_dra_health::{HealthReading, NvLinks, RecoveryAction, RowRemap, State};

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
