//! `node.json`: the hardware of one simulated node, made from a `--node` and then fixed.

use serde::{Deserialize, Serialize};

use crate::identity;
use crate::node_type::{Board, FabricKind, NodeType};
use crate::spec::NodeSpec;
use crate::stage::DeviceNodes;
use crate::topology::{Place, places};

/// Everything about a node that doesn't change while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// What the identities were made from.
    pub seed: String,
    /// The driver.
    pub driver: Driver,
    /// Where `/proc` of this node lies, relative to the state directory.
    pub proc_root: String,
    /// Where `/dev` of this node lies, relative to the state directory.
    pub dev_root: String,
    /// What stands in `/dev`.
    pub device_nodes: DeviceNodes,
    /// In NVML's order: by PCI address.
    pub gpus: Vec<Gpu>,
}

/// Versions of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// `nvmlSystemGetDriverVersion`.
    pub version: String,
    /// `nvmlSystemGetCudaDriverVersion_v2`: 13000 is 13.0.
    pub cuda: i32,
}

impl Driver {
    /// The driver of that version with the CUDA version that its branch serves.
    #[must_use]
    pub fn of(version: &str) -> Self {
        let branch = version.split('.').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let cuda = match branch {
            0..525 => 11040,
            525..535 => 12000,
            535..550 => 12020,
            550..555 => 12040,
            555..560 => 12050,
            560..565 => 12060,
            565..570 => 12070,
            570..575 => 12080,
            575..580 => 12090,
            580..590 => 13000,
            590..595 => 13010,
            595..610 => 13020,
            610..615 => 13030,
            _ => 13040,
        };
        Self { version: version.to_owned(), cuda }
    }

    /// `nvmlSystemGetNVMLVersion`.
    #[must_use]
    pub fn nvml(&self) -> String {
        format!("{}.{}", self.cuda / 1000, self.version)
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// The catalogue's name of its type.
    pub node_type: String,
    /// `nvmlDeviceGetUUID`.
    pub uuid: String,
    /// `nvmlDeviceGetSerial`.
    pub serial: String,
    /// `nvmlDeviceGetMinorNumber`.
    pub minor: u32,
    /// Where it sits.
    #[serde(flatten)]
    pub place: Place,
    /// The NVLink fabric that it has joined.
    pub fabric: Option<Fabric>,
    /// Whether MIG mode is on when the node is made.
    pub mig_at_start: bool,
    /// `nvmlDeviceGetVirtualizationMode`: 0 none, 1 passthrough.
    pub virtualization: u32,
    /// The model.
    pub model: NodeType,
}

/// Membership in an NVLink fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// UUID of the cluster; all zero inside one machine.
    pub cluster: String,
    /// Number of the clique.
    pub clique: u32,
}

/// The cluster of a machine whose switches are its own.
pub const NO_CLUSTER: &str = "00000000-0000-0000-0000-000000000000";

impl Node {
    /// The node that a `--node` describes.
    #[must_use]
    pub fn build(spec: &NodeSpec) -> Self {
        let members: Vec<_> = spec
            .groups
            .iter()
            .flat_map(|group| (0..group.count).map(move |nth| (group, nth)))
            .filter_map(|(group, nth)| {
                Some((group, nth, NodeType::named(group.node_type)?.clone()))
            })
            .collect();
        let boards: Vec<_> = members.iter().map(|(_, _, model)| model.board).collect();
        let mut gpus: Vec<Gpu> = Vec::with_capacity(members.len());
        for ((ordinal, (group, nth, model)), place) in
            members.into_iter().enumerate().zip(places(&boards))
        {
            let first = u32::try_from(ordinal).unwrap_or(0) - nth;
            let detail = ordinal.to_string();
            // Two GPUs of a Grace board are one part and share its serial number.
            let board = if model.board == Board::Grace { ordinal / 2 * 2 } else { ordinal };
            gpus.push(Gpu {
                node_type: group.node_type.to_owned(),
                uuid: format!("GPU-{}", identity::uuid("gpu", &spec.seed, &detail)),
                serial: identity::serial(&spec.seed, &board.to_string()),
                minor: first + minor_in_group(model.board, nth, group.count),
                place,
                fabric: fabric(&model, group.clique, group.cluster.as_deref()),
                mig_at_start: group.mig && model.mig.is_some(),
                virtualization: 0,
                model,
            });
        }
        gpus.sort_by_key(|gpu| gpu.place.pci);
        Self {
            seed: spec.seed.clone(),
            driver: Driver::of(&spec.driver),
            proc_root: "../proc".to_owned(),
            dev_root: "../dev".to_owned(),
            device_nodes: DeviceNodes::PlainFiles,
            gpus,
        }
    }

