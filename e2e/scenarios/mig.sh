# Parts of GPUs, made for pods and gone after them.

# mig_request NAME PROFILE [FIELDS]: a request for one MIG device of that profile.
mig_request() {
	echo "{name: $1, exactly: {deviceClassName: mig.nvidia.com, selectors: [{cel: {expression: \"device.attributes['gpu.nvidia.com'].profile == '$2'\"}}]${3:+, $3}}}"
}

# mig_template NAME PROFILE: a ResourceClaimTemplate for one MIG device.
mig_template() { template_of "$1" "{requests: [$(mig_request mig "$2")]}"; }

# h100 [FIELDS]: a request for a whole H100.
h100() { request gpu "$(cel "device.attributes['gpu.nvidia.com'].productName.contains('H100')")${1:+, $1}"; }

# hardware_has FILTER EXPECTED: what a jq filter says of the (simulated) GPUs' state.
hardware_has() {
	local is
	is=$(jq --compact-output "$1" "$state_of_gpus/state.json")
	[[ $is == "$2" ]] || { echo "$1 is $is, not $2" && return 1; }
}
no_partitions() { hardware_has '[.gpus[].instances[]] | length' 0 && hardware_has '[.gpus[] | select(.mig)] | length' 0; }

# capabilities: a script for pods: GPUs and capability nodes in /dev, in one line.
capabilities='echo $(cd /dev && ls -d nvidia[0-9]* nvidia-caps/* 2>/dev/null)'

# smi ARGS...: the (simulated) driver's nvidia-smi on the node.
smi() { "$hardware/run/nvidia/driver/usr/bin/nvidia-smi" "$@" >>"$logs/nvidia-smi.log"; }

running_pods() {
	local are
	are=$(kubectl get pods --selector "app=$1" --output json | jq '[.items[] | select(.status.phase == "Running")] | length')
	[[ $are == "$2" ]] || { echo "$are pods run, not $2" && return 1; }
}

# Seven 1g.10gb on each of eight H100s, and not one more; one that goes makes room for one that waits.
mig-fill-the-node() {
	needs_kubernetes 1.36
	mig_template small 1g.10gb
	apply <<-END
		apiVersion: apps/v1
		kind: ReplicaSet
		metadata: {name: small}
		spec:
		  replicas: 56
		  selector: {matchLabels: {app: small}}
		  template:
		    metadata: {labels: {app: small}}
		    spec:
		      terminationGracePeriodSeconds: 1
		      resourceClaims: [{name: mig, resourceClaimTemplateName: small}]
		      containers:
		      - name: main
		        image: $busybox_image
		        command: [sh, -euc, 'set -- /dev/nvidia[0-9]* /dev/nvidia-caps/*; [ \$# = 3 ]; exec sleep 1000']
		        resources: {claims: [{name: mig}]}
	END
	local started=$EPOCHREALTIME
	eventually 180 running_pods small 56
	figure "56 pods with a MIG device each, from the first to the last running: $(awk -v from="$started" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", to - from}')"
	hardware_has '[.gpus[].instances | length]' '[7,7,7,7,7,7,7,7,0,0]'
	pod one-more 'exec sleep 1000' template:small
	sleep 3
	same "the 57th" "$(phase one-more)" Pending
	kubectl scale replicaset small --replicas 55 >/dev/null
	running one-more 90
	kubectl delete replicaset small --timeout=120s >/dev/null
	eventually 120 running_pods small 0
	removed pod one-more
	eventually 60 no_partitions
}

