//! Opaque configs in claims and classes: decoded as the node agent does, in its sentences, and
//! held against the devices that they are for.

use std::collections::BTreeSet;

use gpu_dra_model::config::{
    ConfigError, DeviceConfig, LimitError, MAX_CONFIG_BYTES, MpsDevice, are_alternatives, decode,
    problems,
};
use k8s_openapi::api::resource::v1::{DeviceClass, OpaqueDeviceConfiguration};
use serde_json::Value;

use crate::constraints;
use crate::finding::{Findings, Rule, Severity};
use crate::object::{Claim, Object};
use crate::path::Path;
use crate::reference::DRIVER;
use crate::requests::{self, Asked};
use crate::world::World;

/// The configs of a claim.
pub(crate) fn of_claim(
    object: &Object<'_>,
    claim: &Claim,
    asked: &[Asked<'_>],
    world: &mut World<'_>,
    findings: &mut Findings,
) {
    let list = requests::devices_path(object, claim).key("config");
    let configs = requests::devices(&claim.claim).and_then(|devices| devices.config.as_deref());
    for (place, config) in configs.unwrap_or_default().iter().enumerate() {
        let path = list.index(place);
        let names = config.requests.as_deref().unwrap_or_default();
        constraints::unknown(object, &path, names, asked, findings);
        let Some(opaque) = &config.opaque else { continue };
        let path = path.key("opaque");
        let Some(decoded) = check(object, &path, opaque, findings) else { continue };
        let targets: Vec<&Asked<'_>> = asked
            .iter()
            .filter(|request| names.is_empty() || names.iter().any(|n| request.is_named(n)))
            .collect();
        indices(object, &path, &opaque.parameters.0, &targets, findings);
        let Some(decoded) = decoded else { continue };
        let may_be_for_nothing = are_alternatives(names.iter().map(String::as_str));
        if let Some(unserved) = decoded.unserved() {
            if !may_be_for_nothing {
                refuse(object, &path, &unserved, findings);
            }
            continue;
        }
        let mut misfits = Vec::new();
        for request in &targets {
            let types = world.types_of(request.class);
            if !types.is_empty() && !fits(&decoded, &types) {
                misfits.push((*request, types));
            }
        }
        // One that names no request is passed over where it doesn't fit.
        if names.is_empty() && misfits.len() < targets.len() {
            continue;
        }
        let severity = if names.is_empty() { Severity::Warning } else { Severity::Error };
        for (request, types) in misfits {
            let message = format!(
                "{} doesn't fit request {}, whose devices of class {} are of type {}: {}",
                decoded.kind(),
                request.name,
                request.class,
                listed(&types),
                right_kind(&types)
            );
            let path = path.keys("parameters.kind");
            findings.add(object, &path, severity, Rule::ConfigKind, message);
        }
    }
}

/// The configs of a class.
pub(crate) fn of_class(
    object: &Object<'_>,
    class: &DeviceClass,
    world: &mut World<'_>,
    findings: &mut Findings,
) {
    let configs = class.spec.as_ref().and_then(|spec| spec.config.as_deref());
    for (place, config) in configs.unwrap_or_default().iter().enumerate() {
        let Some(opaque) = &config.opaque else { continue };
        let path = object.root.keys("spec.config").index(place).key("opaque");
        let Some(Some(decoded)) = check(object, &path, opaque, findings) else { continue };
        if let Some(unserved) = decoded.unserved() {
            refuse(object, &path, &unserved, findings);
            continue;
        }
        let types = world.types_of(&object.name);
        if types.is_empty() || fits(&decoded, &types) {
            continue;
        }
        let message = format!(
            "{} doesn't fit the devices of the class, which are of type {}: {}",
            decoded.kind(),
            listed(&types),
            right_kind(&types)
        );
        let path = path.keys("parameters.kind");
        findings.add(object, &path, Severity::Error, Rule::ConfigKind, message);
    }
}

/// The config, if it can be decoded; None at all where it is none of this driver's.
fn check(
    object: &Object<'_>,
    path: &Path,
    opaque: &OpaqueDeviceConfiguration,
    findings: &mut Findings,
) -> Option<Option<DeviceConfig>> {
    let parameters = &opaque.parameters.0;
    let path_of = path.key("parameters");
    if opaque.driver != DRIVER {
        let kinds = ["GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"];
        if kinds.iter().any(|kind| parameters["kind"] == *kind) {
            let message = format!(
                "driver {} doesn't know such a config: write driver: {DRIVER}",
                opaque.driver
            );
            let path = path.key("driver");
            findings.add(object, &path, Severity::Error, Rule::ConfigDriver, message);
        }
        return None;
    }
    let bytes = serde_json::to_vec(parameters).map_or(0, |text| text.len());
    if bytes > MAX_CONFIG_BYTES {
        let message = ConfigError::TooLarge { bytes }.to_string();
        findings.add(object, &path_of, Severity::Error, Rule::Config, message);
        return Some(None);
    }
    for problem in problems(parameters) {
        refuse(object, path, &problem, findings);
    }
    Some(decode(parameters).ok())
}

/// What the node agent would say of the config.
fn refuse(object: &Object<'_>, opaque: &Path, problem: &ConfigError, findings: &mut Findings) {
    let path = place(&opaque.key("parameters"), problem);
    findings.add(object, &path, Severity::Error, Rule::Config, problem.to_string());
}

/// Where in the parameters the problem is.
fn place(parameters: &Path, problem: &ConfigError) -> Path {
    match problem {
        ConfigError::UnknownField { path, .. }
        | ConfigError::Replicas { path }
        | ConfigError::WrongType { path, .. }
        | ConfigError::Value { path, .. }
            if !path.contains(' ') =>
        {
            parameters.keys(path)
        }
        ConfigError::Missing { path, .. } => parameters.keys(path),
        ConfigError::Conflict { block, .. } => parameters.key("sharing").key(block),
        ConfigError::ApiVersion { .. } => parameters.key("apiVersion"),
        ConfigError::Kind { .. } | ConfigError::ForeignKind { .. } | ConfigError::Passthrough => {
            parameters.key("kind")
        }
        _ => parameters.clone(),
    }
}

/// Limits for devices by an index that the claim can't have. Also of configs that have other
/// faults, so that all are told at once.
fn indices(
    object: &Object<'_>,
    path: &Path,
    parameters: &Value,
    targets: &[&Asked<'_>],
    findings: &mut Findings,
) {
    // Of alternatives only one is given.
    let mut most: Option<usize> = Some(0);
    let mut bases: Vec<&str> = targets.iter().map(|request| request.base()).collect();
    bases.dedup();
    for base in bases {
        let of_base = targets.iter().filter(|request| request.base() == base);
        let devices = of_base.map(|request| request.devices()).collect::<Option<Vec<_>>>();
        let devices = devices.and_then(|devices| devices.into_iter().max());
        most = most.zip(devices).map(|(sum, devices)| sum + devices);
    }
    let Some(devices) = most.filter(|devices| *devices > 0) else { return };
    let limits = &parameters["sharing"]["mpsConfig"]["defaultPerDevicePinnedMemoryLimit"];
    for key in limits.as_object().into_iter().flat_map(serde_json::Map::keys) {
        let Some(device @ MpsDevice::Index(index)) = MpsDevice::new(key) else { continue };
        if usize::try_from(index).is_ok_and(|index| index < devices) {
            continue;
        }
        let message = LimitError { device, devices }.to_string();
        let path = path.keys("parameters.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit");
        findings.add(object, &path.key(key), Severity::Error, Rule::Config, message);
    }
}

fn fits(config: &DeviceConfig, types: &BTreeSet<&str>) -> bool {
    types.contains(match config {
        DeviceConfig::Gpu(_) => "gpu",
        DeviceConfig::Mig(_) => "mig",
        DeviceConfig::Vfio(_) => "vfio",
    })
}

fn listed(types: &BTreeSet<&str>) -> String {
    types.iter().copied().collect::<Vec<_>>().join(", ")
}

fn right_kind(types: &BTreeSet<&str>) -> String {
    let kind = |kind: &&str| match *kind {
        "mig" => "MigDeviceConfig",
        "vfio" => "VfioDeviceConfig",
        _ => "GpuConfig",
    };
    let kinds: Vec<&str> = types.iter().map(kind).collect();
    format!("use {}", kinds.join(" or "))
}
