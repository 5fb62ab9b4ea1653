//! `gpu-dra bench`: how long things take, through the real sockets and a real file system,
//! next to a floor measured in the same run, of which no figure is asserted anywhere; and how
//! well devices are placed, where time plays no part.

mod cel;
mod explain;
mod floor;
mod measure;
mod nvml_calls;
mod placement;
mod prepare;
mod report;
mod target;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// Prepare and Unprepare of claims for whole GPUs or MIG devices, of this driver or of any
    /// on a cluster
    Prepare(prepare::Args),
    /// Selectors compiled and evaluated per second on one core
    Cel(cel::Args),
    /// How long an explanation takes on a cluster of thousands of nodes, and its memory
    Explain(explain::Args),
    /// How many requests for MIG profiles find a place on simulated days
    Placement(placement::Args),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Cel(args) => cel::run(&args),
            Self::Explain(args) => explain::run(&args),
            Self::Placement(args) => placement::run(&args),
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