    /// The position of a GPU by its position, UUID or PCI address.
    #[must_use]
    pub fn position(&self, selector: &str) -> Option<usize> {
        let by_number = selector.parse().ok().filter(|nth| *nth < self.gpus.len());
        by_number.or_else(|| {
            self.gpus.iter().position(|gpu| {
                gpu.uuid == selector
                    || gpu.place.pci.to_string().eq_ignore_ascii_case(selector)
                    || gpu.place.pci.nvml().eq_ignore_ascii_case(selector)
            })
        })
    }
}

/// On A100 baseboards the minors follow another order than the PCI addresses do: 2, 3, 0, 1,
/// 6, 7, 4, 5. Elsewhere they are the same.
fn minor_in_group(board: Board, nth: u32, count: u32) -> u32 {
    let swapped = nth ^ 2;
    if board == Board::HgxA100 && swapped < count { swapped } else { nth }
}

fn fabric(model: &NodeType, clique: Option<u32>, cluster: Option<&str>) -> Option<Fabric> {
    match model.fabric {
        FabricKind::None => None,
        FabricKind::Nvswitch => Some(Fabric { cluster: NO_CLUSTER.to_owned(), clique: 0 }),
        FabricKind::Nvl72 => Some(Fabric {
            cluster: cluster.map_or_else(|| identity::uuid("cluster", "rack", "0"), str::to_owned),
            clique: clique.unwrap_or(2),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn node(text: &str) -> Node {
        Node::build(&NodeSpec::parse(text).unwrap())
    }

    #[test]
    fn every_type_makes_a_node_that_survives_its_file() {
        for name in NodeType::all().keys() {
            let made = node(&format!("16x{name}"));
            assert_eq!(made.gpus.len(), 16);
            for unique in [
                made.gpus.iter().map(|gpu| gpu.uuid.clone()).collect::<BTreeSet<_>>(),
                made.gpus.iter().map(|gpu| gpu.minor.to_string()).collect(),
            ] {
                assert_eq!(unique.len(), 16, "{name}");
            }
            let text = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<Node>(&text).unwrap(), made, "{name}");
        }
    }

    #[test]
    fn minors_of_an_a100_board_are_not_the_indexes() {
        let minors: Vec<_> = node("8xa100-80").gpus.iter().map(|gpu| gpu.minor).collect();
        assert_eq!(minors, [2, 3, 0, 1, 6, 7, 4, 5]);
        let minors: Vec<_> = node("8xh100").gpus.iter().map(|gpu| gpu.minor).collect();
        assert_eq!(minors, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn seeds_tell_nodes_apart_but_not_their_rack() {
        let (one, two) = (node("4xgb200:seed=a"), node("4xgb200:seed=b"));
        assert_ne!(one.gpus[0].uuid, two.gpus[0].uuid);
        assert_eq!(one.gpus[0].fabric, two.gpus[0].fabric);
        assert_eq!(one.gpus[0].serial, one.gpus[1].serial);
        assert_ne!(one.gpus[0].serial, one.gpus[2].serial);
    }

    #[test]
    fn a_mixed_node_is_in_pci_order() {
        let mixed = node("4xa100-40+2xl4");
        assert!(mixed.gpus.is_sorted_by_key(|gpu| gpu.place.pci));
        assert_eq!(mixed.gpus.iter().filter(|gpu| gpu.node_type == "l4").count(), 2);
        let last = &mixed.gpus[5];
        assert_eq!(mixed.position(&last.uuid), Some(5));
        assert_eq!(mixed.position(&last.place.pci.to_string()), Some(5));
        assert_eq!(mixed.position("5"), Some(5));
        assert_eq!(mixed.position("6"), None);
    }

    #[test]
    fn the_driver_branch_decides_the_cuda_version() {
        assert_eq!(Driver::of("550.90.12"), Driver { version: "550.90.12".into(), cuda: 12040 });
        assert_eq!(Driver::of("550.90.12").nvml(), "12.550.90.12");
        assert_eq!(Driver::of("580.105.08").cuda, 13000);
        assert_eq!(Driver::of("615.23").cuda, 13040);
    }
}
