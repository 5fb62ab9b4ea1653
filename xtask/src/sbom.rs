//! The software bill of materials of what is shipped, in CycloneDX's JSON: the two programs of
//! the image and every crate that is linked into them, with licence and checksum.
//!
//! It has neither time nor serial number: one source gives one document. Crates that only build
//! scripts and tests use are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::build::{cargo, root};

/// The programs of the image.
const PROGRAMS: [&str; 2] = ["gpu-dra", "gpu-dra-hook"];

/// Features and dependencies differ by platform; those of the other one of the image are the same.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// `cargo xtask sbom FILE`.
pub(crate) fn sbom(args: &[String]) -> Result<()> {
    let file = args.first().context("which file?")?;
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM])
        .output()
        .context("can't start cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout)?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock"))?;
    let document = document(&metadata, &checksums(&lock))?;
    let text = serde_json::to_string_pretty(&document)? + "\n";
    std::fs::write(Path::new(file), text).with_context(|| format!("can't write {file}"))
}

/// The SHA-256 of each crate that comes from a registry, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let id = (value(package, "name")?, value(package, "version")?);
            Some((id, value(package, "checksum")?))
        })
        .collect()
}

fn document(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let linked: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let deps = list(&node["deps"]);
            let deps = deps.iter().filter(|dep| list(&dep["dep_kinds"]).iter().any(is_normal));
            (text(&node["id"]), deps.map(|dep| text(&dep["pkg"])).collect())
        })
        .collect();
    let reference = |id: &str| {
        packages.get(id).map(|p| format!("pkg:cargo/{}@{}", text(&p["name"]), text(&p["version"])))
    };

    let programs = packages.iter().filter(|(_, p)| PROGRAMS.contains(&text(&p["name"]).as_str()));
    let mut open: Vec<&str> = programs.map(|(id, _)| id.as_str()).collect();
    ensure!(open.len() == PROGRAMS.len(), "the workspace lacks one of {PROGRAMS:?}");
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(linked.get(id).into_iter().flatten().map(String::as_str));
        }
    }

    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for id in seen {
        let package = packages.get(id).with_context(|| format!("{id} isn't in the metadata"))?;
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let this = reference(id).unwrap_or_default();
        let is_program = PROGRAMS.contains(&name.as_str());
        let mut component = json!({
            "type": if is_program { "application" } else { "library" },
            "bom-ref": this,
            "name": name,
            "version": version,
            "purl": this,
        });
        if let Some(licence) = package["license"].as_str() {
            // Crates of old write OR as a slash.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        let needs = linked.get(id).into_iter().flatten().filter_map(|id| reference(id));
        let needs: BTreeSet<String> = needs.collect();
        dependencies.insert(this.clone(), json!({"ref": this, "dependsOn": needs}));
        components.insert(this, component);
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    }))
}

/// In cargo's metadata the kind of what is linked in is null.
fn is_normal(kind: &Value) -> bool {
    kind["kind"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_once_with_licence_and_checksum() {
        let package = |name: &str, licence: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": licence});
        let dep = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("gpu-dra", "Apache-2.0"), package("gpu-dra-hook", "Apache-2.0"),
                package("lib", "MIT/Apache-2.0"), package("deep", "MIT"),
                package("test-only", "MIT"), package("build-only", "MIT"),
            ],
            "resolve": {"nodes": [
                {"id": "gpu-dra", "deps": [dep("lib", Value::Null), dep("test-only", json!("dev")), dep("build-only", json!("build"))]},
                {"id": "gpu-dra-hook", "deps": [dep("lib", Value::Null)]},
                {"id": "lib", "deps": [dep("deep", Value::Null)]},
                {"id": "deep", "deps": [dep("lib", Value::Null)]},
            ]},
        });
        let lock = "[[package]]\nname = \"lib\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"abc\"\n\n\
                    [[package]]\nname = \"gpu-dra\"\nversion = \"1.0.0\"\n";
        let document = document(&metadata, &checksums(lock)).unwrap();
        let names: Vec<_> =
            document["components"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(names, ["deep", "gpu-dra-hook", "gpu-dra", "lib"]);
        let lib = &document["components"][3];
        assert_eq!(lib["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(lib["hashes"][0]["content"], "abc");
        assert_eq!(document["components"][2].get("hashes"), None);
        assert_eq!(
            document["dependencies"][3],
            json!({"ref": "pkg:cargo/lib@1.0.0", "dependsOn": ["pkg:cargo/deep@1.0.0"]})
        );
        let nothing = json!({"packages": [], "resolve": {"nodes": []}});
        assert!(super::document(&nothing, &BTreeMap::new()).is_err());
    }
}
