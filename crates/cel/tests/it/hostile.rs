//! Expressions made to hang or to overflow: at the full 10 KiB they compile or are refused
//! within seconds, and what is accepted runs on a small stack within the cost limit.

use std::sync::mpsc;
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

/// In a release build these take a tenth of it.
#[test]
fn checking_takes_time_that_grows_with_the_text() {
    for text in [
        filled("1", "+1", " == 1"),
        filled("1==1", "||1==1", ""),
        filled("[[1]+[]", ",[1]+[]", "]==[]"),
        filled("[[]", ",[]", "]==[]"),
        filled("[]", "+[]", " == []"),
        filled("[]", ".reverse()", " == []"),
    ] {
        let start = Instant::now();
        let _verdict = Selector::compile(&text);
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(5), "{text:.20}: {taken:?}");
    }
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
        format!(
            "{}'x'.matches('{}a{}' + ['b'][0]){}",
            "(true ? ".repeat(100),
            "(b|".repeat(30),
            ")*".repeat(30),
            " : false)".repeat(100)
        ),
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

/// What one expression may take in a debug build on a busy machine, compiled, evaluated and
/// explained; by itself it must stay below one second.
const MOST: Duration = Duration::from_secs(15);

/// What becomes of an expression on the first device, within [`MOST`].
fn judged(text: &str) -> Result<Result<bool, EvalError>, CompileError> {
    let (tell, told) = mpsc::channel();
    let expression = text.to_owned();
    std::thread::spawn(move || {
        let outcome = Selector::compile(&expression).map(|selector| {
            let [device, ..] = devices();
            let verdict = selector.matches(&device);
            assert_eq!(selector.explain(&device).is_empty(), verdict == Ok(true), "{expression}");
            verdict
        });
        drop(tell.send(outcome));
    });
    told.recv_timeout(MOST).unwrap_or_else(|_| panic!("{text}: not within {MOST:?}"))
}

/// Values that hold the one before twice: `levels` of them, the last is called `z`.
fn shared(first: &str, pair: &str, levels: usize, end: &str) -> String {
    let open: String = (1..levels)
        .map(|level| {
            format!("cel.bind(v{level},{},", pair.replace('$', &format!("v{}", level - 1)))
        })
        .collect();
    let last = pair.replace('$', &format!("v{}", levels - 1));
    format!("cel.bind(v0,{first},{open}cel.bind(z,{last},{end}){}", ")".repeat(levels))
}

/// A list of 2^60 elements is written down in 60 lines.
#[test]
fn shared_values_are_not_walked_over_and_over() {
    for levels in [24, 58] {
        let list = |end: &str| shared("[1]", "[$,$]", levels, end);
        // Equal to itself, as the API server would find in some years.
        for end in
            ["z == z", "z in [z]", "[z].indexOf(z) == 0", "sets.contains([z], [z])", "!(z != z)"]
        {
            assert_eq!(judged(&list(end)), Ok(Ok(true)), "{end} on {levels}");
        }
        // Nothing but a walk could tell.
        let twice = |end: &str| {
            let second = shared("[1]", "[$,$]", levels / 2, end)
                .replace("(v", "(w")
                .replace("[v", "[w")
                .replace(",v", ",w")
                .replace("(z,", "(y,");
            shared("[1]", "[$,$]", levels / 2, &second)
        };
        for end in [
            "y == z",
            "y in [z]",
            "[z].indexOf(y) == 0",
            "y != z",
            "sets.equivalent([z], [y])",
            "[z, y].distinct().size() == 1",
            "{'a': z} == {'a': y}",
            "[1, 2].all(i, z == y)",
        ] {
            let outcome = judged(&twice(end));
            assert!(
                matches!(
                    outcome,
                    Ok(Ok(_) | Err(EvalError::TooMuchWork)) | Err(CompileError::TooCostly { .. })
                ),
                "{end}: {outcome:?}"
            );
        }
        for end in
            ["z.flatten(60) == []", "z.flatten(60).size() == 1", "z.flatten(60) == z.flatten(60)"]
        {
            let outcome = judged(&shared("[1]", "[$,$]", levels, end));
            assert_eq!(outcome, Ok(Err(EvalError::TooMuchWork)), "{end}");
        }
    }
    let nan = shared("[0.0 / 0.0]", "[$,$]", 10, "z == z");
    assert_eq!(judged(&nan), Ok(Ok(false)), "what is no number isn't equal to itself");
}

