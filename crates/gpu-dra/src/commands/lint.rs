//! `gpu-dra lint`: what is wrong with classes, claims, templates and pods before they are
//! applied, by themselves or against a fleet. It changes nothing.
//!
//! Exit codes are an interface: 0 nothing worse than allowed, 1 findings, 2 a wrong call, or
//! something that can't be read.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gpu_dra_explain::manifest::Manifests;
use gpu_dra_lint::{Document, Finding, Fleet, Severity, lint_with};
use owo_colors::OwoColorize as _;

use super::lint_files::documents;
use super::lint_gpuclass::compiled;
use super::{explain_cluster, explain_fleet};
use crate::cluster;

/// What to check, and against which devices.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, folders with all YAML and JSON in them, or - for stdin
    #[arg(required = true, value_name = "FILE|FOLDER|-")]
    paths: Vec<PathBuf>,
    /// Against a simulated node, such as 8xh100; more of them for more nodes
    #[arg(long, value_name = "NODE", conflicts_with_all = ["slices", "cluster", "kubeconfig", "context"])]
    node: Vec<String>,
    /// Against ResourceSlices, with nodes and classes if any, from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "kubeconfig", "context"])]
    slices: Vec<PathBuf>,
    /// Against the cluster that kubectl would use
    #[arg(long)]
    cluster: bool,
    /// Against the cluster of this kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Against the cluster of this context
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// How to print it
    #[arg(long, short, value_enum, default_value = "text")]
    output: Format,
    /// Fail for warnings too
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// All that is printed.
#[derive(serde::Serialize)]
struct Answer {
    findings: Vec<Finding>,
    documents: usize,
    errors: usize,
    warnings: usize,
    hints: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (documents, fleet) = match read(args) {
        Ok(read) => read,
        // As for a wrong flag: nothing was checked, which a script must tell from findings.
        Err(error) => clap::Error::raw(clap::error::ErrorKind::Io, format!("{error:#}\n")).exit(),
    };
    let answer = Answer::new(found(&documents, fleet.as_ref()), documents.len());
    match args.output {
        Format::Json => anstream::println!("{}", serde_json::to_string_pretty(&answer)?),
        Format::Text => answer.print(),
    }
    if answer.errors > 0 || args.deny_warnings && answer.warnings > 0 {
        bail!("{}", answer.summary());
    }
    if args.output == Format::Text {
        anstream::println!("{}", answer.summary());
    }
    Ok(())
}

/// What is wrong, also with what the controller would make of GpuClasses.
fn found(documents: &[Document], fleet: Option<&Fleet>) -> Vec<Finding> {
    lint_with(documents, fleet, &compiled)
}

fn read(args: &Args) -> anyhow::Result<(Vec<Document>, Option<Fleet>)> {
    let documents = documents(&args.paths)?;
    let fleet = fleet(args).context("the fleet")?;
    Ok((documents, fleet))
}

/// The devices and classes to check against, if any are given.
fn fleet(args: &Args) -> anyhow::Result<Option<Fleet>> {
    let (name, objects, has_classes) = if !args.node.is_empty() {
        (args.node.join(", "), explain_fleet::simulated(&args.node)?, false)
    } else if !args.slices.is_empty() {
        let files = explain_fleet::read(&args.slices, "default")?;
        let has_classes = !files.classes.is_empty();
        if files.slices.is_empty() {
            bail!("no ResourceSlice in the files of --slices");
        }
        let objects = explain_fleet::of_files(files, &Manifests::default())?;
        ("the slices".to_owned(), objects, has_classes)
    } else if args.cluster || args.kubeconfig.is_some() || args.context.is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connection = cluster::as_kubectl(args.kubeconfig.as_deref(), args.context.as_deref());
        let objects = runtime.block_on(async {
            explain_cluster::objects(connection.await?, &["default".to_owned()], None).await
        })?;
        ("the cluster".to_owned(), objects, true)
    } else {
        return Ok(None);
    };
    Ok(Some(Fleet {
        name,
        slices: objects.slices,
        nodes: objects.nodes,
        classes: has_classes.then_some(objects.classes),
    }))
}

impl Answer {
    fn new(findings: Vec<Finding>, documents: usize) -> Self {
        let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
        Self {
            documents,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            hints: count(Severity::Hint),
            findings,
        }
    }

    /// `2 errors, 1 warning, 0 hints in 4 documents`.
    fn summary(&self) -> String {
        let count = |number: usize, what: &str| {
            format!("{number} {what}{}", if number == 1 { "" } else { "s" })
        };
        format!(
            "{}, {}, {} in {}",
            count(self.errors, "error"),
            count(self.warnings, "warning"),
            count(self.hints, "hint"),
            count(self.documents, "document")
        )
    }

