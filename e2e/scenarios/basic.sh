# The cluster itself, and what every user of a GPU relies on.

# A pod of our own image runs, reaches the API server at the address that in-cluster clients use, and its log can be read.
basic-cluster() {
	pod hello 'echo "hello from $(hostname)"; nc -w 5 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null'
	same "the pod's log" "$(output hello)" "hello from hello"
}

# The node's GPUs are published in one complete pool that belongs to the Node, each with what selectors rely on.
basic-slices() {
	local all
	all=$(slices)
	same "whose slices they are" "$(jq --raw-output 'map(.metadata.ownerReferences[] | "\(.apiVersion) \(.kind) \(.name) \(.controller)") | unique[]' <<<"$all")" \
		"v1 Node $node true"
	same "the Node's UID in them" "$(jq --raw-output 'map(.metadata.ownerReferences[].uid) | unique[]' <<<"$all")" \
		"$(kubectl get node "$node" --output jsonpath='{.metadata.uid}')"
	same "their node" "$(jq --raw-output 'map(.spec.nodeName) | unique[]' <<<"$all")" "$node"
	same "their pool" "$(jq --raw-output 'map(.spec.pool.name) | unique[]' <<<"$all")" "$node"
	same "the products" "$(devices | jq --raw-output 'map(.attributes.productName.string) | sort[]' | uniq -c | tr --squeeze-repeats ' ')" \
		$' 8 NVIDIA H100 80GB HBM3\n 2 NVIDIA L4'
	same "different UUIDs" "$(devices | jq 'map(.attributes.uuid.string | select(startswith("GPU-"))) | unique | length')" 10
	same "different minors" "$(devices | jq --compact-output 'map(.attributes.index.int) | sort')" '[0,1,2,3,4,5,6,7,8,9]'
	same "the H100's memory" "$(devices | jq --raw-output '.[] | select(.attributes.index.int == 0).capacity.memory.value')" 81559Mi
	same "standard attributes" "$(devices | jq 'map(.attributes | has("resource.kubernetes.io/pcieRoot") and has("resource.kubernetes.io/pciBusID")) | all')" true
}

# A steady node writes nothing: over some looks at the GPUs no slice gets a new version.
basic-quiet() {
	local before
	before=$(slices | jq --compact-output 'map([.metadata.name, .metadata.resourceVersion])')
	sleep 12
	same "the slices' versions" "$(slices | jq --compact-output 'map([.metadata.name, .metadata.resourceVersion])')" "$before"
}

# A pod gets its GPU's device node and no other's, those that all GPUs share, and the driver's files, read-only.
basic-one-gpu() {
	template gpu
	pod one '
		ls /dev/nvidia[0-9]*
		for node in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools; do
			[ -c $node ] || { echo "$node is no device"; exit 1; }
		done
		stat -c "%t:%T" /dev/nvidia[0-9]*
		ls /dev/dri/by-path | wc -l
		[ -s /usr/lib64/libcuda.so.1 ] && [ -s /usr/lib64/libnvidia-ml.so.1 ] && [ -x /usr/bin/nvidia-smi ]
		[ "$(readlink -f /usr/lib64/libcuda.so)" = "$(readlink -f /usr/lib64/libcuda.so.1)" ]
		! touch /usr/lib64/libcuda.so.1 2>/dev/null
		echo $NVIDIA_VISIBLE_DEVICES' template:gpu
	local claim index
	output one >/dev/null
	claim=$(claim_of_pod one)
	# The device is the one that the scheduler chose, which the claim forgets when the pod has ended: the CDI spec was made for it.
	index=$(output one | sed -n '1s/.*nvidia//p')
	same "what the pod saw" "$(output one)" "/dev/nvidia$index"$'\n'"c3:$index"$'\n'"2"$'\n'"void"
	[[ $claim == one-gpu-* ]]
}

