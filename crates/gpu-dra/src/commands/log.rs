//! How programs that run for long log: flags, and where it goes.

use anyhow::Context as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What is logged, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter, as RUST_LOG has it: a level, and levels of modules, such as info,kube=warn
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log: String,
    /// Log as JSON, one object a line
    #[arg(long, env = "GPU_DRA_LOG_JSON")]
    log_json: bool,
}

impl LogArgs {
    /// Logs to standard error from now on.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter: Targets =
            self.log.parse().with_context(|| format!("{:?} is no log filter", self.log))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        let all = tracing_subscriber::registry().with(filter);
        if self.log_json {
            all.with(lines.json()).init();
        } else {
            all.with(lines).init();
        }
        Ok(())
    }
}
