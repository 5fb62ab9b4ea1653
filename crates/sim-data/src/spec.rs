//! `--node`: which GPUs a simulated node has, as one word.
//!
//! ```text
//! NODE  = GROUP *( "+" GROUP )
//! GROUP = [ COUNT "x" ] TYPE [ ":" KEY "=" VALUE *( "," KEY "=" VALUE ) ]
//! ```
//!
//! `8xh100`, `4xa100-40+2xl4`, `h100` (one), `8xH200:mig=on`, `4xgb200:clique=7,seed=rack-b`.
//! 1 to 16 GPUs in all, names in any case. Keys: `mig` (`on`, `off`: the mode at the start),
//! `clique` and `cluster` (NVLink fabric of GB200), and for the whole node `driver`
//! (a version like 570.124.06) and `seed` (nodes with different seeds have different UUIDs).

use std::fmt;
use std::str::FromStr;

use crate::node_type::NodeType;

/// The most GPUs of one node.
pub const MAX_GPUS: u32 = 16;

/// What `--node` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// GPUs of one type each, in the order given.
    pub groups: Vec<Group>,
    /// The driver's version.
    pub driver: String,
    /// What UUIDs and serial numbers are made from.
    pub seed: String,
}

/// Some GPUs of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// How many, from 1.
    pub count: u32,
    /// A name of the catalogue.
    pub node_type: &'static str,
    /// Whether MIG mode is on at the start.
    pub mig: bool,
    /// NVLink clique in the cluster.
    pub clique: Option<u32>,
    /// NVLink cluster UUID.
    pub cluster: Option<String>,
}

/// Why a `--node` isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No such type.
    #[error("unknown GPU type {name:?}: use one of {}", known())]
    UnknownType {
        /// As written.
        name: String,
    },
    /// Not a count.
    #[error("{count:?} is no count of GPUs: write 8xh100, or h100 for one")]
    BadCount {
        /// As written.
        count: String,
    },
    /// Too many or none.
    #[error("{total} GPUs: a simulated node has 1 to {MAX_GPUS}")]
    BadTotal {
        /// The sum of the groups.
        total: u32,
    },
    /// Not a KEY=VALUE that we know.
    #[error("option {option:?}: write mig=on, driver=VERSION, seed=TEXT, clique=N or cluster=UUID")]
    BadOption {
        /// As written.
        option: String,
    },
    /// `driver` or `seed` given twice with different values.
    #[error("{key} is one for the whole node, but both {first:?} and {second:?} are given")]
    Conflict {
        /// The option.
        key: &'static str,
        /// The earlier value.
        first: String,
        /// The later value.
        second: String,
    },
    /// Not a driver version.
    #[error("{version:?} is no driver version like 580.105.08")]
    BadDriver {
        /// As written.
        version: String,
    },
}

fn known() -> String {
    let names: Vec<_> = NodeType::all().keys().copied().collect();
    names.join(", ")
}

impl NodeSpec {
    /// The driver version where none is given.
    pub const DEFAULT_DRIVER: &'static str = "580.105.08";

    /// Reads a `--node`.
    ///
    /// # Errors
    /// [`SpecError`], each with what may be written.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut groups = Vec::new();
        let mut driver = None;
        let mut seed = None;
        for part in text.split('+') {
            let (what, options) = part.split_once(':').unwrap_or((part, ""));
            let mut group = parse_group(what.trim())?;
            for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
                let bad = || SpecError::BadOption { option: option.to_owned() };
                let (key, value) = option.split_once('=').ok_or_else(bad)?;
                match (key, value) {
                    ("mig", "on") => group.mig = true,
                    ("mig", "off") => group.mig = false,
                    ("clique", _) => group.clique = Some(value.parse().map_err(|_| bad())?),
                    ("cluster", _) if is_uuid(value) => group.cluster = Some(value.to_owned()),
                    ("driver", _) => once("driver", &mut driver, value)?,
                    ("seed", _) => once("seed", &mut seed, value)?,
                    _ => return Err(bad()),
                }
            }
            groups.push(group);
        }
        let total = groups.iter().map(|group| group.count).fold(0, u32::saturating_add);
        if !(1..=MAX_GPUS).contains(&total) {
            return Err(SpecError::BadTotal { total });
        }
        let driver = driver.unwrap_or_else(|| Self::DEFAULT_DRIVER.to_owned());
        if !is_driver_version(&driver) {
            return Err(SpecError::BadDriver { version: driver });
        }
        Ok(Self { groups, driver, seed: seed.unwrap_or_else(|| "0".to_owned()) })
    }
}

