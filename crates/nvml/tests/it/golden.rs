//! The inventory of every simulated node type, compared with a file that a person has read.
//! `UPDATE_GOLDEN=1` writes the files anew; read the difference before keeping it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use gpu_dra_sim_data::NodeType;
use serde_json::Value;

use crate::node::Node;

#[test]
fn inventory_of_each_node_type() {
    let mut wrong = vec![];
    for name in NodeType::all().keys() {
        wrong.extend(compare(name, name));
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn inventory_of_a_mixed_node() {
    assert_eq!(compare("2xt4+1xgb10+1xl4", "mixed"), None);
}

/// The differing file, if it differs.
fn compare(spec: &str, file: &str) -> Option<String> {
    let inventory = Node::stage(spec).session().probe().unwrap();
    let found = print(&serde_json::to_value(inventory).unwrap(), 0) + "\n";
    let path = golden(file);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &found).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if found == kept {
        return None;
    }
    eprintln!("{} should be:\n{found}", path.display());
    Some(path.display().to_string())
}

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{file}.json"))
}

/// JSON with every value on one line that fits there, so that a profile is one line to read.
fn print(value: &Value, indent: usize) -> String {
    let short = value.to_string();
    if short.len() + indent < 160 {
        return short;
    }
    let pad = " ".repeat(indent + 2);
    let (open, lines, close) = match value {
        Value::Array(items) => {
            ('[', items.iter().map(|item| print(item, indent + 2)).collect::<Vec<_>>(), ']')
        }
        Value::Object(fields) => {
            let line = |(key, value): (&String, &Value)| {
                format!("\"{key}\": {}", print(value, indent + 2))
            };
            ('{', fields.iter().map(line).collect(), '}')
        }
        other => return other.to_string(),
    };
    let body = lines.join(&format!(",\n{pad}"));
    format!("{open}\n{pad}{body}\n{}{close}", " ".repeat(indent))
}
