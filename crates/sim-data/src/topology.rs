//! Where GPUs sit: PCI addresses behind root ports and switches, sockets, module ids.
//!
//! Two sockets; on SXM boards two GPUs share a switch, cards have a root port each. Grace
//! trays and DGX Spark have a PCI domain for each GPU.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::node_type::Board;

/// A PCI address; the function is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
}

impl fmt::Display for PciAddress {
    /// As sysfs has it: `0000:3b:00.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl PciAddress {
    /// As NVML has it: `00000000:3B:00.0`.
    #[must_use]
    pub fn nvml(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

/// Where one GPU sits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The GPU's own address.
    pub pci: PciAddress,
    /// The root complex as sysfs names it, `pci0000:07`.
    pub pcie_root: String,
    /// The bridges between root and GPU, outermost first.
    pub bridges: Vec<PciAddress>,
    /// `numa_node` in sysfs; -1 is none.
    pub numa_node: i32,
    /// `nvmlDeviceGetNumaNodeId`: the node of coherent GPU memory.
    pub memory_numa_node: Option<u32>,
    /// `nvmlDeviceGetModuleId`.
    pub module_id: u32,
}

/// Gives places to the GPUs of a node, board by board.
pub(crate) fn places(boards: &[Board]) -> Vec<Place> {
    let with_slots = boards.iter().filter(|board| has_slots(**board)).count();
    let mut slots = Slots { total: with_slots, ..Slots::default() };
    let mut own_domain = 0;
    let mut modules = 0;
    boards
        .iter()
        .map(|board| {
            let place = match board {
                Board::Pcie => slots.card(),
                Board::HgxA100 | Board::Hgx => {
                    modules += 1;
                    slots.module(SXM_MODULES[(modules - 1) % SXM_MODULES.len()])
                }
                Board::Grace => grace(own_domain),
                Board::Spark => spark(own_domain),
            };
            if !has_slots(*board) {
                own_domain += 1;
            }
            place
        })
        .collect()
}

/// The module ids in PCI order of an H100 baseboard that was seen.
const SXM_MODULES: [u32; 8] = [7, 5, 6, 8, 1, 3, 4, 2];

fn has_slots(board: Board) -> bool {
    matches!(board, Board::Pcie | Board::HgxA100 | Board::Hgx)
}

#[derive(Default)]
struct Slots {
    total: usize,
    used: usize,
    roots: [u32; 2],
    /// The second port of a switch, with its socket.
    open: Option<(usize, u32)>,
}

impl Slots {
    fn socket(&mut self) -> usize {
        let socket = self.used * 2 / self.total.max(1);
        self.used += 1;
        socket.min(1)
    }

    /// The first bus of the next root complex of a socket.
    fn root(&mut self, socket: usize) -> u32 {
        let nth = self.roots.get_mut(socket).map_or(0, |count| {
            *count += 1;
            *count - 1
        });
        let first = if socket == 0 { 0x07 } else { 0x87 };
        first + 0x0e * nth
    }

    fn card(&mut self) -> Place {
        let socket = self.socket();
        let base = self.root(socket);
        self.open = None;
        place(address(0, base + 1, 0), base, vec![address(0, base, 1)], socket, 1)
    }

    fn module(&mut self, module_id: u32) -> Place {
        let socket = self.socket();
        let (base, port) = match self.open.take() {
            Some((other, base)) if other == socket => (base, 1),
            _ => {
                let base = self.root(socket);
                self.open = Some((socket, base));
                (base, 0)
            }
        };
        let bridges =
            vec![address(0, base, 1), address(0, base + 1, 0), address(0, base + 2, port)];
        place(address(0, base + 3 + port, 0), base, bridges, socket, module_id)
    }
}

fn address(domain: u32, bus: u32, device: u32) -> PciAddress {
    PciAddress { domain, bus, device }
}

fn place(
    pci: PciAddress,
    root_bus: u32,
    bridges: Vec<PciAddress>,
    socket: usize,
    module_id: u32,
) -> Place {
    Place {
        pci,
        pcie_root: format!("pci{:04x}:{root_bus:02x}", pci.domain),
        bridges,
        numa_node: i32::try_from(socket).unwrap_or(-1),
        memory_numa_node: None,
        module_id,
    }
}

/// Domains 0008, 0009 on the first CPU, 0018, 0019 on the second, and so on.
fn grace(nth: u32) -> Place {
    let (cpu, half) = (nth / 2, nth % 2);
    let domain = 0x10 * cpu + 8 + half;
    let mut place = place(
        address(domain, 6, 0),
        0,
        vec![address(domain, 0, 0)],
        usize::try_from(cpu).unwrap_or(0),
        2 * (cpu % 2) + 2 - half,
    );
    // The memory of each GPU is a NUMA node of its own, with seven more kept for MIG.
    place.memory_numa_node = Some(2 + 8 * nth);
    place
}

fn spark(nth: u32) -> Place {
    let domain = 0x0f + nth;
    let bridges = vec![address(domain, 0, 0)];
    Place { numa_node: -1, ..place(address(domain, 1, 0), 0, bridges, 0, 1) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn roots(places: &[Place]) -> Vec<(String, i32)> {
        let set: BTreeSet<_> =
            places.iter().map(|place| (place.pcie_root.clone(), place.numa_node)).collect();
        set.into_iter().collect()
    }

    #[test]
    fn eight_sxm_modules_share_four_switches_of_two_sockets() {
        let places = places(&[Board::Hgx; 8]);
        let roots = roots(&places);
        assert_eq!(roots.len(), 4);
        assert_eq!(roots.iter().filter(|(_, numa)| *numa == 0).count(), 2);
        assert_eq!(places[0].pcie_root, places[1].pcie_root);
        assert_ne!(places[1].pcie_root, places[2].pcie_root);
        let modules: BTreeSet<_> = places.iter().map(|place| place.module_id).collect();
        assert_eq!(modules.len(), 8);
    }

    #[test]
    fn sixteen_of_any_kind_have_sixteen_addresses() {
        for board in [Board::Pcie, Board::HgxA100, Board::Hgx, Board::Grace, Board::Spark] {
            let places = places(&[board; 16]);
            let addresses: BTreeSet<_> = places.iter().map(|place| place.pci).collect();
            assert_eq!(addresses.len(), 16, "{board:?}");
            assert!(addresses.iter().all(|pci| pci.bus < 0x100), "{board:?}");
        }
    }

    #[test]
    fn a_mixed_node_keeps_addresses_apart() {
        let mut boards = vec![Board::Hgx; 3];
        boards.extend([Board::Pcie; 3]);
        boards.extend([Board::Grace, Board::Spark]);
        let places = places(&boards);
        let addresses: BTreeSet<_> = places.iter().map(|place| place.pci).collect();
        assert_eq!(addresses.len(), 8);
    }

    #[test]
    fn grace_and_spark_are_where_they_were_seen() {
        let grace = places(&[Board::Grace; 4]);
        let names: Vec<_> = grace.iter().map(|place| place.pci.to_string()).collect();
        assert_eq!(names, ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]);
        assert_eq!(grace.iter().map(|place| place.module_id).collect::<Vec<_>>(), [2, 1, 4, 3]);
        assert_eq!(grace.iter().map(|place| place.numa_node).collect::<Vec<_>>(), [0, 0, 1, 1]);
        let spark = &places(&[Board::Spark])[0];
        assert_eq!((spark.pci.nvml().as_str(), spark.numa_node), ("0000000F:01:00.0", -1));
    }
}
