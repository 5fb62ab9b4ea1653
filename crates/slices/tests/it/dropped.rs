//! Fields that an older server drops are noticed, named and classed.

use gpu_dra_slices::{DesiredPool, Feature, Note, dropped_fields};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CounterSet, Device, DeviceCapacity, DeviceCounterConsumption,
    DeviceTaint, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

fn slice(devices: Vec<Device>) -> ResourceSlice {
    ResourceSlice {
        spec: ResourceSliceSpec { devices: Some(devices), ..ResourceSliceSpec::default() },
        ..ResourceSlice::default()
    }
}

fn tainted(name: &str, effect: &str) -> Device {
    Device {
        name: name.to_owned(),
        taints: Some(vec![DeviceTaint {
            key: "gpu.nvidia.com/xid".to_owned(),
            effect: effect.to_owned(),
            ..DeviceTaint::default()
        }]),
        ..Device::default()
    }
}

fn partition(name: &str, set: &str) -> Device {
    Device {
        name: name.to_owned(),
        consumes_counters: Some(vec![DeviceCounterConsumption {
            counter_set: set.to_owned(),
            ..DeviceCounterConsumption::default()
        }]),
        ..Device::default()
    }
}

fn names(pool: &DesiredPool) -> Vec<&str> {
    pool.devices().map(|device| device.name.as_str()).collect()
}

#[test]
fn dropped_paths_are_named() {
    let sent = slice(vec![tainted("gpu-0", "NoSchedule"), partition("gpu-1", "set-1")]);
    let mut got = sent.clone();
    let devices = got.spec.devices.as_mut().unwrap();
    devices[0].taints = None;
    devices[1].consumes_counters = None;
    let dropped = dropped_fields(&sent, &got);
    let paths: Vec<_> = dropped.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["spec.devices[gpu-0].taints", "spec.devices[gpu-1].consumesCounters"]);
    let features: Vec<_> = dropped.iter().filter_map(|path| path.feature()).collect();
    assert_eq!(features, [Feature::Taints, Feature::SharedCounters]);
}

#[test]
fn what_the_server_adds_is_not_dropped() {
    let sent = slice(vec![tainted("gpu-0", "NoSchedule")]);
    let mut got = sent.clone();
    got.metadata.name = Some("x".to_owned());
    let taints = got.spec.devices.as_mut().unwrap()[0].taints.as_mut().unwrap();
    taints[0].time_added = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(dropped_fields(&sent, &got), []);
    assert_eq!(dropped_fields(&slice(Vec::new()), &ResourceSlice::default()), []);
}

#[test]
fn without_counters_one_device_per_set_remains() {
    let sets = vec![
        CounterSet { name: "set-0".to_owned(), ..CounterSet::default() },
        CounterSet { name: "set-1".to_owned(), ..CounterSet::default() },
    ];
    let devices = vec![
        partition("gpu-0", "set-0"),
        partition("gpu-0-mig", "set-0"),
        partition("gpu-1", "set-1"),
        Device { name: "gpu-2".to_owned(), ..Device::default() },
    ];
    let pool = DesiredPool::new(devices, sets, Vec::new()).without(Feature::SharedCounters);
    assert_eq!(names(&pool), ["gpu-0", "gpu-1", "gpu-2"]);
    assert_eq!(pool.slices.len(), 1, "the counters' slice is gone");
    assert!(pool.devices().all(|device| device.consumes_counters.is_none()));
    let feature = Feature::SharedCounters;
    assert_eq!(pool.notes, [Note::Degraded { feature, devices: vec!["gpu-0-mig".to_owned()] }]);
    assert!(pool.notes[0].to_string().contains("DRAPartitionableDevices"));
}

#[test]
fn without_taints_no_unhealthy_device_is_offered() {
    let devices = vec![
        tainted("gpu-0", "NoSchedule"),
        tainted("gpu-1", "None"),
        tainted("gpu-2", "NoExecute"),
    ];
    let pool = DesiredPool::new(devices, Vec::new(), Vec::new()).without(Feature::Taints);
    assert_eq!(names(&pool), ["gpu-1"]);
    assert!(pool.devices().all(|device| device.taints.is_none()));
}

#[test]
fn without_shares_a_device_is_for_one_claim() {
    let capacity = DeviceCapacity {
        request_policy: Some(CapacityRequestPolicy::default()),
        ..DeviceCapacity::default()
    };
    let device = Device {
        name: "gpu-0".to_owned(),
        allow_multiple_allocations: Some(true),
        capacity: Some([("memory".to_owned(), capacity)].into()),
        ..Device::default()
    };
    let pool = DesiredPool::new(vec![device], Vec::new(), Vec::new());
    let pool = pool.without(Feature::MultipleAllocations);
    let device = pool.devices().next().unwrap();
    assert_eq!(device.allow_multiple_allocations, None);
    assert_eq!(device.capacity.as_ref().unwrap()["memory"].request_policy, None);
}
