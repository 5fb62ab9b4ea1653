//! What the watches have told, and what follows from it. Values only: the keeper acts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::judge::is_left_over;
use super::status::{Facts, Standing};
use super::unguarded::unguarded;
use super::watches::{Change, News};
use crate::declare::{
    Compiled, GpuClass, GpuClassStatus, Origin, Problem, compile, extended_resource, fleet_classes,
    owner,
};
use crate::fleet::{Fleet, Tally};

/// A GpuClass with what it compiles to.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) class: GpuClass,
    pub(crate) compiled: Result<Compiled, Vec<Problem>>,
}

/// Which watches have told everything once.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Synced {
    pub(crate) gpu_classes: bool,
    pub(crate) device_classes: bool,
    pub(crate) slices: bool,
    pub(crate) claims: bool,
}

/// Everything known.
#[derive(Debug)]
pub(crate) struct State {
    driver: DriverName,
    standard: Vec<DeviceClass>,
    makes_fleet_classes: bool,
    pub(crate) synced: Synced,
    pub(crate) declared: BTreeMap<String, Declared>,
    pub(crate) device_classes: BTreeMap<String, DeviceClass>,
    /// What is wrong with classes of other owners, by their names.
    pub(crate) unguarded: BTreeMap<String, String>,
    fleet: Fleet,
}

impl State {
    pub(crate) fn new(
        driver: DriverName,
        standard: Vec<DeviceClass>,
        makes_fleet_classes: bool,
    ) -> Self {
        Self {
            fleet: Fleet::new(driver.as_str()),
            driver,
            standard,
            makes_fleet_classes,
            synced: Synced::default(),
            declared: BTreeMap::new(),
            device_classes: BTreeMap::new(),
            unguarded: BTreeMap::new(),
        }
    }

    /// Takes in what a watch told.
    pub(crate) fn learn(&mut self, news: News) {
        match news {
            News::GpuClass(change) => match change {
                Change::Put(class) => self.put_gpu_class(class),
                Change::Gone(name) => drop(self.declared.remove(&name)),
                Change::Synced(seen) => {
                    self.declared.retain(|name, _| seen.contains(name));
                    self.synced.gpu_classes = true;
                }
            },
            News::DeviceClass(change) => match change {
                Change::Put(class) => self.put_device_class(class),
                Change::Gone(name) => {
                    self.device_classes.remove(&name);
                    self.unguarded.remove(&name);
                }
                Change::Synced(seen) => {
                    self.device_classes.retain(|name, _| seen.contains(name));
                    self.unguarded.retain(|name, _| seen.contains(name));
                    self.synced.device_classes = true;
                }
            },
            News::Slice(change) => match change {
                Change::Put(slice) => self.fleet.put_slice(&slice),
                Change::Gone(name) => self.fleet.remove_slice(&name),
                Change::Synced(seen) => {
                    self.fleet.retain_slices(|name| seen.contains(name));
                    self.synced.slices = true;
                }
            },
            News::Claim(change) => match change {
                Change::Put(claim) => self.fleet.put_claim(&claim),
                Change::Gone(key) => self.fleet.remove_claim(&key),
                Change::Synced(seen) => {
                    self.fleet.retain_claims(|key| seen.contains(key));
                    self.synced.claims = true;
                }
            },
        }
    }

    /// Takes in a GpuClass; what it compiles to changes only with spec and UID.
    pub(crate) fn put_gpu_class(&mut self, class: GpuClass) {
        if class.is_deleting() {
            self.declared.remove(class.name());
            return;
        }
        let name = class.name().to_owned();
        if let Some(known) = self.declared.get_mut(&name)
            && known.class.spec == class.spec
            && known.class.metadata.uid == class.metadata.uid
        {
            known.class = class;
            return;
        }
        let compiled = compile(&class, &self.driver);
        self.declared.insert(name, Declared { class, compiled });
        let used: HashSet<&str> = self
            .declared
            .values()
            .filter_map(|declared| Some(declared.compiled.as_ref().ok()?.selector.text()))
            .collect();
        self.fleet.forget_verdicts_but(|expression| used.contains(expression));
    }

