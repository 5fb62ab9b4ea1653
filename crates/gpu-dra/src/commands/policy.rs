//! `--mig` and `--shares`: which GPUs are partitioned on demand and which are given out in
//! shares, for all nodes, single nodes and single GPUs, so that one DaemonSet serves a mixed
//! fleet.

use std::collections::BTreeMap;
use std::str::FromStr;

use gpu_dra_model::{GpuUuid, NodeName, Shares};
use gpu_dra_slices::{MigPolicy, Policy};

/// The flags.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PolicyArgs {
    /// What is done with GPUs that can be partitioned: dynamic (MIG devices are made on demand,
    /// unless others made some), static (those of others are published) or off (whole GPUs).
    /// NODE=POLICY and GPU-UUID=POLICY are for one node and one GPU; separate several by commas
    #[arg(long, env = "GPU_DRA_MIG", value_delimiter = ',', default_value = "dynamic")]
    mig: Vec<Rule<MigPolicy>>,
    /// Whether several claims may each have a share of a GPU: off, mps (MPS holds each to its
    /// share) or accounted (nothing enforces it). Such a GPU isn't partitioned. For single nodes
    /// and GPUs as --mig has it
    #[arg(long, env = "GPU_DRA_SHARES", value_delimiter = ',', default_value = "off")]
    shares: Vec<Rule<Shares>>,
}

/// A policy by its name.
trait Named: Sized {
    /// All names, for people.
    const NAMES: &'static str;

    fn named(name: &str) -> Option<Self>;
}

impl Named for MigPolicy {
    const NAMES: &'static str = "dynamic, static or off";

    fn named(name: &str) -> Option<Self> {
        match name {
            "dynamic" => Some(Self::Dynamic),
            "static" => Some(Self::Static),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

impl Named for Shares {
    const NAMES: &'static str = "off, mps or accounted";

    fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "mps" => Some(Self::Mps),
            "accounted" => Some(Self::Accounted),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule<P> {
    of: Subject,
    policy: P,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    All,
    Node(NodeName),
    Gpu(GpuUuid),
}

impl<P: Named> FromStr for Rule<P> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, policy) = match text.trim().split_once('=') {
            None => (Subject::All, text.trim()),
            Some((gpu, policy)) if gpu.starts_with("GPU-") => {
                (Subject::Gpu(GpuUuid::new(gpu).map_err(|error| error.to_string())?), policy)
            }
            Some((node, policy)) => {
                (Subject::Node(NodeName::new(node).map_err(|error| error.to_string())?), policy)
            }
        };
        let policy =
            P::named(policy).ok_or_else(|| format!("{policy:?} is no policy: {}", P::NAMES))?;
        Ok(Self { of, policy })
    }
}

impl PolicyArgs {
    /// The policy of this node; of several rules for the same, the last counts.
    pub(crate) fn policy(&self, node: Option<&NodeName>) -> Policy {
        let (mig, mig_by_gpu) = of_node(&self.mig, node);
        let (shares, shares_by_gpu) = of_node(&self.shares, node);
        Policy { mig, mig_by_gpu, shares, shares_by_gpu, ..Policy::default() }
    }
}

/// What holds on the node, and what holds for single GPUs.
fn of_node<P: Copy + Default>(
    rules: &[Rule<P>],
    node: Option<&NodeName>,
) -> (P, BTreeMap<GpuUuid, P>) {
    let (mut of_all, mut of_node, mut by_gpu) = (P::default(), None, BTreeMap::new());
    for Rule { of, policy } in rules {
        match of {
            Subject::All => of_all = *policy,
            Subject::Node(name) if Some(name) == node => of_node = Some(*policy),
            Subject::Node(_) => {}
            Subject::Gpu(gpu) => {
                by_gpu.insert(gpu.clone(), *policy);
            }
        }
    }
    (of_node.unwrap_or(of_all), by_gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str, node: &str) -> Policy {
        let rules: Result<_, _> = text.split(',').map(str::parse).collect();
        PolicyArgs { mig: rules.unwrap(), shares: Vec::new() }
            .policy(Some(&NodeName::new(node).unwrap()))
    }

    #[test]
    fn the_narrower_rule_counts_and_of_equal_ones_the_last() {
        let gpu = "GPU-11111111-0000-0000-0000-000000000000";
        let text = format!("static,node-a=off,{gpu}=dynamic,node-b=dynamic,node-a=static,off");
        let a = policy(&text, "node-a");
        assert_eq!(a.mig, MigPolicy::Static);
        assert_eq!(a.mig_by_gpu[&GpuUuid::new(gpu).unwrap()], MigPolicy::Dynamic);
        assert_eq!(policy(&text, "node-b").mig, MigPolicy::Dynamic);
        assert_eq!(policy(&text, "node-c").mig, MigPolicy::Off);
    }

    #[test]
    fn shares_are_set_the_same_way() {
        let args = PolicyArgs {
            mig: Vec::new(),
            shares: vec!["node-a=mps".parse().unwrap(), "accounted".parse().unwrap()],
        };
        let shares = |node: &str| args.policy(Some(&NodeName::new(node).unwrap())).shares;
        assert_eq!((shares("node-a"), shares("node-b")), (Shares::Mps, Shares::Accounted));
        let error = "on".parse::<Rule<Shares>>().unwrap_err();
        assert!(error.contains("off, mps or accounted"), "{error}");
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, says) in [
            ("on", "\"on\" is no policy"),
            ("node-a=", "\"\" is no policy"),
            ("GPU-1=off", "8-4-4-4-12"),
            ("Node A=off", "subdomain"),
        ] {
            let error = text.parse::<Rule<MigPolicy>>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
