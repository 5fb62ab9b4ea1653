# Objects for a real API server to judge; e2e/record-rejections posts them and writes rejections.json from the answers.
#
# Each case is a valid object with one thing changed, so that its name, the change and the verdict say the same rule.
# A case with `old` is an update: `old` is made first (and gets its status), then `object` is put over it; the
# subresource is "" or "status".

def meta($name): {name: $name};

def slice: {
  apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", metadata: meta("slice"),
  spec: {
    driver: "gpu.nvidia.com", nodeName: "node-a",
    pool: {name: "node-a", generation: 1, resourceSliceCount: 1},
    devices: [{
      name: "gpu-0",
      attributes: {type: {string: "gpu"}, index: {int: 0}, driverVersion: {version: "570.124.6"}, mig: {bool: false}},
      capacity: {memory: {value: "80Gi"}},
    }],
  },
};
def counters: slice | del(.spec.devices)
  | .spec.sharedCounters = [{name: "gpu-0-counters", counters: {"memory-slice-0": {value: "1"}}}];
def partition: slice | .spec.devices[0].consumesCounters = [
    {counterSet: "gpu-0-counters", counters: {"memory-slice-0": {value: "1"}}}];
def shared($policy): slice | .spec.devices[0] += {
    allowMultipleAllocations: true, capacity: {memory: {value: "80Gi", requestPolicy: $policy}}};
def named($count; $more): [range($count) | {name: "gpu-\(.)"} + $more];
def device(f): .spec.devices[0] |= f;

def class: {
  apiVersion: "resource.k8s.io/v1", kind: "DeviceClass", metadata: meta("gpu.example.com"),
  spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]},
};

def opaque($parameters): {opaque: {driver: "gpu.nvidia.com", parameters: $parameters}};
def sharing: {apiVersion: "resource.nvidia.com/v1beta1", kind: "GpuConfig", sharing: {strategy: "TimeSlicing"}};
def claim: {
  apiVersion: "resource.k8s.io/v1", kind: "ResourceClaim", metadata: (meta("claim") + {namespace: "default"}),
  spec: {devices: {requests: [{name: "gpu", exactly: {deviceClassName: "gpu.nvidia.com"}}]}},
};
def exactly(f): .spec.devices.requests[0].exactly |= f;
def cel($expression): exactly(.selectors = [{cel: {expression: $expression}}]);
def tolerating($toleration): exactly(.tolerations = [$toleration]);
def alternatives($count): [range($count) | {name: "choice-\(.)", deviceClassName: "gpu.nvidia.com"}];
def fallback: claim | .spec.devices.requests = [{name: "gpu", firstAvailable: alternatives(2)}];
def constrained($constraint): claim | .spec.devices.constraints = [$constraint];
def configured($config): claim | .spec.devices.config = [$config];
def monitor: claim | exactly(.adminAccess = true);

def template: claim | .kind = "ResourceClaimTemplate" | .spec = {spec: .spec};

def uid($n): "00000000-0000-4000-8000-\("000000000000\($n)"[-12:])";
def device_of($request): {request: $request, driver: "gpu.nvidia.com", pool: "node-a", device: "gpu-0"};
def allocated: claim | .status.allocation = {devices: {results: [device_of("gpu")]}};
def reserved($count): .status.reservedFor = [range($count) | {resource: "pods", name: "pod-\(.)", uid: uid(.)}];
def status_of($device): .status.devices = [{driver: "gpu.nvidia.com", pool: "node-a", device: "gpu-0"} + $device];

def pod: {
  apiVersion: "v1", kind: "Pod", metadata: (meta("pod") + {namespace: "default"}),
  spec: {
    containers: [{name: "main", image: "busybox", resources: {claims: [{name: "gpu"}]}}],
    resourceClaims: [{name: "gpu", resourceClaimName: "claim"}],
  },
};

def case($name; object): {case: $name, object: object};
def update($name; old; change): old as $old | {case: $name, subresource: "", $old, object: ($old | change)};
def status($name; old; change): old as $old | {case: $name, subresource: "status", $old, object: ($old | change)};

