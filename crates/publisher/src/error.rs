//! What can go wrong on the way to the API server, in words that say what to do, and what
//! each error means for the next attempt.

use std::time::Duration;

use gpu_dra_slices::PackError;
use kube::core::Status;

/// A request that failed, or that was not sent because it would have.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// 401.
    #[error("{verb} {object}: credentials refused; check the service account's token")]
    Unauthorized {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 403.
    #[error("{verb} {object}: not allowed; grant the service account the verb {verb} on it")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer, with the authorizer's reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// 404 on the Node.
    #[error("node {node} not found; set the node name to the name of this machine's Node object")]
    NoSuchNode {
        /// The name that was asked for.
        node: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 404 on a collection.
    #[error(
        "{verb} {object}: resource.k8s.io/v1 is not served; Kubernetes 1.35 or newer is needed"
    )]
    NotServed {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 404 on an object, 409, 410: someone else was faster. It settles by itself.
    #[error("{verb} {object}: changed by someone else meanwhile; trying again")]
    Conflict {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 400, 413, 422 and the like: the server will never take this object.
    #[error("{verb} {object}: refused at {field}; please report it with the inventory")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The field that the server named, or `the object`.
        field: String,
        /// The answer, with the rule.
        #[source]
        source: Box<kube::Error>,
    },
    /// Our own check found what the server would refuse; nothing was sent.
    #[error("{object} not sent: {field}: {rule}; please report it with the inventory")]
    Invalid {
        /// The slice, by its index or name.
        object: String,
        /// The field.
        field: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// What we keep of our slices can't be read back.
    #[error(transparent)]
    Kept(#[from] PackError),
    /// 429.
    #[error("{verb} {object}: the API server asks to wait; trying again")]
    Throttled {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// How long, if it said.
        after: Option<Duration>,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 5xx.
    #[error("{verb} {object}: the API server failed with {code}; trying again")]
    Server {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The HTTP status.
        code: u16,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer, or none that could be read.
    #[error("{verb} {object}: the API server can't be reached; trying again")]
    Unreachable {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// What the transport said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The answer took too long.
    #[error("{verb} {object}: no answer within {limit:?}; trying again")]
    Timeout {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// How long was waited.
        limit: Duration,
    },
}

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Soon: it passes by itself.
    Soon,
    /// Rarely: a person has to change the cluster or the server first.
    Rarely,
    /// Not before the desired pool changes: it is we who are wrong.
    OnChange,
}

impl PublishError {
    /// From the client's error on `verb` of `object`.
    pub(crate) fn new(verb: &'static str, object: &str, source: kube::Error) -> Self {
        let object = object.to_owned();
        let source = Box::new(source);
        let kube::Error::Api(status) = &*source else {
            return Self::Unreachable { verb, object, source };
        };
        match status.code {
            401 => Self::Unauthorized { verb, object, source },
            403 => Self::Forbidden { verb, object, source },
            404 if matches!(verb, "create" | "list" | "watch") => {
                Self::NotServed { verb, object, source }
            }
            404 if verb == "get" => Self::NoSuchNode { node: object, source },
            404 | 409 | 410 => Self::Conflict { verb, object, source },
            429 => {
                let after = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
                let after = (after > 0).then(|| Duration::from_secs(after.into()));
                Self::Throttled { verb, object, after, source }
            }
            code @ (500..) => Self::Server { verb, object, code, source },
            _ => Self::Refused { verb, object, field: first_field(status), source },
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. }
            | Self::Throttled { .. }
            | Self::Server { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. } => Retry::Soon,
            Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::NoSuchNode { .. }
            | Self::NotServed { .. }
            | Self::Refused { .. } => Retry::Rarely,
            Self::Invalid { .. } | Self::Kept(_) => Retry::OnChange,
        }
    }

    /// The server's own wish for the delay.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { after, .. } => *after,
            _ => None,
        }
    }

    /// Whether what we know of our slices is out of date now: the write may have been done
    /// though we saw no answer, or someone else wrote. Then a list must come first.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Conflict { .. }
            | Self::Server { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. } => true,
            Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::NoSuchNode { .. }
            | Self::NotServed { .. }
            | Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::Kept(_)
            | Self::Throttled { .. } => false,
        }
    }
}

fn first_field(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| cause.field.clone())
        .find(|field| !field.is_empty())
        .unwrap_or_else(|| "the object".to_owned())
}
