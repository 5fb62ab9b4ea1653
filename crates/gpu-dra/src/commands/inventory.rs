//! `gpu-dra inventory`: what GPUs are here, without a cluster. The first thing that a person
//! runs on a machine with a GPU, so everything that can be wrong has its sentence.

use std::collections::BTreeSet;

use anyhow::Context as _;
use comfy_table::Table;
use gpu_dra_model::inventory::{Mig, MigMode};
use gpu_dra_model::{Gpu, Inventory, Quantity};
use gpu_dra_nvml::Gpus as _;
use gpu_dra_slices::{DesiredPool, Names, Policy, SliceContent, build};

use super::place::Place;
use super::policy::PolicyArgs;
use super::simulated::Simulated;

/// What to show, and of which machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    policy: PolicyArgs,
    /// A simulated node instead of this machine, such as 8xh100 or 4xa100-40+2xl4
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// How to print it
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// What would be published, instead of what was found
    #[arg(long)]
    slices: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let simulated = args.node.as_deref().map(Simulated::stage).transpose()?;
    let place = simulated.as_ref().map_or_else(|| args.place.clone(), Simulated::place);
    let inventory = gpu_dra_node::driver(place.root(), place.trees()).probe()?;
    if args.slices {
        print_slices(args.output, &inventory, &args.policy.policy(None))
    } else {
        print(args.output, &inventory)
    }
}

fn print(format: Format, inventory: &Inventory) -> anyhow::Result<()> {
    if format != Format::Table {
        return structured(format, inventory);
    }
    let driver = &inventory.driver;
    let cuda = driver.cuda.map_or_else(|| "unknown".to_owned(), |cuda| cuda.to_string());
    anstream::println!("driver {}, CUDA up to {cuda}", driver.driver);
    let mut table = table(["GPU", "PRODUCT", "MEMORY", "CC", "PCI", "ROOT", "NUMA", "MIG", "UUID"]);
    for gpu in &inventory.gpus {
        table.add_row([
            gpu.minor.to_string(),
            gpu.product_name.clone(),
            gpu.memory_bytes
                .map_or_else(dash, |bytes| Quantity::from_bytes_binary(bytes).to_string()),
            gpu.compute_capability.map_or_else(dash, |cc| cc.to_string()),
            gpu.pci_bus_id.to_string(),
            gpu.pcie_root.clone().unwrap_or_else(dash),
            gpu.numa_node.map_or_else(dash, |node| node.to_string()),
            mig(gpu),
            gpu.uuid.to_string(),
        ]);
    }
    anstream::println!("{table}");
    for broken in &inventory.broken {
        let known = broken.uuid.as_ref().map(ToString::to_string);
        let known = known.or_else(|| broken.pci_bus_id.as_ref().map(ToString::to_string));
        let gpu = known.unwrap_or_else(|| format!("at index {}", broken.index));
        anstream::println!("GPU {gpu} does not answer: {}", broken.reason);
    }
    Ok(())
}

fn mig(gpu: &Gpu) -> String {
    match &gpu.mig {
        Mig::Unsupported => dash(),
        Mig::Supported { current, pending, .. } if current != pending => "reset due".to_owned(),
        Mig::Supported { current: MigMode::Enabled, instances, .. } => match instances.len() {
            0 => "on".to_owned(),
            1 => "on, 1 instance".to_owned(),
            many => format!("on, {many} instances"),
        },
        Mig::Supported { current: MigMode::Disabled, .. } => "off".to_owned(),
    }
}

fn print_slices(format: Format, inventory: &Inventory, policy: &Policy) -> anyhow::Result<()> {
    let mut names = Names::default();
    names.assign(inventory);
    let pool = build(inventory, &names, policy, &BTreeSet::new()).pool;
    if format == Format::Table { print_pool(&pool) } else { structured(format, &contents(&pool)) }
}

fn print_pool(pool: &DesiredPool) -> anyhow::Result<()> {
    for device in pool.devices() {
        anstream::println!("{}", device.name);
        let mut table = table(["NAME", "VALUE"]);
        for (name, value) in device.attributes.iter().flatten() {
            let value = serde_json::to_value(value).context("attribute")?;
            let text = value.as_object().and_then(|object| object.iter().next());
            table.add_row([
                name.clone(),
                text.map_or_else(dash, |(kind, value)| format!("{value} ({kind})")),
            ]);
        }
        for (name, capacity) in device.capacity.iter().flatten() {
            table.add_row([name.clone(), format!("{} (capacity)", capacity.value.0)]);
        }
        anstream::println!("{table}");
    }
    for note in &pool.notes {
        anstream::println!("note: {note}");
    }
    Ok(())
}

/// The slices' contents as the API spells them; names and generations come with publishing.
fn contents(pool: &DesiredPool) -> Vec<serde_json::Value> {
    let content = |content: &SliceContent| match content {
        SliceContent::Devices(devices) => serde_json::json!({"devices": devices}),
        SliceContent::Counters(sets) => serde_json::json!({"sharedCounters": sets}),
    };
    pool.slices.iter().map(content).collect()
}

fn structured(format: Format, value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = match format {
        Format::Yaml => serde_saphyr::to_string(value).context("can't write YAML")?,
        Format::Json | Format::Table => {
            serde_json::to_string_pretty(value).context("can't write JSON")?
        }
    };
    anstream::println!("{}", text.trim_end());
    Ok(())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    table
}

fn dash() -> String {
    "-".to_owned()
}