# ---- ResourceSlice
case("slice"; slice),
case("slice of counters"; counters),
case("slice with a partition"; partition),
case("slice with neither devices nor counters"; slice | del(.spec.devices)),
case("slice with an empty list of devices and counters"; counters | .spec.devices = []),
case("slice with both devices and counters"; counters | .spec.devices = slice.spec.devices),
case("slice with 128 devices"; slice | .spec.devices = named(128; {})),
case("slice with 129 devices"; slice | .spec.devices = named(129; {})),
case("slice with 64 devices that consume counters"; partition | .spec.devices = named(64; {consumesCounters: partition.spec.devices[0].consumesCounters})),
case("slice with 65 devices and one taint"; slice | .spec.devices = named(65; {}) | device(.taints = [{key: "gpu.nvidia.com/xid", effect: "NoSchedule"}])),
case("slice with 65 devices and one that consumes counters"; partition | .spec.devices = named(65; {}) | device(.consumesCounters = partition.spec.devices[0].consumesCounters)),
case("device name of the same slice twice"; slice | .spec.devices += .spec.devices),
case("device name in upper case"; slice | device(.name = "GPU-0")),
case("device name with a dot"; slice | device(.name = "gpu.0")),
case("device name of 64 characters"; slice | device(.name = "g" * 64)),
case("device name missing"; slice | device(del(.name))),
case("driver name missing"; slice | del(.spec.driver)),
case("driver name with an underscore"; slice | .spec.driver = "gpu_nvidia"),
case("driver name of 64 characters"; slice | .spec.driver = "g" * 64),
case("driver name in upper case"; slice | .spec.driver = "GPU.nvidia.com"),
case("pool name missing"; slice | del(.spec.pool.name)),
case("pool name in upper case"; slice | .spec.pool.name = "Node-A"),
case("pool name of two parts"; slice | .spec.pool.name = "node-a/gpus"),
case("pool name with an empty part"; slice | .spec.pool.name = "node-a//gpus"),
case("pool name of 254 characters"; slice | .spec.pool.name = "a" * 254),
case("slice count of zero"; slice | .spec.pool.resourceSliceCount = 0),
case("pool generation below zero"; slice | .spec.pool.generation = -1),
case("pool generation missing"; slice | del(.spec.pool.generation)),
case("no node"; slice | del(.spec.nodeName)),
case("node name empty"; slice | .spec.nodeName = ""),
case("node name in upper case"; slice | .spec.nodeName = "Node-A"),
case("node name and all nodes"; slice | .spec.allNodes = true),
case("all nodes is false"; slice | .spec.allNodes = false),
case("all nodes"; slice | del(.spec.nodeName) | .spec.allNodes = true),
case("node selector of two terms"; slice | del(.spec.nodeName) | .spec.nodeSelector.nodeSelectorTerms = [
  range(2) | {matchExpressions: [{key: "rack", operator: "In", values: ["r\(.)"]}]}]),
case("device with a node of its own"; slice | device(.nodeName = "node-a")),
case("nodes per device, and a device without one"; slice | del(.spec.nodeName) | .spec.perDeviceNodeSelection = true),
case("owner without a uid"; slice | .metadata.ownerReferences = [{apiVersion: "v1", kind: "Node", name: "node-a"}]),
case("owner without an API version"; slice | .metadata.ownerReferences = [{kind: "Node", name: "node-a", uid: uid(1)}]),
case("owner with all four fields"; slice | .metadata.ownerReferences = [{apiVersion: "v1", kind: "Node", name: "node-a", uid: uid(1)}]),
case("two controlling owners"; slice | .metadata.ownerReferences = [range(2) | {apiVersion: "v1", kind: "Node", name: "node-\(.)", uid: uid(.), controller: true}]),

