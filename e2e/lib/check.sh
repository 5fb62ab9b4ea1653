# The words that scenarios are written in. Each scenario has a namespace of its own, in which all of them act.

kubectl() { command kubectl --namespace "${namespace:-default}" "$@"; }

# apply: makes the objects that come in as YAML.
apply() { kubectl apply --filename - >/dev/null; }

# pod NAME SCRIPT [CLAIM...]: a pod whose one container runs the script in busybox (or $pod_image) and uses the claims. A claim is the
# name of a ResourceClaim, or template:NAME for one made from a ResourceClaimTemplate.
pod() {
	local name=$1 script=$2 claim sources=() uses=()
	shift 2
	for claim; do
		uses+=("{\"name\": \"${claim#template:}\"}")
		case $claim in
		template:*) sources+=("{\"name\": \"${claim#*:}\", \"resourceClaimTemplateName\": \"${claim#*:}\"}") ;;
		*) sources+=("{\"name\": \"$claim\", \"resourceClaimName\": \"$claim\"}") ;;
		esac
	done
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $name}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [$(commas "${sources[@]}")]
		  containers:
		  - name: main
		    image: ${pod_image-$busybox_image}
		    command: [sh, -euc, $(jq --null-input --arg script "$script" '$script')]
		    resources: {claims: [$(commas "${uses[@]}")]}
	END
}

commas() {
	local IFS=,
	echo "$*"
}

# claim NAME [FIELDS]: a ResourceClaim for one GPU; FIELDS go into its request, as {selectors: [...]} without the braces.
# template NAME [FIELDS]: a ResourceClaimTemplate for the same.
claim() { claim_of "$1" "{requests: [$(request gpu "${2-}")]}"; }
template() { template_of "$1" "{requests: [$(request gpu "${2-}")]}"; }

# claim_of NAME DEVICES and template_of NAME DEVICES: with any spec.devices.
claim_of() {
	apply <<-END
		apiVersion: resource.k8s.io/v1
		kind: ResourceClaim
		metadata: {name: $1}
		spec: {devices: $2}
	END
}
template_of() {
	apply <<-END
		apiVersion: resource.k8s.io/v1
		kind: ResourceClaimTemplate
		metadata: {name: $1}
		spec: {spec: {devices: $2}}
	END
}

# request NAME [FIELDS]
request() { echo "{name: $1, exactly: {deviceClassName: gpu.nvidia.com${2:+, $2}}}"; }

# cel EXPRESSION: the field that selects by it.
cel() { echo "selectors: [{cel: {expression: $(jq --null-input --arg text "$1" '$text')}}]"; }

# gpu_config SHARING: the field of a claim with a GpuConfig.
gpu_config() {
	echo "config: [{opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, $1}}}]"
}

# allocated CLAIM: the devices that it got, one a line; claim_of_pod POD: the name of the claim made for it from a template.
allocated() { kubectl get resourceclaim "$1" --output jsonpath='{range .status.allocation.devices.results[*]}{.device}{"\n"}{end}'; }
claim_of_pod() { kubectl get pod "$1" --output jsonpath='{.status.resourceClaimStatuses[0].resourceClaimName}'; }

# attribute DEVICE NAME: what is published of it, such as productName or resource.kubernetes.io/pcieRoot.
attribute() { devices | jq --raw-output --arg device "$1" --arg name "$2" '.[] | select(.name == $device).attributes[$name] | add'; }

# nodes_of_gpus: a script for pods: the device nodes of GPUs, in one line.
nodes_of_gpus='echo $(cd /dev && ls -d nvidia[0-9]*)'

phase() { kubectl get pod "$1" --output jsonpath='{.status.phase}'; }

# output POD: what it printed, once it has succeeded.
output() {
	eventually "${2:-60}" ended "$1"
	if [[ $(phase "$1") != Succeeded ]]; then
		echo "pod $1 failed: $(kubectl logs --all-containers "$1")" >&2
		return 1
	fi
	kubectl logs "$1"
}

ended() {
	local phase
	phase=$(phase "$1")
	[[ $phase == Succeeded || $phase == Failed ]] || { kubectl get pod "$1" --output wide && return 1; }
}

# running POD [SECONDS]: waits until it's ready.
running() { kubectl wait --for=condition=Ready --timeout="${2:-60}s" "pod/$1" >/dev/null; }

# removed KIND NAME [SECONDS]: deletes it, and waits until it's gone.
removed() { kubectl delete "$1" "$2" --timeout="${3:-60}s" >/dev/null; }

# sleeper NAME [CLAIM...]: a pod that runs until it's deleted, waited for.
sleeper() {
	pod "$1" 'exec sleep 1000' "${@:2}"
	running "$1"
}

# seen POD: the device nodes of GPUs in a running pod.
seen() { kubectl exec "$1" -- sh -c "$nodes_of_gpus"; }

# event OBJECT REASON TEXT [SECONDS]: waits for an event on an object of the namespace whose message has the text.
event() { eventually "${4:-60}" event_now "$1" "$2" "$3"; }

event_now() {
	kubectl get events --field-selector "involvedObject.name=$1,reason=$2" --output jsonpath='{range .items[*]}{.message}{"\n"}{end}' |
		grep --fixed-strings -- "$3" >/dev/null || { kubectl get events && return 1; }
}

# needs_kubernetes MINOR: ends the scenario without a verdict on older ones.
needs_kubernetes() { ((${E2E_MINOR#1.} >= ${1#1.})) || exit 77; }

# same WHAT ACTUAL EXPECTED and holds WHAT ACTUAL PART: say what differs, and fail.
same() { [[ $2 == "$3" ]] || { printf '%s is not as expected\nis:       %s\nexpected: %s\n' "$@" >&2 && return 1; }; }
holds() { [[ $2 == *"$3"* ]] || { printf '%s lacks something\nis:    %s\nlacks: %s\n' "$@" >&2 && return 1; }; }
