//! How the node agent follows the GPUs' health, as flags.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use gpu_dra_health::Policy;

/// Flags of health.
#[derive(Debug, clap::Args)]
pub(crate) struct HealthArgs {
    /// Milliseconds between two readings of the GPUs' health
    #[arg(long, env = "GPU_DRA_HEALTH_MS", default_value = "10000", value_parser = clap::value_parser!(u64).range(1..))]
    health_ms: u64,
    /// A JSON file that says what is done about what, where it isn't the default
    #[arg(long, env = "GPU_DRA_HEALTH_POLICY")]
    health_policy: Option<PathBuf>,
    /// More Xids that do nothing but count, separated by commas, as the incumbent takes them
    #[arg(long, env = "ADDITIONAL_XIDS_TO_IGNORE", default_value = "", hide_default_value = true)]
    additional_xids_to_ignore: String,
}

impl HealthArgs {
    /// How often, and the policy.
    pub(crate) fn read(&self) -> anyhow::Result<(Duration, Policy)> {
        let policy = match &self.health_policy {
            None => Policy::default(),
            Some(path) => {
                let bytes = std::fs::read(path)
                    .with_context(|| format!("can't read health policy {}", path.display()))?;
                serde_json::from_slice(&bytes).with_context(|| {
                    format!(
                        "health policy {} is refused; docs/health.md has the fields",
                        path.display()
                    )
                })?
            }
        };
        let policy = policy.ignoring(self.xids_to_ignore());
        Ok((Duration::from_millis(self.health_ms), policy))
    }

    /// What is no number is left out, as the incumbent does, but not in silence.
    fn xids_to_ignore(&self) -> Vec<u64> {
        let texts = self.additional_xids_to_ignore.split(',').map(str::trim);
        let mut xids = Vec::new();
        for text in texts.filter(|text| !text.is_empty()) {
            match text.parse() {
                Ok(xid) => xids.push(xid),
                Err(_) => tracing::warn!(
                    entry = text,
                    "--additional-xids-to-ignore: no Xid, left out; it takes numbers like 31,43"
                ),
            }
        }
        xids
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gpu_dra_health::Verdict;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[command(flatten)]
        health: HealthArgs,
    }

    #[test]
    fn the_incumbents_list_of_xids_is_taken_with_its_slips() {
        let flags = ["x", "--additional-xids-to-ignore", "79, 110,,x,-1"];
        let (_, policy) = Flags::parse_from(flags).health.read().unwrap();
        let verdicts = [79, 110, 95].map(|xid| policy.xid(xid));
        assert_eq!(verdicts, [Verdict::Ignore, Verdict::Ignore, Verdict::NoExecute]);
        let (_, policy) = Flags::parse_from(["x"]).health.read().unwrap();
        assert_eq!(policy, Policy::default());
    }
}
