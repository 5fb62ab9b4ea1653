//! JSON to configuration. Descends only into fields it knows, so the depth of the input
//! doesn't matter, and collects every problem, for lint to show them all at once.

use serde_json::{Map, Value};

use super::{
    API_VERSION, ConfigError, DeviceConfig, GpuConfig, Interval, IommuBackendPolicy, MemoryLimit,
    MigDeviceConfig, MigSharing, MpsConfig, MpsDevice, Sharing, VfioDeviceConfig, nearest,
};
use crate::{Quantity, shown};

/// The API server's limit on opaque parameters, in bytes.
pub const MAX_CONFIG_BYTES: usize = 10 * 1024;

const HEADER: [&str; 2] = ["apiVersion", "kind"];
const MEMORY: &str = "a quantity of at least 1Mi, such as 5Gi";

/// Decodes opaque parameters strictly and completely.
///
/// # Errors
/// The first problem; [`problems`] gives all.
pub fn decode(parameters: &Value) -> Result<DeviceConfig, ConfigError> {
    let (config, problems) = decode_all(parameters);
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(config),
    }
}

/// As [`decode`], from bytes: at most [`MAX_CONFIG_BYTES`] of JSON.
///
/// # Errors
/// Too long, no JSON, or what [`decode`] refuses.
pub fn decode_bytes(bytes: &[u8]) -> Result<DeviceConfig, ConfigError> {
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { bytes: bytes.len() });
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| ConfigError::Json { reason: shown(&error.to_string(), 120) })?;
    decode(&value)
}

/// Every problem of opaque parameters; none means that [`decode`] succeeds.
#[must_use]
pub fn problems(parameters: &Value) -> Vec<ConfigError> {
    decode_all(parameters).1
}

fn decode_all(parameters: &Value) -> (DeviceConfig, Vec<ConfigError>) {
    let mut problems = Problems(Vec::new());
    let config = device_config(parameters, &mut problems);
    (config, problems.0)
}

fn device_config(parameters: &Value, problems: &mut Problems) -> DeviceConfig {
    let unset = DeviceConfig::Gpu(GpuConfig::default());
    let Some(object) = problems.object(parameters, "the config") else { return unset };
    let root = Fields { object, path: String::new() };
    let version = problems.string(&root, "apiVersion");
    let kind = problems.string(&root, "kind");
    let given = |name: &str| object.get(name).is_some_and(|value| !value.is_null());
    let missing = match (given("apiVersion"), given("kind")) {
        (true, true) => None,
        (true, false) => Some("kind is"),
        (false, true) => Some("apiVersion is"),
        (false, false) => Some("apiVersion and kind are"),
    };
    if let Some(missing) = missing {
        problems.add(ConfigError::MissingHeader { missing, replicas: replicas(object).is_some() });
    }
    if let Some(path) = replicas(object) {
        problems.add(ConfigError::Replicas { path: path.to_owned() });
    }
    if let Some(found) = version.filter(|version| *version != API_VERSION) {
        problems.add(ConfigError::ApiVersion { found: shown(found, 60) });
    }
    match kind {
        // Without a kind the rest is read as the kind that is meant nearly always.
        None | Some("GpuConfig") => DeviceConfig::Gpu(gpu_config(&root, problems)),
        Some("MigDeviceConfig") => DeviceConfig::Mig(mig_config(&root, problems)),
        Some("VfioDeviceConfig") => DeviceConfig::Vfio(vfio_config(&root, problems)),
        Some(found @ ("ComputeDomainChannelConfig" | "ComputeDomainDaemonConfig")) => {
            problems.add(ConfigError::ForeignKind { found: found.to_owned() });
            unset
        }
        Some(found) => {
            problems.add(ConfigError::Kind { found: shown(found, 60) });
            unset
        }
    }
}

