//! Instances that somebody else made on a GPU which we partition. They are never destroyed,
//! so what can't be had beside them is tainted until they are gone.

use gpu_dra_model::inventory::{GpuInstance, MigProfile};
use k8s_openapi::api::resource::v1::DeviceTaint;

use super::counters::{Account, Amounts};

/// On devices that can't be had as long as somebody else's instance is in their way.
const TAINT_KEY: &str = "gpu.nvidia.com/foreign-instance";

/// The foreign instances of one GPU and what they take.
#[derive(Debug)]
pub(crate) struct Foreign<'a> {
    instances: Vec<(&'a GpuInstance, Amounts)>,
    totals: &'a Amounts,
}

impl<'a> Foreign<'a> {
    pub(crate) fn new(
        instances: &[&'a GpuInstance],
        profiles: &[MigProfile],
        account: &'a Account,
    ) -> Self {
        let amounts = |instance: &'a GpuInstance| {
            let profile = profiles.iter().find(|profile| profile.id == instance.profile_id);
            profile.map_or_else(
                || Account::place_alone(instance.placement),
                |profile| account.amounts(profile, instance.placement),
            )
        };
        let instances = instances.iter().map(|instance| (*instance, amounts(instance))).collect();
        Self { instances, totals: &account.totals }
    }

    /// The instance that is in the way of a device which takes this much: the first that can't
    /// coexist with it, or the first of all where only all of them together leave too little.
    pub(crate) fn in_the_way(&self, wanted: &Amounts) -> Option<&'a GpuInstance> {
        let fits = |taken: &Amounts| wanted.plus(taken).fits_in(self.totals);
        let alone = self.instances.iter().find(|(_, amounts)| !fits(amounts));
        let together = || {
            let sum = self.instances.iter().fold(Amounts::default(), |sum, (_, a)| sum.plus(a));
            self.instances.first().filter(|_| !fits(&sum))
        };
        alone.or_else(together).map(|(instance, _)| *instance)
    }
}

/// Keeps the scheduler off the device; the value is the number of the GPU instance.
pub(crate) fn taint(instance: &GpuInstance) -> DeviceTaint {
    DeviceTaint {
        key: TAINT_KEY.to_owned(),
        value: Some(instance.id.to_string()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}
