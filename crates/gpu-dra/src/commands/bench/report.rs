//! The figures for people and for programs.

use serde_json::{Value, json};

use super::measure::{Measured, Times};

/// What one driver took.
pub(super) struct Figures {
    /// The driver.
    pub(super) driver: String,
    /// Its times.
    pub(super) measured: Measured,
    /// Where it is our child.
    pub(super) resident: Option<Resident>,
    /// Process start to slices visible in the API, in milliseconds, where it is our child.
    pub(super) visible_ms: Option<f64>,
}

/// Resident memory, in KiB.
pub(super) struct Resident {
    /// Some seconds after the start.
    pub(super) start: u64,
    /// With the last claim.
    pub(super) busy: u64,
    /// Some seconds after it.
    pub(super) end: u64,
}

/// The p50 of Prepare over the p50 of the floor.
fn ratio(figures: &Figures, floor: &Times) -> Option<f64> {
    Some(figures.measured.prepare.percentile(50)? / floor.percentile(50)?)
}

/// The p50 of Prepare without the p50 of NVML's own calls, where a MIG device was made.
fn beside_nvml(figures: &Figures) -> Option<f64> {
    let measured = &figures.measured;
    Some(measured.prepare.percentile(50)? - measured.nvml_make.percentile(50)?)
}

/// As JSON.
pub(super) fn json(all: &[Figures], floor: &Times) -> Value {
    let drivers = all.iter().map(|figures| {
        let measured = &figures.measured;
        json!({
            "driver": figures.driver,
            "ratio": ratio(figures, floor),
            "prepare": times(&measured.prepare),
            "prepareAgain": times(&measured.again),
            "unprepare": times(&measured.unprepare),
            "fourCallers": times(&measured.four_callers),
            "eightClaimsInOneCall": times(&measured.eight_claims),
            "nvmlMake": times(&measured.nvml_make),
            "nvmlRemove": times(&measured.nvml_remove),
            "besideNvmlMs": beside_nvml(figures),
            "residentKib": figures.resident.as_ref().map(|resident| {
                json!({"start": resident.start, "busy": resident.busy, "end": resident.end})
            }),
            "startToVisibleMs": figures.visible_ms,
        })
    });
    json!({"floor": times(floor), "drivers": drivers.collect::<Vec<_>>()})
}

fn times(times: &Times) -> Value {
    json!({
        "count": times.count(),
        "p50Ms": times.percentile(50),
        "p99Ms": times.percentile(99),
    })
}

/// As a table.
pub(super) fn print(all: &[Figures], floor: &Times) {
    anstream::println!("{:<34} {:>6} {:>9} {:>9}", "milliseconds", "count", "p50", "p99");
    line("floor: GET, 2 journal, 1 CDI file", floor);
    for figures in all {
        let measured = &figures.measured;
        anstream::println!("{}", figures.driver);
        line("  Prepare", &measured.prepare);
        line("  Prepare again", &measured.again);
        line("  Unprepare", &measured.unprepare);
        line("  Prepare, 4 callers at once", &measured.four_callers);
        line("  Prepare, 8 claims in one call", &measured.eight_claims);
        if let Some(ours) = beside_nvml(figures) {
            line("  NVML's calls to make a MIG device", &measured.nvml_make);
            line("  NVML's calls to remove it", &measured.nvml_remove);
            anstream::println!("  p50 of Prepare beside NVML's calls: {ours:.2}");
        }
        if let Some(ratio) = ratio(figures, floor) {
            anstream::println!("  p50 of Prepare over the floor's: {ratio:.2}");
        }
        if let Some(Resident { start, busy, end }) = figures.resident {
            let mib = |kib: u64| kib as f64 / 1024.0;
            anstream::println!(
                "  resident: {:.1} MiB after start, {:.1} MiB with the last claim, {:.1} MiB after it",
                mib(start),
                mib(busy),
                mib(end)
            );
        }
        if let Some(visible) = figures.visible_ms {
            anstream::println!("  process start to slices visible: {visible:.0} ms");
        }
    }
}

fn line(what: &str, times: &Times) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let (p50, p99) = (number(times.percentile(50)), number(times.percentile(99)));
    anstream::println!("{what:<34} {:>6} {p50:>9} {p99:>9}", times.count());
}
