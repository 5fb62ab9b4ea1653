//! Fleets without a cluster: simulated nodes, and objects from files.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use gpu_dra_explain::manifest::Manifests;
use gpu_dra_nvml::Gpus as _;
use gpu_dra_slices::{Names, Policy, SliceContent, build};
use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSlice, ResourceSliceSpec};

use super::explain_cluster::Objects;
use super::lint_gpuclass::compiled;
use super::simulated::Simulated;
use crate::rig::DRIVER;

/// The standard DeviceClasses.
const CLASSES: &str = include_str!("../../../../deploy/deviceclasses.yaml");

/// The documents of files, - for stdin.
pub(crate) fn read(paths: &[PathBuf], namespace: &str) -> anyhow::Result<Manifests> {
    let mut all = Manifests::default();
    for path in paths {
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).context("can't read stdin")?;
        } else {
            text = std::fs::read_to_string(path)
                .with_context(|| format!("can't read {}", path.display()))?;
        }
        add(&mut all, &text, namespace).with_context(|| path.display().to_string())?;
    }
    Ok(all)
}

fn add(to: &mut Manifests, text: &str, namespace: &str) -> anyhow::Result<()> {
    // What kubectl prints as JSON can be larger than the YAML reader takes.
    let documents: Vec<serde_json::Value> = match serde_json::from_str(text) {
        Ok(document) if text.trim_start().starts_with('{') => vec![document],
        _ => serde_saphyr::from_multiple(text).context("not YAML or JSON")?,
    };
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        to.add_with(document, namespace, &compiled);
    }
    Ok(())
}

/// What a file has in place of a cluster; the standard classes where nobody names any.
pub(crate) fn of_files(mut fleet: Manifests, files: &Manifests) -> anyhow::Result<Objects> {
    if fleet.classes.is_empty() && files.classes.is_empty() {
        add(&mut fleet, CLASSES, "default")?;
    }
    Ok(Objects::of(fleet))
}

/// Simulated nodes with what the node agent would publish of them, and the standard classes.
pub(crate) fn simulated(nodes: &[String]) -> anyhow::Result<Objects> {
    let mut classes = Manifests::default();
    add(&mut classes, CLASSES, "default")?;
    let mut objects = Objects::of(classes);
    for (number, spec) in nodes.iter().enumerate() {
        objects.slices.extend(slices_of(spec, &format!("node-{number}"))?);
    }
    objects.name_nodes();
    Ok(objects)
}

/// What the node agent would publish of a simulated node.
pub(crate) fn slices_of(spec: &str, node: &str) -> anyhow::Result<Vec<ResourceSlice>> {
    let simulated = Simulated::stage(spec)?;
    let place = simulated.place();
    let inventory = gpu_dra_node::driver(place.root(), place.trees()).probe()?;
    let mut names = Names::default();
    names.assign(&inventory);
    let pool = build(&inventory, &names, &Policy::default(), &BTreeSet::new()).pool;
    let count = i64::try_from(pool.slices.len()).context("more slices than can be counted")?;
    let slices = pool.slices.into_iter().enumerate().map(|(number, content)| {
        let mut slice = ResourceSlice {
            spec: ResourceSliceSpec {
                driver: DRIVER.to_owned(),
                node_name: Some(node.to_owned()),
                pool: ResourcePool {
                    name: node.to_owned(),
                    generation: 1,
                    resource_slice_count: count,
                },
                ..ResourceSliceSpec::default()
            },
            ..ResourceSlice::default()
        };
        slice.metadata.name = Some(format!("{node}-{number}"));
        match content {
            SliceContent::Devices(devices) => slice.spec.devices = Some(devices),
            SliceContent::Counters(sets) => slice.spec.shared_counters = Some(sets),
        }
        slice
    });
    Ok(slices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: big}}]}}\n";

    fn read_text(text: &str) -> Manifests {
        let mut manifests = Manifests::default();
        add(&mut manifests, text, "default").unwrap();
        manifests
    }

    /// The class that the controller would make of it, also in a list.
    #[test]
    fn a_gpuclass_is_the_class_that_it_declares() {
        let class = "{apiVersion: gpu-dra.io/v1alpha1, kind: GpuClass, metadata: {name: big}, spec: {memoryAtLeast: 79Gi}}\n";
        for text in
            [class.to_owned(), format!("{{kind: List, apiVersion: v1, items: [{class}]}}\n")]
        {
            let files = read_text(&format!("{text}{CLAIM}"));
            assert!(files.refused.is_empty(), "{:?}", files.refused);
            let [class] = files.classes.as_slice() else { panic!("{:?}", files.classes) };
            assert_eq!(class.metadata.name.as_deref(), Some("big"));
        }
        let faulty = class.replace("79Gi", "0");
        let files = read_text(&format!("{faulty}{CLAIM}"));
        let [refusal] = files.refused.as_slice() else { panic!("{:?}", files.refused) };
        assert_eq!(
            (refusal.object.kind.as_str(), refusal.object.name.as_str()),
            ("DeviceClass", "big")
        );
        assert_eq!(refusal.advice.about, "GpuClass big, spec.memoryAtLeast");
        assert!(files.classes.is_empty());
    }
}
