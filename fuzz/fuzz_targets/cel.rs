//! A device selector as anybody may write it into a claim: compiled within its bounds and
//! asked of one device.
#![no_main]

use std::str;
use std::sync::LazyLock;
use std::time::Duration;

use gpu_dra_cel::{Attribute, DeviceView, MAX_COST, Selector};
use gpu_dra_model::Quantity;
use libfuzzer_sys::fuzz_target;
use rustix::time::{ClockId, clock_gettime};

/// The most processor time that one expression may take, compiled and evaluated with
/// debug assertions.
const MOST: Duration = Duration::from_secs(1);
/// The longest text of an error, in bytes.
const SHORT: usize = 1024;

static DEVICE: LazyLock<DeviceView> = LazyLock::new(|| {
    let mut device = DeviceView::new("gpu.nvidia.com", false);
    for (name, value) in [
        ("type", Attribute::String("gpu".to_owned())),
        ("productName", Attribute::String("NVIDIA H100 80GB HBM3".to_owned())),
        ("uuid", Attribute::String("GPU-11111111-0000-0000-0000-000000000000".to_owned())),
        ("driverVersion", Attribute::Version("580.65.6".to_owned())),
        ("cudaComputeCapability", Attribute::Version("9.0.0".to_owned())),
        ("index", Attribute::Int(3)),
        ("hasMonitor", Attribute::Bool(true)),
        ("resource.kubernetes.io/pcieRoot", Attribute::String("pci0000:3a".to_owned())),
    ] {
        device.add_attribute(name, value);
    }
    for (name, text) in [("memory", "81559Mi"), ("multiprocessors", "132")] {
        let quantity: Quantity = text.parse().unwrap_or(Quantity::ZERO);
        device.add_capacity(name, quantity);
    }
    device
});

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    let begun = processor_time();
    judge(text);
    let taken = processor_time().saturating_sub(begun);
    assert!(taken < MOST, "it took {taken:?}");
});

fn judge(text: &str) {
    let selector = match Selector::compile(text) {
        Ok(selector) => selector,
        Err(error) => return short(&error.to_string()),
    };
    assert_eq!(selector.text(), text);
    assert!(selector.cost() <= MAX_COST);
    match selector.matches(&DEVICE) {
        Ok(matches) => {
            let terms = selector.explain(&DEVICE);
            assert!(!matches || terms.is_empty(), "a reason for what matches: {terms:?}");
        }
        Err(error) => {
            short(&error.to_string());
            let _ = selector.explain(&DEVICE);
        }
    }
}

/// Of all threads, so that a busy machine doesn't count.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn short(error: &str) {
    assert!(error.len() < SHORT, "{} bytes: {error}", error.len());
}
