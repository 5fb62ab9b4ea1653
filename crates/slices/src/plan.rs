//! What is in the API server against what should be: the fewest writes that get there, in
//! an order in which a crash after any of them does no harm.
//!
//! The scheduler looks at the highest generation of a pool alone, and only once as many
//! slices as `resourceSliceCount` says are there. So the rule is: at no moment may the
//! highest generation be complete and hold a mixture of old and new. This module never
//! plans a write that changes nothing, and never touches slices of others.

use std::collections::BTreeMap;

use gpu_dra_model::{DriverName, NodeName, PoolName};
use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::echo::{keep_times, same_meaning};
use crate::pool::{DesiredPool, SliceContent};
use crate::slice_name::{generate_name, index_of};

/// Which pool is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRef {
    /// The DRA driver.
    pub driver: DriverName,
    /// The node that the devices are on.
    pub node: NodeName,
    /// The pool; the incumbent names it after the node.
    pub pool: PoolName,
}

/// The Node object, which owns the slices: they go when it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its UID; a node that is created again has another.
    pub uid: String,
}

/// One request to the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Delete the object if it is still this one.
    Delete {
        /// Its name.
        name: String,
        /// Precondition: its UID.
        uid: Option<String>,
        /// Precondition: its resource version.
        resource_version: Option<String>,
    },
    /// Replace the object; its `resourceVersion` makes a lost race a conflict.
    Update(Box<ResourceSlice>),
    /// Create the object; the server makes its name from `generateName`.
    Create(Box<ResourceSlice>),
}

/// The writes that turn `existing` into `desired`; none if they are equal in meaning.
///
/// `existing` are all slices of our driver and node. Slices of another pool name are
/// stale and go first, since their devices would be offered twice. In our pool a slice is
/// found again by the index in its name; whatever doesn't fit is deleted last, after the
/// new generation is complete, so that a shrinking or renamed pool is never away.
///
/// The generation is kept where that can't show a mixture: when nothing superfluous is in
/// the highest generation and either no slice of it changes (missing ones are added), or
/// exactly one changes and none is missing. Else it goes up by one and all slices with it.
#[must_use]
pub fn plan_writes<'a>(
    existing: impl IntoIterator<Item = &'a ResourceSlice>,
    desired: &DesiredPool,
    pool: &PoolRef,
    owner: &Owner,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut ours = Vec::new();
    for slice in existing.into_iter().filter(|slice| belongs_to(slice, pool)) {
        if slice.spec.pool.name == pool.pool.as_str() {
            ours.push(slice);
        } else {
            writes.push(delete(slice));
        }
    }

    let (matched, superfluous) = match_by_index(&ours, desired, pool);
    let highest = ours.iter().map(|slice| slice.spec.pool.generation).max();
    let generation = match highest {
        None => 1,
        Some(highest) => {
            let as_desired = |slice: &ResourceSlice, content: &SliceContent| {
                is_as_desired(slice, &spec(content, desired, pool, highest), owner)
            };
            if may_stay(highest, desired, &matched, &superfluous, as_desired) {
                highest
            } else {
                highest.saturating_add(1)
            }
        }
    };
    let mut creates = Vec::new();
    for (index, (content, slice)) in desired.slices.iter().zip(matched).enumerate() {
        let spec = spec(content, desired, pool, generation);
        match slice {
            Some(slice) if is_as_desired(slice, &spec, owner) => {}
            Some(slice) => writes.push(update(slice, spec, owner, pool)),
            None => creates.push(create(index, spec, owner, pool)),
        }
    }
    writes.append(&mut creates);
    writes.extend(superfluous.into_iter().map(delete));
    writes
}

/// Whether the writes can be made within this generation, the highest there is.
fn may_stay(
    highest: i64,
    desired: &DesiredPool,
    matched: &[Option<&ResourceSlice>],
    superfluous: &[&ResourceSlice],
    as_desired: impl Fn(&ResourceSlice, &SliceContent) -> bool,
) -> bool {
    let is_current = |slice: &ResourceSlice| slice.spec.pool.generation == highest;
    if superfluous.iter().any(|slice| is_current(slice)) {
        return false;
    }
    let (mut changed, mut missing) = (0_usize, 0_usize);
    for (content, slice) in desired.slices.iter().zip(matched) {
        match slice {
            Some(slice) if is_current(slice) => {
                changed += usize::from(!as_desired(slice, content));
            }
            _ => missing += 1,
        }
    }
    changed == 0 || (changed == 1 && missing == 0)
}

