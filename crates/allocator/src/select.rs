//! Selectors: each expression is compiled once, each device judged once per request.

use std::collections::HashMap;

use gpu_dra_cel::{CompileError, Selector};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceSelector};

use crate::candidate::{Candidate, device_location};
use crate::reason::{AllocateError, Fit, Reason};
use crate::request::Request;

/// Compiled expressions by their text.
#[derive(Debug, Default)]
pub(crate) struct Selectors(HashMap<String, Result<Selector, CompileError>>);

impl Selectors {
    /// Whether the class and the request select the device, and it is for this node.
    ///
    /// # Errors
    /// A selector that doesn't compile or fails: no verdict at all.
    pub(crate) fn judge(
        &mut self,
        candidate: &Candidate<'_>,
        class: &DeviceClass,
        request: &Request<'_>,
        node: &Node,
        claim: &str,
    ) -> Result<Fit, AllocateError> {
        let name = class.metadata.name.clone().unwrap_or_default();
        let of_class =
            class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
        if let Some(index) = self.first_not(of_class, candidate, || format!("class {name}"))? {
            return Ok(Err(Box::new(Reason::ClassSelector { class: name, index })));
        }
        let of_claim = || format!("claim {claim}");
        if let Some(index) = self.first_not(request.selectors, candidate, of_claim)? {
            return Ok(Err(Box::new(Reason::Selector { index })));
        }
        if candidate.slice.spec.per_device_node_selection == Some(true) {
            let slice = || candidate.slice.metadata.name.clone().unwrap_or_default();
            let reaches = device_location(candidate.device)
                .reaches(node)
                .map_err(|reason| AllocateError::NodeSelector { slice: slice(), reason })?;
            if !reaches {
                return Ok(Err(Box::new(Reason::OtherNode)));
            }
        }
        Ok(Ok(()))
    }

    /// The first selector that doesn't match; those after it are not evaluated.
    fn first_not(
        &mut self,
        selectors: &[DeviceSelector],
        candidate: &Candidate<'_>,
        of: impl Fn() -> String,
    ) -> Result<Option<usize>, AllocateError> {
        for (index, selector) in selectors.iter().enumerate() {
            let text = selector.cel.as_ref().map_or("", |cel| cel.expression.as_str());
            let matches = match self.compiled(text) {
                Ok(selector) => {
                    selector.matches(&candidate.view).map_err(|error| AllocateError::Evaluate {
                        of: of(),
                        index,
                        device: Box::new(candidate.id.clone()),
                        error,
                    })?
                }
                Err(error) => {
                    return Err(AllocateError::Compile { of: of(), index, error });
                }
            };
            if !matches {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn compiled(&mut self, text: &str) -> Result<Selector, CompileError> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let compiled = Selector::compile(text);
        self.0.insert(text.to_owned(), compiled.clone());
        compiled
    }
}