# Where the API server drops counters, partitions could be allocated that overlap: none is published, and whole GPUs are.
mig-without-counters() {
	((${E2E_MINOR#1.} < 36)) || exit 77
	same "MIG devices" "$(mig_devices | jq length)" 0
	same "whole GPUs" "$(devices | jq 'map(select(has("consumesCounters") or .attributes.hasMonitor.bool)) | length')" 0
	holds "what the node agent says" "$(driver logs "$(driver_pod)")" DRAPartitionableDevices
	claim whole
	sleeper whole whole
}

# Four profiles of one GPU in one claim: each container sees its own alone.
mig-mixed-profiles() {
	needs_kubernetes 1.36
	claim_of mixed "{requests: [$(mig_request a 1g.10gb), $(mig_request b 1g.10gb), $(mig_request c 2g.20gb), $(mig_request d 3g.40gb)],
		constraints: [{matchAttribute: gpu.nvidia.com/parentUUID}]}"
	local request containers=()
	for request in a b c d; do
		containers+=("{name: $request, image: $busybox_image, command: [sleep, '1000'], resources: {claims: [{name: mig, request: $request}]}}")
	done
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: mixed}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [{name: mig, resourceClaimName: mixed}]
		  containers: [$(commas "${containers[@]}")]
	END
	running mixed
	hardware_has '[.gpus[].instances | map(.profile) | sort | select(length > 0)]' '[[9,14,19,19]]'
	local all
	all=$(for request in a b c d; do kubectl exec mixed --container "$request" -- sh -c "$capabilities"; done)
	same "nodes in each container" "$(echo "$all" | awk '{print NF}' | uniq)" 3
	same "different capabilities" "$(echo "$all" | grep --only-matching 'nvidia-caps/[^ ]*' | sort --unique | wc --lines)" 8
	removed pod mixed
	eventually 30 no_partitions
}

# A GPU is partitioned, or it is whole, and goes from one to the other by itself.
mig-and-whole() {
	needs_kubernetes 1.36
	claim_of parts "{requests: [$(mig_request all 7g.80gb 'count: 8')]}"
	sleeper parts parts
	hardware_has '[.gpus[].mig]' '[true,true,true,true,true,true,true,true,false,false]'
	template_of whole "{requests: [$(h100)]}"
	pod whole "$capabilities; exec sleep 1000" template:whole
	sleep 3
	same "a pod for a whole GPU while all are partitioned" "$(phase whole)" Pending
	removed pod parts
	kubectl delete resourceclaim parts >/dev/null
	running whole 60
	eventually 30 hardware_has '[.gpus[] | select(.mig)] | length' 0
	same "what it sees" "$(kubectl logs whole | wc --words)" 1
	claim_of others "{requests: [$(h100 'count: 7')]}"
	sleeper others others
	mig_template small 1g.10gb
	pod small "$capabilities; exec sleep 1000" template:small
	sleep 3
	same "a pod for a part while all are whole" "$(phase small)" Pending
	removed pod others
	kubectl delete resourceclaim others >/dev/null
	running small 60
	kubectl get events --all-namespaces --field-selector reason=MigModeOn --output jsonpath='{.items[*].involvedObject.kind}' | grep --quiet Node
}

# The node agent is killed between GPU instance and compute instance, on the way in and on the way out.
mig-killed-halfway() {
	needs_kubernetes 1.36
	local foreign='[.gpus[0].instances[] | [.profile, .placement.start, (.compute | length)]]'
	smi -i 0 -mig 1
	smi mig -i 0 -cgi 14:2 -C
	eventually 60 offered gpu-0 gpu-0-mig-2g20gb-14-2
	mig_template small 1g.10gb
	sick '{"faults": [{"function": "nvmlGpuInstanceCreateComputeInstance", "delayMs": 20000}]}'
	pod small "$capabilities; exec sleep 1000" template:small
	eventually 60 hardware_has '[.gpus[1:8][].instances[] | .compute | length]' '[0]'
	kill -KILL "$(agent_process)"
	healthy
	kubectl annotate pod small now=again >/dev/null
	running small 120
	hardware_has '[.gpus[1:8][].instances[] | .compute | length]' '[1]'
	sick '{"faults": [{"function": "nvmlGpuInstanceDestroy", "delayMs": 20000}]}'
	kubectl delete pod small --wait=false >/dev/null
	eventually 60 hardware_has '[.gpus[1:8][].instances[] | .compute | length]' '[0]'
	kill -KILL "$(agent_process)"
	healthy
	eventually 120 gone_pod small
	eventually 30 hardware_has '[.gpus[1:8][].instances[]] | length' 0
	hardware_has "$foreign" '[[14,2,1]]'
	smi mig -i 0 -dci
	smi mig -i 0 -dgi
	smi -i 0 -mig 0
	eventually 60 driver_ready
}

# MIG devices that somebody made by hand are published, used, and still there afterwards.
mig-made-by-hand() {
	smi -i 6 -mig 1
	smi mig -i 6 -cgi 9:4,19:0 -C
	eventually 60 offered gpu-6 'gpu-6-mig-1g10gb-19-0 gpu-6-mig-3g40gb-9-4'
	local uuid
	uuid=$(mig_devices | jq --raw-output '.[] | select(.name == "gpu-6-mig-3g40gb-9-4").attributes.uuid.string')
	holds "its UUID" "$uuid" MIG-
	claim_of half "{requests: [$(request mig "$(cel "device.attributes['gpu.nvidia.com'].?uuid.orValue('') == '$uuid'")" | sed s/gpu.nvidia.com,/mig.nvidia.com,/)]}"
	sleeper half half
	same "nodes" "$(kubectl exec half -- sh -c "$capabilities" | wc --words)" 3
	removed pod half
	eventually 20 nothing_prepared
	hardware_has '[.gpus[6].instances[] | [.profile, (.compute | length)]] | sort' '[[9,1],[19,1]]'
	smi mig -i 6 -dci
	smi mig -i 6 -dgi
	smi -i 6 -mig 0
	eventually 60 driver_ready
}

offered() {
	local are
	are=$(slices | jq --raw-output --arg gpu "$1" '[.[].spec.devices // [] | .[].name | select(. == $gpu or startswith($gpu + "-"))] | sort | join(" ")')
	[[ $are == "$2" ]] || { echo "$1 is offered as $are" && return 1; }
}

# What is published of eight GPUs of every model is taken by the API server as it is.
mig-every-model() {
	needs_kubernetes 1.36
	local model slices
	for model in a30 a100-40 a100-80 h100-80 h100-pcie h200 b200 gb200 rtx-pro-6000; do
		slices=$("$DRIVER_BIN_DIR/gpu-dra" inventory --node "8x$model:mig=on" --slices --output json | jq --arg model "$model" '
			length as $count | to_entries[] | {apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", metadata: {name: "\($model)-\(.key)"},
				spec: (.value + {driver: "\($model).example.com", nodeName: "nowhere", pool: {name: "nowhere", generation: 1, resourceSliceCount: $count}})}')
		echo "$slices" | command kubectl create --filename - >/dev/null
		same "slices of $model as the API server has them" "$(command kubectl get resourceslices --field-selector spec.driver="$model.example.com" --output json |
			jq '[.items[] | .spec | (.devices // .sharedCounters)] | flatten | length')" "$(jq --slurp '[.[] | .spec | (.devices // .sharedCounters)] | flatten | length' <<<"$slices")"
		same "partitions of $model with counters" "$(command kubectl get resourceslices --field-selector spec.driver="$model.example.com" --output json |
			jq '[.items[].spec.devices // [] | .[] | select(.attributes.type.string == "mig") | has("consumesCounters")] | all')" true
		figure "8 x $model: $(jq --slurp 'length' <<<"$slices") slices, $(jq --compact-output . <<<"$slices" | wc --bytes) bytes"
		command kubectl get resourceslices --output name | grep "/$model-[0-9]" | xargs kubectl delete >/dev/null
	done
}
