//! From a GpuClass to the DeviceClass that it declares, or to all that is wrong with it. The
//! expression is checked and the sharing defaults decoded by the code that lint, `explain` and
//! the node agent use. No cluster is looked at.

use gpu_dra_cel::Selector;
use gpu_dra_model::{DriverName, Quantity, config};
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClass, DeviceClassConfiguration, DeviceClassSpec, DeviceSelector,
    OpaqueDeviceConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use super::expression::Expression;
use super::gpuclass::{DeviceType, GROUP, GpuClass, GpuClassSpec, Model, VERSION};
use super::origin::Origin;
use super::problem::Problem;
use super::syntax;

/// The most names, and parts of names, that a class may list.
const MAX_NAMES: usize = 32;

/// A DeviceClass with its selector, compiled.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What is to be in the API server.
    pub class: DeviceClass,
    /// Its only selector.
    pub selector: Selector,
}

/// Compiles a GpuClass.
///
/// ```
/// # use gpu_dra_controller::{GpuClass, compile};
/// let class: GpuClass = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "h100", "uid": "1"},
///     "spec": {"model": {"contains": ["H100"]}, "memoryAtLeast": "79Gi"},
/// }))?;
/// let driver = gpu_dra_model::DriverName::new("gpu.nvidia.com")?;
/// let made = compile(&class, &driver).map_err(|problems| problems[0].clone())?;
/// assert_eq!(made.class.metadata.name.as_deref(), Some("h100"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Every problem that was found, at least one.
pub fn compile(class: &GpuClass, driver: &DriverName) -> Result<Compiled, Vec<Problem>> {
    let spec = class.decoded().map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let device_type = device_type(&spec, &mut problems);
    let mut expression = Expression::new(driver, device_type);
    restrict(&mut expression, &spec, &mut problems);
    let config = sharing(&spec, device_type, driver, &mut problems);
    if let Some(name) = &spec.extended_resource_name
        && let Err(reason) = syntax::extended_resource(name)
    {
        problems.push(Problem::new("spec.extendedResourceName", reason));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let selector = Selector::compile(&expression.into_text())
        .map_err(|error| vec![Problem::new("spec", error.to_string())])?;
    let class = DeviceClass {
        metadata: metadata(class),
        spec: Some(DeviceClassSpec {
            selectors: Some(selectors(selector.text())),
            config: config.map(|config| vec![config]),
            extended_resource_name: spec.extended_resource_name,
        }),
    };
    Ok(Compiled { class, selector })
}

/// A class's selectors: this expression alone.
pub(crate) fn selectors(expression: &str) -> Vec<DeviceSelector> {
    let cel = CELDeviceSelector { expression: expression.to_owned() };
    vec![DeviceSelector { cel: Some(cel) }]
}

fn metadata(class: &GpuClass) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "GpuClass".to_owned(),
        name: class.name().to_owned(),
        uid: class.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        // Blocking the owner's deletion would need rights on it.
        block_owner_deletion: None,
    };
    ObjectMeta {
        name: class.metadata.name.clone(),
        labels: Some(Origin::GpuClass.labels()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

fn device_type(spec: &GpuClassSpec, problems: &mut Vec<Problem>) -> DeviceType {
    match (spec.r#type, &spec.profile) {
        (Some(DeviceType::Gpu), Some(_)) => {
            let reason = "only MIG devices have a profile: remove it, or set type to mig";
            problems.push(Problem::new("spec.profile", reason));
            DeviceType::Gpu
        }
        (Some(given), _) => given,
        (None, Some(_)) => DeviceType::Mig,
        (None, None) => DeviceType::Gpu,
    }
}

/// Everything that narrows the class down.
fn restrict(expression: &mut Expression, spec: &GpuClassSpec, problems: &mut Vec<Problem>) {
    if let Some(model) = &spec.model {
        check_model(model, problems);
        expression.model(model);
    }
    if let Some(least) = &spec.memory_at_least {
        if *least <= Quantity::ZERO {
            let reason = format!("{least} is true of every device: use a quantity such as 79Gi");
            problems.push(Problem::new("spec.memoryAtLeast", reason));
        }
        expression.memory_at_least(least);
    }
    if let Some(profile) = &spec.profile {
        match syntax::profile(profile) {
            Ok(()) => expression.profile(profile),
            Err(reason) => problems.push(Problem::new("spec.profile", reason)),
        }
    }
    if let Some(least) = &spec.compute_capability_at_least {
        match syntax::compute_capability(least) {
            Ok(version) => expression.compute_capability_at_least(&version),
            Err(reason) => problems.push(Problem::new("spec.computeCapabilityAtLeast", reason)),
        }
    }
}

fn check_model(model: &Model, problems: &mut Vec<Problem>) {
    for (list, path) in
        [(&model.names, "spec.model.names"), (&model.contains, "spec.model.contains")]
    {
        if list.len() > MAX_NAMES {
            let reason = format!("has {} entries: at most {MAX_NAMES} are allowed", list.len());
            problems.push(Problem::new(path, reason));
        }
        for (index, name) in list.iter().enumerate().take(MAX_NAMES) {
            if let Err(reason) = syntax::product_name(name) {
                problems.push(Problem::new(&format!("{path}[{index}]"), reason));
            }
        }
    }
    if model.names.is_empty() && model.contains.is_empty() {
        let reason = "names nothing: give names or contains, or remove it";
        problems.push(Problem::new("spec.model", reason));
    }
}

/// The sharing defaults as the config that claims would write, judged as theirs are.
fn sharing(
    spec: &GpuClassSpec,
    device_type: DeviceType,
    driver: &DriverName,
    problems: &mut Vec<Problem>,
) -> Option<DeviceClassConfiguration> {
    let sharing = spec.sharing.as_ref()?;
    let kind = match device_type {
        DeviceType::Gpu => "GpuConfig",
        DeviceType::Mig => "MigDeviceConfig",
    };
    let parameters = json!({"apiVersion": config::API_VERSION, "kind": kind, "sharing": sharing});
    let found = config::problems(&parameters);
    // Their paths begin with `sharing` already.
    problems.extend(found.iter().map(|error| Problem::new("spec", error.to_string())));
    let opaque = OpaqueDeviceConfiguration {
        driver: driver.to_string(),
        parameters: RawExtension(parameters),
    };
    Some(DeviceClassConfiguration { opaque: Some(opaque) })
}
