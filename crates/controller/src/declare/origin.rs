//! Whose a DeviceClass is. A class is ours by its label alone; what we made for a GpuClass
//! also names it as its owner. Nothing without them is ever written or deleted.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceClass;

use super::gpuclass::GROUP;

/// The label that says what a DeviceClass was made from.
pub const MADE_FROM: &str = "gpu-dra.io/made-from";

/// What a DeviceClass was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// One of the standard classes.
    Standard,
    /// A GpuClass.
    GpuClass,
    /// A product or MIG profile of the fleet.
    Fleet,
}

impl Origin {
    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::GpuClass => "gpuclass",
            Self::Fleet => "fleet",
        }
    }

    /// Of a class as it is stored; None: somebody else's.
    #[must_use]
    pub fn of(class: &DeviceClass) -> Option<Self> {
        let label = class.metadata.labels.as_ref()?.get(MADE_FROM)?;
        [Self::Standard, Self::GpuClass, Self::Fleet].into_iter().find(|o| o.as_str() == label)
    }

    pub(crate) fn labels(self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("app.kubernetes.io/managed-by".to_owned(), "gpu-dra-controller".to_owned()),
            (MADE_FROM.to_owned(), self.as_str().to_owned()),
        ])
    }
}

/// The extended resource that a class names.
pub(crate) fn extended_resource(class: &DeviceClass) -> Option<&str> {
    class.spec.as_ref()?.extended_resource_name.as_deref()
}

/// The UID of the GpuClass that owns the class.
pub(crate) fn owner(class: &DeviceClass) -> Option<&str> {
    let owners = class.metadata.owner_references.iter().flatten();
    let group = format!("{GROUP}/");
    owners
        .filter(|owner| owner.kind == "GpuClass" && owner.api_version.starts_with(&group))
        .map(|owner| owner.uid.as_str())
        .next()
}
