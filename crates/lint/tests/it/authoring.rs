//! The YAML of `docs/authoring.md`, and all examples: nothing is found in them, and each block
//! of the docs has a name by which the tests on a cluster take it out.

use gpu_dra_lint::{Document, Severity, lint};

use crate::world::{lines, repository};

/// The YAML blocks with their names.
fn blocks(text: &str) -> Vec<(Option<String>, String)> {
    let mut blocks = Vec::new();
    let (mut name, mut block) = (None, None::<String>);
    for line in text.lines() {
        match &mut block {
            Some(lines) if line == "```" => {
                blocks.push((std::mem::take(&mut name), std::mem::take(lines)));
                block = None;
            }
            Some(lines) => lines.push_str(&format!("{line}\n")),
            None if line == "```yaml" => block = Some(String::new()),
            None => {
                if let Some(rest) = line.strip_prefix("<!-- e2e: ") {
                    name = Some(rest.trim_end_matches(" -->").to_owned());
                }
            }
        }
    }
    blocks
}

#[test]
fn every_block_of_the_docs_is_clean_and_named() {
    let blocks = blocks(&repository("docs/authoring.md"));
    assert!(blocks.len() >= 6, "{}", blocks.len());
    for (name, block) in &blocks {
        let name = name.as_ref().expect("a block without a name for e2e");
        let documents = Document::parse(name, block).unwrap();
        let found = lint(&documents, None);
        assert!(found.is_empty(), "{name}: {:#?}", lines(&found));
    }
    let mut names: Vec<_> = blocks.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), blocks.len(), "a name twice");
}

#[test]
fn every_rule_is_in_the_docs() {
    let text = repository("docs/authoring.md");
    for rule in gpu_dra_lint::Rule::ALL {
        let row = format!("| `{}` | {} |", rule.id(), rule.meaning());
        assert!(text.contains(&row), "no line {row}");
    }
}

#[test]
fn the_examples_and_the_standard_classes_are_clean() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut files = vec!["deploy/deviceclasses.yaml".to_owned()];
    for entry in std::fs::read_dir(folder).unwrap() {
        files.push(format!("examples/{}", entry.unwrap().file_name().into_string().unwrap()));
    }
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let found = lint(&Document::parse(&file, &repository(&file)).unwrap(), None);
        let worse = found.iter().any(|finding| finding.severity != Severity::Hint);
        assert!(!worse, "{:#?}", lines(&found));
    }
}