fn gpu_config(root: &Fields<'_>, problems: &mut Problems) -> GpuConfig {
    problems.known(root, &["apiVersion", "kind", "sharing"]);
    let Some(sharing) = problems.nested(root, "sharing") else { return GpuConfig::default() };
    problems.known(&sharing, &["strategy", "timeSlicingConfig", "mpsConfig"]);
    let interval = problems.nested(&sharing, "timeSlicingConfig").map(|block| {
        problems.known(&block, &["interval"]);
        let intervals = [
            ("Default", Interval::Default),
            ("Short", Interval::Short),
            ("Medium", Interval::Medium),
            ("Long", Interval::Long),
        ];
        let want = "Default, Short, Medium or Long";
        problems.choice(&block, "interval", &intervals, want).unwrap_or_default()
    });
    let mps = mps_config(&sharing, problems);
    let sharing = match strategy(&sharing, problems) {
        Some(Strategy::TimeSlicing) => {
            problems.conflict(mps.is_some(), "mpsConfig", "TimeSlicing");
            Some(Sharing::TimeSlicing { interval: interval.unwrap_or_default() })
        }
        Some(Strategy::Mps) => {
            problems.conflict(interval.is_some(), "timeSlicingConfig", "MPS");
            Some(Sharing::Mps(mps.unwrap_or_default()))
        }
        None => None,
    };
    GpuConfig { sharing }
}

fn mig_config(root: &Fields<'_>, problems: &mut Problems) -> MigDeviceConfig {
    problems.known(root, &["apiVersion", "kind", "sharing"]);
    let Some(sharing) = problems.nested(root, "sharing") else {
        return MigDeviceConfig::default();
    };
    problems.known(&sharing, &["strategy", "mpsConfig"]);
    let mps = mps_config(&sharing, problems);
    let sharing = match strategy(&sharing, problems) {
        Some(Strategy::TimeSlicing) => {
            problems.conflict(mps.is_some(), "mpsConfig", "TimeSlicing");
            Some(MigSharing::TimeSlicing)
        }
        Some(Strategy::Mps) => Some(MigSharing::Mps(mps.unwrap_or_default())),
        None => None,
    };
    MigDeviceConfig { sharing }
}

fn vfio_config(root: &Fields<'_>, problems: &mut Problems) -> VfioDeviceConfig {
    problems.known(root, &["apiVersion", "kind", "iommu"]);
    let Some(iommu) = problems.nested(root, "iommu") else { return VfioDeviceConfig::default() };
    problems.known(&iommu, &["backendPolicy", "enableAPIDevice"]);
    let policies = [
        ("LegacyOnly", IommuBackendPolicy::LegacyOnly),
        ("PreferIommuFD", IommuBackendPolicy::PreferIommuFd),
    ];
    VfioDeviceConfig {
        backend_policy: problems
            .choice(&iommu, "backendPolicy", &policies, "LegacyOnly or PreferIommuFD")
            .unwrap_or_default(),
        enable_api_device: problems.boolean(&iommu, "enableAPIDevice").unwrap_or_default(),
    }
}

#[derive(Clone, Copy)]
enum Strategy {
    TimeSlicing,
    Mps,
}

fn strategy(sharing: &Fields<'_>, problems: &mut Problems) -> Option<Strategy> {
    const WANT: &str = "TimeSlicing or MPS";
    if sharing.get("strategy").is_none() {
        problems.add(ConfigError::Missing { path: "sharing.strategy", want: WANT });
    }
    let strategies = [("TimeSlicing", Strategy::TimeSlicing), ("MPS", Strategy::Mps)];
    problems.choice(sharing, "strategy", &strategies, WANT)
}

fn mps_config(sharing: &Fields<'_>, problems: &mut Problems) -> Option<MpsConfig> {
    const PERCENTAGE: &str = "defaultActiveThreadPercentage";
    const LIMIT: &str = "defaultPinnedDeviceMemoryLimit";
    const PER_DEVICE: &str = "defaultPerDevicePinnedMemoryLimit";
    let block = problems.nested(sharing, "mpsConfig")?;
    problems.known(&block, &[PERCENTAGE, LIMIT, PER_DEVICE, "multiUser"]);
    let mut config = MpsConfig {
        default_active_thread_percentage: problems.percentage(&block, PERCENTAGE),
        default_pinned_device_memory_limit: problems.memory(&block, LIMIT),
        multi_user: problems.boolean(&block, "multiUser").unwrap_or_default(),
        ..MpsConfig::default()
    };
    if let Some(limits) = problems.nested(&block, PER_DEVICE) {
        for key in limits.object.keys() {
            let limit = problems.memory(&limits, key);
            match (MpsDevice::new(key), limit) {
                (Some(device), Some(limit)) => {
                    config.default_per_device_pinned_memory_limit.insert(device, limit);
                }
                (None, _) => problems.add(ConfigError::Value {
                    path: limits.path.clone(),
                    found: format!("{:?}", shown(key, 40)),
                    want: "an index such as 0, or a UUID",
                }),
                (Some(_), None) => {}
            }
        }
    }
    Some(config)
}

