//! Classes that another kind of object declares: judged as DeviceClasses are, told at the
//! fields that are written.

use gpu_dra_lint::{Document, Fault, Finding, lint_with};
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::{Value, json};

use crate::world::{inventory, lines};

/// A `Wish` declares a class by its product; one without is at fault.
fn compiled(object: &Value) -> Option<Result<DeviceClass, Vec<Fault>>> {
    let product = (object["kind"] == "Wish").then(|| object["spec"]["products"][0].as_str())?;
    let Some(product) = product else {
        let path = "spec.products[0]".to_owned();
        return Some(Err(vec![Fault { path, reason: "is no text: name a product".to_owned() }]));
    };
    let expression = format!(
        "device.driver == 'gpu.nvidia.com' && \
         device.attributes['gpu.nvidia.com'].?productName.orValue('') == '{product}'"
    );
    let class = json!({
        "metadata": object["metadata"],
        "spec": {
            "selectors": [{"cel": {"expression": expression}}],
            "extendedResourceName": object["spec"]["resource"],
        },
    });
    Some(Ok(serde_json::from_value(class).unwrap()))
}

fn found(text: &str) -> Vec<Finding> {
    let fleet = inventory();
    lint_with(&Document::parse("test.yaml", text).unwrap(), Some(&fleet), &compiled)
}

fn claim(class: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec: \
         {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: {class}}}}}]}}}}\n"
    )
}

const L4: &str = "kind: Wish\nmetadata:\n  name: small\nspec:\n  products:\n  - NVIDIA L4\n";

#[test]
fn a_good_one_is_clean_and_known_to_claims() {
    let text = format!("{L4}---\n{}", claim("small"));
    assert_eq!(lines(&found(&text)), Vec::<String>::new());
    let wrong = lines(&found(&format!("{L4}---\n{}", claim("smal"))));
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    assert!(wrong[0].contains("did you mean small?"), "{wrong:#?}");
}

#[test]
fn what_matches_nothing_is_told_at_the_spec() {
    let found = found(&L4.replace("NVIDIA L4", "H100"));
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(
        (finding.rule.id(), finding.path.as_str(), finding.line),
        ("matches-nothing", "spec", 4)
    );
    assert_eq!(finding.object, "Wish small");
    assert!(finding.message.contains("NVIDIA H100 80GB HBM3"), "{finding}");
}

#[test]
fn a_fault_is_an_error_at_its_field() {
    let found = found(&L4.replace("NVIDIA L4", "{a: b}"));
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(
        finding.to_string(),
        "test.yaml:6: error: Wish small: spec.products[0]: is no text: name a product [gpu-class]"
    );
}

#[test]
fn clashes_of_names_are_seen() {
    let class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: small}\nspec: \
                 {selectors: [{cel: {expression: \"device.driver == 'gpu.nvidia.com'\"}}]}\n";
    let found = lines(&found(&format!("{L4}---\n{class}")));
    assert!(
        found.iter().any(|line| line.contains("a GpuClass and a DeviceClass small")),
        "{found:#?}"
    );
    let text = L4.replace("  products", "  resource: nvidia.com/gpu\n  products");
    let found = self::found(&text);
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(
        (finding.rule.id(), finding.path.as_str(), finding.line),
        ("extended-resource", "spec", 4)
    );
}
