//! Slices at rest. A device is some twenty small maps and strings in memory; as JSON it takes
//! a tenth of that, and on a quiet node nobody looks at it. It is unpacked while there is
//! something to compare or to write, and never kept in both forms.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::note::Note;
use crate::pool::{DesiredPool, SliceContent};

/// A value as JSON. Equal values are equal packed: keys are in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed<T> {
    /// Or what keeps the value from being JSON; told to the one who wants it back.
    json: Result<Box<[u8]>, Box<str>>,
    value: PhantomData<fn() -> T>,
}

/// A packed value can't be had back. Never seen: these types come from JSON and go there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("slices can't be kept as JSON: {reason}; please report it with the inventory")]
pub struct PackError {
    reason: String,
}

/// A [`DesiredPool`] at rest.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedPool {
    slices: Box<[Packed<SliceContent>]>,
    notes: Vec<Note>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs a value.
    #[must_use]
    pub fn new(value: &T) -> Self {
        let json = match serde_json::to_vec(value) {
            Ok(json) => Ok(json.into()),
            Err(error) => Err(error.to_string().into()),
        };
        Self { json, value: PhantomData }
    }

    /// The value.
    ///
    /// # Errors
    /// When it couldn't be packed, or has no way back from JSON.
    pub fn unpack(&self) -> Result<T, PackError> {
        let unpacked = match &self.json {
            Ok(json) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.to_string()),
        };
        unpacked.map_err(|reason| PackError { reason })
    }
}

impl PackedPool {
    /// Packs a pool.
    #[must_use]
    pub fn new(pool: &DesiredPool) -> Self {
        Self { slices: pool.slices.iter().map(Packed::new).collect(), notes: pool.notes.clone() }
    }

    /// The pool.
    ///
    /// # Errors
    /// As [`Packed::unpack`].
    pub fn unpack(&self) -> Result<DesiredPool, PackError> {
        let slices = self.slices.iter().map(Packed::unpack).collect::<Result<_, _>>()?;
        Ok(DesiredPool { slices, notes: self.notes.clone() })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::{CounterSet, Device};

    use super::*;

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let device = Device { name: "gpu-0".to_owned(), ..Device::default() };
        let set = CounterSet { name: "gpu-0-counters".to_owned(), ..CounterSet::default() };
        let note = Note::KeyDropped { key: "uuid".to_owned() };
        let pool = DesiredPool::new(vec![device], vec![set], vec![note]);
        let packed = PackedPool::new(&pool);
        assert_eq!(packed.unpack().unwrap(), pool);
        assert_eq!(packed, PackedPool::new(&pool));
        let other = DesiredPool::new(Vec::new(), Vec::new(), Vec::new());
        assert_ne!(packed, PackedPool::new(&other));
    }

    #[test]
    fn what_has_no_json_is_told_when_it_is_wanted_back() {
        let packed = Packed::new(&std::collections::BTreeMap::from([(vec![1], 2)]));
        assert!(packed.unpack().unwrap_err().to_string().contains("key must be a string"));
    }
}
