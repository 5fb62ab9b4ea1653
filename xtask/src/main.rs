//! Build steps that cargo alone can't express. Run as `cargo xtask STEP`.
//!
//! It builds, runs and checks; it never installs anything and never reaches the network
//! beyond what cargo does, and Go where Helm has to be built.

mod build;
mod chart;
mod checks;
mod sbom;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask STEP
  build [--release]   the binary, also as kubectl-gpu, the static hook and the simulated NVML with its programs
  demo [OPTIONS]      build --release, then gpu-dra demo OPTIONS
  test [OPTIONS]      build, then all tests; OPTIONS go to cargo test
  chart [--check]     the manifests of deploy/ from the chart; or see that they are, and that the chart is right
  sbom FILE           what the released program is made of, in CycloneDX
  lint                rustfmt, clippy, purity of the pure crates, cargo-deny";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let step = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match step.as_str() {
        "build" => build::all(build::Profile::from_flag(&rest)).map(drop),
        "demo" => build::demo(&rest),
        "test" => build::test(&rest),
        "chart" => chart::chart(&rest),
        "sbom" => sbom::sbom(&rest),
        "lint" => checks::lint(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {step}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
