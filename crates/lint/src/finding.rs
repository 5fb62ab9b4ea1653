//! What is found: plain data, for people by `Display`, for programs by serde.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::object::Object;
use crate::path::Path;

/// Something wrong, and how to put it right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file as it was given.
    pub file: String,
    /// The document in it, from 1.
    pub document: usize,
    /// The line in the file, from 1; of the nearest thing around it in flow style and JSON.
    pub line: usize,
    /// `DeviceClass hopper`.
    pub object: String,
    /// Where in the document: `spec.selectors[0].cel.expression`; empty for all of it.
    pub path: String,
    /// How bad it is.
    pub severity: Severity,
    /// Which rule found it.
    pub rule: Rule,
    /// What is wrong and what to write instead, in one line.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, severity, object, message, rule, .. } = self;
        write!(f, "{file}:{line}: {severity}: {object}: {message} [{rule}]")
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The API server or the node agent refuses it, or it stops pods.
    Error,
    /// It probably doesn't do what is meant.
    Warning,
    /// Good to know.
    Hint,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Hint => "hint",
        })
    }
}

macro_rules! rules {
    ($($name:ident $id:literal $meaning:literal,)*) => {
        /// The rules. Their ids are an interface: scripts leave out what they don't want by them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = $meaning] $name,)*
        }

        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its id, in kebab case.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// What it finds.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

rules! {
    ApiShape "api-shape" "the API server refuses the object's shape",
    UnknownField "unknown-field" "a field that the API hasn't",
    DeprecatedApi "deprecated-api" "an API version that goes away",
    DuplicateName "duplicate-name" "two requests, claims or classes of one name",
    CelCompile "cel-compile" "a selector that the API server refuses",
    CelRuntime "cel-runtime" "a selector that fails on a device, which stops the pod on all nodes",
    CelLiteral "cel-literal" "a quantity or version in a selector that is none",
    DriverGuard "class-driver-guard" "a class that other drivers' devices break, or that takes them",
    MayBeMissing "may-be-missing" "a selector that stops the pod where a standard attribute is unknown",
    MatchesNothing "matches-nothing" "selectors that no device of the fleet matches",
    NeverFits "never-fits" "a claim that no node of the fleet can satisfy, even with nothing in use",
    AdvisoryAttribute "advisory-attribute" "an attribute that may change over a reboot",
    UnlikelyValue "unlikely-value" "a value that no device is likely to have",
    Config "config" "an opaque config that the node agent refuses",
    ConfigKind "config-kind" "a config for another type of device",
    ConfigDriver "config-driver" "a config that no driver reads",
    UnknownRequest "unknown-request" "a request that the claim hasn't",
    UnknownClass "unknown-class" "a DeviceClass that doesn't exist",
    ConstraintAttribute "constraint-attribute" "a constraint on an attribute that no device has",
    RequestCount "request-count" "a count that can't be allocated",
    CapacityName "capacity-name" "a request for a capacity by a name that devices don't have",
    CapacityIgnored "capacity-ignored" "a request for capacity of devices that can't be shared",
    AdminAccess "admin-access" "adminAccess that is refused, or in the wrong class",
    Toleration "toleration" "a toleration that does nothing, or more than it seems",
    ContainerRequest "container-request" "a container that gets more of a claim than it may want",
    UnknownPodClaim "unknown-pod-claim" "a claim that the pod hasn't",
    UnusedPodClaim "unused-pod-claim" "a claim of the pod that no container uses",
    ExtendedResource "extended-resource" "an extendedResourceName that clashes or is refused",
    GpuClass "gpu-class" "a GpuClass that the controller can make no DeviceClass of",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// With the serial of the object.
    all: Vec<(usize, Finding)>,
    objects: usize,
}

impl Findings {
    /// A number for an object, greater than those before.
    pub(crate) fn next_serial(&mut self) -> usize {
        self.objects += 1;
        self.objects
    }

    /// Something wrong at a place of an object.
    pub(crate) fn add(
        &mut self,
        object: &Object<'_>,
        path: &Path,
        severity: Severity,
        rule: Rule,
        message: impl Into<String>,
    ) {
        let written = object.is_declared.then(|| path.as_far_as_in(object.document.value()));
        let path = written.as_ref().unwrap_or(path);
        let finding = Finding {
            file: object.document.file().to_owned(),
            document: object.document.number(),
            line: object.document.line_of(path),
            object: object.title(),
            path: path.to_string(),
            severity,
            rule,
            message: message.into(),
        };
        if !self.all.iter().any(|(_, known)| *known == finding) {
            self.all.push((object.serial, finding));
        }
    }

    /// Whether anything but hints was found in the object.
    pub(crate) fn any_in(&self, object: &Object<'_>) -> bool {
        let worse = |finding: &Finding| finding.severity != Severity::Hint;
        self.all.iter().any(|(serial, finding)| *serial == object.serial && worse(finding))
    }

    pub(crate) fn into_sorted(self) -> Vec<Finding> {
        let mut all = self.all;
        all.sort_by_key(|(serial, finding)| (*serial, finding.severity));
        all.into_iter().map(|(_, finding)| finding).collect()
    }
}
