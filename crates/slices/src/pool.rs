//! The pool as it should be: contents of its slices, split at the API's limits, and what
//! of it is still safe on a server that drops a field. Generations, names and owners are
//! no part of it; see [`plan_writes`](crate::plan_writes).

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSlice};
use serde::{Deserialize, Serialize};

use crate::attributes::HAS_MONITOR;
use crate::note::Note;

/// Devices per slice. The API allows 128, but 64 once one device has taints or counters
/// (`ResourceSliceSpec.devices`), and a health taint must never force another split.
pub(crate) const DEVICES_PER_SLICE: usize = 64;

/// Counter sets per slice (`ResourceSliceSpec.sharedCounters`).
pub(crate) const COUNTER_SETS_PER_SLICE: usize = 8;

/// What one slice holds: from Kubernetes 1.35 on either devices or counters, never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SliceContent {
    /// At most 64 devices, in the order in which the scheduler prefers them.
    Devices(Vec<Device>),
    /// At most 8 counter sets, which devices in other slices of the pool consume.
    Counters(Vec<CounterSet>),
}

/// The pool that should be in the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredPool {
    /// Its slices in order, never none: counters first, so that a server which drops them
    /// shows it before the pool is complete.
    pub slices: Vec<SliceContent>,
    /// What a person should know about it.
    pub notes: Vec<Note>,
}

/// A part of the API that a server may lack, in which case it drops the field silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// `sharedCounters` and `consumesCounters`: without them partitions of one GPU could be
    /// allocated together.
    SharedCounters,
    /// `taints`: without them a device that must not be used could be allocated.
    Taints,
    /// `allowMultipleAllocations` with `requestPolicy`: without them shares can't be had.
    MultipleAllocations,
}

impl SliceContent {
    /// The content of a slice as the server has it.
    #[must_use]
    pub fn of(slice: &ResourceSlice) -> Self {
        match &slice.spec.shared_counters {
            Some(sets) if !sets.is_empty() => Self::Counters(sets.clone()),
            _ => Self::Devices(slice.spec.devices.clone().unwrap_or_default()),
        }
    }
}

impl Feature {
    /// The feature gate of kube-apiserver and kube-scheduler.
    #[must_use]
    pub fn gate(self) -> &'static str {
        match self {
            Self::SharedCounters => "DRAPartitionableDevices",
            Self::Taints => "DRADeviceTaints",
            Self::MultipleAllocations => "DRAConsumableCapacity",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedCounters => "shared counters",
            Self::Taints => "device taints",
            Self::MultipleAllocations => "multiple allocations",
        })
    }
}

impl DesiredPool {
    /// Splits devices and counter sets over slices, keeping their order. A pool without
    /// devices is one empty slice: it says "no GPUs here", which no slice does not.
    #[must_use]
    pub fn new(devices: Vec<Device>, counter_sets: Vec<CounterSet>, notes: Vec<Note>) -> Self {
        let mut slices: Vec<_> = counter_sets
            .chunks(COUNTER_SETS_PER_SLICE)
            .map(|sets| SliceContent::Counters(sets.to_vec()))
            .collect();
        slices.extend(
            devices
                .chunks(DEVICES_PER_SLICE)
                .map(|devices| SliceContent::Devices(devices.to_vec())),
        );
        if devices.is_empty() {
            slices.push(SliceContent::Devices(Vec::new()));
        }
        Self { slices, notes }
    }

    /// All devices of the pool, in order.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.slices.iter().flat_map(|slice| match slice {
            SliceContent::Devices(devices) => devices.as_slice(),
            SliceContent::Counters(_) => &[],
        })
    }

    /// All counter sets of the pool, in order.
    pub fn counter_sets(&self) -> impl Iterator<Item = &CounterSet> {
        self.slices.iter().flat_map(|slice| match slice {
            SliceContent::Counters(sets) => sets.as_slice(),
            SliceContent::Devices(_) => &[],
        })
    }

    /// What can be published safely on a server that drops the fields of this feature.
    ///
    /// Without counters: of the devices that consume from one set the first, and that only if
    /// it is no partition, so a whole GPU or nothing. Without taints: no device that a taint
    /// keeps from being used. Without multiple allocations: every device is for one claim. A
    /// [`Note::Degraded`] names what is missing.
    #[must_use]
    pub fn without(&self, feature: Feature) -> Self {
        let mut left_out = Vec::new();
        let mut used_sets = BTreeSet::new();
        let mut devices = Vec::new();
        for device in self.devices() {
            let mut device = device.clone();
            if feature != Feature::MultipleAllocations {
                // Without counters the GPU itself can be watched; without taints its monitor
                // would be given to anybody.
                if is_type(&device, "monitor") {
                    continue;
                }
                let attributes = device.attributes.iter_mut();
                for attribute in attributes.filter_map(|map| map.get_mut(HAS_MONITOR)) {
                    attribute.bool = Some(false);
                }
            }
            let safe = match feature {
                Feature::SharedCounters => {
                    let consumed = device.consumes_counters.take().unwrap_or_default();
                    let sets: Vec<_> =
                        consumed.into_iter().map(|consumed| consumed.counter_set).collect();
                    let alone = sets.iter().all(|set| !used_sets.contains(set));
                    let safe = alone && (sets.is_empty() || !is_type(&device, "mig"));
                    if safe {
                        used_sets.extend(sets);
                    }
                    safe
                }
                Feature::Taints => {
                    let taints = device.taints.take().unwrap_or_default();
                    !taints.iter().any(|t| t.effect == "NoSchedule" || t.effect == "NoExecute")
                }
                Feature::MultipleAllocations => {
                    device.allow_multiple_allocations = None;
                    for capacity in device.capacity.iter_mut().flat_map(|c| c.values_mut()) {
                        capacity.request_policy = None;
                    }
                    true
                }
            };
            if safe {
                devices.push(device);
            } else {
                left_out.push(device.name);
            }
        }
        let counter_sets = match feature {
            Feature::SharedCounters => Vec::new(),
            Feature::Taints | Feature::MultipleAllocations => {
                self.counter_sets().cloned().collect()
            }
        };
        let mut notes = self.notes.clone();
        notes.push(Note::Degraded { feature, devices: left_out });
        Self::new(devices, counter_sets, notes)
    }
}

fn is_type(device: &Device, wanted: &str) -> bool {
    let kind = device.attributes.as_ref().and_then(|attributes| attributes.get("type"));
    kind.and_then(|kind| kind.string.as_deref()) == Some(wanted)
}
