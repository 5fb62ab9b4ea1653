//! Selectors seen in public, each with the verdict of a real API server and scheduler.

use gpu_dra_lint::Severity;

use crate::world::{claim, data, findings, inventory, lines};

fn row(id: &str) {
    let table = std::fs::read_to_string(data("selectors.tsv")).unwrap();
    let row = table.lines().find(|line| line.starts_with(&format!("{id}\t"))).unwrap();
    let [_, class, expression, _, verdict] = row.split('\t').collect::<Vec<_>>()[..] else {
        panic!("{row}")
    };
    let fleet = inventory();
    let found = findings(&claim(class, expression), Some(&fleet));
    let shown = lines(&found);
    let has = |severity: Severity, rule: &str, words: &str| {
        found.iter().any(|finding| {
            finding.severity == severity
                && finding.rule.id() == rule
                && finding.message.contains(words)
        })
    };
    let no_errors = found.iter().all(|finding| finding.severity != Severity::Error);
    if verdict.starts_with("match") {
        let quiet = found.iter().all(|finding| {
            finding.severity == Severity::Hint || finding.rule.id() == "advisory-attribute"
        });
        assert!(quiet, "{shown:#?}");
    } else if verdict.starts_with("pending") {
        assert!(no_errors && has(Severity::Warning, "matches-nothing", ""), "{shown:#?}");
    } else if verdict.starts_with("running") {
        let (_, words) = verdict.split_once("CEL runtime ").unwrap();
        let words = words.trim_start_matches("error: ");
        assert!(has(Severity::Error, "cel-runtime", words), "{words}: {shown:#?}");
    } else if verdict.starts_with("API rejects") {
        assert!(has(Severity::Error, "cel-compile", ""), "{shown:#?}");
        let words = ["no matching overload", "Syntax error", "syntax error"];
        let word = words.iter().find(|word| verdict.contains(*word)).unwrap();
        let said = |line: &String| line.to_lowercase().contains(&word.to_lowercase());
        assert!(shown.iter().any(said), "{shown:#?}");
    } else {
        panic!("{verdict}");
    }
}

macro_rules! rows {
    ($($test:ident $id:literal)*) => {
        $(#[test] fn $test() { row($id); })*

        #[test]
        fn every_row_has_a_test() {
            let tested = [$($id),*];
            let table = std::fs::read_to_string(data("selectors.tsv")).unwrap();
            for line in table.lines().filter(|line| !line.starts_with('#')) {
                let id = line.split('\t').next().unwrap();
                assert!(tested.contains(&id), "{id}");
            }
        }
    };
}

rows! {
    selector_s01 "S01" selector_s02 "S02" selector_s04 "S04" selector_s05 "S05" selector_s07 "S07"
    selector_s08 "S08" selector_s10 "S10" selector_s11 "S11" selector_s13 "S13" selector_s14 "S14"
    selector_s16 "S16" selector_s17 "S17" selector_s19 "S19" selector_s20 "S20" selector_s22 "S22"
    selector_s23 "S23" selector_s25 "S25" selector_s26 "S26" selector_s28 "S28" selector_s29 "S29"
}
