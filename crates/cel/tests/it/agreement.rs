//! Agreement with the API server and the scheduler on a recorded table: the same verdict
//! when compiled, the same worst-case cost, the same result on each of four devices.

use gpu_dra_cel::{Attribute, CompileError, DeviceView, Selector};

const TABLE: &str = include_str!("../data/agreement.tsv");

/// What this crate refuses by name though the API server takes it. Keep it short.
const NOT_JUDGED_HERE: &[&str] = &[
    "the function format",
    "the macro sortBy with 2 arguments",
    "the function includes",
    "the function url",
    "the function isIP",
    "the function cidr",
    "the function duration",
    "the function timestamp",
    "the function format.dns1123Label",
    "the macro all with 3 arguments",
    "the macro transformList with 3 arguments",
    "the message google.protobuf.Int32Value",
];

fn device(
    driver: &str,
    shared: bool,
    attributes: &[(&str, Attribute)],
    capacity: &[(&str, &str)],
) -> DeviceView {
    let mut view = DeviceView::new(driver, shared);
    for (name, value) in attributes {
        view.add_attribute(name, value.clone());
    }
    for (name, value) in capacity {
        view.add_capacity(name, value.parse().unwrap());
    }
    view
}

/// The devices that the table was recorded with: h100, mig, nic, shared.
pub(crate) fn devices() -> [DeviceView; 4] {
    let text = |text: &str| Attribute::String(text.to_owned());
    let version = |text: &str| Attribute::Version(text.to_owned());
    [
        device(
            "gpu.nvidia.com",
            false,
            &[
                ("type", text("gpu")),
                ("uuid", text("GPU-11111111-0000-0000-0000-000000000000")),
                ("productName", text("NVIDIA H100 80GB HBM3")),
                ("brand", text("Nvidia")),
                ("architecture", text("Hopper")),
                ("cudaComputeCapability", version("9.0.0")),
                ("driverVersion", version("580.105.8")),
                ("cudaDriverVersion", version("13.0.0")),
                ("resource.kubernetes.io/pciBusID", text("0000:1b:00.0")),
                ("resource.kubernetes.io/pcieRoot", text("pci0000:15")),
                ("resource.kubernetes.io/numaNode", Attribute::Int(0)),
                ("index", Attribute::Int(0)),
                ("healthy", Attribute::Bool(true)),
            ],
            &[("memory", "81559Mi")],
        ),
        device(
            "gpu.nvidia.com",
            false,
            &[
                ("type", text("mig")),
                ("productName", text("NVIDIA A100-SXM4-40GB")),
                ("architecture", text("Ampere")),
                ("cudaComputeCapability", version("8.0.0")),
                ("driverVersion", version("580.105.8-rc1+build5")),
                ("resource.kubernetes.io/pcieRoot", text("pci0000:80")),
                ("resource.kubernetes.io/numaNode", Attribute::Int(1)),
                ("profile", text("1g.5gb")),
                ("healthy", Attribute::Bool(false)),
            ],
            &[
                ("memory", "4864Mi"),
                ("multiprocessors", "14"),
                ("copyEngines", "1500m"),
                ("decoders", "0"),
            ],
        ),
        device(
            "dra.net",
            false,
            &[
                ("ifName", text("gpu0rdma0")),
                ("rdma", Attribute::Bool(true)),
                ("resource.kubernetes.io/pcieRoot", text("pci0000:15")),
            ],
            &[],
        ),
        device(
            "gpu.nvidia.com",
            true,
            &[
                ("type", text("gpu")),
                ("productName", text("NVIDIA L4")),
                ("architecture", text("Ada Lovelace")),
                ("cudaComputeCapability", version("8.9.0")),
                ("driverVersion", version("550.127.8")),
                ("index", Attribute::Int(3)),
                ("healthy", text("yes")),
            ],
            &[("memory", "23034Mi")],
        ),
    ]
}

#[test]
fn verdicts_costs_and_results_agree() {
    let devices = devices();
    let mut judged = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let [expression, verdict, results, said] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}: want four columns")
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
        let view = device("gpu.nvidia.com", false, &[("lanes", value)], &[]);
        assert_eq!(selector.matches(&view).unwrap_err().to_string(), want);
    }
}