# ---- attributes and capacity
case("version with a leading zero"; slice | device(.attributes.driverVersion.version = "570.124.06")),
case("version of two numbers"; slice | device(.attributes.driverVersion.version = "12.8")),
case("version with a letter v"; slice | device(.attributes.driverVersion.version = "v1.2.3")),
case("version with a pre-release and a build"; slice | device(.attributes.driverVersion.version = "1.2.3-rc.1+build.5")),
case("string of 64 characters"; slice | device(.attributes.type.string = "g" * 64)),
case("string of 65 characters"; slice | device(.attributes.type.string = "g" * 65)),
case("string empty"; slice | device(.attributes.type.string = "")),
case("attribute without a value"; slice | device(.attributes.type = {})),
case("attribute of two types"; slice | device(.attributes.type.int = 1)),
case("attribute that is a bare string"; slice | device(.attributes.type = "gpu")),
case("attribute that is a list, its gate off"; slice | device(.attributes.type = {strings: ["gpu"]})),
case("attribute key with a hyphen"; slice | device(.attributes["product-name"] = {string: "H100"})),
case("attribute key of 33 characters"; slice | device(.attributes["k" * 33] = {int: 1})),
case("attribute key with a domain"; slice | device(.attributes["resource.kubernetes.io/pcieRoot"] = {string: "pci0000:00"})),
case("attribute key with an empty domain"; slice | device(.attributes["/type"] = {int: 1})),
case("attribute key with an empty name"; slice | device(.attributes["gpu.nvidia.com/"] = {int: 1})),
case("attribute key with two slashes"; slice | device(.attributes["a/b/c"] = {int: 1})),
case("32 attributes and capacities"; slice | device(.attributes = ([range(31) | {"k\(.)": {int: .}}] | add))),
case("33 attributes and capacities"; slice | device(.attributes = ([range(32) | {"k\(.)": {int: .}}] | add))),
case("capacity key with a hyphen"; slice | device(.capacity = {"gpu-memory": {value: "1Gi"}})),
case("capacity that is no quantity"; slice | device(.capacity.memory.value = "80GB")),
case("capacity without a value"; slice | device(.capacity.memory = {})),
case("capacity as a number"; slice | device(.capacity.memory.value = 80)),
case("request policy without multiple allocations"; shared({default: "10Gi"}) | device(del(.allowMultipleAllocations))),
case("request policy of a range"; shared({default: "10Gi", validRange: {min: "10Gi", max: "80Gi", step: "10Gi"}})),
case("request policy of a range without a default"; shared({validRange: {min: "10Gi"}})),
case("request policy of a range without a minimum"; shared({default: "10Gi", validRange: {max: "80Gi"}})),
case("request policy whose default is below the minimum"; shared({default: "5Gi", validRange: {min: "10Gi"}})),
case("request policy whose maximum is above the capacity"; shared({default: "10Gi", validRange: {min: "10Gi", max: "90Gi"}})),
case("request policy whose maximum is not on a step"; shared({default: "10Gi", validRange: {min: "10Gi", max: "75Gi", step: "10Gi"}})),
case("request policy whose step goes past the capacity"; shared({default: "10Gi", validRange: {min: "10Gi", step: "80Gi"}})),
case("request policy of values"; shared({default: "20Gi", validValues: ["10Gi", "20Gi"]})),
case("request policy of values without the default"; shared({default: "30Gi", validValues: ["10Gi", "20Gi"]})),
case("request policy of values out of order"; shared({default: "20Gi", validValues: ["20Gi", "10Gi"]})),
case("request policy of a value above the capacity"; shared({default: "20Gi", validValues: ["20Gi", "90Gi"]})),
case("request policy of 11 values"; shared({default: "1Gi", validValues: [range(1; 12) | "\(.)Gi"]})),
case("request policy of values and a range"; shared({default: "10Gi", validValues: ["10Gi"], validRange: {min: "10Gi"}})),

