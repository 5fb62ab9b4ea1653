//! When a claim that nobody knows any more is given up.

use std::time::Duration;

use gpu_dra_claims::sweep::{Gone, Seen, Sweep, Verdict, seen};
use gpu_dra_claims::{Phase, Record};
use gpu_dra_testkit::{claim, claim_uid, driver};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::planning::planned;

const PAUSE: Duration = Duration::from_secs(300);
const GONE: Seen = Seen::Gone(Gone::Deleted);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_an_object_says_of_a_held_claim() {
    let train = claim("train").gets("gpu", "gpu-0");
    let record = Record { phase: Phase::Prepared, ..planned(&train, &[]).unwrap() };
    let of = |object: ResourceClaim| seen(&record, Some(&object), &driver());
    assert_eq!(of(train.object()), Seen::Here);
    assert_eq!(seen(&record, None, &driver()), Seen::Gone(Gone::Deleted));
    assert_eq!(of(train.uid(2).object()), Seen::Gone(Gone::Replaced));
    let elsewhere = claim("train").gets_from("node-b", "gpu", "gpu-0");
    assert_eq!(of(elsewhere.object()), Seen::Gone(Gone::NotAllocatedHere));
    assert_eq!(of(claim("train").not_allocated().object()), Seen::Gone(Gone::NotAllocatedHere));
    let another_driver = claim("train").gets_of("dra.net", "nic", "gpu-0");
    assert_eq!(of(another_driver.object()), Seen::Gone(Gone::NotAllocatedHere));
    // Other devices of this node: the kubelet's next Prepare sorts that out.
    assert_eq!(of(claim("train").gets("gpu", "gpu-1").object()), Seen::Here);
}

#[test]
fn a_claim_is_given_up_after_two_looks_with_a_pause_between() {
    let mut sweep = Sweep::new(PAUSE);
    let uid = claim_uid(1);
    assert_eq!(sweep.judge(&uid, GONE, at(0), true), Verdict::LookAgain);
    assert_eq!(sweep.judge(&uid, GONE, at(299), true), Verdict::LookAgain);
    assert!(sweep.is_waiting());
    assert_eq!(sweep.judge(&uid, GONE, at(300), true), Verdict::GiveUp(Gone::Deleted));
    assert!(!sweep.is_waiting());
}

#[test]
fn a_claim_that_is_seen_between_or_used_is_kept() {
    let mut sweep = Sweep::new(PAUSE);
    let uid = claim_uid(1);
    sweep.judge(&uid, GONE, at(0), true);
    assert_eq!(sweep.judge(&uid, Seen::Here, at(200), true), Verdict::Keep);
    assert_eq!(sweep.judge(&uid, GONE, at(400), true), Verdict::LookAgain, "the first look again");
    assert_eq!(sweep.judge(&uid, GONE, at(700), false), Verdict::LookAgain, "something computes");
    assert_eq!(sweep.judge(&uid, GONE, at(1000), true), Verdict::GiveUp(Gone::Deleted));
}

#[test]
fn an_api_server_that_is_away_has_seen_nothing() {
    let mut sweep = Sweep::new(PAUSE);
    let uid = claim_uid(1);
    assert_eq!(sweep.judge(&uid, Seen::Unknown, at(0), true), Verdict::Keep);
    sweep.judge(&uid, GONE, at(10), true);
    assert_eq!(sweep.judge(&uid, Seen::Unknown, at(500), true), Verdict::LookAgain);
    sweep.forget();
    assert_eq!(sweep.judge(&uid, GONE, at(1000), true), Verdict::LookAgain);
    sweep.retain(|held| *held != uid);
    assert!(!sweep.is_waiting());
}