impl FromStr for NodeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

impl fmt::Display for NodeSpec {
    /// The groups without their options: `4xa100-40+2xl4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, group) in self.groups.iter().enumerate() {
            let plus = if nth > 0 { "+" } else { "" };
            write!(f, "{plus}{}x{}", group.count, group.node_type)?;
        }
        Ok(())
    }
}

fn parse_group(text: &str) -> Result<Group, SpecError> {
    let (count, name) = match text.split_once(['x', 'X']) {
        Some((count, name)) if count.starts_with(|c: char| c.is_ascii_digit()) => {
            let bad = |_| SpecError::BadCount { count: count.to_owned() };
            (count.parse().map_err(bad)?, name)
        }
        _ => (1, text),
    };
    let (node_type, _) =
        NodeType::find(name).ok_or_else(|| SpecError::UnknownType { name: name.to_owned() })?;
    if count == 0 {
        return Err(SpecError::BadCount { count: "0".to_owned() });
    }
    Ok(Group { count, node_type, mig: false, clique: None, cluster: None })
}

fn once(key: &'static str, slot: &mut Option<String>, value: &str) -> Result<(), SpecError> {
    match slot {
        Some(first) if first != value => {
            Err(SpecError::Conflict { key, first: first.clone(), second: value.to_owned() })
        }
        _ => {
            *slot = Some(value.to_owned());
            Ok(())
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

fn is_driver_version(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    (2..=3).contains(&parts.len())
        && parts.iter().all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<(u32, &'static str)> {
        let spec = NodeSpec::parse(text).unwrap();
        spec.groups.iter().map(|group| (group.count, group.node_type)).collect()
    }

    #[test]
    fn the_forms_of_the_grammar() {
        assert_eq!(counts("8xh100"), [(8, "h100-80")]);
        assert_eq!(counts("h100"), [(1, "h100-80")]);
        assert_eq!(counts("4xa100-40+2xl4"), [(4, "a100-40"), (2, "l4")]);
        assert_eq!(counts("16XGB200"), [(16, "gb200")]);
        assert_eq!(counts("2xrtx-pro-6000"), [(2, "rtx-pro-6000")]);
        assert_eq!(counts("RTX-PRO-6000"), [(1, "rtx-pro-6000")]);
        assert_eq!(NodeSpec::parse("4xa100-40+l4:mig=off").unwrap().to_string(), "4xa100-40+1xl4");
    }

    #[test]
    fn options_belong_to_their_group_or_to_the_node() {
        let spec = NodeSpec::parse("2xh100:mig=on,seed=b+1xl4:driver=570.124.06").unwrap();
        assert_eq!((spec.groups[0].mig, spec.groups[1].mig), (true, false));
        assert_eq!((spec.driver.as_str(), spec.seed.as_str()), ("570.124.06", "b"));
        let conflict = NodeSpec::parse("h100:seed=a+l4:seed=b").unwrap_err();
        assert!(matches!(conflict, SpecError::Conflict { key: "seed", .. }));
    }

    #[test]
    fn a_wrong_one_says_what_is_right() {
        let message = |text: &str| NodeSpec::parse(text).unwrap_err().to_string();
        assert!(message("8xh101").contains("h100-80, h100-pcie, h200"), "{}", message("8xh101"));
        assert_eq!(message("17xt4"), "17 GPUs: a simulated node has 1 to 16");
        assert!(message("0xt4").contains("write 8xh100"));
        assert!(message("8qxt4").contains("write 8xh100"));
        assert!(message("99999999999xt4").contains("no count"));
        assert!(message("").contains("unknown GPU type"));
        assert!(message("t4+").contains("unknown GPU type"));
        assert!(message("t4:colour=red").contains("colour=red"));
        assert!(message("t4:driver=latest").contains("580.105.08"));
        assert!(message("4xgb200:cluster=x").contains("cluster=UUID"));
    }
}
