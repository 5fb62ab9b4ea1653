//! What must hold of the source before it lands.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::build::{cargo, run};

/// Crates that take values and return values.
const PURE: [&str; 6] = ["model", "slices", "claims", "cdi", "cel", "allocator"];

/// What a pure crate's dependency tree must not contain.
const EDGES: [&str; 8] =
    ["kube", "kube-client", "tokio", "tonic", "hyper", "nix", "nvml-wrapper", "libloading"];

pub(crate) fn lint() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--", "--check"]))?;
    run(cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--", "--check"]))?;
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    purity()?;
    lints_opted_in()?;
    deny()
}

/// clippy.toml forbids the calls; this forbids the dependencies.
fn purity() -> Result<()> {
    for name in PURE {
        let package = format!("gpu-dra-{name}");
        let output = cargo()
            .args(["tree", "--package", &package, "--edges", "normal", "--prefix", "none"])
            .output()
            .context("can't start cargo tree")?;
        ensure!(output.status.success(), "cargo tree of {package} failed");
        let tree = String::from_utf8_lossy(&output.stdout);
        let found = tree
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .find(|name| EDGES.contains(name));
        ensure!(found.is_none(), "{package} is pure, yet depends on {}", found.unwrap_or_default());
    }
    Ok(())
}

/// A crate without `[lints] workspace = true` escapes every rule.
fn lints_opted_in() -> Result<()> {
    for entry in std::fs::read_dir(crate::build::root().join("crates"))? {
        let manifest = entry?.path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("can't read {}", manifest.display()))?;
        ensure!(
            text.contains("[lints]\nworkspace = true"),
            "{} doesn't take the workspace's lints",
            manifest.display()
        );
    }
    Ok(())
}

fn deny() -> Result<()> {
    let version = Command::new("cargo-deny").arg("--version").output();
    ensure!(
        version.is_ok_and(|output| output.status.success()),
        "cargo-deny is missing: cargo install --locked cargo-deny"
    );
    // Offline: advisories need a database that not every machine reaches.
    run(cargo().args(["fetch", "--locked"]))?;
    let deny =
        ["deny", "--offline", "--log-level", "error", "check", "bans", "licenses", "sources"];
    run(cargo().args(deny))
}