/// Texts and lists that double, loops that cost the API server nothing, and types, which
/// double while the expression is checked.
#[test]
fn what_is_charged_is_what_is_done() {
    let text = |levels, end: &str| shared("device.driver", "$+$", levels, end);
    let long = "'".to_owned() + &"a".repeat(5000) + "'";
    for expression in [
        shared("{1: 1}", "{$: $}", 50, "true"),
        shared("{1: 1}", "{1: $, 2: $}", 50, "z == z"),
        shared("[1]", "$+$", 50, "z.size() > 0"),
        shared("[1]", "$+$", 50, "z == z"),
        shared("[dyn(1)]", "[[$],[$]]", 25, "z == 1"),
        shared("[1]", "[$,$]", 50, "z == [[1]]"),
        shared("[1]", "[$,$]", 50, "[z].all(i, i == [])"),
        text(13, "lists.range(9000).all(i, z.size() > 0)"),
        text(13, "lists.range(9000).all(i, z <= z)"),
        text(13, "lists.range(1000).map(i, z).sort().size() > 0"),
        text(13, "lists.range(1000).map(i, z).isSorted()"),
        text(13, "lists.range(1000).map(i, z).max() == z"),
        text(13, "lists.range(9000).all(i, z == z)"),
        text(13, "lists.range(9000).all(i, {z: 1}[z] == 1)"),
        text(13, "lists.range(900).map(i, z).distinct().size() == 1"),
        text(10, "z.split('').size() > 0"),
        text(10, "z.replace('a', z).size() > 0"),
        text(10, "[z, z].join(z).size() > 0"),
        format!("lists.range(150000).all(i, {})", "true && ".repeat(1200) + "true"),
        format!("lists.range(100000).all(i, i in [{}])", "1, ".repeat(3000) + "1"),
        format!(
            "cel.bind(m, {{{}0: 0}}, lists.range(100000).all(i, m[0] == 0))",
            (1..900).map(|key| format!("{key}: 0, ")).collect::<String>()
        ),
        format!("lists.range(100000).all(i, {long}.size() > 0)"),
        "lists.range(90000).transformMap(i, v, v).all(i, v, v == i)".to_owned(),
        "lists.range(30000).transformMapEntry(i, v, {v: i}).size() == 1".to_owned(),
        format!("lists.range(100000).all(i, {long}.find('b') == '')"),
    ] {
        let _ended = judged(&expression);
    }
}

/// Patterns small to write and large to compile, once or in each round of a loop.
#[test]
fn patterns_neither_hang_nor_fill_the_memory() {
    for expression in [
        r#"lists.range(2000).exists(i, "x".matches("\\pL{1000}Q".replace("Q","q")))"#.to_owned(),
        r#"lists.range(2000).exists(i, "x".matches("\\pL{1000}Q".replace("Q", ["a", "b"][i % 2])))"#.to_owned(),
        r#"lists.range(2000).exists(i, "x".matches("(?i)\\pL\\PL[\\pN\\p{Greek}]Q".replace("Q", ["a", "b"][i % 2])))"#
            .to_owned(),
        // Refused after much work, and absorbed: each round is charged for it.
        format!(
            r#"lists.range(9000).exists(i, "x".matches("{}(Q".replace("Q", ["a", "b"][i % 2])))"#,
            r"(?i)[\\PL\\PN]".repeat(20)
        ),
        filled("false", r"||'a'.matches('\\pL{150}')", ""),
        filled("false", r"||'a'.matches('(?i)[^\\pL]')", ""),
        filled("'a'.matches('(?i)", r"\\pL", "')"),
        filled("'a'.matches('(?i)[^", r"\\PL\\pN", "]')"),
        filled("'a'.matches('", "(?:a?){9}", "')"),
        filled("'a'.matches('(", "a|", ")*')"),
        filled("'a'.matches('(?:", "(a", ")*'"),
        filled("'", "a", r"'.matches('(a?){500}b')"),
        format!("{:?}.findAll('a*b|a').size() > 0", "a".repeat(9000)),
        format!("lists.range(20000).all(i, {:?}.matches('(a?){{300}}b'))", "a".repeat(300)),
        format!(
            "lists.range(1000).all(i, 'x'.matches({:?} + ['a', 'b'][i % 2]))",
            "(ab|cd)*".repeat(900)
        ),
    ] {
        let _ended = judged(&expression);
    }
    // What is affordable has a verdict.
    let text = r"lists.range(100).all(i, 'NVIDIA H100'.matches('^NVIDIA [A-Z]' + ['1', 'H'][0]))";
    assert_eq!(judged(text), Ok(Ok(true)));
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
