//! The binding of a pod to a node, the scheduler's last word on it.

use serde_json::{Value, json};

use super::write::{Subresource, TRIES, WriteOptions, Written};
use super::{ApiServer, identity};
use crate::apply::{self, Operation, Writer};
use crate::error::ApiError;
use crate::kinds::POD;

impl ApiServer {
    /// Gives a pod its node, once.
    ///
    /// # Errors
    /// 404, and 409 when it has one.
    pub fn bind(
        &self,
        (namespace, name): (&str, &str),
        node: &str,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if node.is_empty() {
            return Err(ApiError::bad_request("target.name: Required value"));
        }
        let writer = Writer::new(options, Operation::Update, Subresource::Main);
        let mut failure = ApiError::modified(&POD, name);
        for _ in 0..TRIES {
            let old = self.get(&POD, namespace, name)?;
            if let Some(taken) = old["spec"]["nodeName"].as_str().filter(|taken| !taken.is_empty())
            {
                let why = format!("pod {name} is already assigned to node \"{taken}\"");
                return Err(ApiError::conflict(&POD, name, &why));
            }
            let mut new = (*old).clone();
            new["spec"]["nodeName"] = node.into();
            let scheduled = json!({
                "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": identity::now(),
            });
            let mut conditions =
                new["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(scheduled);
            new["status"]["conditions"] = Value::Array(conditions);
            let new = apply::track(&POD, Some(&old), new, &writer);
            match self.swap(&POD, &old, new, options.dry_run) {
                Ok(object) => return Ok(Written { object, created: false, warnings: Vec::new() }),
                Err(raced) => failure = raced,
            }
        }
        Err(failure)
    }
}
