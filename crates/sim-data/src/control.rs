//! `control.json`: what goes wrong, edited by a person or a test while everything runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// The whole file; an absent one means that nothing goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Control {
    /// What `nvmlInit` answers: 9 driver not loaded, 18 library and driver differ, 4 no
    /// permission, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<u32>,
    /// The driver runs but finds no GPU.
    #[serde(skip_serializing_if = "is_default")]
    pub no_gpus: bool,
    /// Every call is written to `calls.log`.
    #[serde(skip_serializing_if = "is_default")]
    pub call_log: bool,
    /// GPUs whose `/dev/nvidiaN` can't be seen are not enumerated, as in a container.
    #[serde(skip_serializing_if = "is_default")]
    pub hide_absent_nodes: bool,
    /// State of single GPUs, by position, UUID, PCI address, or `*` for all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<String, GpuControl>,
    /// Events; appending one raises it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Calls that fail, are slow or answer nonsense.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

impl Control {
    /// What is wrong with the GPU at a position: its own entry, else that of all.
    #[must_use]
    pub fn of_gpu(&self, node: &Node, position: usize) -> Option<&GpuControl> {
        self.gpus
            .iter()
            .find(|(selector, _)| node.position(selector) == Some(position))
            .map(|(_, control)| control)
            .or_else(|| self.gpus.get("*"))
    }

    /// How the GPU at a position is lost, if it is.
    #[must_use]
    pub fn lost(&self, node: &Node, position: usize) -> Option<Lost> {
        self.of_gpu(node, position).and_then(|control| control.lost)
    }
}

/// What is wrong with one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GpuControl {
    /// The GPU has fallen off the bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Field 230: 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX domain.
    #[serde(skip_serializing_if = "is_default")]
    pub recovery_action: u32,
    /// ECC error counters.
    #[serde(skip_serializing_if = "is_default")]
    pub ecc: EccCounts,
    /// Row remapper.
    #[serde(skip_serializing_if = "is_default")]
    pub remapped: Remapped,
    /// Pages retired (before Ampere).
    #[serde(skip_serializing_if = "is_default")]
    pub retired_pages: RetiredPages,
    /// Memory in use, in MiB.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_used_mib: u64,
    /// Processes on the GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// `nvmlGpuFabricState_t` in place of completed (3): 1 not started, 2 in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_state: Option<u8>,
    /// NVLink links that are down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvlinks_down: Vec<u32>,
    /// MIG mode never takes effect: a change stays pending with RESET_REQUIRED, and a reset
    /// is refused, as in a virtual machine.
    #[serde(skip_serializing_if = "is_default")]
    pub reset_refused: bool,
    /// A client such as DCGM or persistenced has the GPU: a change of MIG mode stays pending
    /// with IN_USE, as it does while `processes` are on it.
    #[serde(skip_serializing_if = "is_default")]
    pub mig_mode_held: bool,
    /// A client has leaked handles: no instance can be destroyed, IN_USE, although no process
    /// is on it.
    #[serde(skip_serializing_if = "is_default")]
    pub instances_held: bool,
}

/// How a GPU is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lost {
    /// It is still counted, but every call on it answers GPU_IS_LOST.
    Error,
    /// It is not counted any more; old handles answer GPU_IS_LOST.
    Dropped,
}

/// ECC errors since the last reset (volatile) and ever (aggregate).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EccCounts {
    /// Corrected, volatile.
    pub volatile_corrected: u64,
    /// Uncorrected, volatile.
    pub volatile_uncorrected: u64,
    /// Corrected, aggregate.
    pub aggregate_corrected: u64,
    /// Uncorrected, aggregate.
    pub aggregate_uncorrected: u64,
}

/// What the row remapper has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Remapped {
    /// Rows remapped for corrected errors.
    pub corrected: u32,
    /// Rows remapped for uncorrected errors.
    pub uncorrected: u32,
    /// A remapping waits for a reset.
    pub pending: bool,
    /// A remapping has failed.
    pub failure: bool,
}