# In an image with glibc the loader finds the driver's libraries, and nvidia-smi shows the one GPU.
basic-nvidia-smi() {
	claim gpu
	pod_image=$glibc_image pod smi 'nvidia-smi -L; sleep 1000' gpu
	running smi
	holds "what nvidia-smi shows" "$(kubectl logs smi)" "$(attribute "$(allocated gpu)" uuid)"
	same "how many it shows" "$(kubectl logs smi | wc --lines)" 1
}

# The device in the pod is the one that the claim was given.
basic-right-gpu() {
	claim gpu
	sleeper one gpu
	same "the pod's GPU" "$(seen one)" "nvidia$(attribute "$(allocated gpu)" index)"
}

# Eight pods hold all GPUs, each another; a ninth waits, and runs when one of them ends.
basic-all-taken() {
	local number
	template gpu
	for number in 1 2 3 4 5 6 7 8 9 10; do
		pod "holder-$number" 'exec sleep 1000' template:gpu
	done
	for number in 1 2 3 4 5 6 7 8 9 10; do
		running "holder-$number"
	done
	same "the GPUs in the pods" "$(for number in 1 2 3 4 5 6 7 8 9 10; do seen "holder-$number"; done | sort)" "$(printf 'nvidia%s\n' 0 1 2 3 4 5 6 7 8 9)"
	pod ninth "$nodes_of_gpus" template:gpu
	event ninth FailedScheduling 'cannot allocate all claims'
	local free
	free=$(seen holder-5)
	removed pod holder-5
	same "the ninth pod's GPU" "$(output ninth)" "$free"
}

# A selector by product, by memory and by UUID each finds the GPUs meant.
basic-cel-product() {
	template l4 "$(cel "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L4'"), count: 2"
	pod l4 "$nodes_of_gpus" template:l4
	same "the L4s" "$(output l4)" "nvidia8 nvidia9"
}

basic-cel-memory() {
	template big "$(cel "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"), count: 8"
	pod big "$nodes_of_gpus" template:big
	same "the GPUs with 40Gi or more" "$(output big)" "nvidia0 nvidia1 nvidia2 nvidia3 nvidia4 nvidia5 nvidia6 nvidia7"
}

basic-cel-uuid() {
	local uuid
	uuid=$(devices | jq --raw-output '.[] | select(.attributes.index.int == 3).attributes.uuid.string')
	template third "$(cel "device.attributes['gpu.nvidia.com'].uuid == '$uuid'")"
	pod third "$nodes_of_gpus" template:third
	same "the GPU with UUID $uuid" "$(output third)" nvidia3
}

# Two GPUs under one PCIe root.
basic-match-pcie-root() {
	claim_of pair "{requests: [$(request left), $(request right)], constraints: [{requests: [left, right], matchAttribute: resource.kubernetes.io/pcieRoot}]}"
	pod pair "$nodes_of_gpus; sleep 1000" pair
	running pair
	same "PCIe roots" "$(for device in $(allocated pair); do attribute "$device" resource.kubernetes.io/pcieRoot; done | uniq | wc --lines)" 1
	same "GPUs" "$(seen pair | wc --words)" 2
}

# A Blackwell GPU or else an L4: the node has no Blackwell.
basic-first-available() {
	local wish='{name: %s, deviceClassName: gpu.nvidia.com, %s}'
	claim_of either "{requests: [{name: gpu, firstAvailable: [
		$(printf "$wish" blackwell "$(cel "device.attributes['gpu.nvidia.com'].architecture == 'Blackwell'")"),
		$(printf "$wish" l4 "$(cel "device.attributes['gpu.nvidia.com'].productName.endsWith('L4')")")]}]}"
	sleeper either either
	same "the wish fulfilled" "$(kubectl get resourceclaim either --output jsonpath='{.status.allocation.devices.results[0].request}')" gpu/l4
	same "the product" "$(attribute "$(allocated either)" productName)" "NVIDIA L4"
	same "the pod's GPU" "$(seen either)" "nvidia$(attribute "$(allocated either)" index)"
}

