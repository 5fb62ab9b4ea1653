//! `gpu-dra bench`: how long things take, through the real sockets and a real file system,
//! next to a floor measured in the same run. No figure of it is asserted anywhere.

mod floor;
mod measure;
mod prepare;
mod report;
mod target;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// Prepare and Unprepare of whole-GPU claims, of this driver or of any on a cluster
    Prepare(prepare::Args),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Prepare(args) => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()?;
                runtime.block_on(prepare::run(args))
            }
        }
    }
}
