//! Just enough of Prometheus' text format and of its query language to hold the one against
//! the other.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// What a scrape adds: of the target, by the PodMonitor.
const OF_THE_TARGET: [&str; 6] = ["instance", "job", "namespace", "pod", "container", "node"];

/// A family: what it is, and its samples by name (`…_bucket` and so on for histograms).
#[derive(Debug, Default)]
pub(crate) struct Family {
    kind: String,
    help: String,
    samples: Vec<(String, Labels, f64)>,
}

/// A page of metrics.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) families: BTreeMap<String, Family>,
}

impl Page {
    /// A page that breaks a rule of the format fails the test.
    pub(crate) fn parse(text: &str) -> Self {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut now = String::new();
        let mut seen = BTreeSet::new();
        assert!(text.ends_with('\n'), "the last line ends too");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(name.starts_with("gpu_dra_") && help.len() > 8, "{line}");
                assert!(
                    families.insert(name.to_owned(), Family::default()).is_none(),
                    "twice: {line}"
                );
                families.get_mut(name).unwrap().help = help.to_owned();
                now = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, now, "{line}");
                families.get_mut(name).unwrap().kind = kind.to_owned();
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let family = families.get_mut(&now).unwrap();
                let suffix =
                    name.strip_prefix(&*now).unwrap_or_else(|| panic!("{line} is under {now}"));
                let allowed: &[&str] = match &*family.kind {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(allowed.contains(&suffix), "{line} is of a {}", family.kind);
                assert!(seen.insert(series.to_owned()), "twice: {series}");
                let labels = parse_labels(labels.strip_suffix('}').unwrap());
                family.samples.push((name.to_owned(), labels, value.parse().unwrap()));
            }
        }
        Self { families }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        for (name, family) in other.families {
            self.families.entry(name).or_default().samples.extend(family.samples);
        }
        self
    }

    fn samples(&self, name: &str) -> impl Iterator<Item = &(String, Labels, f64)> {
        let all = self.families.values().flat_map(|family| &family.samples);
        all.filter(move |(sample, _, _)| sample == name)
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&(String, Labels, f64)> {
        let has =
            |own: &Labels| labels.iter().all(|(k, v)| own.get(*k).is_some_and(|own| own == v));
        self.samples(name).filter(|(_, own, _)| has(own)).collect()
    }

    /// The one series that has these labels, among others.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found = self.matching(name, labels);
        assert!(found.len() < 2, "{name} {labels:?}: {found:?}");
        found.first().map(|(_, _, value)| *value)
    }

    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).iter().map(|(_, _, value)| value).sum()
    }

    pub(crate) fn labels(&self, name: &str, labels: &[(&str, &str)]) -> Labels {
        self.matching(name, labels)[0].1.clone()
    }

    /// Whether a family or a sample is called so and has samples.
    pub(crate) fn has_samples(&self, name: &str) -> bool {
        self.families.get(name).is_some_and(|family| !family.samples.is_empty())
            || self.samples(name).next().is_some()
    }

    /// Whether series of this name have such a label once they are scraped.
    pub(crate) fn may_have(&self, name: &str, label: &str) -> bool {
        OF_THE_TARGET.contains(&label)
            || self.samples(name).any(|(_, labels, _)| labels.contains_key(label))
    }

    /// A table of the families.
    pub(crate) fn markdown(&self) -> String {
        let mut table = "| metric | type | labels | |\n|---|---|---|---|\n".to_owned();
        for (name, family) in &self.families {
            let mut labels: BTreeSet<_> =
                family.samples.iter().flat_map(|(_, labels, _)| labels.keys()).collect();
            labels.retain(|label| *label != "le");
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            let (kind, help) = (&family.kind, family.help.trim_end_matches('.'));
            table.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
        }
        table
    }
}

/// `a="b",c="d"`
fn parse_labels(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (at, '"') => break at,
                (_, other) => value.push(other),
            }
        };
        let old = labels.insert(name.trim_start_matches(',').to_owned(), value);
        assert!(old.is_none(), "a label twice: {text}");
        text = &rest[end + 1..];
    }
    assert!(text.is_empty(), "{text}");
    labels
}

/// What an expression asks for.
#[derive(Debug, Default)]
pub(crate) struct Expression {
    /// Our metrics, each with the labels that it is selected by.
    pub(crate) selectors: Vec<(String, Vec<String>)>,
    /// Labels that it is grouped or matched by.
    pub(crate) grouped: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Text,
    Number,
    Sign(char),
}

/// Takes an expression apart: names, texts, numbers, signs.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            // A variable of the dashboard's stands for a name, a time or a text.
            c if c.is_alphabetic() || matches!(c, '_' | ':' | '$') => {
                let mut name = c.to_string();
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                {
                    name.push(c);
                }
                tokens.push(Token::Name(name));
            }
            c if c.is_ascii_digit() => {
                while chars.next_if(|c| c.is_alphanumeric() || *c == '.').is_some() {}
                tokens.push(Token::Number);
            }
            '"' => {
                loop {
                    match chars.next() {
                        Some('\\') => drop(chars.next()),
                        Some('"') => break,
                        Some(_) => {}
                        None => return Err("a text doesn't end".to_owned()),
                    }
                }
                tokens.push(Token::Text);
            }
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | '+' | '-' | '*' | '/' | '=' | '!' | '~'
            | '<' | '>' | '^' | '%' => tokens.push(Token::Sign(c)),
            other => return Err(format!("{other:?} is nothing of the language")),
        }
    }
    Ok(tokens)
}