# All GPUs of the node for one pod.
basic-all() {
	template everything 'allocationMode: All'
	pod everything "$nodes_of_gpus" template:everything
	same "the GPUs" "$(output everything)" "$(echo nvidia{0..9})"
}

# A monitor with admin access sees all GPUs, also one that a pod holds, and neither hinders the other.
basic-admin-access() {
	template gpu
	sleeper holder template:gpu
	kubectl label namespace "$namespace" resource.kubernetes.io/admin-access=true >/dev/null
	claim_of monitor "{requests: [{name: all, exactly: {deviceClassName: monitor.gpu.nvidia.com, allocationMode: All, adminAccess: true,
		tolerations: [{key: gpu.nvidia.com/monitoring, operator: Exists}]}}]}"
	sleeper monitor monitor
	same "GPUs of the monitor" "$(seen monitor | wc --words)" 10
	removed pod holder
	sleeper next template:gpu
	removed pod monitor
	same "GPUs of the next pod" "$(seen next | wc --words)" 1
}

# A claim with a misspelt config: the pod's event says what is wrong; once the claim is replaced, the pod's successor runs.
basic-bad-config() {
	claim_of gpu "{requests: [$(request gpu)], $(gpu_config 'shraing: {strategy: TimeSlicing}')}"
	apply <<-END
		apiVersion: apps/v1
		kind: ReplicaSet
		metadata: {name: worker}
		spec:
		  replicas: 1
		  selector: {matchLabels: {app: worker}}
		  template:
		    metadata: {labels: {app: worker}}
		    spec:
		      terminationGracePeriodSeconds: 1
		      resourceClaims: [{name: gpu, resourceClaimName: gpu}]
		      containers:
		      - {name: main, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpu}]}}
	END
	eventually 30 worker
	event "$(worker)" FailedPrepareDynamicResources shraing
	event "$(worker)" FailedPrepareDynamicResources "did you mean sharing"
	kubectl delete resourceclaim gpu --wait=false >/dev/null
	removed pod "$(worker)"
	eventually 30 gone_claim gpu
	claim_of gpu "{requests: [$(request gpu)], $(gpu_config 'sharing: {strategy: TimeSlicing}')}"
	eventually 30 worker
	running "$(worker)"
	removed replicaset worker
}

worker() {
	local name
	name=$(kubectl get pods --selector app=worker --output jsonpath='{.items[0].metadata.name}')
	[[ $name ]] && echo "$name"
}

gone_claim() { ! kubectl get resourceclaim "$1" 2>/dev/null; }

# A pod is deleted while its claim is being prepared, which takes long: it goes, and the GPU is free again.
basic-deleted-while-preparing() {
	sick '{"faults": [{"function": "nvmlDeviceGetMinorNumber", "delayMs": 3500}]}'
	template everything 'allocationMode: All'
	pod hasty 'exec sleep 1000' template:everything
	eventually 30 being_prepared
	kubectl delete pod hasty --wait=false >/dev/null
	sleep 1
	healthy
	eventually 90 gone_pod hasty
	eventually 20 nothing_prepared
	pod next "$nodes_of_gpus" template:everything
	same "GPUs of the next pod" "$(output next | wc --words)" 10
}