# ---- counters and taints
case("counter set without counters"; counters | .spec.sharedCounters[0].counters = {}),
case("counter set name in upper case"; counters | .spec.sharedCounters[0].name = "GPU"),
case("counter set twice"; counters | .spec.sharedCounters += .spec.sharedCounters),
case("counter name with an underscore"; counters | .spec.sharedCounters[0].counters = {memory_slice: {value: "1"}}),
case("8 counter sets"; counters | .spec.sharedCounters = [range(8) as $n | .spec.sharedCounters[0] | .name = "set-\($n)"]),
case("9 counter sets"; counters | .spec.sharedCounters = [range(9) as $n | .spec.sharedCounters[0] | .name = "set-\($n)"]),
case("33 counters in a set"; counters | .spec.sharedCounters[0].counters = ([range(33) | {"c\(.)": {value: "1"}}] | add)),
case("device that consumes from 3 sets"; partition | device(.consumesCounters = [range(3) as $n | .consumesCounters[0] | .counterSet = "set-\($n)"])),
case("device that consumes from a set twice"; partition | device(.consumesCounters += .consumesCounters)),
case("device that consumes no counter"; partition | device(.consumesCounters[0].counters = {})),
case("device that consumes from a set unknown to the slice"; partition | device(.consumesCounters[0].counterSet = "elsewhere")),
case("taint"; slice | device(.taints = [{key: "gpu.nvidia.com/xid", value: "79", effect: "NoExecute"}])),
case("taint effect of None"; slice | device(.taints = [{key: "gpu.nvidia.com/xid", effect: "None"}])),
case("taint effect unknown"; slice | device(.taints = [{key: "gpu.nvidia.com/xid", effect: "PreferNoSchedule"}])),
case("taint without an effect"; slice | device(.taints = [{key: "gpu.nvidia.com/xid"}])),
case("taint without a key"; slice | device(.taints = [{effect: "NoSchedule"}])),
case("taint value with a space"; slice | device(.taints = [{key: "gpu.nvidia.com/xid", value: "Xid 79", effect: "NoSchedule"}])),
case("17 taints"; slice | device(.taints = [range(17) | {key: "gpu.nvidia.com/t\(.)", effect: "NoSchedule"}])),
case("binding condition without a failure condition"; slice | device(.bindingConditions = ["gpu.nvidia.com/ready"])),
case("slice with a field unknown to the API"; slice | .spec.nodename = "node-a"),
case("device with a field of v1beta1"; slice | device({name, basic: {attributes}})),
update("slice: new devices at a new generation"; slice; .spec.pool.generation = 2 | .spec.devices = named(2; {})),
update("slice: a lower generation"; slice; .spec.pool.generation = 0),
update("slice: another node"; slice; .spec.nodeName = "node-b"),
update("slice: another pool"; slice; .spec.pool.name = "node-b"),
update("slice: another driver"; slice; .spec.driver = "gpu.example.com"),

# ---- DeviceClass
case("class"; class),
case("class without a selector"; class | .spec = {}),
case("class name in upper case"; class | .metadata.name = "GPU"),
case("class with 32 selectors"; class | .spec.selectors = [range(32) as $_ | .spec.selectors[0]]),
case("class with 33 selectors"; class | .spec.selectors = [range(33) as $_ | .spec.selectors[0]]),
case("class with an extended resource"; class | .spec.extendedResourceName = "nvidia.com/gpu"),
case("class with an extended resource without a domain"; class | .spec.extendedResourceName = "gpu"),
case("class with an extended resource of Kubernetes"; class | .spec.extendedResourceName = "kubernetes.io/gpu"),
case("class with an extended resource that names a quota"; class | .spec.extendedResourceName = "requests.nvidia.com/gpu"),
case("class with a selector that is empty"; class | .spec.selectors = [{}]),
case("class with a config"; class | .spec.config = [opaque(sharing)]),
case("class with a config that is a list"; class | .spec.config = [opaque([])]),
update("class: another selector"; class; .spec.selectors[0].cel.expression = "false"),

