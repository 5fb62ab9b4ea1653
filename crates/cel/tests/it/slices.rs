//! Devices of ResourceSlices, as YAML, as selectors see them.

use gpu_dra_cel::{Attribute, DeviceView};
use serde_json::Value;

pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("{path} in {value}"))
}

/// The slices among some documents.
pub(crate) fn slices(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    documents.into_iter().filter(|document| document["kind"] == "ResourceSlice").collect()
}

/// The devices of a slice.
pub(crate) fn devices_of(slice: &Value) -> impl Iterator<Item = (String, DeviceView)> {
    let driver = text(slice, "/spec/driver");
    let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
    devices.map(move |device| (text(device, "/name").to_owned(), view(driver, device)))
}

fn view(driver: &str, device: &Value) -> DeviceView {
    let mut view = DeviceView::new(driver, device["allowMultipleAllocations"] == true);
    for (name, value) in device["attributes"].as_object().into_iter().flatten() {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        let attribute = match kind.as_str() {
            "string" => Attribute::String(value.as_str().unwrap().into()),
            "version" => Attribute::Version(value.as_str().unwrap().into()),
            "int" => Attribute::Int(value.as_i64().unwrap()),
            "bool" => Attribute::Bool(value.as_bool().unwrap()),
            other => panic!("{other}"),
        };
        view.add_attribute(name, attribute);
    }
    for (name, value) in device["capacity"].as_object().into_iter().flatten() {
        view.add_capacity(name, value["value"].as_str().unwrap().parse().unwrap());
    }
    view
}
