# Everything at once on one node: a whole GPU under MPS, a GPU in parts with MPS on one of them, a time-sliced GPU, a GPU in shares,
# a monitor with admin access, and a GPU that is tainted for its health.
everything-at-once() {
	needs_kubernetes 1.36
	kubectl label namespace "$namespace" resource.kubernetes.io/admin-access=true >/dev/null
	claim_of mps "{requests: [$(h100)], $(mps_config 'defaultActiveThreadPercentage: 50')}"
	claim_of part-mps "{requests: [$(mig_request mig 3g.40gb)], config: [{opaque: {driver: gpu.nvidia.com,
		parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: MigDeviceConfig, sharing: {strategy: MPS}}}}]}"
	claim_of part "{requests: [$(mig_request mig 2g.20gb)]}"
	claim_of slice "{requests: [$(h100)], $(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}')}"
	share_claim share-1 "$namespace" 4Gi
	share_claim share-2 "$namespace" 6Gi
	claim_of monitor "{requests: [{name: all, exactly: {deviceClassName: monitor.gpu.nvidia.com, allocationMode: All, adminAccess: true,
		tolerations: [{key: gpu.nvidia.com/monitoring, operator: Exists}, {operator: Exists, effect: NoSchedule}]}}]}"
	local name
	for name in mps part-mps part slice share-1 share-2 monitor; do
		sleeper "$name" "$name"
	done
	daemons_are 3
	same "parts of GPUs" "$(jq '[.gpus[].instances[]] | length' "$state_of_gpus/state.json")" 2
	same "the time slice" "$(time_slice "$(allocated slice)")" 3
	same "GPUs of the monitor" "$(seen monitor | wc --words)" 10
	# The driver asks to drain a GPU that nobody uses: nobody gets it from now on, and all others stay as they are.
	local sick_one
	sick_one=$(comm -23 <(devices | jq --raw-output '.[].name' | sort) <(for name in mps slice; do allocated "$name"; done | sort) | grep '^gpu-[0-4]$' | head --lines 1)
	sick "{\"gpus\": {\"${sick_one#gpu-}\": {\"recoveryAction\": 4}}}"
	eventually 60 tainted "$sick_one" gpu.nvidia.com/recovery-action
	for name in mps part-mps part slice share-1 share-2 monitor; do
		same "pod $name" "$(phase "$name")" Running
	done
	sleep 2 # The scheduler hears of slices by a watch of its own.
	claim_of whole "{requests: [$(h100)]}"
	sleeper whole whole
	[[ $(allocated whole) != "$sick_one" ]]
	kubectl delete pods --all --timeout=120s >/dev/null
	eventually 30 daemons_are 0
	eventually 30 no_partitions
	hardware_has '[.gpus[].computeMode] | unique' '[0]'
	hardware_has '[.gpus[].timeSlice] | unique' '[0]'
	healthy
}

# tainted DEVICE KEY: whether it has a taint of that key.
tainted() {
	slices | jq --exit-status --arg device "$1" --arg key "$2" \
		'[.[].spec.devices // [] | .[] | select(.name == $device) | .taints // [] | .[] | select(.key == $key)] | length > 0' >/dev/null
}
