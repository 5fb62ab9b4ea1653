//! `--mig`: which GPUs are partitioned on demand, for all nodes, single nodes and single GPUs,
//! in one flag, so that one DaemonSet serves a mixed fleet.

use std::collections::BTreeMap;
use std::str::FromStr;

use gpu_dra_model::{GpuUuid, NodeName};
use gpu_dra_slices::{MigPolicy, Policy};

/// The flag.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MigArgs {
    /// What is done with GPUs that can be partitioned: dynamic (MIG devices are made on demand,
    /// unless others made some), static (those of others are published) or off (whole GPUs).
    /// NODE=POLICY and GPU-UUID=POLICY are for one node and one GPU; separate several by commas
    #[arg(long, env = "GPU_DRA_MIG", value_delimiter = ',', default_value = "dynamic")]
    mig: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    of: Subject,
    policy: MigPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    All,
    Node(NodeName),
    Gpu(GpuUuid),
}

impl FromStr for Rule {
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
        let policy = match policy {
            "dynamic" => MigPolicy::Dynamic,
            "static" => MigPolicy::Static,
            "off" => MigPolicy::Off,
            _ => return Err(format!("{policy:?} is no policy: dynamic, static or off")),
        };
        Ok(Self { of, policy })
    }
}

impl MigArgs {
    /// The policy of this node; of several rules for the same, the last counts.
    pub(crate) fn policy(&self, node: Option<&NodeName>) -> Policy {
        let mut of_all = MigPolicy::default();
        let mut of_node = None;
        let mut mig_by_gpu = BTreeMap::new();
        for Rule { of, policy } in &self.mig {
            match of {
                Subject::All => of_all = *policy,
                Subject::Node(name) if Some(name) == node => of_node = Some(*policy),
                Subject::Node(_) => {}
                Subject::Gpu(gpu) => {
                    mig_by_gpu.insert(gpu.clone(), *policy);
                }
            }
        }
        Policy { mig: of_node.unwrap_or(of_all), mig_by_gpu, ..Policy::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str, node: &str) -> Policy {
        let rules: Result<_, _> = text.split(',').map(str::parse).collect();
        MigArgs { mig: rules.unwrap() }.policy(Some(&NodeName::new(node).unwrap()))
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
    fn a_mistake_is_named() {
        for (text, says) in [
            ("on", "\"on\" is no policy"),
            ("node-a=", "\"\" is no policy"),
            ("GPU-1=off", "8-4-4-4-12"),
            ("Node A=off", "subdomain"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