    fn print(&self) {
        for finding in &self.findings {
            let Finding { file, line, object, path, rule, message, severity, .. } = finding;
            let place = format!("{file}:{line}:");
            let severity = match severity {
                Severity::Error => severity.red().bold().to_string(),
                Severity::Warning => severity.yellow().bold().to_string(),
                Severity::Hint => severity.cyan().to_string(),
            };
            let at = if path.is_empty() { object.clone() } else { format!("{object}, {path}") };
            anstream::println!("{} {severity}: {message}", place.bold());
            anstream::println!("    {}", format!("{at} [{rule}]").dimmed());
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::try_parse_from(["lint"].iter().chain(line)).unwrap().args
    }

    /// A folder with a clean file, one with a warning and one with an error, and others.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let request = |fields: &str| {
            format!(
                "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec: \
                 {{devices: {{requests: [{{name: gpu, exactly: {{{fields}}}}}]}}}}\n"
            )
        };
        std::fs::create_dir(dir.path().join("deeper")).unwrap();
        for (name, text) in [
            ("clean.yaml", request("deviceClassName: gpu.nvidia.com")),
            (
                "deeper/warn.yml",
                request("deviceClassName: gpu.nvidia.com, tolerations: [{operator: Exists}]"),
            ),
            ("error.json", request("deviceClassName: gpu.nvidia.com, count: 0")),
            ("README.md", "kind: [".to_owned()),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), dir.path().join("deeper/round")).unwrap();
        dir
    }

    #[test]
    fn only_what_is_denied_fails() {
        let dir = folder();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let result = |line: &[&str]| run(&args(line)).map_err(|error| error.to_string());
        assert_eq!(result(&[&path("clean.yaml"), "--deny-warnings"]), Ok(()));
        assert_eq!(result(&[&path("deeper"), "-o", "json"]), Ok(()));
        assert_eq!(
            result(&[&path("deeper"), "--deny-warnings"]),
            Err("0 errors, 1 warning, 0 hints in 1 document".to_owned())
        );
        assert_eq!(
            result(&[&path("")]),
            Err("1 error, 1 warning, 0 hints in 3 documents".to_owned())
        );
    }

    #[test]
    fn what_cant_be_read_is_named() {
        let dir = folder();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let error = |line: &[&str]| format!("{:#}", read(&args(line)).unwrap_err());
        assert!(
            error(&[&path("none.yaml")]).starts_with(&format!("can't read {}", path("none.yaml")))
        );
        assert!(error(&[&path("README.md")]).contains("not YAML or JSON"));
        let clean = path("clean.yaml");
        assert_eq!(
            error(&[&clean, "--slices", &clean]),
            "the fleet: no ResourceSlice in the files of --slices"
        );
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        assert!(error(&[&path("empty")]).starts_with("no .yaml, .yml or .json file in"));
        assert!(Line::try_parse_from(["lint"]).is_err(), "nothing to lint");
        for fleet in [["--node", "8xh100"], ["--slices", "x.yaml"]] {
            for cluster in [vec!["--cluster"], vec!["--context", "x"], vec!["--kubeconfig", "x"]] {
                let line = ["lint", "x.yaml"].iter().chain(&fleet).chain(&cluster);
                assert!(Line::try_parse_from(line).is_err(), "{fleet:?} with {cluster:?}");
            }
        }
    }

    /// The classes of a cluster are all there are.
    #[test]
    fn a_cluster_knows_its_classes() {
        use k8s_openapi::api::resource::v1::DeviceClass;

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let dir = folder();
        let kubeconfig = dir.path().join("kubeconfig").display().to_string();
        let _listener = runtime.block_on(async {
            let api = gpu_dra_lab::ApiServer::new().unwrap();
            let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
            let listener = gpu_dra_lab::Listener::start(api, address).await.unwrap();
            std::fs::write(&kubeconfig, listener.kubeconfig_yaml()).unwrap();
            let client = cluster::as_kubectl(Some(kubeconfig.as_ref()), None).await.unwrap();
            let class: DeviceClass = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "gpu.nvidia.co"},
                "spec": {"selectors": [{"cel": {"expression": "device.driver == 'x'"}}]},
            }))
            .unwrap();
            let classes: kube::Api<DeviceClass> = kube::Api::all(client);
            classes.create(&kube::api::PostParams::default(), &class).await.unwrap();
            listener
        });
        let clean = dir.path().join("clean.yaml").display().to_string();
        let (documents, fleet) = read(&args(&[&clean, "--kubeconfig", &kubeconfig])).unwrap();
        let found: Vec<String> =
            found(&documents, fleet.as_ref()).into_iter().map(|finding| finding.message).collect();
        assert_eq!(
            found,
            ["DeviceClass gpu.nvidia.com does not exist: did you mean gpu.nvidia.co?"]
        );
    }
}
