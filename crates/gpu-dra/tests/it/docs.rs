//! Documentation that is made from the code must be the code's.

use std::path::Path;

use gpu_dra_slices::attributes;

#[test]
fn the_tables_of_attributes_are_the_ones_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/claims.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut right = text.clone();
    for (function, table) in
        [("markdown()", attributes::markdown()), ("mig_markdown()", attributes::mig_markdown())]
    {
        let mark = format!("attributes::{function} -->\n");
        let (before, rest) = right.split_once(&mark).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        right = format!("{before}{mark}\n{}\n\n<!-- end -->{after}", table.trim_end());
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &right).unwrap();
    } else {
        assert!(text == right, "docs/claims.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// docs/known-problems.md names a test for each problem: it is there.
#[test]
fn the_tests_that_are_named_for_known_problems_are_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = std::fs::read_to_string(root.join("docs/known-problems.md")).unwrap();
    let mut names = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains("](https://")) {
        let tests = row.trim_matches(['|', ' ']).rsplit(" | ").next().unwrap();
        if tests.starts_with("doesn't apply: ") {
            continue;
        }
        for part in tests.split("; ") {
            let (place, tests) = part.split_once(' ').unwrap();
            let mut text = String::new();
            match place.split_once('/') {
                Some((of, file)) => {
                    let crates = root.join("crates").join(of);
                    add(&crates, &|name| name == format!("{file}.rs"), &mut text);
                }
                None => add(&root.join("e2e/scenarios"), &|name| name.ends_with(".sh"), &mut text),
            }
            for name in tests.split('`').skip(1).step_by(2) {
                let forms =
                    [format!("fn {name}("), format!("    {name} \""), format!("\n{name}() {{")];
                assert!(forms.iter().any(|form| text.contains(form)), "{place} {name}: {row}");
                names += 1;
            }
        }
    }
    assert!(names > 100, "{names}");
}

/// Adds the files of those names.
fn add(folder: &Path, is_one: &dyn Fn(&str) -> bool, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            add(&entry.path(), is_one, text);
        } else if is_one(entry.file_name().to_str().unwrap()) {
            text.push_str(&std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}
