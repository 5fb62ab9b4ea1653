//! `gpu-dra doctor`: what a bug report about a node needs, in one text, with what is wrong at
//! the top. It works as far as it can with whatever is missing, and changes nothing.
//!
//! Nothing secret is in it: each line is made from fields known to be harmless (names, UIDs,
//! versions, sentences of this driver). Configs of claims, environments, kubeconfigs and logs are
//! never read into it, and what looks like a credential all the same is left out at the end.

use std::path::PathBuf;

use anyhow::Context as _;
use gpu_dra_model::{DriverName, NodeName};

use super::place::Place;
use super::policy::PolicyArgs;

mod cluster;
mod facts;
mod judge;
mod node;
mod scrub;
mod text;

/// Where to look, and where to write.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The Node this is; without it the API server isn't asked
    #[arg(long, env = "NODE_NAME")]
    pub(crate) node_name: Option<NodeName>,
    /// The DRA driver's name
    #[arg(long, env = "GPU_DRA_DRIVER_NAME", default_value = "gpu.nvidia.com")]
    pub(crate) driver_name: DriverName,
    /// The kubelet's --root-dir
    #[arg(long, env = "GPU_DRA_KUBELET_ROOT", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_root: PathBuf,
    /// The folder of CDI specs
    #[arg(long, env = "GPU_DRA_CDI_ROOT", default_value = "/var/run/cdi")]
    pub(crate) cdi_root: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// The MPS host's socket
    #[arg(long, env = "GPU_DRA_MPS_SOCKET", default_value = "/run/gpu-dra/mps-host.sock")]
    pub(crate) mps_socket: PathBuf,
    /// Where the node agent answers /readyz
    #[arg(long, env = "GPU_DRA_HTTP")]
    pub(crate) http: Option<std::net::SocketAddr>,
    /// The cluster's kubeconfig; in a pod its service account is used without this
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Write the whole report to this file, and only what is wrong to the screen
    #[arg(long, short)]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(cluster::ask(args));
    let facts = node::look(args, cluster);
    let findings = judge::judge(&facts);
    let report = scrub::scrub(&text::report(&facts, &findings));
    match &args.output {
        None => anstream::print!("{report}"),
        Some(path) => {
            write(path, &report).with_context(|| format!("can't write {}", path.display()))?;
            anstream::print!("{}", scrub::scrub(&text::findings(&findings)));
            anstream::println!("the report is in {}", path.display());
        }
    }
    Ok(())
}

/// For the caller's eyes only, until he hands it on.
fn write(path: &std::path::Path, report: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(report.as_bytes())
}
