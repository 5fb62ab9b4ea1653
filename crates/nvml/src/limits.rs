//! How much there can be of anything on a node: a library that tells more is broken, and what
//! it tells is not believed, or one number would cost all memory or an endless loop.

use crate::code::{CallError, Code};

/// GPUs of a node: device nodes have minor numbers of one byte.
pub(crate) const GPUS: u32 = 256;
/// GPU instances of one profile, its placements, and MIG devices of one GPU. Hardware has 8
/// memory slices, and on each GPU instance at most 8 compute instances.
pub(crate) const OF_ONE_GPU: u32 = 64;

/// The count, if there can be so many; else the call failed for no reason that is known.
pub(crate) fn at_most(most: u32, call: &'static str, count: u32) -> Result<u32, CallError> {
    if count <= most { Ok(count) } else { Err(CallError { call, code: Code::UNKNOWN }) }
}