# ---- ResourceClaim: requests
case("claim"; claim),
case("claim without requests"; claim | .spec.devices = {}),
case("claim without a spec"; claim | del(.spec)),
case("claim of alternatives"; fallback),
case("claim name in upper case"; claim | .metadata.name = "Claim"),
case("request without a name"; claim | del(.spec.devices.requests[0].name)),
case("request name with an underscore"; claim | .spec.devices.requests[0].name = "my_gpu"),
case("request name twice"; claim | .spec.devices.requests += .spec.devices.requests),
case("request without a class"; claim | exactly(.deviceClassName = "")),
case("request with a class name in upper case"; claim | exactly(.deviceClassName = "GPU")),
case("request without exactly or firstAvailable"; claim | .spec.devices.requests = [{name: "gpu"}]),
case("request with exactly and firstAvailable"; claim | .spec.devices.requests[0].firstAvailable = alternatives(1)),
case("request of v1beta1"; claim | .spec.devices.requests = [{name: "gpu", deviceClassName: "gpu.nvidia.com"}]),
case("count of 2"; claim | exactly(.count = 2)),
case("count of 0"; claim | exactly(.count = 0)),
case("count below 0"; claim | exactly(.count = -1)),
case("count that is a string"; claim | exactly(.count = "2")),
case("all devices"; claim | exactly(.allocationMode = "All")),
case("all devices, and a count"; claim | exactly(.allocationMode = "All" | .count = 1)),
case("allocation mode unknown"; claim | exactly(.allocationMode = "Shared")),
case("32 requests"; claim | .spec.devices.requests = [range(32) as $n | .spec.devices.requests[0] | .name = "gpu-\($n)"]),
case("33 requests"; claim | .spec.devices.requests = [range(33) as $n | .spec.devices.requests[0] | .name = "gpu-\($n)"]),
case("8 alternatives"; fallback | .spec.devices.requests[0].firstAvailable = alternatives(8)),
case("9 alternatives"; fallback | .spec.devices.requests[0].firstAvailable = alternatives(9)),
case("alternative twice"; fallback | .spec.devices.requests[0].firstAvailable |= [.[0], .[0]]),
case("alternative without a name"; fallback | del(.spec.devices.requests[0].firstAvailable[0].name)),
case("alternative without a class"; fallback | .spec.devices.requests[0].firstAvailable[0].deviceClassName = ""),
case("alternative with admin access"; fallback | .spec.devices.requests[0].firstAvailable[0].adminAccess = true),
case("admin access in a namespace without the label"; monitor),
case("admin access in a namespace with the label"; monitor | .metadata.namespace = "admin"),
case("capacity request"; claim | exactly(.capacity.requests.memory = "10Gi")),
case("capacity request with a bad key"; claim | exactly(.capacity.requests["gpu-memory"] = "10Gi")),

# ---- ResourceClaim: selectors
case("selector"; claim | cel("device.attributes['gpu.nvidia.com'].type == 'gpu'")),
case("selector of memory"; claim | cel("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0")),
case("selector empty"; claim | cel("")),
case("selector that does not parse"; claim | cel("device.driver ==")),
case("selector that is a string"; claim | cel("device.driver")),
case("selector with an unknown variable"; claim | cel("gpu.memory > 40")),
case("selector with an unknown field"; claim | cel("device.name == 'gpu-0'")),
case("selector with an unknown function"; claim | cel("device.driver.glob('gpu.*')")),
case("selector that compares a string with a number"; claim | cel("device.driver == 1")),
case("selector that compares a quantity with a string"; claim | cel("device.capacity['gpu.nvidia.com'].memory >= '40Gi'")),
case("selector that is only known to be bool at run time"; claim | cel("device.attributes['gpu.nvidia.com'].mig")),
case("selector of 10241 characters"; claim | cel("true" + " " * 10237)),
case("selector that costs too much"; claim | cel(
  "[0,1,2,3,4,5,6,7,8,9]" as $ten | "\($ten).all(a, \($ten).all(b, \($ten).all(c, \($ten).all(d, \($ten).all(e, \($ten).all(f, a+b+c+d+e+f >= 0))))))")),
case("33 selectors"; claim | exactly(.selectors = [range(33) | {cel: {expression: "true"}}])),
case("selector without CEL"; claim | exactly(.selectors = [{}])),

