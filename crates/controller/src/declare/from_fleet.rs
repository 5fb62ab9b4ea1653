//! Classes made from what the fleet has: one per product and one per MIG profile, so that
//! nobody has to write them. A class stays when its last device goes, since nodes come and go
//! and a pod may wait for the class.

use std::collections::BTreeMap;

use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceClassSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::compile::selectors;
use super::expression::Expression;
use super::gpuclass::{DeviceType, Model};
use super::origin::Origin;
use super::syntax;
use crate::fleet::Fleet;

/// The API's limit on a class's name, in bytes.
const MAX_NAME: usize = 253;

/// The classes for what is published now. `nvidia-l4.gpu.nvidia.com` for a product,
/// `mig-1g.10gb.gpu.nvidia.com` for a profile, which also gets the resource name that the
/// device plugin gives it (`nvidia.com/mig-1g.10gb`), unless `is_taken` says that another class
/// than this one has it: of two classes the newer gets the pods, which must not be ours.
#[must_use]
pub fn fleet_classes(
    fleet: &Fleet,
    driver: &DriverName,
    is_taken: impl Fn(&str, &str) -> bool,
) -> Vec<DeviceClass> {
    let mut products: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for product in fleet.products() {
        products.entry(slug(product)).or_default().push(product.to_owned());
    }
    let mut classes = Vec::new();
    for (slug, names) in products {
        let mut expression = Expression::new(driver, DeviceType::Gpu);
        expression.model(&Model { names, contains: Vec::new() });
        classes.extend(class(format!("{slug}.{driver}"), expression, None));
    }
    for profile in fleet.profiles().into_iter().filter(|p| syntax::profile(p).is_ok()) {
        let mut expression = Expression::new(driver, DeviceType::Mig);
        expression.profile(profile);
        let resource = format!("nvidia.com/mig-{}", profile.replace('+', "."));
        let name = format!("{}.{driver}", slug(&format!("mig-{profile}")));
        let resource = Some(resource).filter(|resource| !is_taken(&name, resource));
        classes.extend(class(name, expression, resource));
    }
    classes
}

fn class(
    name: String,
    expression: Expression,
    extended_resource_name: Option<String>,
) -> Option<DeviceClass> {
    // A text of which nothing fits into a name leaves the dot.
    if name.starts_with('.') || name.len() > MAX_NAME {
        return None;
    }
    Some(DeviceClass {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(Origin::Fleet.labels()),
            ..ObjectMeta::default()
        },
        spec: Some(DeviceClassSpec {
            selectors: Some(selectors(&expression.into_text())),
            config: None,
            extended_resource_name,
        }),
    })
}

/// A text as part of a DNS name: lower case, with `-` for what doesn't fit.
fn slug(text: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let lower = text.to_ascii_lowercase();
    let labels = lower.split('.').map(|label| {
        let words: Vec<&str> = label.split(|c| !fits(c)).filter(|word| !word.is_empty()).collect();
        words.join("-")
    });
    labels.filter(|label| !label.is_empty()).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn names_become_dns_names() {
        for (text, want) in [
            ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
            ("mig-1g.10gb+me", "mig-1g.10gb-me"),
            ("NVIDIA A100-SXM4-40GB", "nvidia-a100-sxm4-40gb"),
            ("..--..", ""),
            ("größe (v2)", "gr-e-v2"),
        ] {
            assert_eq!(slug(text), want);
        }
    }
}
