//! Files as documents: YAML with several of them, or JSON. Lines are found by indentation,
//! which is right for block style; elsewhere it is the line of what is around.

use serde_json::Value;

use crate::path::{Path, Step};

/// One document of a file.
#[derive(Debug, Clone)]
pub struct Document {
    file: String,
    number: usize,
    /// The line of the file before its first.
    before: usize,
    lines: Vec<String>,
    value: Value,
}

/// A file that is neither YAML nor JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: document {number}, from line {line}: not YAML or JSON: {reason}")]
pub struct ParseError {
    /// The file.
    pub file: String,
    /// The document in it, from 1.
    pub number: usize,
    /// Where that begins.
    pub line: usize,
    /// What the parser said, in one line.
    pub reason: String,
}

impl Document {
    /// The documents of a file's text; empty ones are left out, but counted.
    ///
    /// # Errors
    /// A document that can't be parsed.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Self>, ParseError> {
        let mut documents = Vec::new();
        // Lists of a whole cluster, as kubectl writes them, are more than the YAML parser takes.
        if text.trim_start().starts_with('{')
            && let Ok(value) = serde_json::from_str(text)
        {
            let (file, lines) = (file.to_owned(), text.lines().map(str::to_owned).collect());
            return Ok(vec![Self { file, number: 1, before: 0, lines, value }]);
        }
        for (place, (before, lines)) in split(text).into_iter().enumerate() {
            let number = place + 1;
            let values: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&lines.join("\n"));
            let values = values.map_err(|error| ParseError {
                file: file.to_owned(),
                number,
                line: before + 1,
                reason: first_line(&error.to_string()),
            })?;
            for value in values.into_iter().filter(|value| !value.is_null()) {
                let (file, lines) = (file.to_owned(), lines.clone());
                documents.push(Self { file, number, before, lines, value });
            }
        }
        Ok(documents)
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// The line of the file on which the path's last step is, or as much of it as is found.
    pub(crate) fn line_of(&self, path: &Path) -> usize {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        self.before + 1 + locate(&lines, path.steps())
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// Documents with the number of lines before each. A line `---` at the margin separates them
/// wherever it stands.
fn split(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut documents = vec![(0, Vec::new())];
    for (number, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            documents.push((number, vec![line.trim_start_matches('-').to_owned()]));
        } else if let Some((_, lines)) = documents.last_mut() {
            lines.push(line.to_owned());
        }
    }
    documents
}

/// The place of the line; that of the first with content where nothing is found.
fn locate(lines: &[&str], steps: &[Step]) -> usize {
    let is_content = |line: &str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#') && !line.chars().all(|c| "{}[], ".contains(c))
    };
    let first = lines.iter().position(|line| is_content(line)).unwrap_or(0);
    let mut found = first;
    // Where the block of the current step begins, and how far in its content is at least.
    let (mut from, mut least) = (first, 0);
    for step in steps {
        let rest = lines.iter().enumerate().skip(from).filter(|(_, line)| is_content(line));
        let mut block = rest.take_while(|(place, line)| *place == from || indent(line) >= least);
        let next = match step {
            Step::Key(name) => {
                let mut level = None;
                block.find_map(|(place, line)| {
                    let (at, content) = entry(line, least);
                    let level = *level.get_or_insert(at);
                    (at == level && is_key(content, name)).then_some((place, at + 1))
                })
            }
            Step::Index(index) => {
                let mut level = None;
                let mut items = block.filter_map(|(place, line)| {
                    let at = indent(line);
                    let is_item = line.trim_start().starts_with("- ");
                    if !is_item || at + 1 < least {
                        return None;
                    }
                    (*level.get_or_insert(at) == at).then_some((place, at + 1))
                });
                items.nth(*index)
            }
        };
        let Some((place, inside)) = next else { return found };
        found = place;
        // A list may stand as far out as the key that it belongs to.
        (from, least) = match step {
            Step::Key(_) => (place + 1, inside - 1),
            Step::Index(_) => (place, inside),
        };
    }
    found
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// How far in a line's content is, without the dashes that are further out than `least`.
fn entry(line: &str, least: usize) -> (usize, &str) {
    let mut at = indent(line);
    let mut content = line.trim_start();
    while at < least
        && let Some(rest) = content.strip_prefix("- ")
    {
        let rest = rest.trim_start();
        at += content.len() - rest.len();
        content = rest;
    }
    (at, content)
}

fn is_key(content: &str, name: &str) -> bool {
    let content = content.trim_start_matches(['"', '\'']);
    content
        .strip_prefix(name)
        .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# head\n\nkind: A\nspec:\n  requests:\n  - name: gpu\n    exactly:\n      selectors:\n      - cel:\n          expression: x\n      - cel:\n          expression: y\n  - name: nic\n  config:\n    - opaque: {driver: d}\n---\nkind: B\n---\n---\nkind: C\n";

    #[test]
    fn documents_are_counted_with_the_empty_ones() {
        let documents = Document::parse("f", TEXT).unwrap();
        let seen: Vec<_> = documents.iter().map(|d| (d.number, d.value["kind"].clone())).collect();
        assert_eq!(seen, [(1, "A".into()), (2, "B".into()), (4, "C".into())]);
        assert_eq!(documents[1].line_of(&Path::default().key("kind")), 17);
        let error = Document::parse("f", "a: 1\n---\n{b").unwrap_err();
        assert!(error.to_string().starts_with("f: document 2, from line 2: not YAML"), "{error}");
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let documents = Document::parse("f", TEXT).unwrap();
        let spec = Path::default().key("spec");
        let selectors = spec.key("requests").index(0).keys("exactly.selectors");
        for (path, line) in [
            (Path::default(), 3),
            (spec.clone(), 4),
            (spec.key("requests").index(0), 6),
            (spec.key("requests").index(0).key("name"), 6),
            (selectors.index(0).keys("cel.expression"), 10),
            (selectors.index(1).keys("cel.expression"), 12),
            (spec.key("requests").index(1).key("name"), 13),
            (spec.key("config").index(0).keys("opaque.driver"), 15),
            (spec.key("nothing"), 4),
        ] {
            assert_eq!(documents[0].line_of(&path), line, "{path}");
        }
        let json = Document::parse(
            "j",
            "{\n  \"kind\": \"A\",\n  \"spec\": {\n    \"requests\": []\n  }\n}",
        )
        .unwrap();
        assert_eq!(json[0].line_of(&spec.key("requests")), 4);
        let json = Document::parse("j", "{\"kind\": \"A\",\n \"spec\": {}}").unwrap();
        assert_eq!(json[0].line_of(&spec), 1, "that of what is around");
    }
}
