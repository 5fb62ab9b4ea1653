//! Selectors seen in public, and those of the case files, on the inventory that they were
//! tried on with a real API server and scheduler.

use gpu_dra_cel::{DeviceView, EvalError, Selector};
use serde_json::Value;

use crate::slices::{devices_of, slices, text};

const SELECTORS: &str = include_str!("../data/selectors.tsv");
const INVENTORY: &str = include_str!("../data/inventory.yaml");

struct Device {
    node: String,
    name: String,
    view: DeviceView,
}

fn devices() -> Vec<Device> {
    let mut devices = Vec::new();
    for slice in slices(INVENTORY) {
        let node = text(&slice, "/spec/nodeName");
        devices.extend(devices_of(&slice).map(|(name, view)| Device {
            node: node.to_owned(),
            name,
            view,
        }));
    }
    devices
}

fn class(name: &str) -> Selector {
    let documents: Vec<Value> = serde_saphyr::from_multiple(INVENTORY).unwrap();
    let class =
        documents.iter().find(|d| d["kind"] == "DeviceClass" && d["metadata"]["name"] == name);
    Selector::compile(text(class.unwrap(), "/spec/selectors/0/cel/expression")).unwrap()
}

/// Per device, as the scheduler judges: the class first, the request's selector only if the
/// class matches.
fn judge(class: &Selector, selector: &Selector, view: &DeviceView) -> Result<bool, EvalError> {
    Ok(class.matches(view)? && selector.matches(view)?)
}

#[test]
fn selectors_seen_in_public() {
    let devices = devices();
    let mut rows = 0;
    for line in SELECTORS.lines().filter(|line| line.starts_with('S')) {
        let [id, class_name, expression, _, result] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("{line}: want five columns")
        };
        rows += 1;
        let compiled = Selector::compile(expression);
        if let Some(reason) = result.strip_prefix("API rejects:") {
            let error = compiled.unwrap_err().to_string();
            let last = reason.rsplit("<input>:").next().unwrap_or(reason).trim_start();
            let (_, sentence) = last.split_once(": ").unwrap_or(("", last));
            let same_kind = ["no matching overload", "yntax error"]
                .iter()
                .any(|words| sentence.contains(words) && error.contains(words));
            assert!(same_kind, "{id}: we say {error:?}, the server {sentence:?}");
            continue;
        }
        let (class, selector) = (class(class_name), compiled.unwrap());
        let verdicts: Vec<_> = devices.iter().map(|d| judge(&class, &selector, &d.view)).collect();
        let matching = || {
            devices
                .iter()
                .zip(&verdicts)
                .filter(|(_, v)| **v == Ok(true))
                .map(|(d, _)| (d.node.as_str(), d.name.as_str()))
        };
        if let Some(picked) = result.strip_prefix("match ") {
            let picked: Vec<&str> = picked.split('\'').skip(1).step_by(2).collect();
            assert!(
                matching().any(|(node, name)| [node, name] == picked[..]),
                "{id}: {verdicts:?}"
            );
            assert!(verdicts.iter().all(Result::is_ok), "{id}: {verdicts:?}");
        } else if let Some((_, error)) = result.split_once("CEL runtime error: ") {
            let errors: Vec<String> =
                verdicts.iter().filter_map(|v| v.as_ref().err()).map(ToString::to_string).collect();
            assert!(errors.iter().any(|e| e == error), "{id}: {errors:?}");
        } else {
            assert!(result.starts_with("pending"), "{id}: {result}");
            assert!(verdicts.iter().all(|v| *v == Ok(false)), "{id}: {verdicts:?}");
        }
    }
    assert_eq!(rows, 20);
}
