//! `gpu-dra-agree`: the command line of the comparisons; e2e/scenarios run it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use gpu_dra_agree::cluster::Cluster;
use gpu_dra_agree::{allocator, cel, generate, table};

/// Compares CEL and the allocator with a real API server and scheduler (KUBECONFIG).
#[derive(Debug, Parser)]
struct Arguments {
    /// The namespace for claims and pods.
    #[arg(long)]
    namespace: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A table of selectors, on devices.
    Cel {
        /// crates/cel/tests/data/agreement.tsv
        table: PathBuf,
        /// The slices with the devices, each on a node of its own.
        devices: PathBuf,
    },
    /// Random small worlds.
    Allocator {
        /// The same seed makes the same worlds.
        #[arg(long, default_value_t = generate::SEED)]
        seed: u64,
        /// How many worlds.
        #[arg(long, default_value_t = generate::CASES)]
        cases: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differences) => {
            println!("{differences} differences");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("gpu-dra-agree: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Compares, prints, and gives the number of differences. Nothing is left in the cluster.
async fn run(arguments: Arguments) -> Result<usize> {
    let cluster = Cluster::connect(&arguments.namespace).await?;
    cluster.clear().await.context("what an earlier run left")?;
    let compared = compare(&cluster, arguments.what).await;
    cluster.clear().await?;
    let (summary, differences) = compared?;
    println!("{summary}");
    differences.iter().for_each(|difference| println!("{difference}"));
    Ok(differences.len())
}

/// A summary, and what differs.
async fn compare(cluster: &Cluster, what: What) -> Result<(String, Vec<String>)> {
    Ok(match what {
        What::Cel { table, devices } => {
            let rows = table::read(&read(&table)?)?;
            let devices = serde_saphyr::from_multiple(&read(&devices)?)
                .with_context(|| format!("{}", devices.display()))?;
            let report = cel::compare(cluster, rows, devices).await?;
            let (taken, refused) = report.taken;
            let summary = format!(
                "{taken} expressions taken, {refused} refused, {} results on devices; {} rows are not for 1.{}",
                report.results, report.left_out, cluster.minor
            );
            (summary, report.differences)
        }
        What::Allocator { seed, cases } => {
            println!("seed {seed}, {cases} cases");
            let report = allocator::compare(cluster, generate::worlds(seed, cases)?).await?;
            let [can, cannot, error] = report.verdicts;
            (format!("verdicts: {can} can, {cannot} can't, {error} errors"), report.differences)
        }
    })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}
