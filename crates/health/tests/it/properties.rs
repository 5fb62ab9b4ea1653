//! What holds whatever happens.

use std::collections::BTreeMap;

use gpu_dra_health::{
    EventInstance, EventKind, GpuEvent, HealthReading, NvLinks, Occasion, Policy, RecoveryAction,
    Report, RowRemap, Taint, Tracker, UnixSeconds, Verdict,
};
use gpu_dra_model::inventory::GpuInstance;
use gpu_dra_model::{ComputeInstanceId, DeviceKind, GpuInstanceId, Shares};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{boot_id, gpu, instance};

const GPUS: u8 = 3;

#[derive(Debug, Clone)]
enum Op {
    Event(GpuEvent),
    Reading(u8, HealthReading),
    Unread(u8),
    Clear(u8),
    Restart,
}

fn instances() -> Vec<GpuInstance> {
    vec![instance(9, 2, 1, 1), instance(10, 3, 1, 1), instance(1, 4, 4, 2)]
}

fn devices() -> Vec<DeviceKind> {
    let mut all = Vec::new();
    for nth in 0..GPUS {
        all.push(DeviceKind::Gpu { gpu: gpu(nth), mig_may_be_on: false, shares: Shares::Off });
        for one in instances() {
            for compute in &one.compute_instances {
                all.push(DeviceKind::StaticMig {
                    gpu: gpu(nth),
                    placement: one.placement,
                    device: gpu_dra_model::MigDevice {
                        instance: one.id,
                        compute: compute.id,
                        uuid: compute.uuid.clone(),
                    },
                });
            }
        }
    }
    all
}

fn event() -> impl Strategy<Value = GpuEvent> {
    let kind = prop_oneof![
        3 => prop_oneof![0u64..200, select(vec![13, 31, 43, 48, 79, 94, 119, 999])]
            .prop_map(EventKind::Xid),
        1 => select(vec![
            EventKind::DoubleBitEcc,
            EventKind::SingleBitEccStorm,
            EventKind::DramRetirementFailure,
            EventKind::FatalPoison,
            EventKind::GpuUnavailable,
            EventKind::RecoveryAction,
            EventKind::MigConfigChange,
        ]),
    ];
    let instance = option::of((select(vec![1, 9, 10, 13]), option::of(0u32..3)));
    (0..GPUS, kind, instance).prop_map(|(nth, kind, instance)| GpuEvent {
        gpu: gpu(nth),
        kind,
        instance: instance.map(|(gpu, compute)| EventInstance {
            gpu: GpuInstanceId(gpu),
            compute: compute.map(ComputeInstanceId),
        }),
    })
}

fn reading() -> impl Strategy<Value = HealthReading> {
    let links = (0u32..19).prop_map(|up| NvLinks { up, down: 18 - up });
    let rows =
        (any::<bool>(), any::<bool>()).prop_map(|(pending, failed)| RowRemap { pending, failed });
    let action = prop_oneof![2 => Just(0u32), 1 => 0u32..7].prop_map(RecoveryAction::from_nvml);
    (
        option::of(prop::bool::weighted(0.1)),
        option::of(action),
        option::of(0u64..4),
        option::of(rows),
        option::of(any::<bool>()),
        option::of(links),
    )
        .prop_map(|(lost, recovery_action, uncorrected_ecc, row_remap, pages, nvlinks)| {
            HealthReading {
                lost,
                recovery_action,
                uncorrected_ecc,
                row_remap,
                retired_pages_pending: pages,
                nvlinks,
                failed: Vec::new(),
            }
        })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => event().prop_map(Op::Event),
        4 => (0..GPUS, reading()).prop_map(|(nth, reading)| Op::Reading(nth, reading)),
        2 => (0..GPUS).prop_map(Op::Unread),
        1 => (0..GPUS).prop_map(Op::Clear),
        1 => Just(Op::Restart),
    ];
    vec(op, 0..60)
}

fn apply(tracker: &mut Tracker, op: &Op, now: i64) -> bool {
    match op {
        Op::Event(event) => tracker.event(event, &instances(), UnixSeconds(now)),
        Op::Reading(nth, reading) => {
            tracker.reading(&gpu(*nth), reading, Occasion::Round, UnixSeconds(now))
        }
        Op::Unread(nth) => tracker.unread(&gpu(*nth), "hangs", Occasion::Round, UnixSeconds(now)),
        Op::Clear(nth) => !tracker.clear(&gpu(*nth), None, None).is_empty(),
        Op::Restart => {
            let json = tracker.to_json(&boot_id(1)).unwrap();
            *tracker = Tracker::from_json(Policy::default(), &json, &boot_id(1)).unwrap();
            // The state of each device becomes unknown.
            true
        }
    }
}

fn after(ops: &[Op]) -> Tracker {
    let mut tracker = Tracker::new(Policy::default());
    for (now, op) in (0..).zip(ops) {
        apply(&mut tracker, op, now);
    }
    tracker
}

fn reports(tracker: &Tracker) -> Vec<Report> {
    devices().iter().map(|device| tracker.report(device)).collect()
}

fn worst(report: &Report) -> BTreeMap<&'static str, Verdict> {
    report.taints.iter().map(|taint| (taint.key, taint.verdict)).collect()
}

