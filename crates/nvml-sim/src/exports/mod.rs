//! The exported functions, one file for each side of NVML.
//!
//! A function is written as its name, C arguments and types, then `|call| { body }`: the macro
//! takes the arguments, resolves what the call is about, and turns the body's answer into a
//! return code. Names that no file here has are exported by the build script.

mod ecc;
mod enumerate;
mod event_sets;
mod fabric;
mod fields;
mod identity;
mod library;
mod memory;
mod mig_compute;
mod mig_devices;
mod mig_instances;
mod mig_profiles;
mod modes;
mod processes;
mod telemetry;

/// Functions of NVML by their C signatures.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($arg: $ty),*
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            $(
                // SAFETY: callers of NVML pass null or valid pointers, by its documentation.
                let $arg = unsafe { $crate::abi::Raw::take($arg) };
            )*
            let subjects = [$($crate::abi::Subject::subject(&$arg)),*];
            $crate::entry::enter(stringify!($name), &subjects, |$call| $body)
        }
    )*};
}
pub(crate) use exports;

/// Names that aren't modelled. The C caller's arguments are not looked at, so one signature
/// does for all: the caller cleans up.
macro_rules! not_modelled {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            crate::entry::enter(stringify!($name), &[], |_| Err(crate::code::Code::NOT_SUPPORTED))
        }
    };
}
include!(concat!(env!("OUT_DIR"), "/not_modelled.rs"));

#[cfg(test)]
mod signatures;
