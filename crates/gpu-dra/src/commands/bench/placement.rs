//! `gpu-dra bench placement`: how many of a day's requests for MIG profiles find a place
//! when the devices are published in our order, and in the order of their names. On two GPUs
//! also the exact optimum. No time is measured: the same seed gives the same figures.

mod day;
mod fit;
mod optimum;
mod pool;
mod simulate;

use comfy_table::Table;
use serde_json::{Value, json};

use day::MIXES;
use fit::Order;
use simulate::{Decider, Figures, share, simulate};

/// Which days to simulate.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many H100s the node has; on two the exact optimum is found too
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u32).range(1..=16))]
    gpus: u32,
    /// How many days
    #[arg(long, default_value = "40", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    days: u64,
    /// The first day's seed
    #[arg(long, default_value = "1")]
    seed: u64,
    /// How much of the node is asked for on average, in percent
    #[arg(long, default_value = "80", value_parser = clap::value_parser!(u64).range(1..=300))]
    load: u64,
    /// How to print the figures
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

/// The figures of one mix and decider.
struct Row {
    mix: &'static str,
    decider: Decider,
    figures: Figures,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut deciders = vec![Decider::FirstFit(Order::Ours), Decider::FirstFit(Order::ByName)];
    if args.gpus == 2 {
        deciders.push(Decider::Optimum);
    }
    let seeds = args.seed..args.seed.saturating_add(args.days);
    let mut rows = Vec::new();
    for mix in MIXES {
        for decider in &deciders {
            let figures = simulate(args.gpus, seeds.clone(), args.load, mix, *decider)?;
            rows.push(Row { mix: mix.name, decider: *decider, figures });
        }
    }
    match args.output {
        Format::Table => print(args, &rows),
        Format::Json => {
            anstream::println!("{}", serde_json::to_string_pretty(&structured(args, &rows))?);
        }
    }
    Ok(())
}

fn name(decider: Decider) -> &'static str {
    match decider {
        Decider::FirstFit(Order::Ours) => "ours",
        Decider::FirstFit(Order::ByName) => "by name",
        Decider::Optimum => "optimum",
    }
}

fn print(args: &Args, rows: &[Row]) {
    let Args { gpus, days, seed, load, .. } = args;
    anstream::println!("{days} days from seed {seed} on {gpus} GPUs, {load} percent asked for");
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["REQUESTS", "ORDER", "ASKED", "REFUSED", "ACCEPTED", "OF MEMORY", "BY KIND"]);
    for Row { mix, decider, figures } in rows {
        let kinds = figures
            .by_kind
            .iter()
            .map(|(kind, tally)| format!("{kind} {:.1}", share(tally.accepted, tally.asked)));
        table.add_row([
            (*mix).to_owned(),
            name(*decider).to_owned(),
            figures.asked().to_string(),
            (figures.asked() - figures.accepted()).to_string(),
            format!("{:.2} %", figures.percent()),
            format!("{:.2} %", figures.percent_of_memory()),
            kinds.collect::<Vec<_>>().join("  "),
        ]);
    }
    anstream::println!("{table}");
}

fn structured(args: &Args, rows: &[Row]) -> Value {
    let rows = rows.iter().map(|Row { mix, decider, figures }| {
        let kinds = figures.by_kind.iter().map(|(kind, tally)| {
            let counts = json!({ "asked": tally.asked, "accepted": tally.accepted });
            ((*kind).to_owned(), counts)
        });
        json!({
            "requests": mix,
            "order": name(*decider),
            "asked": figures.asked(),
            "accepted": figures.accepted(),
            "acceptedPercent": figures.percent(),
            "acceptedPercentOfMemory": figures.percent_of_memory(),
            "kinds": kinds.collect::<serde_json::Map<_, _>>(),
        })
    });
    json!({
        "gpus": args.gpus,
        "days": args.days,
        "seed": args.seed,
        "loadPercent": args.load,
        "rows": rows.collect::<Vec<_>>(),
    })
}
