//! Names of slices: `<index>-<driver>-<node>-<random>`, the index as five hex digits, so
//! that after a restart a slice is found again by its place in the pool, and the scheduler,
//! which sorts slices by name, keeps our order. The incumbent names its slices the same way.

use gpu_dra_model::{DriverName, NodeName};

/// The API server cuts `generateName` here before it adds five random characters
/// (`maxGeneratedNameLength` in apiserver's name generator).
const GENERATED_BASE_BYTES: usize = 58;

/// The `generateName` of the slice with this index in its pool.
#[must_use]
pub fn generate_name(index: usize, driver: &DriverName, node: &NodeName) -> String {
    format!("{index:05x}-{driver}-{node}-")
}

/// The index that is encoded in a slice's name; None if the name is not made like ours.
#[must_use]
pub fn index_of(name: &str, driver: &DriverName, node: &NodeName) -> Option<usize> {
    let (digits, _) = name.split_once('-')?;
    let index = usize::from_str_radix(digits, 16).ok()?;
    let base = generate_name(index, driver, node);
    let kept = base.get(..GENERATED_BASE_BYTES).unwrap_or(&base);
    name.starts_with(kept).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(node: &str) -> (DriverName, NodeName) {
        (DriverName::new("gpu.nvidia.com").unwrap(), NodeName::new(node).unwrap())
    }

    #[test]
    fn index_survives_the_servers_cut() {
        let (driver, node) = ids("ip-10-0-113-247.eu-central-1.compute.internal.example.org");
        let base = generate_name(0x1f, &driver, &node);
        let name = format!("{}x7k2p", &base[..58]);
        assert_eq!(index_of(&name, &driver, &node), Some(0x1f));
    }

    #[test]
    fn names_of_others_have_no_index() {
        let (driver, node) = ids("vm");
        assert_eq!(index_of("00000-gpu.nvidia.com-vm-mhzzn", &driver, &node), Some(0));
        for other in [
            "vm-gpu.nvidia.com-abcde",
            "00000-dra.net-vm-abcde",
            "00000-gpu.nvidia.com-other-abcde",
            "0-gpu.nvidia.com-vm-abcde",
            "0000A-gpu.nvidia.com-vm-abcde",
            "-gpu.nvidia.com-vm-abcde",
            "",
        ] {
            assert_eq!(index_of(other, &driver, &node), None, "{other}");
        }
    }
}
