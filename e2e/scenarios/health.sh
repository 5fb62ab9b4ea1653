# A GPU falls ill: its taint, its pods, what people are told, and how it ends.

# The driver's readings are 10 s apart.

# health_taints DEVICE: its taints, as kubectl taint writes them, in one line.
health_taints() {
	slices | jq --raw-output --arg device "$1" '[.[].spec.devices // [] | .[] | select(.name == $device).taints // [] | .[]
		| .key + (if .value then "=" + .value else "" end) + ":" + .effect] | sort | join(" ")'
}

tainted_as() {
	local are
	are=$(health_taints "$1")
	[[ $are == "$2" ]] || { echo "$1 is tainted '$are', not '$2'" && return 1; }
}

# position DEVICE: the GPU's place in the (simulated) machine.
position() {
	jq --arg uuid "$(attribute "$1" uuid)" '.gpus | map(.uuid == $uuid) | index(true)' "$state_of_gpus/node.json"
}

# raised POSITION XID: the GPU raises the Xid, whatever else is wrong. asks_for POSITION ACTION: its driver asks for a recovery
# action by its number, 2 to reboot, 0 for nothing.
raised() { worse ".events += [{gpu: \"$1\", xid: $2}]"; }
asks_for() { worse ".gpus.\"$1\".recoveryAction = $2"; }
worse() {
	local now='{}'
	[[ ! -e $state_of_gpus/control.json ]] || now=$(<"$state_of_gpus/control.json")
	sick "$(jq "$1" <<<"$now")"
}

# needs_taints: ends the scenario without a verdict where the API server drops taints.
needs_taints() { needs_kubernetes 1.36; }

# resource_health POD: what the pod's status says of its devices.
resource_health() {
	kubectl get pod "$1" --output json | jq --raw-output '[.status.containerStatuses[0].allocatedResourcesStatus // [] | .[].resources[] | .health + ": " + (.message // "")] | join(" ")'
}

health_is() {
	local is
	is=$(resource_health "$1")
	[[ $is == *"$2"* ]] || { echo "the pod's status says '$is', not '$2'" && return 1; }
}

node_event() {
	command kubectl describe node "$node" | grep --fixed-strings -- "$1" >/dev/null || { command kubectl describe node "$node" | sed -n '/^Events/,$p' && return 1; }
}

# tolerant NAME: a claim for one L4 that tolerates everything. Kubernetes' eviction passes over tolerations that name no effect.
tolerant() { claim "$1" "$(l4), tolerations: [{operator: Exists, effect: NoExecute}]"; }
l4() { cel "device.attributes['gpu.nvidia.com'].productName.contains('L4')"; }

# Xid 79: the pod is evicted that doesn't tolerate it, the one that does sees it in its status, others are unaffected; recovery ends it.
health-xid-79() {
	needs_taints
	claim victim "$(l4)"
	sleeper victim victim
	local device at raised_at
	device=$(allocated victim)
	at=$(position "$device")
	tolerant survivor
	sleeper survivor survivor
	raised_at=$EPOCHREALTIME
	asks_for "$at" 2
	raised "$at" 79
	eventually 20 tainted_as "$device" "gpu.nvidia.com/recovery-action=reboot:NoExecute gpu.nvidia.com/xid=79:NoExecute"
	figure "Xid 79, until the device is tainted: $(awk -v from="$raised_at" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", to - from}')"
	eventually 60 gone_pod victim
	figure "Xid 79, until the pod is gone: $(awk -v from="$raised_at" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", to - from}')"
	event victim DeviceTainted 'Xid 79: the GPU has fallen off the bus'
	eventually 20 node_event 'Xid 79: the GPU has fallen off the bus'
	same "the pod on the other GPU" "$(phase survivor)" Running
	same "taints of the other GPU" "$(health_taints "$(allocated survivor)")" ""

	# Nobody gets it but who tolerates it.
	kubectl delete resourceclaim victim --timeout=60s >/dev/null
	claim late "$(l4)"
	pod late 'exec sleep 1000' late
	sleep 5
	same "a pod that doesn't tolerate it" "$(phase late)" Pending
	tolerant brave
	sleeper brave brave
	same "who tolerates it gets" "$(allocated brave)" "$device"
	eventually 60 health_is brave 'Unhealthy: Xid 79: the GPU has fallen off the bus'

	asks_for "$at" 0
	eventually 40 tainted_as "$device" ""
	event brave DeviceTaintGone 'gpu.nvidia.com/xid'
	eventually 60 health_is brave Healthy
	removed pod brave
	kubectl delete resourceclaim brave >/dev/null
	running late 90
	healthy
}

# An Xid that a program causes does nothing.
health-xid-of-a-program() {
	claim one "$(l4)"
	sleeper one one
	local device xid
	device=$(allocated one)
	for xid in 13 31; do
		raised "$(position "$device")" "$xid"
		eventually 20 counted "$xid"
	done
	same "its taints" "$(health_taints "$device")" ""
	same "its pod" "$(phase one)" Running
	same "Events of the pod" "$(kubectl get events --field-selector involvedObject.name=one,reason=DeviceTainted --output name)" ""
	healthy
}

counted() { driver logs "$(driver_pod)" | grep "Xid($1)" >/dev/null || { echo "Xid $1 isn't in the log" && return 1; }; }

# A person clears what no reading ends, by the Node's annotation.
health-cleared-by-hand() {
	needs_taints
	raised 9 79
	local device=gpu-9
	eventually 20 tainted_as "$device" gpu.nvidia.com/xid=79:NoExecute
	"$DRIVER_BIN_DIR/gpu-dra" clear-taint "$device" --node "$node" --kubeconfig "$KUBECONFIG"
	eventually 60 tainted_as "$device" ""
	eventually 20 node_event 'was cleared as asked'
	# It stays so over a restart, though the annotation is still there.
	driver delete pod --selector "$driver_selector" --timeout=60s >/dev/null
	driver_ready
	tainted_as "$device" ""
	healthy
}

# A lost GPU is tainted and not removed, and alone; back on the bus it is used again.
health-lost-gpu() {
	needs_taints
	sick '{"gpus": {"8": {"lost": "dropped"}}}'
	eventually 40 tainted_as gpu-8 gpu.nvidia.com/gpu-lost:NoExecute
	published 10
	tainted_as gpu-9 ""
	same "other tainted GPUs" "$(devices | jq '[.[] | select(.taints // [] | length > 0) | .name] | length')" 1
	claim both "$(l4), count: 2"
	pod both 'exec sleep 1000' both
	sleep 5
	same "a pod for both L4" "$(phase both)" Pending
	healthy
	eventually 40 tainted_as gpu-8 ""
	running both 60
}
