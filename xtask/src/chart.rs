//! The Helm chart of deploy/chart: makes the plain manifests of deploy/ from it, and says what
//! must hold of it.
//!
//! Its values' meaning is nobody's business here but that of the presets, which place the
//! driver. It applies nothing to a cluster; the e2e suite does.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::build::root;

/// The Kubernetes that a rendering without cluster is for.
const KUBERNETES: &str = "1.36.3";

const MADE: &str = "# Made from deploy/chart by `cargo xtask chart`: change it there.\n";

/// A preset, and what it must come to.
struct Preset {
    name: &'static str,
    driver_root: &'static str,
    /// The first key of the node affinity; None: all nodes.
    label: Option<&'static str>,
    /// Whether the priority classes get a quota.
    quota: bool,
}

const PRESETS: [Preset; 5] = [
    Preset { name: "host", driver_root: "/", label: None, quota: false },
    Preset { name: "gpu-operator", driver_root: "/run/nvidia/driver", label: None, quota: false },
    Preset {
        name: "gke",
        driver_root: "/home/kubernetes/bin/nvidia",
        label: Some("cloud.google.com/gke-accelerator"),
        quota: true,
    },
    Preset { name: "bottlerocket", driver_root: "/", label: None, quota: false },
    Preset { name: "talos", driver_root: "/", label: None, quota: false },
];

/// Values that differ from the preset's, and the objects that are then there, or not.
const OPTIONS: [(&str, &[&str], &[&str]); 9] = [
    ("openshift.scc=true", &["RoleBinding/gpu-dra-privileged", "RoleBinding/gpu-dra-nonroot"], &[]),
    ("node.healthPolicy.gpuLost=Warn", &["ConfigMap/gpu-dra-health-policy"], &[]),
    (
        "mpsHost.enabled=false",
        &[],
        &["DaemonSet/gpu-dra-mps-host", "NetworkPolicy/gpu-dra-mps-host"],
    ),
    (
        "controller.enabled=false",
        &["DeviceClass/gpu.nvidia.com"],
        &["Deployment/gpu-dra-controller", "ValidatingWebhookConfiguration/gpu-dra-configs"],
    ),
    (
        "webhook.enabled=false",
        &["Deployment/gpu-dra-controller"],
        &["Service/gpu-dra-controller", "ValidatingWebhookConfiguration/gpu-dra-configs"],
    ),
    ("deviceClasses.owner=controller", &[], &["DeviceClass/gpu.nvidia.com"]),
    ("networkPolicy.enabled=false", &[], &["NetworkPolicy/gpu-dra-node"]),
    (
        "admissionPolicy.enabled=false",
        &[],
        &["ValidatingAdmissionPolicy/gpu-dra-own-resourceslices"],
    ),
    (
        "cleanup=true",
        &["DaemonSet/gpu-dra-cleanup"],
        &["DaemonSet/gpu-dra-node", "DaemonSet/gpu-dra-mps-host", "Deployment/gpu-dra-controller"],
    ),
];

/// Values that the schema must refuse.
const REFUSED: [&str; 6] = [
    "preset=nowhere",
    "node.mgi=off",
    "kubelet.root=var/lib/kubelet",
    "controller.replicas=0",
    "image.digest=latest",
    "nodes=some",
];

