//! The built library as clients see it: by `dlopen`, from several processes, in C's terms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod enumerate;
mod faults;
mod mig;
mod pynvml;
mod raw;
mod smi;
mod smi_mig;
mod support;
mod symbols;
