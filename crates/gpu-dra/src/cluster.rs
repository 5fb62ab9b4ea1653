//! How commands reach an API server: by a kubeconfig, or by a pod's service account.

use std::path::Path;
use std::sync::Once;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// A client for the API server that `kubeconfig` names, or for the one of the cluster that
/// this process runs in. It doesn't retry by itself: the publisher backs off on its own, and
/// a kubelet repeats its calls.
///
/// # Errors
/// When the kubeconfig can't be used, or this is no pod.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    use_ring();
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("can't read kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {}", path.display()))?
        }
        None => kube::Config::incluster()
            .context("not in a pod: give the API server by --kubeconfig")?,
    };
    config.default_retry = false;
    kube::Client::try_from(config).context("can't make a client for the API server")
}

/// A client for the cluster that kubectl would use, or for the one that a pod runs in.
pub(crate) async fn as_kubectl(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<kube::Client> {
    use_ring();
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let config = match (file, kubeconfig) {
        (Ok(file), _) => {
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                ..KubeConfigOptions::default()
            };
            kube::Config::from_custom_kubeconfig(file, &options)
                .await
                .context("the kubeconfig can't be used")?
        }
        (Err(error), Some(path)) => {
            return Err(error).with_context(|| format!("can't read kubeconfig {}", path.display()));
        }
        // In a pod there is none, but a service account.
        (Err(error), None) => match kube::Config::incluster() {
            Ok(config) => config,
            Err(_) => {
                let what = "no cluster: give --kubeconfig, or --node or --slices instead";
                return Err(error).context(what);
            }
        },
    };
    kube::Client::try_from(config).context("can't make a client for the API server")
}

/// Where another crate of the build turns on a second TLS provider, rustls refuses to choose.
fn use_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error says that one is chosen already, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}
