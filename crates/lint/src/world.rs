//! The devices and classes that documents are judged against: a fleet's, or the stand-in; and
//! always the odd ones that break selectors some day.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gpu_dra_cel::Selector;
use gpu_dra_explain::{MAX_VALUES, Slices};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, DeviceClass, ResourceSlice};

use crate::judged::{Judged, Origin, Verdicts};
use crate::object::{Body, Object};
use crate::reference::{DRIVER, reference};

/// The standard DeviceClasses.
const CLASSES: &str = include_str!("../../../deploy/deviceclasses.yaml");
/// A driver that nobody has.
const FOREIGN: &str = "another-driver.example.com";
/// The pool of devices that are in no fleet.
const ANY_POOL: &str = "any-node";
/// Values of one attribute that are kept to be named: one more than `explain` names, so that
/// it knows where there are others.
const MOST_VALUES: usize = MAX_VALUES + 1;

/// What documents are judged against.
#[derive(Debug, Default)]
pub struct Fleet {
    /// What it is, in a word or two: `cluster`, `8xh100`.
    pub name: String,
    /// All slices.
    pub slices: Slices,
    /// All nodes; none: whether a claim fits is not asked.
    pub nodes: Vec<Node>,
    /// All classes; None: unknown, a class that isn't among the documents may exist.
    pub classes: Option<Vec<DeviceClass>>,
}

/// Everything that documents are judged against.
#[derive(Debug)]
pub(crate) struct World<'f> {
    pub(crate) fleet: Option<&'f Fleet>,
    pub(crate) devices: Vec<Judged<'f>>,
    /// Devices that have every name, and every value up to a number, for advice to rest on.
    pub(crate) catalog: Vec<ResourceSlice>,
    /// Classes by name; those of the documents in front of the fleet's.
    pub(crate) classes: BTreeMap<String, DeviceClass>,
    /// Whether these are all.
    pub(crate) all_classes: bool,
    /// The namespaces among the documents, and whether they allow adminAccess.
    pub(crate) namespaces: BTreeMap<String, bool>,
    /// The claims and templates among the documents.
    pub(crate) claims: BTreeMap<ClaimKey, Vec<ClaimRequest>>,
    /// Classes among the documents that something is wrong with.
    pub(crate) faulty: BTreeSet<String>,
    selected: BTreeMap<String, Option<Vec<usize>>>,
}

/// Namespace, name, and whether it is a template.
pub(crate) type ClaimKey = (String, String, bool);

/// A request, as containers may name it.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRequest {
    pub(crate) name: String,
    /// The classes of its alternatives.
    pub(crate) classes: Vec<String>,
    /// The alternatives of `firstAvailable`.
    pub(crate) alternatives: Vec<String>,
}

