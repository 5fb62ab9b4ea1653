//! The controller's GpuClass for lint and explain: compiled as the controller does, or its
//! sentences.

use gpu_dra_controller::declare::{GROUP, VERSION};
use gpu_dra_controller::{GpuClass, compile};
use gpu_dra_lint::Fault;
use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::DeviceClass;
use serde::Deserialize as _;
use serde_json::Value;

use crate::rig::DRIVER;

/// The class that an object declares; None: it is no GpuClass.
pub(super) fn compiled(object: &Value) -> Option<Result<DeviceClass, Vec<Fault>>> {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/')?;
    (text("kind") == "GpuClass" && group == GROUP).then(|| class(object, version))
}

fn class(object: &Value, version: &str) -> Result<DeviceClass, Vec<Fault>> {
    let fault = |path: &str, reason: String| Fault { path: path.to_owned(), reason };
    if version != VERSION {
        let reason = format!("{version:?} is not served: write {GROUP}/{VERSION}");
        return Err(vec![fault("apiVersion", reason)]);
    }
    let declared = GpuClass::deserialize(object)
        .map_err(|error| vec![fault("metadata", error.to_string())])?;
    let driver =
        DRIVER.parse::<DriverName>().map_err(|error| vec![fault("spec", error.to_string())])?;
    let compiled = compile(&declared, &driver);
    compiled.map(|compiled| compiled.class).map_err(|problems| {
        problems.into_iter().map(|problem| fault(&problem.path, problem.reason)).collect()
    })
}
