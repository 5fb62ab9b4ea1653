//! Expressions made to hang or to overflow: at the full 10 KiB they compile or are refused
//! within seconds, and what is accepted runs on a small stack within the cost limit.

use std::time::{Duration, Instant};

use gpu_dra_cel::{CompileError, EvalError, MAX_EXPRESSION_BYTES, Selector};
use proptest::prelude::*;

use crate::agreement::devices;

/// `unit` as often as fits between the two ends.
fn filled(start: &str, unit: &str, end: &str) -> String {
    let room = MAX_EXPRESSION_BYTES - start.len() - end.len();
    format!("{start}{}{end}", unit.repeat(room / unit.len()))
}

/// Open and close as often as both fit.
fn nested(open: &str, inner: &str, close: &str) -> String {
    let times = (MAX_EXPRESSION_BYTES - inner.len()) / (open.len() + close.len());
    format!("{}{inner}{}", open.repeat(times), close.repeat(times))
}

fn all(depth: usize) -> String {
    let list = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let open: String = (0..depth).map(|level| format!("{list}.all(x{level}, ")).collect();
    format!("{open}true{}", ")".repeat(depth))
}

#[test]
fn the_longest_expressions_neither_hang_nor_overflow() {
    let start = Instant::now();
    for text in [
        filled("1", "+1", " == 1"),
        filled("a", ".a", ""),
        filled("device", r#"["a"]"#, ""),
        filled("device", r#"[?"a"]"#, ".hasValue()"),
        nested("(", "true", ")"),
        nested("[", "", "]"),
        nested("{1:", "1", "}"),
        filled("", "!", "true"),
        filled("", "-", "1"),
        filled("", "true ? true : ", "true"),
        filled("true", " && true", ""),
        filled("true", " || true", ""),
        filled("", "[1].all(x, ", ""),
        nested("[1].all(x, ", "true", ")"),
        nested("cel.bind(x, 1, ", "true", ")"),
        nested("device.driver.contains(", "'a'", ")"),
        filled("device.driver", ".lowerAscii()", " == ''"),
        filled("1 in [1", ", 1", "]"),
        filled("\"", "a", "\" == \"\""),
        filled("\"", "\\", "\""),
        filled("", "(", ""),
        filled("", "a ", ""),
        filled("device.driver.matches('", "(", "')"),
        nested("(a", "", "|b)*"),
        filled("", "\u{1F600}", ""),
    ] {
        assert!(text.len() <= MAX_EXPRESSION_BYTES);
        match Selector::compile(&text) {
            Ok(selector) => {
                for device in devices() {
                    let _verdict = selector.matches(&device);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    let mut long = filled("true // ", "x", "");
    assert!(Selector::compile(&long).is_ok());
    long.push('x');
    assert_eq!(Selector::compile(&long).unwrap_err(), CompileError::TooLong { bytes: long.len() });
}

#[test]
fn the_deepest_accepted_expressions_run_on_a_small_stack() {
    let deep = [
        format!("1{} == 1", "+1".repeat(115)),
        format!("{}true{}", "(true ? ".repeat(110), " : false)".repeat(110)),
        format!("{}1{} == 1", "size([".repeat(57), "])".repeat(57)),
        format!("{}true{}", "cel.bind(x, 1, ".repeat(100), ")".repeat(100)),
        all(5),
        format!("{}1{} == dyn(1)", "[dyn(".repeat(40), ")]".repeat(40)),
        format!("{}1{} == dyn(1)", "optional.of(".repeat(100), ")".repeat(100)),
    ];
    for text in deep {
        let selector = Selector::compile(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let worker = std::thread::Builder::new().stack_size(1 << 20);
        let run = move || devices().map(|device| selector.matches(&device).is_ok());
        worker.spawn(run).unwrap().join().unwrap_or_else(|_| panic!("{text}"));
    }
    let deeper = format!("1{} == 1", "+1".repeat(121));
    assert!(matches!(Selector::compile(&deeper), Err(CompileError::TooDeep { .. })));
}

#[test]
fn exponential_loops_are_refused_by_their_cost() {
    assert!(Selector::compile(&all(5)).is_ok(), "100,000 steps are allowed");
    for depth in [6, 7, 20] {
        let error = Selector::compile(&all(depth)).unwrap_err();
        assert!(matches!(error, CompileError::TooCostly { .. }), "{depth}: {error}");
    }
}

/// The estimate knows no attribute longer than 64 characters; a device of a broken driver
/// may have one. Then the meter ends it.
#[test]
fn what_costs_more_than_estimated_is_stopped() {
    let text = r#"cel.bind(letters, device.attributes["gpu.nvidia.com"].long.split(""), letters.all(x, letters.all(y, letters.size() > 0)))"#;
    let selector = Selector::compile(text).unwrap();
    let mut device = gpu_dra_cel::DeviceView::new("gpu.nvidia.com", false);
    device.add_attribute("long", gpu_dra_cel::Attribute::String("a".repeat(100_000)));
    assert_eq!(selector.matches(&device), Err(EvalError::TooCostly));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        let _verdict = Selector::compile(&text).map(|s| devices().map(|d| s.matches(&d)));
    }

    #[test]
    fn no_expression_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "device", ".attributes", ".driver", "[\"gpu.nvidia.com\"]", ".type", ".?index", "==", "!=", "<", "&&",
        "||", "!", "(", ")", "1", "1.5", "\"a\"", "'", "[", "]", "{", "}", ":", ",", "?", "in ", "quantity(",
        "semver(", ".all(x, ", ".map(x, ", "x", "cel.bind(x, ", "true", "null", "-", "+", "/", "has(",
    ]), 0..24)) {
        let _verdict = Selector::compile(&parts.concat()).map(|s| devices().map(|d| s.matches(&d)));
    }
}
