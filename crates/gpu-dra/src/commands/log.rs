//! How programs that run for long log: flags, and where it goes.

use anyhow::Context as _;

/// What is logged, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter, as RUST_LOG has it
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log: String,
    /// Log as JSON, one object a line
    #[arg(long, env = "GPU_DRA_LOG_JSON")]
    log_json: bool,
}

impl LogArgs {
    /// Logs to standard error from now on.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log)
            .with_context(|| format!("{:?} is no log filter", self.log))?;
        let subscriber =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        if self.log_json {
            subscriber.json().init();
        } else {
            subscriber.with_ansi(false).init();
        }
        Ok(())
    }
}
