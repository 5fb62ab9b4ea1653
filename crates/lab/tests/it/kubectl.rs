//! Stock kubectl against the lab over HTTP.

use std::process::{Command, Output};

use super::support::Home;

const MANIFEST: &str = "\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-a-gpu}
spec:
  driver: gpu.nvidia.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {type: {string: gpu}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors:
  - cel: {expression: device.driver == 'gpu.nvidia.com'}
---
apiVersion: v1
kind: Pod
metadata: {name: idle, labels: {app: idle}}
spec:
  containers:
  - {name: main, image: busybox}
";

/// kubectl's programs that can be found: the one on the PATH, and others named in `KUBECTL` (colons between).
fn programs() -> Vec<String> {
    let others = std::env::var("KUBECTL").unwrap_or_default();
    let named = others.split(':').filter(|path| !path.is_empty()).map(str::to_owned);
    let found: Vec<String> = std::iter::once("kubectl".to_owned())
        .chain(named)
        .filter(|program| Command::new(program).args(["version", "--client"]).output().is_ok())
        .collect();
    if found.is_empty() {
        println!("SKIPPED: no kubectl on the PATH");
    }
    found
}

struct Kubectl {
    program: String,
    config: std::path::PathBuf,
}

impl Kubectl {
    fn new(program: &str, home: &Home) -> Self {
        let config = home.dir.path().join("kubeconfig");
        std::fs::write(&config, home.lab.kubeconfig_yaml()).unwrap();
        std::fs::write(home.dir.path().join("manifest.yaml"), MANIFEST).unwrap();
        Self { program: program.to_owned(), config }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        let home = self.config.parent().unwrap();
        command.current_dir(home).env("HOME", home).env("KUBECONFIG", &self.config);
        command.args(arguments.split(' '));
        command
    }

    async fn run(&self, arguments: &str) -> Output {
        let mut command = self.command(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// The output of a command that must succeed.
    async fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments}: {text}{errors}", self.program);
        text
    }

    /// What a command that must fail complains of.
    async fn fails(&self, arguments: &str) -> String {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// The words of each line.
fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_the_real_servers_columns() {
    for program in programs() {
        let home = Home::new().await;
        let kubectl = Kubectl::new(&program, &home);
        kubectl.ok("apply -f manifest.yaml").await;
        let slices = kubectl.ok("get resourceslices").await;
        assert_eq!(cells(&slices)[0], ["NAME", "NODE", "DRIVER", "POOL", "AGE"]);
        assert_eq!(cells(&slices)[1][..4], ["node-a-gpu", "node-a", "gpu.nvidia.com", "node-a"]);
        assert_eq!(cells(&kubectl.ok("get deviceclass").await)[0], ["NAME", "AGE"]);
        let nodes = kubectl.ok("get no").await;
        assert_eq!(cells(&nodes)[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
        assert_eq!(cells(&nodes)[1][..3], ["node-a", "Ready", "<none>"]);
        let pods = kubectl.ok("get pods -A").await;
        assert_eq!(cells(&pods)[0], ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
        home.until_phase("idle", "Running").await;
        let pods = kubectl.ok("get pod idle -o wide").await;
        assert_eq!(cells(&pods)[1][..4], ["idle", "1/1", "Running", "0"]);
        assert!(
            kubectl.ok("get events").await.contains("Successfully assigned default/idle to node-a")
        );
        assert_eq!(
            kubectl.ok("get resourceslice -o jsonpath={.items[*].spec.devices[*].name}").await,
            "gpu-0"
        );
        assert!(kubectl.ok("describe pod idle").await.contains("Scheduled"));
        assert!(kubectl.ok("describe resourceslice node-a-gpu").await.contains("gpu.nvidia.com"));
        assert!(kubectl.ok("describe node node-a").await.contains("KubeletReady"));
        assert!(kubectl.ok("api-resources").await.contains("resourceclaimtemplates"));
        assert!(kubectl.ok("explain resourceslice.spec.pool").await.contains("resourceSliceCount"));
        assert!(kubectl.ok("delete pod idle --timeout=20s").await.contains("deleted"));
        assert!(kubectl.fails("get pod idle").await.contains("pods \"idle\" not found"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_works_on_both_sides() {
    for program in programs() {
        let home = Home::new().await;
        let kubectl = Kubectl::new(&program, &home);
        for side in ["", " --server-side"] {
            let apply = format!("apply{side} -f manifest.yaml");
            let first = kubectl.ok(&apply).await;
            assert_eq!(first.lines().count(), 3, "{first}");
            kubectl.ok(&apply).await;
            let changed = MANIFEST.replace("app: idle", "app: busy");
            std::fs::write(home.dir.path().join("changed.yaml"), changed).unwrap();
            kubectl.ok(&format!("apply{side} -f changed.yaml")).await;
            assert_eq!(kubectl.ok("get pod idle -o jsonpath={.metadata.labels.app}").await, "busy");
            kubectl.ok("delete -f manifest.yaml --timeout=20s").await;
        }
        let unchanged = kubectl.ok("apply -f manifest.yaml").await
            + &kubectl.ok("apply -f manifest.yaml").await;
        assert_eq!(unchanged.matches("unchanged").count(), 3, "{unchanged}");
        // Now the fields are kubectl's, by client-side apply.
        kubectl.ok("label pod idle app=other --overwrite").await;
        let conflict =
            kubectl.fails("apply --server-side --field-manager=me -f manifest.yaml").await;
        assert!(conflict.contains("conflict with \"kubectl-label\""), "{conflict}");
        kubectl
            .ok("apply --server-side --field-manager=me --force-conflicts -f manifest.yaml")
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_manifest_is_refused_in_the_servers_words() {
    for program in programs() {
        let home = Home::new().await;
        let kubectl = Kubectl::new(&program, &home);
        let file = home.dir.path().join("wrong.yaml");
        std::fs::write(&file, MANIFEST.replace("nodeName:", "nodename:")).unwrap();
        let refused = kubectl.fails("apply -f wrong.yaml").await;
        assert!(refused.contains("unknown field \"spec.nodename\""), "{refused}");
        std::fs::write(&file, MANIFEST.replace("name: gpu-0", "name: gpu.0")).unwrap();
        let refused = kubectl.fails("create -f wrong.yaml").await;
        assert!(
            refused
                .contains("spec.devices[0].name: Invalid value: \"gpu.0\": must not contain dots"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn get_watch_follows() {
    for program in programs() {
        let home = Home::new().await;
        let kubectl = Kubectl::new(&program, &home);
        kubectl.ok("apply -f manifest.yaml").await;
        let mut command = kubectl.command("get resourceslices --watch");
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
        tokio::task::spawn_blocking(move || {
            use std::io::BufRead;
            for line in std::io::BufReader::new(out).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let mut next = async || {
            let line = tokio::time::timeout(std::time::Duration::from_secs(20), read.recv()).await;
            line.expect("a line within 20 s").expect("kubectl is still there")
        };
        assert!(next().await.starts_with("NAME"));
        assert!(next().await.starts_with("node-a-gpu"));
        home.create(&gpu_dra_lab::kinds::RESOURCE_SLICE, super::support::slice("second", &[]));
        assert!(next().await.starts_with("second"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
