//! The numbers that a daemon and its servers hold: thread percentage and memory limits.

use std::collections::BTreeMap;

/// A pinned-memory limit: whole MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory(u64);

impl Memory {
    /// `5120M` or `5G`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, factor) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, 1024),
            None => (text.strip_suffix(['M', 'm'])?, 1),
        };
        let mebibytes = number.parse::<u64>().ok()?.checked_mul(factor)?;
        (mebibytes > 0).then_some(Self(mebibytes))
    }

    /// As the driver shows it: from 1 GiB on in whole GiB, rounded down.
    pub(crate) fn shown(self) -> String {
        if self.0 >= 1024 { format!("{}G", self.0 / 1024) } else { format!("{}M", self.0) }
    }
}

/// Above 0, at most 100.
pub(crate) fn percentage(text: &str) -> Option<f32> {
    text.parse::<f32>().ok().filter(|value| *value > 0.0 && *value <= 100.0)
}

/// What clients of a server get that set nothing themselves.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) threads: f32,
    /// By the device's place among the visible ones.
    pub(crate) memory: BTreeMap<usize, Memory>,
    pub(crate) priority: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 100.0, memory: BTreeMap::new(), priority: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_as_the_driver_shows_it() {
        let shown = |text| Memory::parse(text).map(Memory::shown);
        assert_eq!(shown("10240M").as_deref(), Some("10G"));
        assert_eq!(shown("1536M").as_deref(), Some("1G"));
        assert_eq!(shown("512M").as_deref(), Some("512M"));
        assert_eq!(shown("2G").as_deref(), Some("2G"));
        assert_eq!((shown("0M"), shown("10"), shown("-1G"), shown("")), (None, None, None, None));
    }

    #[test]
    fn percentages_are_above_zero() {
        assert_eq!(percentage("50"), Some(50.0));
        assert_eq!((percentage("0"), percentage("101"), percentage("x")), (None, None, None));
    }
}
