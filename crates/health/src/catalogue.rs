//! The Xids by NVIDIA's catalogue: what each means, what is to be done, and what this driver
//! does about it unless told otherwise.
//!
//! Facts only. Where the catalogue says "restart the application" nothing is wrong with the
//! GPU, so nothing is done; what a reset mends keeps new work away, and work under way too if
//! its results can't be trusted or it won't go on.

use crate::policy::Verdict;

/// What the catalogue says of one or more Xids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    first: u64,
    last: u64,
    pub(crate) verdict: Verdict,
    pub(crate) meaning: &'static str,
    pub(crate) remedy: &'static str,
}

const APP: &str = "restart the program that caused it";
const SUPPORT: &str = "if it comes again, run NVIDIA's diagnostics";
const RESET: &str = "end the processes on the GPU and run nvidia-smi --gpu-reset";
const REBOOT: &str = "drain and reboot the node";
const REBOOT_RMA: &str = "drain and reboot the node; if it comes again, replace the GPU";
const RMA: &str = "reset the GPU; if it comes again, replace it";
const LINK: &str = "check NVLink and the fabric manager, then reset the GPU";

/// What an Xid means that isn't in the catalogue.
pub(crate) const UNLISTED: (&str, &str) = ("not in the catalogue", SUPPORT);

/// The entry of an Xid.
pub(crate) fn entry(xid: u64) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| (entry.first..=entry.last).contains(&xid))
}

macro_rules! entries {
    ($($first:literal $(..= $last:literal)?, $verdict:ident, $meaning:literal, $remedy:expr;)*) => {
        &[$(Entry {
            first: $first,
            last: entries!(@last $first $($last)?),
            verdict: Verdict::$verdict,
            meaning: $meaning,
            remedy: $remedy,
        }),*]
    };
    (@last $first:literal) => { $first };
    (@last $first:literal $last:literal) => { $last };
}

const ENTRIES: &[Entry] = entries! {
    8, Ignore, "the GPU stopped processing", APP;
    11, Ignore, "bad push buffer", APP;
    13, Ignore, "graphics engine exception", APP;
    25, Ignore, "bad push buffer", APP;
    31, Ignore, "memory page fault", APP;
    32, Ignore, "bad push buffer", APP;
    37..=38, Ignore, "firmware error of the driver", SUPPORT;
    39..=41, Ignore, "copy engine error", APP;
    43, Ignore, "a channel was reset", APP;
    44, Ignore, "context switch fault", SUPPORT;
    45, Ignore, "channels were cleaned up after another error", APP;
    46, NoSchedule, "the GPU stopped processing", RESET;
    48, NoSchedule, "uncorrectable memory error", RMA;
    54, NoExecute, "auxiliary power is not connected", "check the power cables";
    60, Ignore, "video processor exception", APP;
    62, NoExecute, "the power management unit has halted", RESET;
    63, Ignore, "a memory row was remapped", "reset the GPU when it is idle";
    64, NoSchedule, "a memory row could not be remapped", RMA;
    66..=67, Ignore, "illegal access by the driver", SUPPORT;
    68, Ignore, "video decoder exception", APP;
    69, Ignore, "graphics engine class error", APP;
    70..=72, Ignore, "copy engine error", APP;
    74, NoSchedule, "NVLink error", LINK;
    75..=77, Ignore, "copy engine error", APP;
    78, Ignore, "a virtual GPU could not start", "update the driver of host and guest";
    79, NoExecute, "the GPU has fallen off the bus", REBOOT_RMA;
    80, Ignore, "bad data sent to the GPU", APP;
    82..=84, Ignore, "video or JPEG decoder error", APP;
    85, Ignore, "copy engine error", APP;
    86, Ignore, "optical flow engine error", APP;
    88..=89, Ignore, "video or JPEG decoder error", APP;
    92, Warn, "corrected memory errors in great number", SUPPORT;
    93, Ignore, "the infoROM is worn", SUPPORT;
    94, Ignore, "contained memory error: only the program that met it has ended", APP;
    95, NoExecute, "uncontained memory error", RESET;
    96..=105, Ignore, "video, JPEG or optical flow engine error", APP;
    106..=107, Ignore, "test message of the system management bus", SUPPORT;
    109, NoSchedule, "context switch timeout", RESET;
    110, NoExecute, "security fault", RESET;
    119, NoExecute, "the GPU's system processor doesn't answer", RESET;
    120, NoExecute, "error of the GPU's system processor", RESET;
    121, Warn, "error on the link between CPU and GPU", SUPPORT;
    126..=135, Ignore, "copy engine error", APP;
    136, NoSchedule, "link training failed", LINK;
    137, Ignore, "NVLink privilege error", APP;
    139, Ignore, "optical flow engine error", APP;
    140, NoExecute, "unrecovered memory error", RESET;
    141, Ignore, "error on CUDA's fast path", SUPPORT;
    142, Ignore, "video encoder error", SUPPORT;
    143, NoExecute, "the GPU could not be initialised", RESET;
    144..=150, NoSchedule, "NVLink error", LINK;
    151, NoExecute, "key rotation failed", "restart the virtual machine";
    152..=153, Ignore, "deep learning accelerator error", SUPPORT;
    // The action itself is read from the driver.
    154, Ignore, "the recovery action has changed", "do as the driver asks";
    155, NoSchedule, "NVLink error", LINK;
    156, Warn, "a resource was retired", RESET;
    157, NoSchedule, "a resource could not be retired", RMA;
    158, NoExecute, "fatal timeout of the GPU", RESET;
    159, Warn, "error on the link between CPU and GPU", SUPPORT;
    160..=161, Warn, "a memory channel was retired, or could not be", SUPPORT;
    162..=165, Warn, "power smoothing error", SUPPORT;
    166, NoSchedule, "error of the traffic encryption", RESET;
    167, NoSchedule, "fatal timeout on the PCIe bus", REBOOT;
    168, NoSchedule, "memory is reduced", RESET;
    169..=170, NoSchedule, "error of the security processor", RESET;
    171..=172, NoSchedule, "uncorrectable memory error", RMA;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_ascend_and_do_not_overlap() {
        for pair in ENTRIES.windows(2) {
            assert!(pair[0].first <= pair[0].last && pair[0].last < pair[1].first, "{pair:?}");
        }
    }

    #[test]
    fn defaults_are_the_references() {
        use Verdict::{Ignore, NoExecute, NoSchedule, Warn};
        for (verdict, xids) in [
            (Ignore, &[8, 11, 13, 25, 31, 32, 43, 45, 63, 68, 69, 94, 105, 128, 137, 154][..]),
            (Warn, &[92, 121, 156, 159, 160, 165]),
            (NoSchedule, &[46, 48, 64, 74, 109, 136, 144, 150, 155, 157, 167, 171]),
            (NoExecute, &[54, 62, 79, 95, 110, 119, 120, 140, 143, 151, 158]),
        ] {
            for xid in xids {
                assert_eq!(entry(*xid).map(|entry| entry.verdict), Some(verdict), "{xid}");
            }
        }
        for xid in [0, 999, u64::MAX] {
            assert!(entry(xid).is_none(), "{xid}");
        }
    }
}