impl<'f> World<'f> {
    pub(crate) fn new(fleet: Option<&'f Fleet>, objects: &[Object<'_>]) -> Self {
        let mut world = World {
            fleet,
            devices: Vec::new(),
            catalog: Vec::new(),
            classes: BTreeMap::new(),
            all_classes: fleet.is_some_and(|fleet| fleet.classes.is_some()),
            namespaces: BTreeMap::new(),
            claims: BTreeMap::new(),
            faulty: BTreeSet::new(),
            selected: BTreeMap::new(),
        };
        world.add_devices();
        world.add_classes(objects);
        for object in objects {
            match &object.body {
                Body::Claim(claim) => {
                    let key = (object.namespace.clone(), object.name.clone(), claim.is_template);
                    world.claims.insert(key, crate::requests::names(&claim.claim));
                }
                Body::Other if object.kind == "Namespace" => {
                    let label = "/metadata/labels/resource.kubernetes.io~1admin-access";
                    let allows = object.value.pointer(label).is_some_and(|value| value == "true");
                    world.namespaces.insert(object.name.clone(), allows);
                }
                _ => {}
            }
        }
        world
    }

    fn add_devices(&mut self) {
        let fleet = self.fleet;
        let of_fleet = fleet.iter().flat_map(|fleet| fleet.slices.devices());
        self.devices.extend(of_fleet.map(Judged::of_fleet));
        let reference = reference();
        if !self.devices.iter().any(|judged| judged.driver == DRIVER) {
            for device in reference.full {
                self.add(DRIVER, device, Origin::Reference);
            }
        }
        self.catalog = catalog(&self.devices);
        for device in reference.bare {
            self.add(DRIVER, device, Origin::Bare);
        }
        let foreign = Device { name: "device-0".to_owned(), ..Device::default() };
        self.add(FOREIGN, foreign, Origin::Foreign);
    }

    fn add(&mut self, driver: &'f str, device: Device, origin: Origin) {
        self.devices.push(Judged::made_up(driver, ANY_POOL, origin, device));
    }

    fn add_classes(&mut self, objects: &[Object<'_>]) {
        let known = match self.fleet.and_then(|fleet| fleet.classes.clone()) {
            Some(classes) => classes,
            None => serde_saphyr::from_multiple(CLASSES).unwrap_or_default(),
        };
        let given = objects.iter().filter_map(|object| match &object.body {
            Body::Class(class) => Some(class.clone()),
            _ => None,
        });
        for class in known.into_iter().chain(given) {
            let name = class.metadata.name.clone().unwrap_or_default();
            self.classes.insert(name, class);
        }
    }

    /// Whether there is a real fleet.
    pub(crate) fn has_fleet(&self) -> bool {
        self.fleet.is_some()
    }

    /// Whether it is all there is: one whose classes are known, not a node or two.
    pub(crate) fn is_whole(&self) -> bool {
        self.all_classes
    }

    /// The fleet in a word.
    pub(crate) fn fleet_name(&self) -> &str {
        self.fleet.map_or("fleet", |fleet| fleet.name.as_str())
    }

    /// The devices that the class selects; None for a class that isn't known or doesn't
    /// compile. One on which it fails is not selected.
    pub(crate) fn selected_by(&mut self, class: &str) -> Option<Vec<usize>> {
        if let Some(known) = self.selected.get(class) {
            return known.clone();
        }
        let selected = self.select(class);
        self.selected.insert(class.to_owned(), selected.clone());
        selected
    }

    fn select(&self, class: &str) -> Option<Vec<usize>> {
        let spec = self.classes.get(class)?.spec.as_ref();
        let selectors = spec.and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
        let texts = selectors.iter().filter_map(|selector| selector.cel.as_ref());
        let compiled: Result<Vec<Selector>, _> =
            texts.map(|cel| Selector::compile(&cel.expression)).collect();
        let compiled = compiled.ok()?;
        let mut verdicts = Verdicts::new(&compiled);
        let all = self.devices.iter().enumerate();
        let taken = all.filter(|(_, judged)| verdicts.of(judged) == Some(Ok(true)));
        Some(taken.map(|(place, _)| place).collect())
    }

    /// The types of device (gpu, mig, vfio) that the class selects; empty where not known.
    pub(crate) fn types_of(&mut self, class: &str) -> BTreeSet<&'static str> {
        let selected = self.selected_by(class).unwrap_or_default();
        let kinds =
            selected.iter().filter_map(|place| match self.devices.get(*place)?.string("type")? {
                "gpu" | "monitor" => Some("gpu"),
                "mig" => Some("mig"),
                "vfio" => Some("vfio"),
                _ => None,
            });
        kinds.collect()
    }

    /// Whether any device has something of this name, and in this domain.
    pub(crate) fn knows(&self, domain: &str) -> bool {
        self.catalog.iter().any(|slice| {
            slice.spec.driver == domain
                || slice.spec.devices.iter().flatten().any(|device| {
                    let names = device.attributes.iter().flat_map(BTreeMap::keys);
                    names.filter_map(|name| name.split_once('/')).any(|(known, _)| known == domain)
                })
        })
    }
}

/// The devices that show a name, value or maximum for the first time, one slice a driver.
fn catalog(devices: &[Judged<'_>]) -> Vec<ResourceSlice> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut largest: BTreeMap<String, f64> = BTreeMap::new();
    let mut slices: BTreeMap<&str, ResourceSlice> = BTreeMap::new();
    for judged in devices {
        let mut is_new = false;
        let kind = judged.string("type").unwrap_or_default();
        let device = judged.whole();
        for (name, value) in device.attributes.iter().flatten() {
            let key = format!("{} {name} {kind}", judged.driver);
            let value = format!("{key} {value:?}");
            if !seen.contains(&value) {
                let count = counts.entry(key).or_default();
                if *count < MOST_VALUES {
                    *count += 1;
                    is_new |= seen.insert(value);
                }
            }
        }
        for (name, capacity) in device.capacity.iter().flatten() {
            let Ok(value) = capacity.value.0.parse::<gpu_dra_model::Quantity>() else { continue };
            let value = value.as_approximate_float();
            let known = largest.entry(format!("{} {name}", judged.driver)).or_insert(-1.0);
            if value > *known {
                *known = value;
                is_new = true;
            }
        }
        if is_new {
            let slice = slices.entry(judged.driver).or_insert_with(|| {
                let mut slice = ResourceSlice::default();
                judged.driver.clone_into(&mut slice.spec.driver);
                slice.spec.node_name = Some("elsewhere".to_owned());
                slice.spec.pool.name = "elsewhere".to_owned();
                slice.spec.pool.resource_slice_count = 1;
                slice
            });
            slice.spec.devices.get_or_insert_default().push(judged.by_itself());
        }
    }
    slices.into_values().collect()
}
