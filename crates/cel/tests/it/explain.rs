//! What is said of an expression that doesn't match.

use gpu_dra_cel::{Field, Selector, Shown};

use crate::agreement::devices;

/// Expression, and per term to blame: text, subject, seen, operator and wanted.
#[test]
fn the_term_to_blame_is_named_with_its_values() {
    let [h100, ..] = devices();
    for (expression, want) in [
        (
            r#"device.driver == 'gpu.nvidia.com' && device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0"#,
            vec![
                r#"device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0: 81559Mi >= 80Gi"#,
            ],
        ),
        (
            "(device.attributes['gpu.nvidia.com'].productName == 'H100' || 'L4' == device.attributes['gpu.nvidia.com'].productName) && device.attributes['gpu.nvidia.com'].index in [1, 2]",
            vec![
                "device.attributes['gpu.nvidia.com'].productName == 'H100' || 'L4' == device.attributes['gpu.nvidia.com'].productName: \"NVIDIA H100 80GB HBM3\" == \"H100\", \"NVIDIA H100 80GB HBM3\" == \"L4\"",
                "device.attributes['gpu.nvidia.com'].index in [1, 2]: 0 in [1, 2]",
            ],
        ),
        (
            "quantity('100Gi').isLessThan(device.capacity['gpu.nvidia.com'].memory)",
            vec![
                "quantity('100Gi').isLessThan(device.capacity['gpu.nvidia.com'].memory): 81559Mi > 100Gi",
            ],
        ),
        (
            "cel.bind(a, device.attributes['gpu.nvidia.com'], a.architecture.startsWith('Ada') && a.index == 0)",
            vec!["a.architecture.startsWith('Ada'): \"Hopper\" startsWith \"Ada\""],
        ),
        (
            "device.attributes['gpu.nvidia.com'].nothing == 'x'",
            vec![
                "device.attributes['gpu.nvidia.com'].nothing == 'x': no such key: nothing == \"x\"",
            ],
        ),
        (
            "has(device.attributes['gpu.nvidia.com'].nothing)",
            vec!["has(device.attributes['gpu.nvidia.com'].nothing): false is -"],
        ),
        (
            "!device.attributes['gpu.nvidia.com'].healthy",
            vec!["!device.attributes['gpu.nvidia.com'].healthy: false is -"],
        ),
        (
            "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(semver('9.0.0'))",
            vec![
                "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(semver('9.0.0')): 9.0.0 > 9.0.0",
            ],
        ),
        ("device.driver == 'gpu.nvidia.com'", vec![]),
    ] {
        let selector = Selector::compile(expression).unwrap();
        let terms = selector.explain(&h100);
        let verdict = selector.matches(&h100);
        assert_eq!(terms.is_empty(), verdict == Ok(true), "{expression}");
        let got: Vec<String> = terms
            .iter()
            .map(|term| {
                let part: String =
                    expression.chars().skip(term.span.0).take(term.span.1 - term.span.0).collect();
                assert_eq!(part, term.text, "{expression}");
                let comparisons: Vec<String> = term
                    .comparisons
                    .iter()
                    .map(|c| {
                        let seen =
                            c.seen.as_ref().map_or_else(ToString::to_string, Shown::to_string);
                        let wanted = c.wanted.as_ref().map_or("-".into(), Shown::to_string);
                        format!("{seen} {} {wanted}", c.operator)
                    })
                    .collect();
                format!("{}: {}", term.text, comparisons.join(", "))
            })
            .collect();
        assert_eq!(got, want, "{expression}");
    }
}

#[test]
fn what_is_read_is_known() {
    let attribute =
        |domain: &str, name: &str| Field::Attribute { domain: domain.into(), name: name.into() };
    let memory = Field::Capacity { domain: "gpu.nvidia.com".into(), name: "memory".into() };
    for (expression, fields, anything) in [
        ("device.driver == 'a'", vec![(Field::Driver, false)], false),
        ("device.attributes['a.b'].c == 1", vec![(attribute("a.b", "c"), false)], false),
        ("device.attributes['a.b'].?c.orValue(1) == 1", vec![(attribute("a.b", "c"), true)], false),
        ("has(device.attributes['a.b'].c)", vec![(attribute("a.b", "c"), true)], false),
        (
            "device.attributes['a.b']['c'] == 1 && device.capacity['gpu.nvidia.com'].memory.isInteger()",
            vec![(attribute("a.b", "c"), false), (memory, false)],
            false,
        ),
        ("device.attributes[device.driver].c == 1", vec![(Field::Driver, false)], true),
        ("'a.b' in device.attributes", vec![], true),
        ("cel.bind(a, device.attributes['a.b'], a.c == 1)", vec![], true),
        ("device.allowMultipleAllocations", vec![(Field::AllowMultipleAllocations, false)], false),
        ("true", vec![], false),
    ] {
        let reads = Selector::compile(expression).unwrap().reads().clone();
        let mut got: Vec<_> =
            reads.fields.into_iter().map(|read| (read.field, read.guarded)).collect();
        got.sort();
        assert_eq!((got, reads.anything), (fields, anything), "{expression}");
    }
}

/// The longest chain that is taken: what is said of it stays short.
#[test]
fn of_a_long_chain_the_first_few_are_told() {
    let one = "device.driver=='x'||";
    let chain = one.repeat(10_000 / one.len());
    let chain = chain.trim_end_matches("||");
    let [h100, ..] = devices();
    let terms = Selector::compile(chain).unwrap().explain(&h100);
    assert_eq!((terms.len(), terms[0].comparisons.len()), (1, 8));
    let all = "device.driver=='x'&&".repeat(100);
    let terms = Selector::compile(all.trim_end_matches("&&")).unwrap().explain(&h100);
    assert_eq!(terms.len(), 8);
}
