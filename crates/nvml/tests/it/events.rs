//! Events: heard with GPU and MIG instance, by all GPUs that can be, over everything that
//! ends a registration.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use gpu_dra_health::{
    EventInstance, EventKind, GpuEvent, Occasion, Part, Policy, Tracker, UnixSeconds,
};
use gpu_dra_model::inventory::{MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use gpu_dra_nvml::{Code, Driver, Events, Gpus, Heard, Watching};
use gpu_dra_sim_data::control::{Event, Fault, Lost};

use crate::node::{Node, first, uuids};

const SOON: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(600);

struct Listening {
    heard: Receiver<Heard>,
    events: Events,
}

impl Listening {
    /// Listens, and waits until it does.
    fn start(driver: &Arc<Driver>) -> (Self, Watching) {
        let (send, heard) = mpsc::channel();
        let events = Events::start(Arc::clone(driver), move |news| send.send(news).unwrap());
        let listening = Self { heard, events: events.unwrap() };
        let watching = listening.watching();
        (listening, watching)
    }

    fn next(&self) -> Heard {
        self.heard.recv_timeout(SOON).unwrap()
    }

    fn watching(&self) -> Watching {
        match self.next() {
            Heard::Watching(watching) => watching,
            other => panic!("{other:?}"),
        }
    }

    fn event(&self) -> GpuEvent {
        match self.next() {
            Heard::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    fn nothing(&self) {
        assert_eq!(self.heard.recv_timeout(QUIET).ok(), None);
    }
}

fn raise(node: &Node, event: Event) {
    node.control(|control| control.events.push(event));
}

fn xid(gpu: &GpuUuid, number: u64) -> GpuEvent {
    GpuEvent { gpu: gpu.clone(), kind: EventKind::Xid(number), instance: None }
}

fn open(spec: &str) -> (Node, Arc<Driver>, Vec<GpuUuid>) {
    let node = Node::stage(spec);
    let driver = Arc::new(node.driver());
    let gpus = uuids(&driver.probe().unwrap());
    (node, driver, gpus)
}

#[test]
fn each_kind_is_heard_with_its_gpu_and_instance() {
    let (node, driver, gpus) = open("2xh100:driver=580.95.05");
    let (listening, watching) = Listening::start(&driver);
    assert_eq!(watching.watched, gpus.iter().cloned().collect());
    assert!(watching.unmonitored.is_empty());
    let of_type =
        |gpu: &GpuUuid, bit| Event { xid: None, kind: bit, ..Event::xid(gpu.as_str(), 0) };
    for (bit, kind) in [
        (0x2, EventKind::DoubleBitEcc),
        (0x4000, EventKind::GpuUnavailable),
        (0x8000, EventKind::RecoveryAction),
    ] {
        raise(&node, of_type(&gpus[1], bit));
        assert_eq!(listening.event(), GpuEvent { gpu: gpus[1].clone(), kind, instance: None });
    }
    // What nobody asked for.
    raise(&node, of_type(&gpus[0], 0x1));
    raise(&node, Event::xid(gpus[0].as_str(), 79));
    assert_eq!(listening.event(), xid(&gpus[0], 79));
    for (gi, ci) in [(Some(9), Some(1)), (Some(9), None), (None, None)] {
        raise(
            &node,
            Event { gpu_instance: gi, compute_instance: ci, ..Event::xid(gpus[0].as_str(), 94) },
        );
        let instance = gi
            .map(|gi| EventInstance { gpu: GpuInstanceId(gi), compute: ci.map(ComputeInstanceId) });
        assert_eq!(listening.event(), GpuEvent { instance, ..xid(&gpus[0], 94) });
    }
    listening.nothing();
}

/// All the way: an Xid of a MIG instance taints that instance, recovery clears it.
#[test]
fn from_event_to_taint_and_back() {
    let (node, driver, gpus) = open("1xh100:mig=on");
    let gpu = &gpus[0];
    let placement = Placement { start: 2, size: 1 };
    let instance = driver.create_gpu_instance(gpu, 19, placement).unwrap();
    let compute = driver.create_compute_instance(gpu, instance).unwrap();
    let (listening, _) = Listening::start(&driver);
    let mut tracker = Tracker::new(Policy::default());
    let part = Part { placement, compute: None };
    let keys = |tracker: &Tracker, part| {
        tracker.report_part(gpu, part).taints.iter().map(|taint| taint.key).collect::<Vec<_>>()
    };

    node.gpu("0", |gpu| gpu.recovery_action = 1);
    raise(
        &node,
        Event {
            gpu_instance: Some(instance.0),
            compute_instance: Some(compute.id.0),
            ..Event::xid("0", 95)
        },
    );
    let event = listening.event();
    tracker.event(&event, &driver.gpu_instances(gpu).unwrap(), UnixSeconds(1));
    assert_eq!(keys(&tracker, Some(part)), ["gpu.nvidia.com/xid"]);
    assert_eq!(keys(&tracker, None), [""; 0]);
    tracker.reading(gpu, &driver.health(gpu).unwrap(), Occasion::Round, UnixSeconds(2));
    assert_eq!(keys(&tracker, None), ["gpu.nvidia.com/recovery-action"]);
    node.heal();
    tracker.reading(gpu, &driver.health(gpu).unwrap(), Occasion::Round, UnixSeconds(3));
    assert_eq!(keys(&tracker, Some(part)), [""; 0]);
}

#[test]
fn a_thousand_events_arrive_in_order() {
    let (node, driver, gpus) = open("1xh100");
    let (listening, _) = Listening::start(&driver);
    node.control(|control| {
        control.events.extend((0..1000).map(|nth| Event::xid(gpus[0].as_str(), nth)));
    });
    for nth in 0..1000 {
        assert_eq!(listening.event(), xid(&gpus[0], nth));
    }
}

/// One GPU that can't be registered costs the others nothing, whatever the answer is.
#[test]
fn who_cannot_be_registered_is_told_with_the_reason() {
    for (function, code, sets) in [
        ("nvmlDeviceRegisterEvents", Code::NOT_SUPPORTED, 1),
        // After which the set is of no use.
        ("nvmlDeviceRegisterEvents", Code::UNKNOWN, 2),
        ("nvmlDeviceGetSupportedEventTypes", Code::NOT_SUPPORTED, 1),
    ] {
        let (node, driver, gpus) = open("3xh100");
        node.fail(function, "1", code.0);
        node.control(|control| control.call_log = true);
        let (listening, watching) = Listening::start(&driver);
        assert_eq!(node.state().calls().unwrap()["nvmlEventSetCreate"], sets, "{function} {code}");
        let healthy = [gpus[0].clone(), gpus[2].clone()];
        assert_eq!(watching.watched, healthy.into(), "{function} {code}");
        assert_eq!(watching.unmonitored.len(), 1);
        assert_eq!(watching.unmonitored[&gpus[1]].code, code);
        raise(&node, Event::xid("1", 48));
        raise(&node, Event::xid("2", 48));
        assert_eq!(listening.event(), xid(&gpus[2], 48), "{function} {code}");

        node.heal();
        listening.events.register_again();
        assert_eq!(listening.watching().watched, gpus.iter().cloned().collect());
        raise(&node, Event::xid("1", 48));
        assert_eq!(listening.event(), xid(&gpus[1], 48));
    }
}

#[test]
fn a_node_without_event_sets_is_unmonitored_until_told_to_look_again() {
    let (node, driver, gpus) = open("2xh100");
    node.control(|control| {
        control.faults = vec![Fault {
            function: "nvmlEventSetCreate".to_owned(),
            error: Some(3),
            ..Fault::default()
        }];
    });
    let (listening, watching) = Listening::start(&driver);
    assert!(watching.watched.is_empty());
    assert_eq!(watching.unmonitored.keys().cloned().collect::<Vec<_>>(), gpus);
    node.heal();
    listening.events.register_again();
    assert_eq!(listening.watching().watched.len(), 2);
}

#[test]
fn a_new_mig_mode_does_not_end_hearing() {
    let (node, driver, gpus) = open("2xh100");
    let (listening, _) = Listening::start(&driver);
    let changed = GpuEvent { kind: EventKind::MigConfigChange, ..xid(&gpus[0], 0) };
    for mode in [MigMode::Enabled, MigMode::Disabled] {
        driver.set_mig_mode(&gpus[0], mode).unwrap();
        assert_eq!(listening.event(), changed);
        // The registration follows within one wait.
        std::thread::sleep(QUIET);
        raise(&node, Event::xid("0", 119));
        assert_eq!(listening.event(), xid(&gpus[0], 119), "{mode:?}");
    }
    driver.set_mig_mode(&gpus[0], MigMode::Enabled).unwrap();
    assert_eq!(listening.event(), changed);
    driver.create_gpu_instance(&gpus[0], 19, Placement { start: 0, size: 1 }).unwrap();
    assert_eq!(listening.event(), changed);
    listening.nothing();
}

#[test]
fn a_lost_gpu_is_heard_once_and_the_others_go_on() {
    for lost in [Lost::Error, Lost::Dropped] {
        let (node, driver, gpus) = open("3xh100");
        let (listening, _) = Listening::start(&driver);
        node.control(|control| {
            control.gpus.entry("1".to_owned()).or_default().lost = Some(lost);
            control.events.push(Event::xid("1", 79));
        });
        assert_eq!(listening.event(), xid(&gpus[1], 79), "{lost:?}");
        let left: Vec<_> = [gpus[0].clone(), gpus[2].clone()].into();
        let watching = listening.watching();
        assert_eq!(watching.watched.into_iter().collect::<Vec<_>>(), left, "{lost:?}");
        listening.nothing();
        raise(&node, Event::xid("2", 48));
        assert_eq!(listening.event(), xid(&gpus[2], 48));

        node.heal();
        listening.events.register_again();
        assert_eq!(listening.watching().watched.len(), 3);
        raise(&node, Event::xid("1", 48));
        assert_eq!(listening.event(), xid(&gpus[1], 48));
    }
}

/// The set that told of the loss has heard of others too.
#[test]
fn a_loss_swallows_no_events_of_others() {
    let (node, driver, gpus) = open("2xh100");
    let (listening, _) = Listening::start(&driver);
    node.control(|control| {
        control.events.extend([Event::xid("0", 48), Event::xid("0", 74), Event::xid("0", 95)]);
        control.faults = vec![Fault {
            function: "nvmlEventSetWait_v2".to_owned(),
            error: Some(Code::GPU_IS_LOST.0),
            times: Some(1),
            ..Fault::default()
        }];
    });
    for number in [48, 74, 95] {
        assert_eq!(listening.event(), xid(&gpus[0], number));
    }
}

#[test]
fn it_follows_the_drivers_session_and_opens_none() {
    let node = Node::stage("2xh100");
    let driver = Arc::new(node.driver());
    let (send, heard) = mpsc::channel();
    let events = Events::start(Arc::clone(&driver), move |news| send.send(news).unwrap()).unwrap();
    let listening = Listening { heard, events };
    listening.nothing();
    assert!(!driver.is_open());

    let gpus = uuids(&driver.probe().unwrap());
    assert_eq!(listening.watching().watched.len(), 2);
    driver.close();
    assert_eq!(listening.watching(), Watching::default());
    driver.probe().unwrap();
    assert_eq!(listening.watching().watched.len(), 2);
    raise(&node, Event::xid("0", 48));
    assert_eq!(listening.event(), xid(&gpus[0], 48));
}

/// A GPU that comes while events are waited for is seen by the session that follows: the last
/// one was let go first.
#[test]
fn a_new_session_waits_until_events_have_let_go_of_the_last() {
    let node = Node::stage("2xh100");
    let driver = Arc::new(node.driver());
    driver.probe().unwrap();
    let (_listening, _) = Listening::start(&driver);
    node.control(|control| control.call_log = true);
    for _ in 0..3 {
        node.state().clear_calls().unwrap();
        driver.close();
        let start = Instant::now();
        driver.probe().unwrap();
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        let calls = node.state().calls().unwrap();
        assert_eq!(calls.get("nvmlInit_v2"), Some(&1), "enumerated anew: {calls:?}");
        // Until it listens again.
        std::thread::sleep(QUIET);
    }
}

#[test]
fn failing_waits_neither_spin_nor_stay_silent() {
    let (node, driver, gpus) = open("1xh100");
    let fail = || {
        node.control(|control| {
            control.call_log = true;
            control.faults = vec![Fault {
                function: "nvmlEventSetWait_v2".to_owned(),
                error: Some(999),
                ..Fault::default()
            }];
        });
    };
    fail();
    let (listening, watching) = Listening::start(&driver);
    assert_eq!(watching.unmonitored[&gpus[0]].code, Code::UNKNOWN, "from the beginning");
    node.heal();
    assert_eq!(listening.watching().watched.len(), 1);
    fail();
    let watching = listening.watching();
    assert_eq!(watching.unmonitored[&gpus[0]].code, Code::UNKNOWN);
    node.state().clear_calls().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let waits = node.state().calls().unwrap()["nvmlEventSetWait_v2"];
    assert!((2..=5).contains(&waits), "{waits} in 3 seconds");
    node.heal();
    let mut last = watching;
    while last.watched.is_empty() {
        last = listening.watching();
    }
    raise(&node, Event::xid("0", 48));
    assert_eq!(listening.event(), xid(&gpus[0], 48));
}

#[test]
fn a_quiet_node_costs_one_wait_at_a_time() {
    let (node, driver, _) = open("8xh100");
    let (listening, _) = Listening::start(&driver);
    let waits = node.calls(|| std::thread::sleep(Duration::from_secs(2)));
    assert!(waits <= 9, "{waits} calls in 2 seconds");
    let start = Instant::now();
    drop(listening);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(driver.is_open());
    assert_eq!(first(&driver.probe().unwrap()), uuids(&driver.probe().unwrap())[0]);
}