/// `cargo xtask chart [--check]`.
pub(crate) fn chart(args: &[String]) -> Result<()> {
    let helm = Helm::find()?;
    let manifests = helm.manifests()?;
    if args.iter().any(|arg| arg == "--check") {
        up_to_date(&manifests)?;
        for preset in &PRESETS {
            check_preset(&helm, preset).with_context(|| format!("preset {}", preset.name))?;
        }
        for option in &OPTIONS {
            check_option(&helm, option).with_context(|| option.0.to_owned())?;
        }
        check_kubelet_root(&helm).context("kubelet.root")?;
        check_nfd(&helm).context("nodes=nfd")?;
        check_openshift(&helm).context("openshift.scc")?;
        check_network(&helm).context("NetworkPolicies")?;
        for values in REFUSED {
            let output = helm.template(&["--set", values])?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(
                !output.status.success() && said.contains("values don't meet the specifications"),
                "--set {values} isn't refused by the schema: {said}"
            );
        }
        return Ok(());
    }
    for (name, text) in manifests {
        let path = root().join("deploy").join(name);
        fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

fn up_to_date(manifests: &BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(root().join("deploy"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".yaml") {
            continue;
        }
        let there = fs::read_to_string(&path)?;
        ensure!(
            manifests.get(&name) == Some(&there),
            "deploy/{name} isn't what the chart gives: change the chart, then `cargo xtask chart`"
        );
    }
    for name in manifests.keys() {
        ensure!(root().join("deploy").join(name).exists(), "deploy/{name}: `cargo xtask chart`");
    }
    Ok(())
}

fn check_preset(helm: &Helm, preset: &Preset) -> Result<()> {
    let set = format!("preset={}", preset.name);
    helm.lint(&["--set", &set])?;
    let objects = helm.objects(&["--set", &set])?;
    for name in ["gpu-dra-node", "gpu-dra-mps-host"] {
        let set = objects.get(&format!("DaemonSet/{name}")).context("no DaemonSet")?;
        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let told = named(&container["env"], "GPU_DRA_DRIVER_ROOT")?["value"].clone();
        ensure!(told == preset.driver_root, "{name} is told {told}");
        let here = named(&container["env"], "GPU_DRA_DRIVER_ROOT_HERE")?["value"].clone();
        let mount = named(&container["volumeMounts"], "driver-root")?;
        ensure!(mount["mountPath"] == here, "{name} looks at {here} and has {mount}");
        ensure!(mount["readOnly"] == true && mount["mountPropagation"] == "HostToContainer");
        let volume = named(&pod["volumes"], "driver-root")?;
        ensure!(volume["hostPath"]["path"] == preset.driver_root, "{name} mounts {volume}");
        let terms =
            &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let label = terms["nodeSelectorTerms"][0]["matchExpressions"][0]["key"].as_str();
        ensure!(label == preset.label, "{name} selects nodes by {label:?}");
    }
    let quota = objects.contains_key("ResourceQuota/gpu-dra-priority-classes");
    ensure!(quota == preset.quota, "the quota of priority classes: {quota}");
    Ok(())
}

/// The kubelet is told paths of its own, so its folders have one path on both sides.
fn check_kubelet_root(helm: &Helm) -> Result<()> {
    let kubelet = "/var/lib/k0s/kubelet";
    let objects = helm.objects(&["--set", &format!("kubelet.root={kubelet}")])?;
    let set = objects.get("DaemonSet/gpu-dra-node").context("no DaemonSet")?;
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let told = &named(&container["env"], "GPU_DRA_KUBELET_ROOT")?["value"];
    ensure!(*told == kubelet, "the agent is told {told}");
    for (name, folder) in [
        ("plugins", "plugins"),
        ("plugins-registry", "plugins_registry"),
        ("device-plugins", "device-plugins"),
    ] {
        let path = format!("{kubelet}/{folder}");
        let inside = &named(&container["volumeMounts"], name)?["mountPath"];
        let outside = &named(&pod["volumes"], name)?["hostPath"]["path"];
        ensure!(*inside == path && *outside == path, "{outside} is mounted at {inside}");
    }
    Ok(())
}

/// Any one of the labels that say that a node has NVIDIA hardware.
fn check_nfd(helm: &Helm) -> Result<()> {
    let objects = helm.objects(&["--set", "nodes=nfd"])?;
    for name in ["gpu-dra-node", "gpu-dra-mps-host"] {
        let set = objects.get(&format!("DaemonSet/{name}")).context("no DaemonSet")?;
        let affinity = &set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        let terms =
            &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let terms = terms.as_array().context("no affinity")?;
        let one = |key: &str| {
            terms.iter().any(|term| {
                let all = term["matchExpressions"].as_array();
                all.is_some_and(|all| matches!(all.as_slice(), [only] if only["key"] == key))
            })
        };
        for id in ["10de", "0302_10de", "0300_10de"] {
            let key = format!("feature.node.kubernetes.io/pci-{id}.present");
            ensure!(one(&key), "{name} doesn't run on nodes that have but {key}");
        }
    }
    Ok(())
}

/// The bindings are there where the cluster is an OpenShift.
fn check_openshift(helm: &Helm) -> Result<()> {
    let binding = "RoleBinding/gpu-dra-privileged";
    ensure!(
        !helm.objects(&[])?.contains_key(binding),
        "{binding} is there without being asked for"
    );
    let api = ["--api-versions", "security.openshift.io/v1"];
    ensure!(helm.objects(&api)?.contains_key(binding), "{binding} is missing on an OpenShift");
    let off = helm.objects(&[&api[..], &["--set", "openshift.scc=false"]].concat())?;
    ensure!(!off.contains_key(binding), "{binding} is there though it is switched off");
    Ok(())
}

/// Only what is served can be reached.
fn check_network(helm: &Helm) -> Result<()> {
    let objects = helm.objects(&[])?;
    for (name, ports) in [
        ("gpu-dra-node", &["http"][..]),
        ("gpu-dra-controller", &["http", "webhook"]),
        ("gpu-dra-mps-host", &[]),
    ] {
        let policy = objects.get(&format!("NetworkPolicy/{name}")).context("no NetworkPolicy")?;
        let rules = policy["spec"]["ingress"].as_array().into_iter().flatten();
        let open: Vec<_> = rules
            .flat_map(|rule| rule["ports"].as_array().into_iter().flatten())
            .map(|port| port["port"].as_str().unwrap_or_default())
            .collect();
        ensure!(open == ports, "{name} can be reached at {open:?}");
        let labels = &policy["spec"]["podSelector"]["matchLabels"];
        let kind = if name == "gpu-dra-controller" { "Deployment" } else { "DaemonSet" };
        let pods = &objects.get(&format!("{kind}/{name}")).context("no pods")?["spec"];
        ensure!(pods["selector"]["matchLabels"] == *labels, "{name} selects {labels}");
    }
    Ok(())
}

fn named<'a>(list: &'a Value, name: &str) -> Result<&'a Value> {
    let mut list = list.as_array().into_iter().flatten();
    list.find(|item| item["name"] == name).with_context(|| format!("there is no {name}"))
}

