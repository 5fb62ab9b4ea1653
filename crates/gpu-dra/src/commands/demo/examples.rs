//! The manifests that the demo applies, built in so that it needs no checkout.

macro_rules! examples {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../../examples/", $name)))),*]
    };
}

/// The standard DeviceClasses.
pub(super) const CLASSES: &str = include_str!("../../../../../deploy/deviceclasses.yaml");

/// Every example, by file name.
pub(super) const ALL: &[(&str, &str)] = examples![
    "admin-access.yaml",
    "by-memory.yaml",
    "extended-resource.yaml",
    "first-available.yaml",
    "mig-extended-resource.yaml",
    "mig-four-of-one-gpu.yaml",
    "mig-or-whole-gpu.yaml",
    "mig-seven-per-gpu.yaml",
    "mig-two-parents.yaml",
    "mps.yaml",
    "one-gpu.yaml",
    "shared-claim.yaml",
    "shares.yaml",
    "two-containers.yaml",
];

#[cfg(test)]
mod tests {
    #[test]
    fn no_example_is_forgotten() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let known: Vec<_> = super::ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, known);
    }
}
