//! Extended resources: of classes with the same name the newest serves, and which that is
//! nobody can see in a manifest.

use std::collections::BTreeMap;

use crate::finding::{Findings, Rule, Severity};
use crate::object::{Body, Object};
use crate::world::World;

pub(crate) fn lint(objects: &[Object<'_>], world: &World<'_>, findings: &mut Findings) {
    let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, class) in &world.classes {
        let spec = class.spec.as_ref();
        if let Some(resource) = spec.and_then(|spec| spec.extended_resource_name.as_deref()) {
            holders.entry(resource).or_default().push(name);
        }
    }
    let mut names: Vec<(&str, bool)> = Vec::new();
    for object in objects {
        let Body::Class(class) = &object.body else { continue };
        let name = object.name.as_str();
        if let Some((_, is_declared)) = names.iter().find(|(known, _)| *known == name) {
            let message = if *is_declared == object.is_declared {
                format!("there are two classes {name}: the later replaces the earlier")
            } else {
                format!(
                    "there are a GpuClass and a DeviceClass {name}, and of a GpuClass another \
                     DeviceClass of that name is made: rename one"
                )
            };
            let path = object.root.keys("metadata.name");
            findings.add(object, &path, Severity::Warning, Rule::DuplicateName, message);
        }
        names.push((name, object.is_declared));
        let spec = class.spec.as_ref();
        let Some(resource) = spec.and_then(|spec| spec.extended_resource_name.as_deref()) else {
            continue;
        };
        let path = object.root.keys("spec.extendedResourceName");
        if !is_extended(resource) {
            let message = format!(
                "{resource:?} is no extended resource: write domain/name, such as \
                 nvidia.com/gpu, in a domain other than kubernetes.io"
            );
            findings.add(object, &path, Severity::Error, Rule::ExtendedResource, message);
        }
        let others = holders.get(resource).into_iter().flatten();
        let others: Vec<&str> = others.copied().filter(|name| *name != object.name).collect();
        if !others.is_empty() {
            let message = format!(
                "{resource} is also the name of class {}, and the newest class serves it: give \
                 each its own",
                others.join(", ")
            );
            findings.add(object, &path, Severity::Warning, Rule::ExtendedResource, message);
        }
    }
}

/// A name as the API server takes it: qualified, and not of Kubernetes itself.
fn is_extended(resource: &str) -> bool {
    let Some((domain, name)) = resource.split_once('/') else { return false };
    let word = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let ends = |text: &str| {
        let bytes = text.as_bytes();
        [bytes.first(), bytes.last()].into_iter().flatten().all(u8::is_ascii_alphanumeric)
    };
    let native = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !native
        && !resource.starts_with("requests.")
        && (1..=63).contains(&name.len())
        && !domain.is_empty()
        && name.bytes().all(word)
        && domain
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c))
        && ends(name)
        && ends(domain)
}

#[cfg(test)]
mod tests {
    use super::is_extended;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for good in ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "a/b_c"] {
            assert!(is_extended(good), "{good}");
        }
        for bad in [
            "gpu",
            "kubernetes.io/gpu",
            "x.kubernetes.io/gpu",
            "/gpu",
            "nvidia.com/",
            "nvidia.com/a/b",
            "requests.a/b",
            "nvidia.com/-",
        ] {
            assert!(!is_extended(bad), "{bad}");
        }
    }
}
