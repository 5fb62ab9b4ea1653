# Why a pod waits, and what is wrong with a manifest, as a person asks who has a kubeconfig.

gpu_dra() { "$DRIVER_BIN_DIR/gpu-dra" "$@" --kubeconfig "$KUBECONFIG"; }

# waits POD VERDICT PART...: the scheduler doesn't place the pod; explain says so by that verdict, and its text has the parts.
waits() {
	local name=$1 verdict=$2 text part
	eventually 30 not_scheduled "$name"
	same "the verdict on $name" "$(gpu_dra explain pod "$name" --namespace "$namespace" --output json | jq --raw-output '.reports[0].verdict')" "$verdict"
	text=$(gpu_dra explain pod "$name" --namespace "$namespace")
	for part in "${@:3}"; do holds "what is said of $name" "$text" "$part"; done
}

not_scheduled() {
	[[ $(kubectl get pod "$1" --output jsonpath='{.status.conditions[?(@.type=="PodScheduled")].status}') == False ]] ||
		{ kubectl get pod "$1" --output wide && return 1; }
}

# Each reason for which the scheduler has the same words has words of its own.
explain-pending() {
	local memory='device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
	template big "$(cel "$memory")"
	template short "$(cel 'device.attributes["gpu.nvidia.com"].productName == "H100"')"
	template domain "$(cel 'device.attributes["nvidia.com"].productName.contains("H100")')"
	template many 'count: 11'
	template_of unknown '{requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.org}}]}'
	template_of all-l4 "{requests: [$(request gpu "count: 2, $(cel 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"')")]}"
	sleeper holder template:all-l4
	for name in big short domain many unknown; do pod "$name" 'exec sleep 1000' "template:$name"; done
	pod late 'exec sleep 1000' template:all-l4
	waits big doesNotFit '81559Mi' '79Gi'
	waits short doesNotFit 'full NVML name'
	waits domain stopped 'gpu.nvidia.com'
	waits many doesNotFit 'wants 11 devices' 'ask for 10 at most'
	waits unknown missing 'gpu.nvidia.org'
	waits late doesNotFit "$(claim_of_pod holder)"
	same "the verdict on a pod that runs" "$(gpu_dra explain pod holder --namespace "$namespace" --output json | jq --raw-output '.reports[0].verdict')" allocated
	# What is said of a manifest before it is applied is what becomes of it.
	kubectl get resourceclaim "$(claim_of_pod late)" --output json | jq '{apiVersion, kind, metadata: {name: .metadata.name, namespace: .metadata.namespace}, spec}' >"$state/late.json"
	holds "what is said of a file" "$(gpu_dra explain --file "$state/late.json" --namespace "$namespace")" 'L4'
}

# What the API server refuses, lint refuses; against the cluster as it is, and by its exit code.
lint-cases() {
	needs_kubernetes 1.36
	local file refused='' said
	for file in "$tree"/crates/lint/tests/data/cases/*.yaml; do
		# Whether it serves old versions is the API server's own affair: lint warns of them.
		# A namespace that the file itself makes isn't there when nothing is really made.
		! grep --quiet 'resource.k8s.io/v1beta\|^kind: Namespace' "$file" || continue
		command kubectl apply --dry-run=server --filename "$file" >/dev/null 2>&1 && continue
		refused+=" $(basename "$file")"
		if said=$(gpu_dra lint "$file"); then
			echo "$(basename "$file"): the API server refuses it, lint doesn't: $said" >&2
			return 1
		fi
	done
	holds "what the API server refuses" "$refused" 03-v1-flat-request-rejected
	template fine
	kubectl get resourceclaimtemplate fine --output yaml >"$state/fine.yaml"
	gpu_dra lint "$state/fine.yaml" >"$state/said" || { cat "$state/said" >&2 && return 1; }
}