fn check_option(helm: &Helm, (values, there, gone): &(&str, &[&str], &[&str])) -> Result<()> {
    helm.lint(&["--set", values])?;
    let objects = helm.objects(&["--set", values])?;
    for name in *there {
        ensure!(objects.contains_key(*name), "{name} is missing");
    }
    for name in *gone {
        ensure!(!objects.contains_key(*name), "{name} is still there");
    }
    Ok(())
}

struct Helm(PathBuf);

impl Helm {
    fn find() -> Result<Self> {
        let output = Command::new(root().join("e2e/build/helm-path")).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Self(String::from_utf8(output.stdout)?.trim().into()))
    }

    fn call(&self, args: &[&str], more: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command.args(args).args(["--kube-version", KUBERNETES, "--namespace", "gpu-dra"]);
        command.args(more).current_dir(root());
        command.output().with_context(|| format!("can't start {command:?}"))
    }

    fn lint(&self, more: &[&str]) -> Result<()> {
        let output = self.call(&["lint", "--strict", "deploy/chart"], more)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    }

    fn template(&self, more: &[&str]) -> Result<Output> {
        self.call(&["template", "gpu-dra", "deploy/chart", "--include-crds"], more)
    }

    /// All that is rendered with these values.
    fn rendered(&self, more: &[&str]) -> Result<String> {
        let output = self.template(more)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The same as objects, by kind and name; two of one name are an error.
    fn objects(&self, more: &[&str]) -> Result<BTreeMap<String, Value>> {
        let mut objects = BTreeMap::new();
        for object in serde_saphyr::from_multiple::<Value>(&self.rendered(more)?)? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]));
            ensure!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
        }
        Ok(objects)
    }

    /// The plain manifests, by file: the chart with its default values, and the namespace.
    fn manifests(&self) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::<String, String>::new();
        let text = self.rendered(&["--set", "namespace.create=true"])?;
        for document in text.split("---\n# Source: gpu-dra/").skip(1) {
            let Some((source, content)) = document.split_once('\n') else {
                bail!("Helm gives a document without content: {document}");
            };
            let name = source.rsplit('/').next().unwrap_or(source);
            let file = files.entry(name.to_owned()).or_default();
            file.push_str(if file.is_empty() { MADE } else { "---\n" });
            file.push_str(content.trim_end());
            file.push('\n');
        }
        Ok(files)
    }
}
