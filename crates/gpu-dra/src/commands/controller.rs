//! `gpu-dra controller`: flags to settings, then the controller until SIGTERM or SIGINT.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use gpu_dra_controller::{LeaseTiming, Settings, Webhook};
use gpu_dra_model::DriverName;

use super::log::LogArgs;
use super::stop::told_to_stop;
use crate::cluster;

/// Counts change with every pod; people don't read them faster.
const COUNT_PACE: Duration = Duration::from_secs(10);

/// How the controller runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The namespace of its lease and of the webhook's Service
    #[arg(long, env = "POD_NAMESPACE", default_value = "gpu-dra")]
    namespace: String,
    /// The name of this replica in the lease: its pod's
    #[arg(long, env = "POD_NAME")]
    identity: String,
    /// The DRA driver's name
    #[arg(long, env = "GPU_DRA_DRIVER_NAME", default_value = "gpu.nvidia.com")]
    driver_name: DriverName,
    /// Leave the standard classes (gpu.nvidia.com and so on) to others
    #[arg(long, env = "GPU_DRA_NO_STANDARD_CLASSES")]
    no_standard_classes: bool,
    /// Make a class per product and MIG profile that the fleet has; without it those are deleted
    #[arg(long, env = "GPU_DRA_FLEET_CLASSES")]
    fleet_classes: bool,
    /// Where to serve the admission webhook over HTTPS, such as 0.0.0.0:8443; not at all without
    #[arg(long, env = "GPU_DRA_WEBHOOK")]
    webhook: Option<SocketAddr>,
    /// The Service by which the API server reaches the webhook
    #[arg(long, env = "GPU_DRA_WEBHOOK_SERVICE", default_value = "gpu-dra-controller")]
    webhook_service: String,
    /// The ValidatingWebhookConfiguration to which this replica's certificate is added
    #[arg(long, env = "GPU_DRA_WEBHOOK_CONFIGURATION", default_value = "gpu-dra-configs")]
    webhook_configuration: String,
    /// The API server to use; in a pod its service account is used without this
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where to answer /healthz, /readyz and /metrics, such as 0.0.0.0:8080
    #[arg(long, env = "GPU_DRA_HTTP")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    args.log.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start threads")?;
    runtime.block_on(async {
        let stop = told_to_stop()?;
        let client = cluster::client(args.kubeconfig.as_deref()).await?;
        Ok(gpu_dra_controller::run(settings(args), client, stop).await?)
    })
}

fn settings(args: Args) -> Settings {
    let service = format!("{}.{}.svc", args.webhook_service, args.namespace);
    let webhook = args.webhook.map(|listen| Webhook {
        listen,
        service,
        configuration: args.webhook_configuration,
    });
    Settings {
        namespace: args.namespace,
        identity: args.identity,
        driver: args.driver_name,
        standard_classes: !args.no_standard_classes,
        fleet_classes: args.fleet_classes,
        webhook,
        http: args.http,
        lease: LeaseTiming::default(),
        count_pace: COUNT_PACE,
    }
}
