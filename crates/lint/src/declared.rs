//! DeviceClasses that are declared in another kind of object, such as the controller's
//! GpuClass. How those compile is not known here: the caller brings it.

use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::Value;

use crate::finding::{Findings, Rule, Severity};
use crate::object::{Body, Object};

/// Compiles an object to the class that it declares; None: it is of a kind that declares none.
pub type Compile<'c> = dyn Fn(&Value) -> Option<Result<DeviceClass, Vec<Fault>>> + 'c;

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, such as `spec.model.names[0]`.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

pub(crate) fn body(
    object: &Object<'_>,
    compiled: Result<DeviceClass, Vec<Fault>>,
    findings: &mut Findings,
) -> Body {
    match compiled {
        Ok(class) => Body::Class(class),
        Err(faults) => {
            for Fault { path, reason } in faults {
                let message = format!("{path}: {reason}");
                let path = object.root.fields(&path);
                findings.add(object, &path, Severity::Error, Rule::GpuClass, message);
            }
            Body::Other
        }
    }
}
