//! `gpu-dra bench cel`: selectors compiled and evaluated per second, on one core, on the
//! devices of a simulated node.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gpu_dra_allocator::device_view;
use gpu_dra_cel::{DeviceView, Selector};
use serde_json::json;

use crate::commands::explain_fleet;

/// What to evaluate, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The devices
    #[arg(long, default_value = "8xh100")]
    node: String,
    /// Milliseconds for each selector
    #[arg(long, default_value = "500")]
    millis: u64,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// As classes and claims have them.
const SELECTORS: [(&str, &str); 6] = [
    (
        "class, guarded",
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'",
    ),
    (
        "memory at least",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
    ),
    (
        "product by pattern",
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')",
    ),
    (
        "compute capability",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(semver('8.9.0'))",
    ),
    (
        "one of a list",
        "device.attributes['gpu.nvidia.com'].architecture in ['Ampere', 'Hopper', 'Blackwell']",
    ),
    (
        "bind and exists",
        "cel.bind(gpu, device.attributes['gpu.nvidia.com'], ['Hopper', 'Ada Lovelace'].exists(name, gpu.architecture == name) && gpu.productName.startsWith('NVIDIA'))",
    ),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let slices = explain_fleet::slices_of(&args.node, "node-0")?;
    let mut devices = Vec::new();
    for slice in &slices {
        for device in slice.spec.devices.iter().flatten() {
            let view = device_view(slice, device).map_err(anyhow::Error::msg)?;
            devices.push(view);
        }
    }
    anyhow::ensure!(!devices.is_empty(), "node {} has no devices", args.node);
    let time = Duration::from_millis(args.millis);
    let mut rows = Vec::new();
    for (name, text) in SELECTORS {
        let compiled = per_second(time / 4, || Selector::compile(text).is_ok());
        let selector = Selector::compile(text).context(name)?;
        let mut devices = devices.iter().cycle();
        let evaluated = per_second(time, || evaluate(&selector, devices.next()));
        rows.push((name, compiled, evaluated));
    }
    if args.json {
        let rows = rows.iter().map(|(name, compiled, evaluated)| {
            json!({"selector": name, "compiledPerSecond": compiled, "evaluatedPerSecond": evaluated})
        });
        let rows = serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?;
        anstream::println!("{rows}");
        return Ok(());
    }
    anstream::println!("{:<24} {:>14} {:>14}", "per second, one core", "compiled", "evaluated");
    for (name, compiled, evaluated) in rows {
        anstream::println!("{name:<24} {compiled:>14.0} {evaluated:>14.0}");
    }
    Ok(())
}

fn evaluate(selector: &Selector, device: Option<&DeviceView>) -> bool {
    device.is_some_and(|device| selector.matches(black_box(device)) == Ok(true))
}

/// How often it runs in a second.
fn per_second(time: Duration, mut run: impl FnMut() -> bool) -> f64 {
    const BATCH: u32 = 100;
    let started = Instant::now();
    let mut count = 0_u32;
    while started.elapsed() < time {
        for _ in 0..BATCH {
            black_box(run());
        }
        count = count.saturating_add(BATCH);
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}