/// Reads as much of an expression as it takes to know what it asks for. Fails where brackets
/// don't match, and on selectors and groupings that are none.
pub(crate) fn expressions(text: &str) -> Result<Expression, String> {
    let tokens = tokens(text)?;
    let mut found = Expression::default();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Sign(c @ ('(' | '[')) => open.push(*c),
            Token::Sign(c @ (')' | ']')) => {
                let wanted = if *c == ')' { '(' } else { '[' };
                if open.pop() != Some(wanted) {
                    return Err(format!("{c} closes nothing"));
                }
            }
            Token::Sign('{') => return Err("a selector without a name".to_owned()),
            Token::Sign('}') => return Err("} closes nothing".to_owned()),
            Token::Name(name) if is_grouping(name) => {
                if tokens.get(at) != Some(&Token::Sign('(')) {
                    return Err(format!("{name} of what?"));
                }
                at += 1;
                while let Some(Token::Name(label)) = tokens.get(at) {
                    found.grouped.push(label.clone());
                    at += 1;
                    if tokens.get(at) == Some(&Token::Sign(',')) {
                        at += 1;
                    }
                }
                if tokens.get(at) != Some(&Token::Sign(')')) {
                    return Err(format!("{name} isn't by labels alone"));
                }
                at += 1;
            }
            Token::Name(name) if name.starts_with("gpu_dra_") => {
                let mut labels = Vec::new();
                if tokens.get(at) == Some(&Token::Sign('{')) {
                    at += 1;
                    at = matchers(&tokens, at, &mut labels)?;
                }
                found.selectors.push((name.clone(), labels));
            }
            // label_values(metric, label)
            Token::Name(name) if name == "label_values" => {
                if let Some(Token::Name(label)) = tokens.iter().rev().nth(1) {
                    found.grouped.push(label.clone());
                }
            }
            Token::Name(_) | Token::Text | Token::Number | Token::Sign(_) => {}
        }
    }
    match open.pop() {
        Some(c) => Err(format!("{c} isn't closed")),
        None if found.selectors.is_empty() => Err("it asks for nothing of ours".to_owned()),
        None => Ok(found),
    }
}

fn is_grouping(name: &str) -> bool {
    matches!(name, "by" | "without" | "on" | "ignoring" | "group_left" | "group_right")
}

/// `label="text", …}`: the labels, and where it goes on.
fn matchers(tokens: &[Token], mut at: usize, labels: &mut Vec<String>) -> Result<usize, String> {
    loop {
        match (tokens.get(at), tokens.get(at + 1), tokens.get(at + 2), tokens.get(at + 3)) {
            (Some(Token::Sign('}')), ..) => return Ok(at + 1),
            (
                Some(Token::Name(label)),
                Some(Token::Sign('=')),
                Some(Token::Sign('~')),
                Some(Token::Text),
            )
            | (
                Some(Token::Name(label)),
                Some(Token::Sign('!')),
                Some(Token::Sign('=' | '~')),
                Some(Token::Text),
            ) => {
                labels.push(label.clone());
                at += 4;
            }
            (Some(Token::Name(label)), Some(Token::Sign('=')), Some(Token::Text), _) => {
                labels.push(label.clone());
                at += 3;
            }
            other => return Err(format!("no matcher: {other:?}")),
        }
        if tokens.get(at) == Some(&Token::Sign(',')) {
            at += 1;
        }
    }
}

#[test]
fn expressions_are_taken_apart_and_nonsense_is_not() {
    let found = expressions(
        r#"histogram_quantile(0.99, sum by (le, node) (rate(gpu_dra_x_bucket{a="b",c=~"d|e"}[5m]))) > 1.5 * gpu_dra_y"#,
    )
    .unwrap();
    assert_eq!(
        found.selectors,
        [
            ("gpu_dra_x_bucket".to_owned(), vec!["a".to_owned(), "c".to_owned()]),
            ("gpu_dra_y".to_owned(), vec![])
        ]
    );
    assert_eq!(found.grouped, ["le", "node"]);
    let values = expressions("label_values(gpu_dra_x, node)").unwrap();
    assert_eq!(values.grouped, ["node"]);
    for wrong in [
        "",
        "up == 1",
        "sum(gpu_dra_x",
        "sum gpu_dra_x)",
        "gpu_dra_x[5m)",
        "gpu_dra_x{a=}",
        "gpu_dra_x{a=\"b}",
        "gpu_dra_x{\"b\"}",
        "sum by gpu_dra_x",
        "sum by (a + b) (gpu_dra_x)",
        "gpu_dra_x; gpu_dra_y",
    ] {
        expressions(wrong).unwrap_err();
    }
}
