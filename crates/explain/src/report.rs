//! What is reported: plain data, written as JSON for programs and by [`crate::text`] for people.

use serde::Serialize;

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `pod default/train-0` or `claim default/gpus`.
    pub subject: String,
    /// In a word.
    pub verdict: Verdict,
    /// In a sentence.
    pub sentence: String,
    /// What is wrong and what to do, most helpful first.
    pub advice: Vec<Advice>,
    /// Devices that fail by one thing only, for each request.
    pub nearest: Vec<Nearest>,
    /// Nodes that were looked at.
    pub considered: usize,
    /// The nodes, equal ones together.
    pub nodes: Vec<NodeGroup>,
}

/// The answer in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// A node has what is asked for.
    Fits,
    /// It has its devices already.
    Allocated,
    /// No node has what is asked for.
    DoesNotFit,
    /// An error on one node stops the pod on all.
    Stopped,
    /// The API server refuses an object, or the node agent a config, so that it never starts.
    Rejected,
    /// No node is known to have what is asked for, and some were too much work to decide.
    NotDecided,
    /// An object that is referred to doesn't exist.
    Missing,
    /// It asks for no devices.
    NoDevices,
}

/// Something that is wrong, in one line, and what to do about it, in another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// The object and the place in it.
    pub about: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead, or to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Advice {
    pub(crate) fn new(
        about: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<Option<String>>,
    ) -> Self {
        Self { about: about.into(), problem: problem.into(), fix: fix.into() }
    }
}

/// Devices that would do, were it not for one thing; for two, where there are none of those.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nearest {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// The request.
    pub request: String,
    /// How many devices.
    pub devices: usize,
    /// On how many nodes.
    pub nodes: usize,
    /// By what they fail, and what would change it.
    pub text: String,
    /// What to do, where that isn't in the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Nodes of which the same is to be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// How many.
    pub count: usize,
    /// The first of them by name.
    pub names: Vec<String>,
    /// What came of them.
    pub outcome: NodeOutcome,
    /// Why, in a sentence.
    pub why: String,
    /// Pools that nothing can be allocated from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Each request beside the devices of one of these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestOnNode>,
}

/// What came of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeOutcome {
    /// All claims of the pod can be allocated here.
    Fits,
    /// An error that stops the pod.
    Error,
    /// To try all ways is too much work; a limit of this program, not of the scheduler's.
    NotDecided,
    /// Not all claims can be allocated here.
    DoesNotFit,
    /// The pod can't go here for another reason than devices.
    LeftOut,
}

/// A request beside the devices of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestOnNode {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// The request, `request/subrequest` for an alternative.
    pub request: String,
    /// Its class.
    pub class: String,
    /// How many devices it wants; null for all of them.
    pub wanted: Option<usize>,
    /// Devices on the node, of any class.
    pub devices: usize,
    /// Those that class and selectors take.
    pub selected: usize,
    /// Those of them that can be had.
    pub usable: usize,
    /// The others, by what removed them.
    pub removed: Vec<Removed>,
}

/// Devices removed by the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// How many.
    pub count: usize,
    /// The first of them by name.
    pub devices: Vec<String>,
    /// What they are: product, or driver and type.
    pub what: String,
    /// Whether they are of the class's driver and type, and a value keeps them off it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_value: bool,
    /// What removed them first, in the scheduler's order.
    pub cause: Cause,
    /// What else would have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Cause>,
}

/// What keeps a request off a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Its kind.
    pub kind: CauseKind,
    /// The rule, in words.
    pub rule: String,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The values that were seen, or who holds the devices; the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
}

/// Kinds of [`Cause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CauseKind {
    /// A selector of the class.
    Class,
    /// A selector of the request.
    Selector,
    /// A selector that gave no verdict.
    SelectorError,
    /// It is for other nodes.
    OtherNode,
    /// A claim holds it.
    InUse,
    /// Another request of the pod takes it.
    Taken,
    /// Its capacity, or the policy for it.
    Capacity,
    /// Counters that it shares with other devices.
    Counter,
    /// A taint.
    Taint,
    /// A constraint of the claim.
    Constraint,
}
