//! UUIDs and serial numbers: the same for the same seed and position, different for others.

use sha2::{Digest as _, Sha256};

fn digest(kind: &str, seed: &str, detail: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["gpu-dra-sim", kind, seed, detail] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().into()
}

/// 8-4-4-4-12 hexadecimal digits.
pub(crate) fn uuid(kind: &str, seed: &str, detail: &str) -> String {
    let hex: String =
        digest(kind, seed, detail).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let mut text = String::with_capacity(36);
    for (nth, digit) in hex.chars().enumerate() {
        if matches!(nth, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        // MIG UUIDs have the shape of version 5, and a real GPU's pass for any version.
        text.push(match nth {
            12 => '5',
            16 => '8',
            _ => digit,
        });
    }
    text
}

/// The 13 digits of a board's serial number.
pub(crate) fn serial(seed: &str, board: &str) -> String {
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(digest("serial", seed, board)) {
        *to = from;
    }
    format!("165{:010}", u64::from_be_bytes(number) % 10_000_000_000)
}

/// The UUID of a MIG device: the same for the same GPU and instance ids.
#[must_use]
pub fn mig_uuid(gpu_uuid: &str, gpu_instance: u32, compute_instance: u32) -> String {
    format!("MIG-{}", uuid("mig", gpu_uuid, &format!("{gpu_instance}/{compute_instance}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_and_the_position_decide() {
        let one = uuid("gpu", "a", "0");
        assert_eq!(one, uuid("gpu", "a", "0"));
        assert_ne!(one, uuid("gpu", "b", "0"));
        assert_ne!(one, uuid("gpu", "a", "1"));
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(serial("a", "0").len(), 13);
        assert!(mig_uuid("GPU-x", 7, 0).starts_with("MIG-"));
        assert_ne!(mig_uuid("GPU-x", 7, 0), mig_uuid("GPU-x", 8, 0));
    }
}