being_prepared() { ls "$plugin"/claims/*.json; }
gone_pod() { ! kubectl get pod "$1" 2>/dev/null; }

# A pod is deleted by force, so that its claim is gone from the API before the kubelet gives it back.
basic-force-deleted() {
	template everything 'allocationMode: All'
	sleeper victim template:everything
	kubectl delete pod victim --force --grace-period=0 >/dev/null 2>&1
	eventually 60 nothing_prepared # sooner, the next pod's event would say who still has the GPUs, and the kubelet try again in a minute
	pod next "$nodes_of_gpus" template:everything
	same "GPUs of the next pod" "$(output next | wc --words)" 10
}

# Slices deleted by hand come back.
basic-slices-come-back() {
	local before
	before=$(slices | jq --raw-output '.[].metadata.name')
	kubectl delete resourceslices --all >/dev/null
	eventually 30 published 10
	local name
	for name in $(slices | jq --raw-output '.[].metadata.name'); do
		[[ $before != *"$name"* ]] || { echo "$name is still there" >&2 && return 1; }
	done
	template gpu
	pod one "$nodes_of_gpus" template:gpu
	same "GPUs of a pod" "$(output one | wc --words)" 1
}

# A hundred pods, eight at a time, and nothing is left: not in the journal, not in the CDI folder, not in the API.
basic-churn() {
	local before after
	before=$(prepare_durations)
	template gpu
	apply <<-END
		apiVersion: batch/v1
		kind: Job
		metadata: {name: churn}
		spec:
		  completions: 100
		  parallelism: 12
		  backoffLimit: 0
		  template:
		    spec:
		      restartPolicy: Never
		      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
		      containers:
		      - name: main
		        image: $busybox_image
		        command: [sh, -euc, 'set -- /dev/nvidia[0-9]*; [ \$# = 1 ] && [ -c \$1 ] && [ -s /usr/lib64/libcuda.so.1 ]']
		        resources: {claims: [{name: gpu}]}
	END
	kubectl wait --for=condition=Complete --timeout=240s job/churn >/dev/null
	after=$(prepare_durations)
	figure "Prepare as the kubelet sees it ($(awk 'NR == FNR {b = $2; next} {a = $2} END {print a - b}' <(echo "$before") <(echo "$after")) calls, 100 pods):" \
		"p50 $(quantile 0.5 "$before" "$after"), p99 $(quantile 0.99 "$before" "$after")"
	figure "driver's memory afterwards: $(sed -n 's/^VmRSS:[\t ]*//p' "/proc/$(agent_process)/status")"
	kubectl delete job churn --wait --timeout=60s >/dev/null
	eventually 30 nothing_prepared
	eventually 30 no_claims
}

no_claims() {
	local left
	left=$(command kubectl get resourceclaims --namespace "$namespace" --output name)
	[[ ! $left ]] || { echo "$left" && return 1; }
}

# Prometheus' page says which pod uses how much of its GPU: the process is the pod's by the cgroup that the kubelet has made for it.
basic-metrics() {
	claim user
	pod user 'exec sleep 86399' user
	running user
	local device process
	device=$(allocated user)
	process=$(pgrep --full '^sleep 86399$')
	sick "{\"gpus\": {\"$(attribute "$device" uuid)\": {\"processes\": [
		{\"pid\": $process, \"memoryMib\": 512, \"smPercent\": 40}, {\"pid\": 1, \"memoryMib\": 7}]}}}"
	local of="{claim_namespace=\"$namespace\",claim_name=\"user\",pod_name=\"user\",device=\"$device\","
	eventually 30 tells "gpu_dra_claim_memory_used_bytes$of" 536870912
	tells "gpu_dra_claim_sm_utilization_ratio$of" 0.4
	tells "gpu_dra_claim_processes$of" 1
	tells "gpu_dra_unclaimed_memory_used_bytes{gpu=\"$(attribute "$device" uuid)\"}" 7340032
	tells 'gpu_dra_claims{phase="prepared"}' 1
	tells gpu_dra_ready 1
	healthy
}

# tells SERIES VALUE: what the node agent's page has for the one series that begins so.
tells() {
	local is
	is=$(command kubectl get --raw "/api/v1/namespaces/gpu-dra/pods/$(driver_pod):8080/proxy/metrics" |
		awk -v series="$1" 'index($0, series) == 1 {print $NF}')
	[[ $is == "$2" ]] || { echo "$1 is '$is', not '$2'" && return 1; }
}
