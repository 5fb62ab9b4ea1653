//! Agreement with the API server and the scheduler on a recorded table: the same verdict
//! when compiled, the same worst-case cost, the same result on each of four devices. The e2e
//! scenario `cel-agreement` puts the same table to a real API server and scheduler.

use std::sync::LazyLock;

use gpu_dra_cel::{Attribute, CompileError, DeviceView, Selector};

use crate::slices::{devices_of, slices};

const TABLE: &str = include_str!("../data/agreement.tsv");

/// What this crate refuses by name though the API server takes it. Keep it short.
const NOT_JUDGED_HERE: &[&str] = &[
    "the function format",
    "the macro sortBy with 2 arguments",
    "the function url",
    "the function isIP",
    "the function cidr",
    "the function duration",
    "the function timestamp",
    "the function format.dns1123Label",
    "the message google.protobuf.Int32Value",
];

/// The devices that the table is about: h100, mig, nic, shared.
pub(crate) fn devices() -> [DeviceView; 4] {
    static VIEWS: LazyLock<[DeviceView; 4]> = LazyLock::new(|| {
        let slices = slices(include_str!("../data/agreement-devices.yaml"));
        let views: Vec<_> = slices.iter().flat_map(devices_of).map(|(_, view)| view).collect();
        views.try_into().unwrap()
    });
    VIEWS.clone()
}

#[test]
fn verdicts_costs_and_results_agree() {
    let devices = devices();
    let mut judged = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let (expression, verdict, results, said) = match line.split('\t').collect::<Vec<_>>()[..] {
            [expression, verdict, results, said] => (expression, verdict, results, said),
            // Those of 1.36 are judged here.
            [_, _, _, _, "1.37-"] => continue,
            [expression, verdict, results, said, "1.36-" | "-1.36"] => {
                (expression, verdict, results, said)
            }
            _ => panic!("{line}: want four columns or five"),
        };
        let selector = match Selector::compile(expression) {
            Err(CompileError::Unsupported { name }) if verdict != "refused" => {
                assert!(NOT_JUDGED_HERE.contains(&name.as_str()), "{expression}: {name}");
                continue;
            }
            Err(error) => {
                assert_eq!(verdict, "refused", "{expression}: {error}");
                let too_costly = matches!(error, CompileError::TooCostly { .. });
                assert_eq!(too_costly, said == "cost too high", "{expression}: {error} / {said}");
                continue;
            }
            Ok(selector) => selector,
        };
        assert_eq!(verdict, selector.cost().to_string(), "{expression}");
        let outcomes = devices.each_ref().map(|device| selector.matches(device));
        let letters = outcomes.each_ref().map(|outcome| match outcome {
            Ok(true) => "T",
            Ok(false) => "F",
            Err(_) => "E",
        });
        assert_eq!(results, letters.join(" "), "{expression}: {outcomes:?}");
        let first = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        if let Some(error) = first.map(ToString::to_string)
            && (said.starts_with("no such key") || said.starts_with("no such overload"))
        {
            assert!(said.starts_with(&error), "{expression}: we say {error:?}, they {said:?}");
        }
        judged += 1;
    }
    assert!(judged > 400, "only {judged} expressions were evaluated");
}

#[test]
fn refusals_use_the_servers_words() {
    for (expression, want) in [
        (
            r#"device.capacity["gpu.nvidia.com"].memory >= "16Gi""#,
            "1:42: found no matching overload for '_>=_' applied to '(kubernetes.Quantity, string)'",
        ),
        (
            "device.attributes['resource.kubernetes.io/pcieRoot'] == 'pci0000:15'",
            "1:54: found no matching overload for '_==_' applied to '(map(string, any), string)'",
        ),
        (
            "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(version('8.0.0'))",
            "1:80: undeclared reference to 'version'",
        ),
        ("device.nofield == 1", "1:7: undefined field 'nofield'"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        (
            r#"device.attributes["memory"].quantity().value() >= 24000000000"#,
            "1:37: found no matching overload for 'quantity' applied to 'map(string, any).()'",
        ),
        (
            "url('https://x').getHost() == 'x'",
            "the function url is not supported here, so the expression can't be judged",
        ),
    ] {
        assert_eq!(Selector::compile(expression).unwrap_err().to_string(), want, "{expression}");
    }
}

#[test]
fn an_unreadable_attribute_is_an_error_for_every_expression() {
    let selector = Selector::compile("true").unwrap();
    for (value, want) in [
        (Attribute::List, "attribute lanes: unsupported attribute value"),
        (Attribute::Version("570.124.06".into()), "attribute lanes: parse semantic version"),
    ] {
        let mut view = DeviceView::new("gpu.nvidia.com", false);
        view.add_attribute("lanes", value);
        assert_eq!(selector.matches(&view).unwrap_err().to_string(), want);
    }
}
