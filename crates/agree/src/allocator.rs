//! Random worlds, put to our allocator and to a real scheduler.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use gpu_dra_allocator::Rules;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::Verdict;
use crate::cluster::{Ask, Cluster, create, list};
use crate::generate::World;
use crate::judge::View;

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// How often the scheduler said can, cannot, error.
    pub verdicts: [usize; 3],
    /// What we say otherwise.
    pub differences: Vec<String>,
}

/// Compares. Worlds that every node of the cluster notices come by themselves, after all
/// others, so that those say something.
///
/// # Errors
/// The cluster doesn't answer.
pub async fn compare(cluster: &Cluster, worlds: Vec<World>) -> Result<Report> {
    let mut report = Report::default();
    let (disturbing, calm): (Vec<_>, Vec<_>) = worlds.into_iter().partition(|world| world.disturbs);
    for worlds in [calm, disturbing] {
        report.judge(cluster, &worlds).await?;
        cluster.clear().await?;
    }
    Ok(report)
}

impl Report {
    async fn judge(&mut self, cluster: &Cluster, worlds: &[World]) -> Result<()> {
        fn all<T: Clone>(worlds: &[World], part: impl Fn(&World) -> &Vec<T>) -> Vec<T> {
            worlds.iter().flat_map(|world| part(world).iter().cloned()).collect()
        }
        create(&cluster.everywhere(), all(worlds, |world| &world.nodes)).await?;
        create(&cluster.everywhere(), all(worlds, |world| &world.slices)).await?;
        create(&cluster.everywhere(), all(worlds, |world| &world.classes)).await?;
        create(&cluster.claims(), all(worlds, |world| &world.claims)).await?;
        let holders = all(worlds, |world| &world.holders);
        create(&cluster.claims(), holders.clone()).await?;
        cluster.allocate(&holders).await?;
        cluster.settle().await?;

        // As the API server has them, with its defaults.
        let view = View {
            rules: Rules::of_minor(cluster.minor),
            slices: list(&cluster.everywhere()).await?,
            classes: list(&cluster.everywhere()).await?,
            claims: cluster.all_claims().await?,
        };
        let claims: BTreeMap<&str, &ResourceClaim> = view
            .claims
            .iter()
            .filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim)))
            .collect();
        let nodes: Vec<Node> = list(&cluster.everywhere()).await?;
        let nodes: BTreeMap<&str, &Node> =
            nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, node))).collect();

        let answers = cluster.ask(&worlds.iter().flat_map(asks).collect::<Vec<_>>()).await?;
        for world in worlds {
            for ask in asks(world) {
                let theirs = answers.get(&ask.pod).context("an answer")?;
                let node = nodes.get(ask.node.as_str()).context("a node")?;
                let wanted = ask.claims.iter().map(|name| claims.get(name.as_str()).copied());
                let wanted: Vec<_> = wanted.collect::<Option<_>>().context("a claim")?;
                let (ours, outcome) = view.judge(node, &wanted);
                let [can, cannot, error] = &mut self.verdicts;
                *match theirs.verdict {
                    Verdict::Can => can,
                    Verdict::Cannot => cannot,
                    Verdict::Error => error,
                } += 1;
                if ours != theirs.verdict {
                    self.differences.push(format!(
                        "{} on {}: we say {ours:?}, the scheduler {:?}: {}\n  ours: {outcome:?}\n  world: {}",
                        ask.pod, ask.node, theirs.verdict, theirs.message, world.to_json()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// One pod with all claims of the world for each of its nodes.
fn asks(world: &World) -> impl Iterator<Item = Ask> {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let claims: Vec<String> = world.claims.iter().map(|claim| name(&claim.metadata.name)).collect();
    world.nodes.iter().map(move |node| {
        let node = name(&node.metadata.name);
        Ask { pod: node.clone(), node, claims: claims.clone() }
    })
}
