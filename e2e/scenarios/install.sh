# What deploy/ and examples/ install, as a user does.

# The driver, as users install it: kubectl apply -f deploy/, after setting in node.yaml where the driver's files are. This
# is always the first scenario, since all others need it.
install-driver() {
	import "$state/driver.tar"
	cp -a "$tree/deploy" "$state/deploy"
	sed "s/LAST_GPU/$(jq --raw-output '.gpus[-1].uuid' "$state_of_gpus/node.json")/" "$e2e/lib/gpu-node.yaml" >"$state/gpu-node.yaml"
	command kubectl patch --local --filename "$tree/deploy/node.yaml" --patch-file "$state/gpu-node.yaml" --output yaml >"$state/deploy/node.yaml"
	command kubectl patch --local --filename "$tree/deploy/mps-host.yaml" --patch-file "$e2e/lib/mps-host.yaml" --output yaml >"$state/deploy/mps-host.yaml"
	command kubectl apply --filename "$state/deploy"
	driver_ready
}

# Every example runs as it is. Only the image comes from here, where no registry is.
install-examples() {
	local file pod
	for file in "$tree"/examples/*.yaml; do
		# On by default since 1.36.
		[[ ${file##*/} != @(*extended-resource|mig-*).yaml || $E2E_MINOR != 1.35 ]] || continue
		cp "$file" "$state/example.yaml"
		command kubectl apply --filename "$state/example.yaml" --output json |
			jq --raw-output '.items[]?, . | select(.kind == "Pod").metadata | "\(.namespace) \(.name)"' >"$state/pods"
		while read -r namespace pod; do
			eventually 30 running "$pod" 30
			holds "the log of ${file##*/}" "$(eventually 10 kubectl logs "$pod" && kubectl logs "$pod")" /dev/nvidia
		done <"$state/pods"
		[[ -s $state/pods ]]
		command kubectl delete --grace-period=1 --timeout=90s --filename "$state/example.yaml" >/dev/null
	done
	namespace=install-examples
}

# The node agent is there before the GPU's driver: it publishes an empty pool and is ready, and finds the driver when it comes.
install-late-driver() {
	stop_driver
	detach_gpus
	start_driver
	eventually 60 driver_rolled_out
	same "devices without a driver" "$(devices | jq length)" 0
	holds "what the node agent says" "$(driver logs "$(driver_pod)")" "no GPUs"
	attach_gpus
	eventually 30 published 10
	template gpu
	pod one "$nodes_of_gpus" template:gpu
	same "GPUs of a pod" "$(output one | wc --words)" 1
}

# The node agent's account may do what it needs and nothing more.
install-account() {
	local account=system:serviceaccount:gpu-dra:gpu-dra-node verb
	for verb in get list watch create update delete; do
		allowed yes "$account" "$verb" resourceslices.resource.k8s.io
	done
	allowed yes "$account" get resourceclaims.resource.k8s.io
	allowed yes "$account" get nodes
	for verb in create update patch delete; do
		allowed no "$account" "$verb" nodes
		allowed no "$account" "$verb" pods
		allowed no "$account" "$verb" resourceclaims.resource.k8s.io
	done
	allowed no "$account" get secrets
	allowed no "$account" create pods/exec
	allowed no "$account" deletecollection resourceslices.resource.k8s.io
}

allowed() { same "whether $2 may $3 $4" "$(command kubectl auth can-i "$3" "$4" --as "$2" --all-namespaces 2>/dev/null || true)" "$1"; }

# With the token of a node agent only slices of its own node can be written.
install-foreign-slice() {
	local token
	token=$(driver create token gpu-dra-node --bound-object-kind Pod --bound-object-name "$(driver_pod)" \
		--bound-object-uid "$(driver get pod "$(driver_pod)" --output jsonpath='{.metadata.uid}')")
	slice own "$node" | as_bearer "$token" create --dry-run=server --filename - >/dev/null
	refused "node agent of node $node may not write a slice of node other" "$token" create --filename - <<<"$(slice foreign other)"
	slice foreign other | command kubectl create --filename - >/dev/null
	refused "node agent of node $node may not write a slice of node other" "$token" delete resourceslice foreign
	refused "node agent of node $node may not write a slice of node other" "$token" replace --filename - <<<"$(slice foreign other 2)"
	command kubectl delete resourceslice foreign >/dev/null
	token=$(driver create token gpu-dra-node)
	refused "names no node" "$token" create --filename - <<<"$(slice own "$node")"
}

slice() {
	cat <<-END
		apiVersion: resource.k8s.io/v1
		kind: ResourceSlice
		metadata: {name: $1}
		spec: {driver: other.example.com, nodeName: $2, pool: {name: $2, generation: ${3:-1}, resourceSliceCount: 1}, devices: [{name: some}]}
	END
}

# as_bearer TOKEN ...: kubectl with that token and no other identity.
as_bearer() { command kubectl --kubeconfig /dev/null --server https://127.0.0.1:443 --certificate-authority "$pki/ca.crt" --token "$@"; }

refused() {
	local text=$1 words
	shift
	if words=$(as_bearer "$@" 2>&1); then
		echo "this was not refused: $*" >&2
		return 1
	fi
	holds "the refusal" "$words" "$text"
}