proptest! {
    /// An event makes no device better in anything.
    #[test]
    fn no_event_makes_anything_better(ops in ops(), event in event()) {
        let mut tracker = after(&ops);
        let before = reports(&tracker);
        apply(&mut tracker, &Op::Event(event), 1000);
        for (before, after) in before.iter().zip(&reports(&tracker)) {
            let after = worst(after);
            for (key, verdict) in worst(before) {
                prop_assert!(after.get(key) >= Some(&verdict), "{key} was {verdict:?}: {after:?}");
            }
        }
    }

    /// In whatever order events come, what is told is as bad.
    #[test]
    fn the_order_of_events_is_of_no_matter(
        events in vec(event(), 0..12).prop_shuffle(),
        at in any::<prop::sample::Index>(),
    ) {
        let ops: Vec<_> = events.iter().cloned().map(Op::Event).collect();
        let mut turned = ops.clone();
        if !turned.is_empty() {
            turned.rotate_left(at.index(ops.len()));
            turned.reverse();
        }
        let told = |ops: &[Op]| reports(&after(ops)).iter().map(worst).collect::<Vec<_>>();
        prop_assert_eq!(told(&ops), told(&turned));
    }

    /// Applications' own errors change nothing that is published or kept, and are counted.
    #[test]
    fn application_xids_only_count(
        ops in ops(),
        nth in 0..GPUS,
        xid in select(vec![13u64, 31, 43, 45, 68, 69, 94]),
    ) {
        let mut tracker = after(&ops);
        let (before, kept) = (reports(&tracker), tracker.to_json(&boot_id(1)).unwrap());
        let count = |tracker: &Tracker| {
            let of = |(of, kind, _): &(_, EventKind, u64)| *of == &gpu(nth) && *kind == EventKind::Xid(xid);
            tracker.counts().find(of).map_or(0, |(_, _, count)| count)
        };
        let counted = count(&tracker);
        let event = GpuEvent { gpu: gpu(nth), kind: EventKind::Xid(xid), instance: None };
        prop_assert!(!tracker.event(&event, &[], UnixSeconds(1000)));
        prop_assert_eq!(reports(&tracker), before);
        prop_assert_eq!(tracker.to_json(&boot_id(1)).unwrap(), kept);
        prop_assert_eq!(count(&tracker), counted + 1);
    }

    /// After a clear nothing is told of the GPU and its parts, and of others the same.
    #[test]
    fn a_clear_clears_that_gpu_alone(ops in ops(), nth in 0..GPUS) {
        let mut tracker = after(&ops);
        let before = reports(&tracker);
        tracker.clear(&gpu(nth), None, None);
        for ((device, before), after) in devices().iter().zip(before).zip(reports(&tracker)) {
            if device.gpu() == &gpu(nth) {
                prop_assert_eq!((after.taints, after.message), (vec![], String::new()));
            } else {
                prop_assert_eq!(after, before);
            }
        }
    }

    /// Nothing on one GPU is seen on another.
    #[test]
    fn gpus_do_not_share_their_fate(ops in ops()) {
        let alone: Vec<_> = ops
            .iter()
            .filter(|op| match op {
                Op::Event(event) => event.gpu == gpu(0),
                Op::Reading(nth, _) | Op::Unread(nth) | Op::Clear(nth) => *nth == 0,
                Op::Restart => true,
            })
            .cloned()
            .collect();
        let of_first = |ops: &[Op]| {
            let tracker = after(ops);
            let first = devices().into_iter().filter(|device| device.gpu() == &gpu(0));
            first.map(|device| worst(&tracker.report(&device))).collect::<Vec<_>>()
        };
        prop_assert_eq!(of_first(&ops), of_first(&alone));
    }

    /// What says that nothing has changed is right, and a restart loses nothing.
    #[test]
    fn changes_are_told(ops in ops()) {
        let mut tracker = Tracker::new(Policy::default());
        for (now, op) in (0..).zip(&ops) {
            let (before, kept) = (reports(&tracker), tracker.to_json(&boot_id(1)).unwrap());
            let changed = apply(&mut tracker, op, now);
            let same = reports(&tracker) == before && tracker.to_json(&boot_id(1)).unwrap() == kept;
            prop_assert!(changed || same, "{op:?}");
        }
        let taints = |tracker: &Tracker| {
            let taints = reports(tracker).into_iter().map(|report| report.taints);
            // That it can't be read is found out anew.
            let kept = |taint: &Taint| taint.key != "gpu.nvidia.com/unreadable";
            taints.map(|all| all.into_iter().filter(kept).collect()).collect::<Vec<Vec<_>>>()
        };
        let before = taints(&tracker);
        apply(&mut tracker, &Op::Restart, 0);
        prop_assert_eq!(taints(&tracker), before);
    }

    /// What is published can be published: unique keys, values as labels may be, worst first.
    #[test]
    fn reports_are_fit_for_the_api(ops in ops()) {
        for report in reports(&after(&ops)) {
            prop_assert!(report.taints.len() <= 10 && worst(&report).len() == report.taints.len());
            prop_assert!(report.taints.is_sorted_by(|a, b| a.verdict >= b.verdict));
            prop_assert_eq!(report.taints.is_empty(), report.message.is_empty());
            for taint in &report.taints {
                prop_assert_ne!(taint.verdict, Verdict::Ignore);
                let value = taint.value.clone().unwrap_or_default();
                prop_assert!(value.len() < 64);
                prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
            }
        }
    }
}