# ---- ResourceClaim: tolerations, constraints, configuration
case("toleration of a key with a value"; claim | tolerating({key: "gpu.nvidia.com/xid", value: "79", effect: "NoSchedule"})),
case("toleration of everything"; claim | tolerating({operator: "Exists"})),
case("toleration with an unknown operator"; claim | tolerating({key: "gpu.nvidia.com/xid", operator: "In"})),
case("toleration without a key, operator Equal"; claim | tolerating({operator: "Equal", value: "79"})),
case("toleration with a value, operator Exists"; claim | tolerating({key: "gpu.nvidia.com/xid", operator: "Exists", value: "79"})),
case("toleration with an unknown effect"; claim | tolerating({operator: "Exists", effect: "Never"})),
case("toleration with seconds, effect NoSchedule"; claim | tolerating({operator: "Exists", effect: "NoSchedule", tolerationSeconds: 10})),
case("toleration with seconds, effect NoExecute"; claim | tolerating({operator: "Exists", effect: "NoExecute", tolerationSeconds: 10})),
case("toleration with a key that is no label"; claim | tolerating({key: "x y", operator: "Exists"})),
case("17 tolerations"; claim | exactly(.tolerations = [range(17) | {key: "gpu.nvidia.com/t\(.)", operator: "Exists"}])),
case("constraint on an attribute"; constrained({matchAttribute: "resource.kubernetes.io/pcieRoot"})),
case("constraint on a request"; constrained({requests: ["gpu"], matchAttribute: "resource.kubernetes.io/pcieRoot"})),
case("constraint on an attribute without a domain"; constrained({matchAttribute: "pcieRoot"})),
case("constraint without an attribute"; constrained({requests: ["gpu"]})),
case("constraint with two attributes"; constrained({matchAttribute: "gpu.nvidia.com/a", distinctAttribute: "gpu.nvidia.com/b"})),
case("constraint on an unknown request"; constrained({requests: ["nic"], matchAttribute: "resource.kubernetes.io/pcieRoot"})),
case("constraint on a request twice"; constrained({requests: ["gpu", "gpu"], matchAttribute: "resource.kubernetes.io/pcieRoot"})),
case("constraint on an alternative"; fallback | .spec.devices.constraints = [{requests: ["gpu/choice-1"], matchAttribute: "gpu.nvidia.com/parentUUID"}]),
case("constraint on an unknown alternative"; fallback | .spec.devices.constraints = [{requests: ["gpu/choice-9"], matchAttribute: "gpu.nvidia.com/parentUUID"}]),
case("33 constraints"; claim | .spec.devices.constraints = [range(33) | {matchAttribute: "gpu.nvidia.com/a\(.)"}]),
case("config"; configured(opaque(sharing))),
case("config of a kind unknown to the driver"; configured(opaque({kind: "Nonsense"}))),
case("config that is a string"; configured(opaque("TimeSlicing"))),
case("config that is a list"; configured(opaque([sharing]))),
case("config that is null"; configured(opaque(null))),
case("config without parameters"; configured({opaque: {driver: "gpu.nvidia.com"}})),
case("config of more than 10 KiB"; configured(opaque({padding: ("x" * 10240)}))),
case("config without a driver"; configured({opaque: {parameters: sharing}})),
case("config with a driver name in upper case"; configured({opaque: {driver: "GPU", parameters: sharing}})),
case("config for an unknown request"; configured(opaque(sharing) + {requests: ["nic"]})),
case("config without opaque"; configured({requests: ["gpu"]})),
case("33 configs"; claim | .spec.devices.config = [range(33) | opaque(sharing)]),
case("claim with a field unknown to the API"; claim | exactly(.deviceClass = "gpu.nvidia.com")),

