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
        Ok((Duration::from_millis(self.health_ms), policy))
    }
}