/// Pages retired before the row remapper came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetiredPages {
    /// For many corrected errors.
    pub single_bit: u32,
    /// For an uncorrected error.
    pub double_bit: u32,
    /// A retirement waits for a reset.
    pub pending: bool,
}

/// A process on a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mib: u64,
    /// GPU instance, where MIG is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Compute instance, where MIG is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// Whether it runs under MPS.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mps: bool,
    /// Per cent of the last while in which it computed; not told while MIG is on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sm_percent: u32,
    /// Per cent of the last while in which it read or wrote memory; not told while MIG is on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory_percent: u32,
}

/// One event, delivered to every event set that asked for its kind on its GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// Position, UUID or PCI address.
    pub gpu: String,
    /// The Xid; without it `type` and `data` say what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
    /// The event type's bit where it is no Xid: 1 single-bit ECC, 2 double-bit ECC, …
    #[serde(default, rename = "type", skip_serializing_if = "is_default")]
    pub kind: u64,
    /// The event's data where it is no Xid.
    #[serde(default, skip_serializing_if = "is_default")]
    pub data: u64,
    /// The GPU instance that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The compute instance that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
}

/// The bit of critical Xid events in NVML's event masks.
pub const EVENT_XID: u64 = 0x8;

impl Event {
    /// An Xid of a whole GPU.
    #[must_use]
    pub fn xid(gpu: &str, xid: u64) -> Self {
        Self {
            gpu: gpu.to_owned(),
            xid: Some(xid),
            kind: 0,
            data: 0,
            gpu_instance: None,
            compute_instance: None,
        }
    }

    /// The bit of its type and its data.
    #[must_use]
    pub fn content(&self) -> (u64, u64) {
        self.xid.map_or((self.kind, self.data), |xid| (EVENT_XID, xid))
    }
}

/// Calls that fail, are slow or answer nonsense.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// A C function's name, or its beginning with `*`: `nvmlDeviceGet*`.
    pub function: String,
    /// Only for this GPU (position, UUID, PCI address), its MIG devices and instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The return code in place of the answer: 999 unknown, 4 no permission, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<u32>,
    /// What the call writes for its caller is overwritten with nonsense, made of this number
    /// and of how often that has happened. Nothing beyond the caller's memory is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garbage: Option<u64>,
    /// How long the call takes, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// Only the next so many matching calls of each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl Fault {
    /// Whether it is for that function; the GPU is another question.
    #[must_use]
    pub fn is_for(&self, function: &str) -> bool {
        match self.function.strip_suffix('*') {
            Some(beginning) => function.starts_with(beginning),
            None => self.function == function,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_says_nothing() {
        let control: Control = serde_json::from_str("{}").unwrap();
        assert_eq!(control, Control::default());
        assert_eq!(serde_json::to_string(&control).unwrap(), "{}");
    }

    #[test]
    fn the_examples_of_the_crate_documentation_parse() {
        let doc = include_str!("lib.rs");
        let mut examples = 0;
        for block in doc.split("```json").skip(1) {
            let block = block.split("```").next().unwrap();
            let json: String = block.lines().map(|line| line.trim_start_matches("//!")).collect();
            let parsed: Result<Control, _> = serde_json::from_str(&json);
            assert!(parsed.is_ok(), "{json}: {:?}", parsed.err());
            examples += 1;
        }
        assert!(examples > 0);
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        assert!(serde_json::from_str::<Control>(r#"{"evnets": []}"#).is_err());
        assert!(serde_json::from_str::<Control>(r#"{"gpus": {"0": {"losst": "error"}}}"#).is_err());
    }

    #[test]
    fn a_fault_matches_by_name_or_beginning() {
        let fault = |function: &str| Fault { function: function.into(), ..Fault::default() };
        assert!(fault("nvmlDeviceGet*").is_for("nvmlDeviceGetName"));
        assert!(fault("*").is_for("nvmlInit_v2"));
        assert!(!fault("nvmlDeviceGetName").is_for("nvmlDeviceGetNameX"));
    }
}
