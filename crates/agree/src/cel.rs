//! The table of selectors, put to a real API server as classes and to a real scheduler as
//! claims of those classes.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use serde_json::json;

use crate::cluster::{Answer, Ask, Cluster, claim, create, node, try_create};
use crate::table::Row;
use crate::{Verdict, object};

/// The API's limit on the length of an expression, in bytes.
const LONGEST: usize = 10 * 1024;

/// Two rows more, which would be too long to read in a file.
fn long_rows(devices: usize) -> [Row; 2] {
    let long = |bytes: usize| format!("true // {}", "x".repeat(bytes - "true // ".len()));
    let row =
        |bytes, on_devices| Row { expression: long(bytes), on_devices, versions: (0, u32::MAX) };
    [row(LONGEST, Some(vec![Verdict::Can; devices])), row(LONGEST + 1, None)]
}

/// Compares; what differs, in sentences.
///
/// # Errors
/// The cluster doesn't answer.
pub async fn compare(
    cluster: &Cluster,
    table: Vec<Row>,
    slices: Vec<ResourceSlice>,
) -> Result<Report> {
    let nodes: Vec<String> =
        slices.iter().filter_map(|slice| slice.spec.node_name.clone()).collect();
    ensure!(nodes.len() == slices.len(), "each device needs a node of its own");
    let all = table.len();
    let holds = |row: &Row| (row.versions.0..=row.versions.1).contains(&cluster.minor);
    let mut rows: Vec<Row> = table.into_iter().filter(holds).collect();
    let mut report = Report { left_out: all - rows.len(), ..Report::default() };
    rows.extend(long_rows(nodes.len()));

    create(
        &cluster.everywhere(),
        nodes.iter().map(|name| node(name, json!({}))).collect::<Result<_>>()?,
    )
    .await?;
    create(&cluster.everywhere(), slices).await?;
    let accepted = report.creation(cluster, &rows).await?;
    let claims = accepted.iter().map(|&index| claim(&name(index), &name(index)));
    create(&cluster.claims(), claims.collect::<Result<_>>()?).await?;
    cluster.settle().await?;

    let pod = |index: usize, node: &str| format!("{}-{node}", name(index));
    let asks: Vec<Ask> = accepted
        .iter()
        .flat_map(|&index| {
            nodes.iter().map(move |node| Ask {
                pod: pod(index, node),
                node: node.clone(),
                claims: vec![name(index)],
            })
        })
        .collect();
    let answers = cluster.ask(&asks).await?;
    for index in accepted {
        let row = rows.get(index).context("a row")?;
        for (node, want) in nodes.iter().zip(row.on_devices.iter().flatten()) {
            let answer = answers.get(&pod(index, node)).context("an answer")?;
            report.result(&row.expression, node, *want, answer);
        }
    }
    Ok(report)
}

/// What objects are called that belong to a row.
fn name(row: usize) -> String {
    format!("agree-{row}")
}

fn class(row: usize, expression: &str) -> Result<DeviceClass> {
    let selector = json!({"cel": {"expression": expression}});
    object(json!({"metadata": {"name": name(row)}, "spec": {"selectors": [selector]}}))
}

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// Rows that are not for this version of Kubernetes.
    pub left_out: usize,
    /// Expressions that the API server took, and that it refused.
    pub taken: (usize, usize),
    /// Results compared.
    pub results: usize,
    /// What differs from the table.
    pub differences: Vec<String>,
}

impl Report {
    /// Makes a class of each row; those that the API server takes, as the table says.
    async fn creation(&mut self, cluster: &Cluster, rows: &[Row]) -> Result<Vec<usize>> {
        let classes = rows.iter().enumerate().map(|(index, row)| class(index, &row.expression));
        let made = try_create(&cluster.everywhere(), classes.collect::<Result<_>>()?).await;
        let mut accepted = Vec::new();
        for ((index, row), made) in rows.iter().enumerate().zip(made) {
            let said = match made {
                Ok(_) => {
                    self.taken.0 += 1;
                    None
                }
                Err(kube::Error::Api(status)) if status.code == 422 => {
                    self.taken.1 += 1;
                    Some(status.message)
                }
                Err(error) => return Err(error).context("a class was not judged"),
            };
            match (&row.on_devices, said) {
                (Some(_), None) => accepted.push(index),
                (None, Some(_)) => {}
                (Some(_), Some(said)) => {
                    self.differences.push(format!("{}: refused: {said}", row.expression));
                }
                (None, None) => self.differences.push(format!("{}: taken", row.expression)),
            }
        }
        Ok(accepted)
    }

    fn result(&mut self, expression: &str, node: &str, want: Verdict, answer: &Answer) {
        self.results += 1;
        let of_cel =
            answer.verdict != Verdict::Error || answer.message.contains("CEL runtime error");
        if answer.verdict != want || !of_cel {
            let Answer { verdict, message } = answer;
            let difference =
                format!("{expression}: on {node} {verdict:?}, not {want:?}: {message}");
            self.differences.push(difference);
        }
    }
}
