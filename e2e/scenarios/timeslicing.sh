# Processes that take turns on a GPU.

# time_slice DEVICE: what the (simulated) hardware keeps: 0 default, 1 short, 2 medium, 3 long.
time_slice() {
	local uuid
	uuid=$(attribute "$1" uuid)
	jq --arg uuid "$uuid" --slurpfile machine "$state_of_gpus/node.json" \
		'.gpus[$machine[0].gpus | map(.uuid == $uuid) | index(true)].timeSlice' "$state_of_gpus/state.json"
}

# A claim sets the time slice of its GPU through nvidia-smi, and the GPU is as before when the claim's pods have ended.
timeslicing-interval() {
	claim_of long "{requests: [$(request gpu)], $(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}')}"
	sleeper first long
	sleeper second long
	local device
	device=$(allocated long)
	same "the time slice" "$(time_slice "$device")" 3
	removed pod first
	same "the time slice while a pod is left" "$(time_slice "$device")" 3
	removed pod second
	same "the time slice afterwards" "$(time_slice "$device")" 0
}

# The config can come from the class too, and a claim's own goes before it.
timeslicing-class() {
	local class=gpu-taking-turns
	apply <<-END
		apiVersion: resource.k8s.io/v1
		kind: DeviceClass
		metadata: {name: $class}
		spec:
		  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]
		  $(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Short}}')
	END
	claim_of short "{requests: [{name: gpu, exactly: {deviceClassName: $class}}]}"
	claim_of medium "{requests: [{name: gpu, exactly: {deviceClassName: $class}}], $(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Medium}}')}"
	sleeper short short
	sleeper medium medium
	same "the class's time slice" "$(time_slice "$(allocated short)")" 1
	same "the claim's time slice" "$(time_slice "$(allocated medium)")" 2
	command kubectl delete deviceclass "$class" >/dev/null
}

# nvidia-smi fails: the pod's event says so, and the pod runs once it works again.
timeslicing-refused() {
	claim_of long "{requests: [$(request gpu)], $(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}')}"
	sick '{"faults": [{"function": "nvmlDeviceGetHandleBy*", "error": 999}, {"function": "nvmlDeviceGetCount*", "error": 999}]}'
	pod patient "$nodes_of_gpus" long
	event patient FailedPrepareDynamicResources long
	healthy
	kubectl annotate pod patient now=again >/dev/null # by itself the kubelet would try again within 90 s
	same "GPUs of the pod" "$(output patient | wc --words)" 1
}
