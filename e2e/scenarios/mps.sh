# Processes that share a GPU at the same time, served by an MPS daemon.

# mps_config [MPSCONFIG]: the field of a claim whose GPU is shared by MPS.
mps_config() { gpu_config "sharing: {strategy: MPS, mpsConfig: {${1-}}}"; }

# daemons: names and process ids of the control daemons on the node.
daemons() { pgrep --full --list-full 'nvidia-cuda-mps-control -f' | sort || true; }

compute_mode() {
	local uuid
	uuid=$(attribute "$1" uuid)
	jq --arg uuid "$uuid" --slurpfile machine "$state_of_gpus/node.json" \
		'.gpus[$machine[0].gpus | map(.uuid == $uuid) | index(true)].computeMode' "$state_of_gpus/state.json"
}

daemons_are() {
	local are
	are=$(daemons | wc --lines)
	[[ $are == "$1" ]] || { echo "$are control daemons, not $1" && return 1; }
}

# Two pods share a GPU through one daemon, which they alone can reach; nothing is left of it afterwards.
mps-shared-claim() {
	claim_of shared "{requests: [$(request gpu)], $(mps_config 'defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi')}"
	sleeper first shared
	daemons_are 1
	sleeper second shared
	daemons_are 1
	local pod device
	device=$(allocated shared)
	same "the compute mode" "$(compute_mode "$device")" 3
	for pod in first second; do
		kubectl exec "$pod" -- sh -euc '[ "$CUDA_MPS_PIPE_DIRECTORY" = /tmp/nvidia-mps ]; [ -S /tmp/nvidia-mps/control ]'
	done
	kubectl exec first -- touch /dev/shm/from-first
	kubectl exec second -- ls /dev/shm/from-first >/dev/null
	removed pod first
	daemons_are 1
	removed pod second
	eventually 20 daemons_are 0
	same "the compute mode afterwards" "$(compute_mode "$device")" 0
	same "folders of daemons" "$(ls /run/gpu-dra/mps | wc --lines)" 0
}

# A part of a GPU is shared too.
mps-partition() {
	needs_kubernetes 1.36
	claim_of part "{requests: [$(mig_request mig 3g.40gb)], config: [{opaque: {driver: gpu.nvidia.com,
		parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: MigDeviceConfig, sharing: {strategy: MPS}}}}]}"
	sleeper part part
	daemons_are 1
	kubectl exec part -- sh -euc '[ -S /tmp/nvidia-mps/control ]; ls /dev/nvidia-caps/* >/dev/null'
	removed pod part
	eventually 20 daemons_are 0
	eventually 20 no_partitions
}

# The daemon dies: new clients are served again at once, and the pod's owner is told.
mps-daemon-dies() {
	claim_of shared "{requests: [$(request gpu)], $(mps_config)}"
	sleeper one shared
	local before after
	before=$(daemons)
	kill -KILL "${before%% *}"
	back() { after=$(daemons) && [[ $after && $after != "$before" ]]; }
	local killed=$EPOCHREALTIME
	eventually 5 back
	figure "MPS daemon killed, back after: $(awk -v from="$killed" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.2f s", to - from}')"
	kubectl exec one -- sh -euc '[ -S /tmp/nvidia-mps/control ]'
	event one MpsDaemonLost 'what ran on it is lost'
}

# The node agent is restarted and updated: no daemon is.
mps-agent-restarts() {
	claim_of shared "{requests: [$(request gpu)], $(mps_config)}"
	sleeper one shared
	local before
	before=$(daemons)
	driver delete pod --selector "$driver_selector" --timeout=60s >/dev/null
	driver_ready
	same "the daemons" "$(daemons)" "$before"
	removed pod one
	eventually 20 daemons_are 0
}

# Prepare of an MPS claim as the kubelet sees it, and the incumbent's way: a Deployment per claim, waited for.
mps-figures() {
	local number before after durations=()
	for number in 1 2 3 4 5; do
		claim_of "shared-$number" "{requests: [$(request gpu)], $(mps_config)}"
		before=$(prepare_durations)
		sleeper "one-$number" "shared-$number"
		after=$(prepare_durations)
		durations+=("$(quantile 0.5 "$before" "$after")")
		removed pod "one-$number"
	done
	figure "Prepare of an MPS claim as the kubelet sees it (buckets): ${durations[*]}"
	local started=$EPOCHREALTIME
	apply <<-ND
		apiVersion: apps/v1
		kind: Deployment
		metadata: {name: control-daemon}
		spec:
		  selector: {matchLabels: {app: control-daemon}}
		  template:
		    metadata: {labels: {app: control-daemon}}
		    spec:
		      terminationGracePeriodSeconds: 1
		      containers:
		      - name: main
		        image: $busybox_image
		        command: [sh, -euc, 'touch /ready; exec sleep 1000']
		        startupProbe: {exec: {command: [cat, /ready]}, periodSeconds: 1}
	ND
	kubectl wait --for=condition=Available --timeout=60s deployment/control-daemon >/dev/null
	figure "a Deployment per claim, until it is available: $(awk -v from="$started" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.2f s", to - from}')"
	kubectl delete deployment control-daemon --timeout=60s >/dev/null
}

# One claim, two GPUs: one takes turns, the other is shared at the same time; each container has what its request says.
mps-beside-timeslicing() {
	local parameters='apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig'
	claim_of both "{requests: [$(request ts-gpu), $(request mps-gpu)], config: [
		{requests: [ts-gpu], opaque: {driver: gpu.nvidia.com, parameters: {$parameters, sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}}}},
		{requests: [mps-gpu], opaque: {driver: gpu.nvidia.com, parameters: {$parameters, sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}}}}]}"
	apply <<-ND
		apiVersion: v1
		kind: Pod
		metadata: {name: both}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [{name: gpus, resourceClaimName: both}]
		  containers:
		  - {name: ts, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpus, request: ts-gpu}]}}
		  - {name: mps, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpus, request: mps-gpu}]}}
	ND
	running both
	daemons_are 1
	same "MPS where nobody asked for it" "$(kubectl exec both --container ts -- sh -c 'echo "${CUDA_MPS_PIPE_DIRECTORY-none}"')" none
	same "MPS where it was asked for" "$(kubectl exec both --container mps -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"')" /tmp/nvidia-mps
	same "GPUs in the containers" "$(for name in ts mps; do kubectl exec both --container "$name" -- sh -c "$nodes_of_gpus"; done | sort --unique | wc --lines)" 2
	same "the time slice" "$(time_slice "$(allocated both | head --lines 1)")" 3
}
