//! Short texts from manifests: quantities and the fields of a GpuClass.
#![no_main]

use std::str;

use gpu_dra_model::Quantity;
use libfuzzer_sys::fuzz_target;

// By its file: the crate brings a Kubernetes client, which nothing here needs.
#[path = "../../crates/controller/src/declare/syntax.rs"]
mod syntax;

/// The longest text of an error, in bytes.
const SHORT: usize = 200;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    let (one, other) = text.split_once('\n').unwrap_or((text, "1Gi"));
    match (one.parse::<Quantity>(), other.parse::<Quantity>()) {
        (Ok(one), Ok(other)) => quantities(&one, &other),
        (Err(error), _) | (_, Err(error)) => short(&error.to_string()),
    }
    for refused in [
        syntax::product_name(one),
        syntax::profile(one),
        syntax::compute_capability(one).map(|_| ()),
        syntax::extended_resource(one),
    ] {
        short(&refused.err().unwrap_or_default());
    }
});

fn quantities(one: &Quantity, other: &Quantity) {
    for quantity in [one, other] {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, *quantity, "{printed} reads as another number");
        // 7812.5Ki prints as 8000000, which is no binary number any more and prints as 8M: so
        // it is in Kubernetes too. Then it is settled.
        let settled = again.to_string();
        if again.format() == quantity.format() {
            assert_eq!(settled, printed, "it prints otherwise the second time");
        }
        let third: Quantity = settled.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(third.to_string(), settled, "it prints otherwise the third time");
        let ceil = quantity.ceil();
        if let (Some(whole), Some(ceil)) = (quantity.as_integer(), ceil) {
            assert_eq!(whole, ceil, "{printed}");
        }
        let _ = (quantity.ceil_milli(), quantity.as_approximate_float());
    }
    assert_eq!(one.cmp(other), other.cmp(one).reverse());
    if let (Ok(sum), Ok(turned)) = (one.add(other), other.add(one)) {
        assert_eq!(sum, turned, "{one} + {other}");
    }
    if let Ok(difference) = one.sub(other) {
        assert_eq!(one.cmp(other), difference.cmp(&Quantity::ZERO), "{one} - {other}");
    }
}

fn short(error: &str) {
    assert!(error.len() < SHORT, "{} bytes: {error}", error.len());
}