/// Only slices that are bound to our node by our driver are ours to touch.
fn belongs_to(slice: &ResourceSlice, pool: &PoolRef) -> bool {
    slice.spec.driver == pool.driver.as_str()
        && slice.spec.node_name.as_deref() == Some(pool.node.as_str())
}

/// For each desired slice the existing one to keep, and the slices that fit nowhere. Of
/// several with one index the highest generation is kept, and of those the first by name.
fn match_by_index<'a>(
    ours: &[&'a ResourceSlice],
    desired: &DesiredPool,
    pool: &PoolRef,
) -> (Vec<Option<&'a ResourceSlice>>, Vec<&'a ResourceSlice>) {
    let mut candidates = ours.to_vec();
    candidates.sort_by(|a, b| {
        (b.spec.pool.generation, &a.metadata.name).cmp(&(a.spec.pool.generation, &b.metadata.name))
    });
    let mut kept: BTreeMap<usize, &ResourceSlice> = BTreeMap::new();
    let mut superfluous = Vec::new();
    for slice in candidates {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let index = index_of(name, &pool.driver, &pool.node)
            .filter(|index| *index < desired.slices.len() && !kept.contains_key(index));
        match index {
            Some(index) => {
                kept.insert(index, slice);
            }
            None => superfluous.push(slice),
        }
    }
    ((0..desired.slices.len()).map(|index| kept.get(&index).copied()).collect(), superfluous)
}

/// The spec of one slice. A pool has hundreds of devices, so no more than one is made at once.
fn spec(
    content: &SliceContent,
    desired: &DesiredPool,
    pool: &PoolRef,
    generation: i64,
) -> ResourceSliceSpec {
    let (devices, shared_counters) = match content.clone() {
        SliceContent::Devices(devices) => (Some(devices), None),
        SliceContent::Counters(sets) => (None, Some(sets)),
    };
    ResourceSliceSpec {
        driver: pool.driver.to_string(),
        node_name: Some(pool.node.to_string()),
        pool: ResourcePool {
            name: pool.pool.to_string(),
            generation,
            // At most a few slices; a count beyond i64 can't exist in memory.
            resource_slice_count: i64::try_from(desired.slices.len()).unwrap_or(i64::MAX),
        },
        devices,
        shared_counters,
        ..ResourceSliceSpec::default()
    }
}

/// Equal in meaning: what the server fills in by itself doesn't count.
fn is_as_desired(existing: &ResourceSlice, spec: &ResourceSliceSpec, owner: &Owner) -> bool {
    is_owned(existing, owner) && same_meaning(spec, &existing.spec)
}

fn is_owned(slice: &ResourceSlice, owner: &Owner) -> bool {
    slice.metadata.owner_references.iter().flatten().any(|reference| reference.uid == owner.uid)
}

fn owner_reference(owner: &Owner, pool: &PoolRef) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: pool.node.to_string(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn create(index: usize, spec: ResourceSliceSpec, owner: &Owner, pool: &PoolRef) -> Write {
    Write::Create(Box::new(ResourceSlice {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(index, &pool.driver, &pool.node)),
            owner_references: Some(vec![owner_reference(owner, pool)]),
            ..ObjectMeta::default()
        },
        spec,
    }))
}

fn update(
    slice: &ResourceSlice,
    mut spec: ResourceSliceSpec,
    owner: &Owner,
    pool: &PoolRef,
) -> Write {
    keep_times(&mut spec, &slice.spec);
    let mut metadata = slice.metadata.clone();
    metadata.managed_fields = None;
    // One owner: a second one would keep the slice alive when the node is gone.
    metadata.owner_references = Some(vec![owner_reference(owner, pool)]);
    Write::Update(Box::new(ResourceSlice { metadata, spec }))
}

fn delete(slice: &ResourceSlice) -> Write {
    Write::Delete {
        name: slice.metadata.name.clone().unwrap_or_default(),
        uid: slice.metadata.uid.clone(),
        resource_version: slice.metadata.resource_version.clone(),
    }
}
