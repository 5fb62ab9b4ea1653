//! Health taints on the devices of a pool that is built already: taints come and go far more
//! often than devices do. Why a device is tainted is for others to know.

use std::collections::BTreeMap;

use gpu_dra_model::DeviceName;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};

use crate::pool::{DesiredPool, SliceContent};

/// Taints per device (`Device.taints`).
const MAX_TAINTS: usize = 16;

/// The pool with these taints added to its devices, the worst first. What a device has already
/// stays, and what goes beyond the API's 16 taints is left out. Devices and slices stay the
/// same, but within a slice those that can't be had go last: the scheduler forgets to give back
/// the counters of a device that it rejects for its taint, which would keep later ones out.
#[must_use]
pub fn tainted(pool: &DesiredPool, taints: &BTreeMap<DeviceName, Vec<DeviceTaint>>) -> DesiredPool {
    let mut pool = pool.clone();
    for slice in &mut pool.slices {
        let SliceContent::Devices(devices) = slice else { continue };
        let mut kept_out = Vec::new();
        for device in devices.iter_mut() {
            let more = DeviceName::new(&device.name).ok().and_then(|name| taints.get(&name));
            let Some(more) = more.filter(|more| !more.is_empty()) else { continue };
            if more.iter().any(|taint| taint.effect != "None") {
                kept_out.push(device.name.clone());
            }
            add(device, more);
        }
        devices.sort_by_key(|device| kept_out.contains(&device.name));
    }
    pool
}

fn add(device: &mut Device, more: &[DeviceTaint]) {
    let all = device.taints.get_or_insert_default();
    let room = MAX_TAINTS.saturating_sub(all.len());
    all.extend(more.iter().take(room).cloned());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str) -> DeviceTaint {
        DeviceTaint { key: key.into(), effect: effect.into(), ..DeviceTaint::default() }
    }

    fn pool() -> DesiredPool {
        let device = |name: &str| Device { name: name.into(), ..Device::default() };
        let mut monitor = device("gpu-1-monitor");
        monitor.taints = Some(vec![taint("gpu.nvidia.com/monitoring", "NoSchedule")]);
        DesiredPool::new(vec![device("gpu-0"), device("gpu-1"), monitor], vec![], vec![])
    }

    fn names(pool: &DesiredPool) -> Vec<&str> {
        pool.devices().map(|device| device.name.as_str()).collect()
    }

    fn taints_of<'a>(pool: &'a DesiredPool, name: &str) -> &'a [DeviceTaint] {
        let device = pool.devices().find(|device| device.name == name).unwrap();
        device.taints.as_deref().unwrap_or_default()
    }

    #[test]
    fn without_taints_the_pool_is_what_it_was() {
        assert_eq!(tainted(&pool(), &BTreeMap::new()), pool());
        let none = BTreeMap::from([(DeviceName::new("gpu-0").unwrap(), vec![])]);
        assert_eq!(tainted(&pool(), &none), pool());
    }

    #[test]
    fn taints_are_added_and_those_out_of_use_go_last() {
        let name = |name| DeviceName::new(name).unwrap();
        let xid = vec![taint("gpu.nvidia.com/xid", "NoExecute")];
        let told = vec![taint("gpu.nvidia.com/row-remap", "None")];
        let health = BTreeMap::from([
            (name("gpu-0"), xid.clone()),
            (name("gpu-1"), told.clone()),
            (name("gpu-1-monitor"), told.clone()),
            (name("gpu-9"), xid.clone()),
        ]);
        let pool = tainted(&pool(), &health);
        assert_eq!(names(&pool), ["gpu-1", "gpu-1-monitor", "gpu-0"]);
        assert_eq!(taints_of(&pool, "gpu-0"), xid);
        assert_eq!(taints_of(&pool, "gpu-1"), told);
        let keys: Vec<_> = taints_of(&pool, "gpu-1-monitor").iter().map(|t| &t.key).collect();
        assert_eq!(keys, ["gpu.nvidia.com/monitoring", "gpu.nvidia.com/row-remap"]);
    }

    #[test]
    fn a_device_has_sixteen_at_most() {
        let many: Vec<_> = (0..20).map(|n| taint(&format!("a/{n}"), "None")).collect();
        let health = BTreeMap::from([
            (DeviceName::new("gpu-0").unwrap(), many.clone()),
            (DeviceName::new("gpu-1-monitor").unwrap(), many),
        ]);
        let pool = tainted(&pool(), &health);
        assert_eq!(taints_of(&pool, "gpu-0").len(), 16);
        assert_eq!(taints_of(&pool, "gpu-1-monitor").len(), 16);
        let wrong: Vec<_> = crate::validate_pool(&pool).into_iter().collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