/// Where the device plugin's `replicas` stands, if it does.
fn replicas(object: &Map<String, Value>) -> Option<&'static str> {
    let sharing = object.get("sharing");
    let within = |value: Option<&Value>, name: &str| value.and_then(|v| v.get(name)).is_some();
    if within(sharing.and_then(|s| s.get("timeSlicing")), "replicas") {
        Some("sharing.timeSlicing.replicas")
    } else if within(sharing.and_then(|s| s.get("timeSlicingConfig")), "replicas") {
        Some("sharing.timeSlicingConfig.replicas")
    } else if within(sharing, "replicas") {
        Some("sharing.replicas")
    } else {
        None
    }
}

/// An object and where it is.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The value of a field; null counts as not set, as in Go.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn path_of(&self, name: &str) -> String {
        let name = shown(name, 40);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }
}

/// Collects problems while values are taken out of fields.
struct Problems(Vec<ConfigError>);

impl Problems {
    fn add(&mut self, problem: ConfigError) {
        self.0.push(problem);
    }

    fn conflict(&mut self, there: bool, block: &'static str, strategy: &'static str) {
        if there {
            self.add(ConfigError::Conflict { block, strategy });
        }
    }

    fn known(&mut self, fields: &Fields<'_>, known: &'static [&'static str]) {
        for name in fields.object.keys().filter(|name| !known.contains(&name.as_str())) {
            let settings: Vec<&str> =
                known.iter().copied().filter(|known| !HEADER.contains(known)).collect();
            let meant = nearest(name, &settings).or_else(|| nearest(name, known));
            self.add(ConfigError::UnknownField { path: fields.path_of(name), meant, known });
        }
    }

    fn wrong_type(&mut self, path: String, want: &'static str, value: &Value) {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.add(ConfigError::WrongType { path, want, found });
    }

    fn object<'a>(&mut self, value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
        if value.as_object().is_none() {
            self.wrong_type(path.to_owned(), "an object", value);
        }
        value.as_object()
    }

    fn nested<'a>(&mut self, fields: &Fields<'a>, name: &str) -> Option<Fields<'a>> {
        let path = fields.path_of(name);
        let object = self.object(fields.get(name)?, &path)?;
        Some(Fields { object, path })
    }

    fn string<'a>(&mut self, fields: &Fields<'a>, name: &str) -> Option<&'a str> {
        let value = fields.get(name)?;
        if !value.is_string() {
            self.wrong_type(fields.path_of(name), "a string", value);
        }
        value.as_str()
    }

    fn boolean(&mut self, fields: &Fields<'_>, name: &str) -> Option<bool> {
        let value = fields.get(name)?;
        if !value.is_boolean() {
            self.wrong_type(fields.path_of(name), "true or false", value);
        }
        value.as_bool()
    }

    fn choice<T: Copy>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        choices: &[(&str, T)],
        want: &'static str,
    ) -> Option<T> {
        let text = self.string(fields, name)?;
        let chosen = choices.iter().find(|(choice, _)| *choice == text);
        if chosen.is_none() {
            let found = format!("{:?}", shown(text, 40));
            self.add(ConfigError::Value { path: fields.path_of(name), found, want });
        }
        chosen.map(|(_, value)| *value)
    }

    fn percentage(&mut self, fields: &Fields<'_>, name: &str) -> Option<u8> {
        let value = fields.get(name)?;
        if !value.is_i64() && !value.is_u64() {
            self.wrong_type(fields.path_of(name), "a whole number from 0 to 100", value);
            return None;
        }
        let percentage =
            value.as_u64().and_then(|n| u8::try_from(n).ok()).filter(|percent| *percent <= 100);
        if percentage.is_none() {
            let (path, found) = (fields.path_of(name), value.to_string());
            self.add(ConfigError::Value { path, found, want: "a percentage from 0 to 100" });
        }
        percentage
    }

    fn memory(&mut self, fields: &Fields<'_>, name: &str) -> Option<MemoryLimit> {
        let value = fields.get(name)?;
        if !value.is_string() && !value.is_number() {
            self.wrong_type(fields.path_of(name), MEMORY, value);
            return None;
        }
        let quantity: Option<Quantity> = serde_json::from_value(value.clone()).ok();
        let limit = quantity.as_ref().and_then(MemoryLimit::new);
        if limit.is_none() {
            let found = shown(value.as_str().unwrap_or(&value.to_string()), 30);
            self.add(ConfigError::Value { path: fields.path_of(name), found, want: MEMORY });
        }
        limit
    }
}
