//! What can go wrong on the way to the API server, in words that say what to do, and whether
//! it passes by itself.

use std::time::Duration;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// 401 or 403.
    #[error("{verb} {object}: not allowed; apply deploy/controller.yaml, which grants it")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 404.
    #[error("{verb} {object}: not there")]
    NotFound {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 409.
    #[error("{verb} {object}: somebody else changed it")]
    Conflict {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// 400, 413, 422 and the like: it will never be taken as it is.
    #[error("{verb} {object}: refused")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// The answer, with the rule.
        #[source]
        source: Box<kube::Error>,
    },
    /// 429, 5xx, or no answer that could be read.
    #[error("{verb} {object}: the API server can't do it now; trying again")]
    Unavailable {
        /// The verb.
        verb: &'static str,
        /// The object.
        object: String,
        /// What came back.
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

impl RequestError {
    /// From the client's error on `verb` of `object`.
    pub(crate) fn new(verb: &'static str, object: &str, source: kube::Error) -> Self {
        let object = object.to_owned();
        let source = Box::new(source);
        let code = match &*source {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        match code {
            401 | 403 => Self::Forbidden { verb, object, source },
            404 => Self::NotFound { verb, object, source },
            409 | 410 => Self::Conflict { verb, object, source },
            0 | 429 | 500.. => Self::Unavailable { verb, object, source },
            _ => Self::Refused { verb, object, source },
        }
    }

    /// Whether the API server answered: then it may well take the next request, of another
    /// object.
    pub(crate) fn is_of_this_object(&self) -> bool {
        match self {
            Self::Timeout { .. } => false,
            Self::Forbidden { source, .. }
            | Self::NotFound { source, .. }
            | Self::Conflict { source, .. }
            | Self::Refused { source, .. }
            | Self::Unavailable { source, .. } => matches!(**source, kube::Error::Api(_)),
        }
    }

    /// The error with what came back, in one line.
    pub(crate) fn in_full(&self) -> String {
        match self {
            Self::Timeout { .. } => self.to_string(),
            _ => format!("{self}: {}", self.server_words()),
        }
    }

    /// The API server's words, where it said something.
    pub(crate) fn server_words(&self) -> String {
        match self {
            Self::Forbidden { source, .. }
            | Self::NotFound { source, .. }
            | Self::Conflict { source, .. }
            | Self::Refused { source, .. }
            | Self::Unavailable { source, .. } => match &**source {
                kube::Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            },
            Self::Timeout { .. } => self.to_string(),
        }
    }
}

/// Waits for an answer, but not for ever as the client would.
pub(crate) async fn within<T>(
    limit: Duration,
    verb: &'static str,
    object: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(|source| RequestError::new(verb, object, source)),
        Err(_elapsed) => Err(RequestError::Timeout { verb, object: object.to_owned(), limit }),
    }
}
