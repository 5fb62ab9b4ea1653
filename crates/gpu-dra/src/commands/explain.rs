//! `gpu-dra explain`, and by the name kubectl-gpu `kubectl gpu explain`: why a pod or claim
//! gets no device, on a cluster, on a simulated fleet, or with slices from a file. It reads
//! only what kubectl may, and changes nothing.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gpu_dra_explain::manifest::Manifests;
use gpu_dra_explain::text::{Style, render};
use gpu_dra_explain::{Advice, Cluster, Explainer, Known, Question, Report};
use owo_colors::OwoColorize as _;

use super::explain_cluster::{self, Objects};
use super::explain_fleet;
use crate::cluster;

/// What to explain, and with which devices.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    explain pod trainer -n team-a\n  \
    explain -f trainer.yaml\n  \
    explain -f trainer.yaml --node 8xh100 --node 4xl4")]
pub(crate) struct Args {
    /// A pod or a claim of the cluster
    #[arg(value_enum, requires = "name", required_unless_present = "file")]
    kind: Option<Kind>,
    /// Its name
    name: Option<String>,
    /// Manifests that need not be applied yet: each pod in them, or each claim; - for stdin
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "kind")]
    file: Vec<PathBuf>,
    /// The namespace, where an object names none
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// A simulated node instead of a cluster, such as 8xh100; more of them for more nodes
    #[arg(long, value_name = "NODE", requires = "file", conflicts_with_all = ["kubeconfig", "context"])]
    node: Vec<String>,
    /// ResourceSlices, with nodes, classes and claims if any, from a file instead of a cluster
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with_all = ["node", "kubeconfig", "context"])]
    slices: Vec<PathBuf>,
    /// The cluster's kubeconfig; as kubectl finds it where none is given
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in it
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// How to print it
    #[arg(long, short, value_enum, default_value = "text")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A pod with all its claims
    Pod,
    /// A ResourceClaim
    #[value(alias = "resourceclaim")]
    Claim,
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
    /// What the API server would refuse or warn of, in the files.
    advice: Vec<Advice>,
    reports: Vec<Report>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let files = explain_fleet::read(&args.file, &args.namespace)?;
    let mut objects = if args.node.is_empty() && args.slices.is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connection = cluster::as_kubectl(args.kubeconfig.as_deref(), args.context.as_deref());
        runtime.block_on(async {
            let client = connection.await?;
            explain_cluster::objects(client, &args.namespaces(&files), args.subject()).await
        })?
    } else if args.node.is_empty() {
        explain_fleet::of_files(explain_fleet::read(&args.slices, &args.namespace)?, &files)?
    } else {
        explain_fleet::simulated(&args.node)?
    };
    objects.lay_over(&files);
    let answer = answer(args, &objects, &files)?;
    match args.output {
        Format::Json => anstream::println!("{}", serde_json::to_string_pretty(&answer)?),
        Format::Text => print(&answer),
    }
    Ok(())
}

impl Args {
    /// The namespaces that have a say, that of the pod first.
    fn namespaces(&self, files: &Manifests) -> Vec<String> {
        let mut namespaces = vec![self.namespace.clone()];
        let pods = files.pods.iter().map(|pod| &pod.metadata);
        let claims = files.claims.iter().map(|claim| &claim.metadata);
        let templates = files.templates.iter().map(|template| &template.metadata);
        let all = pods.chain(claims).chain(templates);
        for namespace in all.filter_map(|metadata| metadata.namespace.as_ref()) {
            if !namespaces.contains(namespace) {
                namespaces.push(namespace.clone());
            }
        }
        namespaces
    }

    /// The one pod that is asked about.
    fn subject(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| self.kind == Some(Kind::Pod))
    }
}

fn answer(args: &Args, objects: &Objects, files: &Manifests) -> anyhow::Result<Answer> {
    let questions = questions(args, objects, files)?;
    let admin = objects.admin_access();
    let cluster = Cluster {
        slices: &objects.slices,
        classes: &objects.classes,
        claims: &objects.claims,
        nodes: &objects.nodes,
        admin_access: Some(&admin),
    };
    let mut explainer = Explainer::new(cluster).with_rules(objects.rules);
    let all = objects.nodes.len();
    let mut progress = explain_cluster::Progress::new("nodes explained", Some(all));
    let mut advice = objects.notes.clone();
    let mut reports: Vec<Report> = Vec::new();
    for question in questions {
        // Pods of a file come one after the other, each after those before it.
        let question = question.refused_by(&files.refused);
        reports.push(explainer.explain_and_take(&question, &mut |done| progress.show(done)));
    }
    progress.end();
    // What no report is about.
    let refused = files.refused.iter().map(|refusal| &refusal.advice);
    let refused = refused.filter(|a| !reports.iter().any(|report| report.advice.contains(a)));
    advice.extend(refused.chain(&files.warnings).cloned());
    Ok(Answer { advice, reports })
}