    /// Takes in a DeviceClass.
    pub(crate) fn put_device_class(&mut self, class: DeviceClass) {
        let name = class.metadata.name.clone().unwrap_or_default();
        match unguarded(&class, &self.driver) {
            Some(message) => drop(self.unguarded.insert(name.clone(), message)),
            None => drop(self.unguarded.remove(&name)),
        }
        self.device_classes.insert(name, class);
    }

    /// The classes that should be there, as far as enough is known to say so.
    pub(crate) fn wanted(&self) -> Vec<(Origin, DeviceClass)> {
        let mut wanted: Vec<(Origin, DeviceClass)> =
            self.standard.iter().map(|class| (Origin::Standard, class.clone())).collect();
        let declared = self.declared.values().filter_map(|d| d.compiled.as_ref().ok());
        wanted.extend(declared.map(|compiled| (Origin::GpuClass, compiled.class.clone())));
        if self.makes_fleet_classes && self.synced.slices {
            let is_taken = |name: &str, resource: &str| self.rival(name, resource).is_some();
            let classes = fleet_classes(&self.fleet, &self.driver, is_taken);
            wanted.extend(classes.into_iter().map(|class| (Origin::Fleet, class)));
        }
        wanted
    }

    /// The stored classes that we made and that nobody wants any more.
    pub(crate) fn left_over(&self) -> Vec<DeviceClass> {
        if !self.synced.gpu_classes {
            return Vec::new();
        }
        let uids = self.declared.values().filter_map(|d| d.class.metadata.uid.as_deref());
        let owners: BTreeSet<&str> = uids.collect();
        let classes = self.device_classes.values();
        let gone = classes.filter(|class| class.metadata.deletion_timestamp.is_none());
        gone.filter(|class| is_left_over(class, &owners, self.makes_fleet_classes))
            .cloned()
            .collect()
    }

    /// Another class, wanted or stored, that names the extended resource.
    fn rival(&self, name: &str, resource: &str) -> Option<&str> {
        let stored = self.device_classes.iter().map(|(name, class)| (name.as_str(), class));
        let standard = self.standard.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, c)));
        let declared = self.declared.iter().filter_map(|(name, declared)| {
            Some((name.as_str(), &declared.compiled.as_ref().ok()?.class))
        });
        let mut all = stored.chain(standard).chain(declared).filter(|(other, _)| *other != name);
        all.find(|(_, class)| extended_resource(class) == Some(resource)).map(|(other, _)| other)
    }

    /// The status that a GpuClass should have, once everything is known that goes into it.
    pub(crate) fn status(
        &mut self,
        name: &str,
        standing: Option<&Standing>,
        now: &Time,
    ) -> Option<GpuClassStatus> {
        let Synced { gpu_classes, device_classes, slices, claims } = self.synced;
        if !(gpu_classes && device_classes && slices && claims) {
            return None;
        }
        let declared = self.declared.get(name)?;
        let (mut tally, mut miss, mut resource) = (Tally::default(), None, None);
        if let Ok(compiled) = &declared.compiled {
            tally = self.fleet.tally(&compiled.selector);
            if tally.devices == 0 {
                miss = self.fleet.nearest_miss(&compiled.selector);
            }
            resource = extended_resource(&compiled.class);
        }
        let uid = declared.class.metadata.uid.as_deref();
        let stored = self.device_classes.get(name);
        let facts = Facts {
            class: &declared.class,
            compiled: &declared.compiled,
            standing,
            has_old: stored.is_some_and(|class| owner(class) == uid),
            tally,
            miss,
            rival: resource.and_then(|resource| self.rival(name, resource)),
            driver: self.driver.as_str(),
        };
        Some(facts.status(now))
    }

    /// A pool, of our driver's a node, that has some of them.
    pub(crate) fn pool_of_strangers(&self) -> Option<&str> {
        self.fleet.pool_of_strangers()
    }

    /// Devices of the driver that no class can be sure of.
    pub(crate) fn strangers(&self) -> u64 {
        self.fleet.strangers()
    }
}
