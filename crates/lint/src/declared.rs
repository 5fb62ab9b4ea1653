//! DeviceClasses that are declared in another kind of object, such as the controller's
//! GpuClass. How those compile is not known here: the caller brings it.

pub use gpu_dra_explain::manifest::{Compile, Fault};
use k8s_openapi::api::resource::v1::DeviceClass;

use crate::finding::{Findings, Rule, Severity};
use crate::object::{Body, Object};

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