# ---- ResourceClaim: updates
update("claim: a label"; claim; .metadata.labels = {a: "b"}),
update("claim: another count"; claim; exactly(.count = 2)),
update("claim: another config"; claim; .spec.devices.config = [opaque(sharing)]),
status("claim: an allocation"; claim; .status = allocated.status),
status("claim: an allocation and a pod"; claim; .status = (allocated | reserved(1)).status),
status("claim: a pod without an allocation"; claim; reserved(1)),
status("claim: another device while allocated"; allocated; .status.allocation.devices.results[0].device = "gpu-1"),
status("claim: no allocation again"; allocated; del(.status)),
status("claim: no allocation while reserved"; allocated | reserved(1); del(.status.allocation)),
status("claim: reserved for 256 pods"; allocated; reserved(256)),
status("claim: reserved for 257 pods"; allocated; reserved(257)),
status("claim: reserved for a pod twice"; allocated; reserved(1) | .status.reservedFor += .status.reservedFor),
status("claim: reserved for a pod without a uid"; allocated; reserved(1) | del(.status.reservedFor[0].uid)),
status("claim: allocation for an unknown request"; claim; .status.allocation = {devices: {results: [device_of("nic")]}}),
status("claim: allocation of a device without a pool"; claim; .status.allocation = {devices: {results: [device_of("gpu") | del(.pool)]}}),
status("claim: allocation of a bad device name"; claim; .status.allocation = {devices: {results: [device_of("gpu") | .device = "GPU-0"]}}),
status("claim: allocation of 33 devices"; claim; .status.allocation = {devices: {results: [range(33) as $n | device_of("gpu") | .device = "gpu-\($n)"]}}),
status("claim: allocation with a config without a source"; claim; .status = (allocated.status | .allocation.devices.config = [opaque(sharing)])),
status("claim: allocation with a config from the class"; claim; .status = (allocated.status | .allocation.devices.config = [opaque(sharing) + {source: "FromClass"}])),
status("claim: status of an allocated device"; allocated; status_of({data: {uuid: "GPU-0"}})),
status("claim: status of a device that is not allocated"; allocated; status_of({device: "gpu-1"})),
status("claim: status data that is a list"; allocated; status_of({data: []})),
status("claim: status data of more than 10 KiB"; allocated; status_of({data: {padding: ("x" * 10240)}})),
status("claim: status with a condition without a reason"; allocated; status_of({conditions: [{type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", message: ""}]})),
status("claim: a new spec through the status"; claim; exactly(.count = 2)),

# ---- ResourceClaimTemplate
case("template"; template),
case("template with labels for its claims"; template | .spec.metadata.labels = {a: "b"}),
case("template with a name for its claims"; template | .spec.metadata.name = "claim"),
case("template with a bad label for its claims"; template | .spec.metadata.labels = {"a b": "c"}),
case("template without requests"; template | .spec.spec.devices = {}),
case("template without a class"; template | .spec.spec.devices.requests[0].exactly.deviceClassName = ""),
case("template with the spec of a claim"; template | .spec = claim.spec),
case("template with admin access in a namespace without the label"; template | .spec = {spec: monitor.spec}),
update("template: another count"; template; .spec.spec.devices.requests[0].exactly.count = 2),
update("template: a label of its own"; template; .metadata.labels = {a: "b"}),

# ---- Pod
case("pod"; pod),
case("pod with a template"; pod | .spec.resourceClaims = [{name: "gpu", resourceClaimTemplateName: "template"}]),
case("pod with a request of its claim"; pod | .spec.containers[0].resources.claims[0].request = "gpu"),
case("pod with a claim that no container uses"; pod | del(.spec.containers[0].resources)),
case("pod with a container that names an unknown claim"; pod | .spec.containers[0].resources.claims[0].name = "nic"),
case("pod with a claim and a template at once"; pod | .spec.resourceClaims[0].resourceClaimTemplateName = "template"),
case("pod with neither claim nor template"; pod | .spec.resourceClaims = [{name: "gpu"}]),
case("pod with a claim twice"; pod | .spec.resourceClaims += .spec.resourceClaims),
case("pod with a container that names a claim twice"; pod | .spec.containers[0].resources.claims += .spec.containers[0].resources.claims),
case("pod with a claim name in upper case"; pod | .spec.resourceClaims[0].name = "GPU"),
case("pod with the source of v1alpha2"; pod | .spec.resourceClaims = [{name: "gpu", source: {resourceClaimName: "claim"}}]),
case("pod with an extended resource whose limit is missing"; pod | del(.spec.resourceClaims) | .spec.containers[0].resources = {requests: {"nvidia.com/gpu": "1"}}),
case("pod with half an extended resource"; pod | del(.spec.resourceClaims) | .spec.containers[0].resources = {limits: {"nvidia.com/gpu": "500m"}}),
case("pod with an extended resource"; pod | del(.spec.resourceClaims) | .spec.containers[0].resources = {limits: {"nvidia.com/gpu": "1"}})
