//! MIG: an instance's event is that instance's, the GPU's is everybody's.

use gpu_dra_health::{EventInstance, EventKind, GpuEvent, Part, RecoveryAction, Report};
use gpu_dra_model::{
    ComputeInstanceId, DeviceKind, GpuInstanceId, MigDevice, Partition, Placement,
};

use crate::support::{Node, action, gpu, instance, mig_uuid, shown};

fn of(instance: u32, compute: Option<u32>, xid: u64) -> GpuEvent {
    GpuEvent {
        gpu: gpu(0),
        kind: EventKind::Xid(xid),
        instance: Some(EventInstance {
            gpu: GpuInstanceId(instance),
            compute: compute.map(ComputeInstanceId),
        }),
    }
}

fn partition(node: &Node, start: u32, size: u32) -> Report {
    let placement = Placement { start, size };
    node.tracker.report(&DeviceKind::Partition {
        gpu: gpu(0),
        partition: Partition { profile_id: 19, placement },
        mode_is_free: true,
    })
}

fn compute(node: &Node, id: u32, start: u32, size: u32, compute: u32) -> Report {
    node.tracker.report(&DeviceKind::StaticMig {
        gpu: gpu(0),
        placement: Placement { start, size },
        device: MigDevice {
            instance: GpuInstanceId(id),
            compute: ComputeInstanceId(compute),
            uuid: mig_uuid(id, compute),
        },
    })
}

#[test]
fn an_instances_event_taints_that_instance_alone() {
    let mut node = Node::new();
    node.instances = vec![instance(9, 2, 1, 1), instance(10, 3, 1, 1)];
    assert!(node.send(&of(9, Some(0), 95)));
    assert_eq!(shown(&partition(&node, 2, 1)), ["xid=95:NoExecute"]);
    assert_eq!(shown(&partition(&node, 3, 1)), [""; 0]);
    assert_eq!(shown(&partition(&node, 2, 2)), [""; 0]);
    assert_eq!(node.taints(0), [""; 0]);
    // Other numbers, the same place: still the same memory.
    node.instances = vec![instance(9, 2, 1, 1)];
    assert_eq!(shown(&compute(&node, 9, 2, 1, 3)), ["xid=95:NoExecute"]);
    node.read(0, &action(RecoveryAction::Reset));
    node.read_well(0);
    assert_eq!(shown(&partition(&node, 2, 1)), [""; 0]);
}

#[test]
fn one_of_several_compute_instances_is_meant_alone() {
    let mut node = Node::new();
    node.instances = vec![instance(1, 4, 4, 2)];
    node.send(&of(1, Some(1), 119));
    assert_eq!(shown(&compute(&node, 1, 4, 4, 1)), ["xid=119:NoExecute"]);
    assert_eq!(shown(&compute(&node, 1, 4, 4, 0)), [""; 0]);
    node.send(&of(1, None, 48));
    assert_eq!(shown(&compute(&node, 1, 4, 4, 0)), ["xid=48:NoSchedule"]);
    assert_eq!(shown(&compute(&node, 1, 4, 4, 1)), ["xid=119:NoExecute"]);
}

#[test]
fn the_gpus_event_taints_all_its_devices() {
    let mut node = Node::new();
    node.instances = vec![instance(9, 2, 1, 1), instance(10, 3, 1, 1)];
    node.send(&of(9, Some(0), 92));
    node.xid(0, 79);
    for report in [partition(&node, 2, 1), partition(&node, 3, 1), node.report(0)] {
        assert_eq!(shown(&report), ["xid=79:NoExecute"]);
    }
    assert!(partition(&node, 2, 1).message.contains("Xid 92"));
    assert!(!partition(&node, 3, 1).message.contains("Xid 92"));
    let monitor = node.tracker.report(&DeviceKind::Monitor { gpu: gpu(0) });
    assert_eq!(shown(&monitor), ["xid=79:None"], "who monitors may stay");
    assert_eq!(monitor.message, node.report(0).message);
}

#[test]
fn an_instance_that_is_gone_evicts_nobody() {
    let mut node = Node::new();
    node.instances = vec![instance(9, 2, 1, 1)];
    assert!(node.send(&of(13, Some(0), 95)));
    assert_eq!(shown(&partition(&node, 2, 1)), ["xid=95:NoSchedule"]);
    assert!(node.report(0).message.starts_with("GPU instance 13, which is gone: Xid 95"));
    assert!(!node.send(&of(12, Some(0), 48)));
    node.xid(0, 119);
    assert_eq!(shown(&partition(&node, 2, 1)), ["xid=119:NoExecute"], "the GPU's own is worse");
}

#[test]
fn a_part_can_be_cleared_alone() {
    let mut node = Node::new();
    node.instances = vec![instance(9, 2, 1, 1), instance(10, 3, 1, 1)];
    node.send(&of(9, Some(0), 95));
    node.send(&of(10, Some(0), 48));
    node.xid(0, 74);
    let part = Part { placement: Placement { start: 2, size: 1 }, compute: None };
    let cleared = node.tracker.clear(&gpu(0), Some(&part), None);
    assert_eq!(cleared.iter().map(|one| one.part).collect::<Vec<_>>(), [Some(part)]);
    assert_eq!(shown(&partition(&node, 2, 1)), ["xid=74:NoSchedule"]);
    assert!(partition(&node, 3, 1).message.contains("Xid 48"));
    assert_eq!(node.tracker.clear(&gpu(0), None, None).len(), 2);
    assert_eq!(shown(&partition(&node, 3, 1)), [""; 0]);
}
