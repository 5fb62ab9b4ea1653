//! MIG devices that others made, as devices.

use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigProfile};
use gpu_dra_model::{DeviceKind, MigDevice};
use k8s_openapi::api::resource::v1::Device;

use super::attributes::{self, Facts};
use super::layout::place;
use super::{Parent, Published, name};
use crate::note::{InstanceLeftOut, Note};

/// The compute instances, in the order of their places.
pub(crate) fn instances(
    parent: Parent<'_>,
    profiles: &[MigProfile],
    instances: &[&GpuInstance],
    notes: &mut Vec<Note>,
) -> Vec<Published> {
    let mut sorted = instances.to_vec();
    sorted.sort_by_key(|instance| (instance.placement, instance.id));
    let mut published = Vec::new();
    for instance in sorted {
        let left_out =
            |why| Note::InstanceLeftOut { gpu: parent.name.clone(), instance: instance.id, why };
        let Some(profile) = profiles.iter().find(|profile| profile.id == instance.profile_id)
        else {
            let profile_id = instance.profile_id;
            notes.push(left_out(InstanceLeftOut::UnknownProfile(profile_id)));
            continue;
        };
        if instance.compute_instances.is_empty() {
            notes.push(left_out(InstanceLeftOut::NoComputeInstance));
        }
        published.extend(compute_instances(parent, profile, instance));
    }
    published
}

fn compute_instances(
    parent: Parent<'_>,
    profile: &MigProfile,
    instance: &GpuInstance,
) -> Vec<Published> {
    let device = |compute: &ComputeInstance| {
        let name = name::compute_instance(parent.name, profile, place(instance), compute)?;
        let facts = Facts {
            gpu: parent.gpu,
            profile: &name::compute_profile(profile, compute),
            placement: instance.placement,
            uuid: Some(&compute.uuid),
        };
        let attributes = attributes::attributes(facts, parent.attributes);
        let mut capacities = attributes::capacities(profile, compute.multiprocessors);
        attributes::add_slices(&mut capacities, attributes.len(), instance.placement);
        let device = Device {
            name: name.to_string(),
            attributes: Some(attributes),
            capacity: Some(capacities),
            ..Device::default()
        };
        let kind = DeviceKind::StaticMig {
            gpu: parent.gpu.uuid.clone(),
            placement: instance.placement,
            device: MigDevice {
                instance: instance.id,
                compute: compute.id,
                uuid: compute.uuid.clone(),
            },
        };
        Some(Published { name, device, kind })
    };
    instance.compute_instances.iter().filter_map(device).collect()
}