fn questions(args: &Args, objects: &Objects, files: &Manifests) -> anyhow::Result<Vec<Question>> {
    let known =
        Known { claims: &objects.claims, templates: &objects.templates, classes: &objects.classes };
    let (Some(kind), Some(name)) = (args.kind, &args.name) else {
        let mut questions: Vec<Question> =
            files.pods.iter().map(|pod| Question::of_pod(pod, &known)).collect();
        if questions.is_empty() {
            questions.extend(files.claims.iter().map(Question::of_claim));
            questions.extend(files.templates.iter().map(Question::of_template));
        }
        if questions.is_empty() && files.refused.is_empty() {
            bail!("no pod, ResourceClaim or ResourceClaimTemplate in the files");
        }
        return Ok(questions);
    };
    let namespace = &args.namespace;
    match kind {
        Kind::Pod => {
            let pod = objects.pod.as_ref().with_context(|| format!("no pod {namespace}/{name}"))?;
            Ok(vec![Question::of_pod(pod, &known)])
        }
        Kind::Claim => {
            let claim = objects.claims.iter().find(|claim| {
                claim.metadata.name.as_ref() == Some(name)
                    && claim.metadata.namespace.as_ref() == Some(namespace)
            });
            let claim = claim.with_context(|| format!("no claim {namespace}/{name}"))?;
            Ok(vec![Question::of_claim(claim)])
        }
    }
}

fn print(answer: &Answer) {
    for advice in &answer.advice {
        anstream::println!("{} {}: {}", "!".yellow(), advice.about, advice.problem);
        if let Some(fix) = &advice.fix {
            anstream::println!("    {} {fix}", "->".yellow());
        }
    }
    for report in &answer.reports {
        anstream::print!("{}", render(report, &paint));
    }
}

fn paint(style: Style, text: &str) -> String {
    match style {
        Style::Good => text.green().to_string(),
        Style::Bad => text.red().to_string(),
        Style::Hint => text.yellow().to_string(),
        Style::Strong => text.bold().to_string(),
        Style::Dim => text.dimmed().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gpu_dra_explain::Verdict;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_fleet_is_one_thing() {
        for fleet in [["--node", "8xh100"], ["--slices", "x.yaml"]] {
            for cluster in ["--kubeconfig", "--context"] {
                let line = ["explain", "-f", "x.yaml"].iter().chain(&fleet).chain([&cluster, &"x"]);
                let error = Line::try_parse_from(line).unwrap_err();
                assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
            }
        }
    }

    /// What a file says is refused is in the report on what uses it, and told once.
    #[test]
    fn what_is_refused_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        let class = "{apiVersion: gpu-dra.io/v1alpha1, kind: GpuClass, metadata: {name: big}, spec: {memoryAtLeast: 0}}";
        let claim = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: big}}]}}}";
        let unused = "{apiVersion: v1, kind: Node, metadata: 3}";
        std::fs::write(&file, format!("{class}\n---\n{claim}\n---\n{unused}\n")).unwrap();
        let file = file.to_str().unwrap();
        let line = ["explain", "-f", file, "--slices", file];
        let args = Line::try_parse_from(line).unwrap().args;
        let files = explain_fleet::read(&args.file, "default").unwrap();
        let mut objects = explain_fleet::of_files(Manifests::default(), &files).unwrap();
        objects.lay_over(&files);
        let answer = answer(&args, &objects, &files).unwrap();
        let [report] = answer.reports.as_slice() else { panic!("{:?}", answer.reports) };
        assert_eq!(report.verdict, Verdict::Rejected, "{report:?}");
        assert!(report.advice[0].about.starts_with("GpuClass big"), "{report:?}");
        let [other] = answer.advice.as_slice() else { panic!("{:?}", answer.advice) };
        assert!(other.about.starts_with("Node"), "{other:?}");
    }
}
