# What deploy/ and examples/ install, as a user does, and what is left of it afterwards.

# The driver, as users install it (docs/install.md). This is always the first scenario, since all others need it.
install-driver() {
	import "$state/driver.tar"
	sed "s/LAST_GPU/$(jq --raw-output '.gpus[-1].uuid' "$state_of_gpus/node.json")/" "$e2e/lib/values.yaml" >"$state/values.yaml"
	# The same as plain manifests, for scenarios that take a part of it away.
	rendered --include-crds --values "$state/values.yaml" --output-dir "$state" >/dev/null
	mkdir "$state/deploy"
	cp "$state"/gpu-dra/{crds,templates}/*.yaml "$state/deploy"
	traces >"$state/traces-before"
	install_driver
}

# rendered FLAG...: the chart's manifests, without asking the cluster.
rendered() { helm template gpu-dra "$tree/deploy/chart" --namespace gpu-dra --kube-version "$E2E_MINOR.0" "$@"; }

install_driver() {
	helm install gpu-dra "$tree/deploy/chart" --namespace gpu-dra --create-namespace --values "$state/values.yaml"
	driver_ready
}

# traces: what there is of the driver on the node and in the cluster: files, sockets and folders, mounts, objects.
traces() { all_traces | sort; }
all_traces() {
	find /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /etc/cdi /var/run/cdi -mindepth 1 2>/dev/null || true
	find /var/lib/gpu-dra /run/gpu-dra 2>/dev/null || true
	grep --only-matching '/[^ ]*gpu-dra[^ ]*' /proc/self/mounts || true
	local policies=validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations
	command kubectl get --output name "namespaces,resourceslices,deviceclasses,customresourcedefinitions,clusterroles,clusterrolebindings,$policies" |
		grep --extended-regexp 'gpu-dra|nvidia' || true
}

# As docs/install.md says: afterwards the node and the cluster are as they were before. Installed again, the driver works as before.
install-uninstall() {
	template gpu
	sleeper old template:gpu
	# Whoever still has a GPU keeps it, and the log says who that is.
	helm upgrade gpu-dra "$tree/deploy/chart" --namespace gpu-dra --values "$state/values.yaml" --set cleanup=true >/dev/null
	eventually 90 cleanup_says "claims are still prepared on this node"
	cleanup_says "install-uninstall/$(claim_of_pod old)"
	same "GPUs of the pod" "$(seen old | wc --words)" 1
	helm rollback gpu-dra --namespace gpu-dra >/dev/null
	driver_ready
	removed pod old

	helm upgrade gpu-dra "$tree/deploy/chart" --namespace gpu-dra --values "$state/values.yaml" --set cleanup=true >/dev/null
	eventually 120 driver rollout status daemonset/gpu-dra-cleanup --timeout=1s
	helm uninstall gpu-dra --namespace gpu-dra --wait >/dev/null
	command kubectl delete namespace gpu-dra --timeout=60s >/dev/null
	command kubectl delete customresourcedefinition gpuclasses.gpu-dra.io --ignore-not-found --timeout=60s >/dev/null
	eventually 60 no_traces
	install_driver
	sleeper new template:gpu
	same "GPUs of the pod" "$(seen new | wc --words)" 1
}

cleanup_says() {
	local log
	log=$(driver logs --selector app.kubernetes.io/name=gpu-dra,app.kubernetes.io/component=cleanup --container cleanup --tail -1)
	holds "the log of the cleanup" "$log" "$1"
}

no_traces() { diff "$state/traces-before" <(traces); }

# What is rendered for every way to install is taken by the API server, which refuses fields that it doesn't know.
install-manifests() {
	local values
	command kubectl apply --dry-run=server --validate=strict --filename "$tree/deploy" >/dev/null
	for values in preset={host,gpu-operator,gke,bottlerocket,talos} openshift.scc=true nodes=nfd cleanup=true deviceClasses.owner=controller \
		node.healthPolicy.gpuLost=Warn,node.seLinuxOptions.type=spc_t,controller.fleetClasses=true,webhook.failurePolicy=Fail \
		"networkPolicy.egressPorts={443,6443}" node.podLabels.a=b,node.podAnnotations.a=b,image.digest=sha256:$(printf %064d 1) \
		"kubelet.root=/var/lib/k0s/kubelet,cdi.dir=/run/cdi,node.mig=off,node.shares=mps,imagePullSecrets[0].name=registry"; do
		rendered --set "$values" |
			command kubectl apply --dry-run=server --validate=strict --filename - >/dev/null || { echo "with $values" >&2 && return 1; }
	done
}

# A device plugin comes to the node: its GPUs would be given out twice. Nothing is published and the probe says why, until it has gone;
# who has a GPU keeps it and can end.
install-device-plugin() {
	local folder=/var/lib/kubelet/device-plugins
	template gpu
	sleeper old template:gpu
	plugin_offers nvidia.com~1gpu 8
	touch "$folder/nvidia-gpu.sock"
	eventually 60 published 0
	eventually 10 not_ready "a device plugin offers nvidia.com/gpu: 8 on $node"
	eventually 20 event_on_node DevicePlugin "remove it from this node"
	removed pod old
	rm "$folder/nvidia-gpu.sock"
	plugin_offers nvidia.com~1gpu 0
	eventually 60 published 10
	eventually 20 event_on_node DevicePluginGone "devices are published"
	driver_ready
	command kubectl patch node "$node" --subresource status --type json --patch '[{"op": "remove", "path": "/status/capacity/nvidia.com~1gpu"}]' >/dev/null
}

# plugin_offers RESOURCE NUMBER: what a device plugin has told the kubelet, by the way that is documented for extended resources.
plugin_offers() {
	command kubectl patch node "$node" --subresource status --type json \
		--patch "[{\"op\": \"add\", \"path\": \"/status/capacity/$1\", \"value\": \"$2\"}, {\"op\": \"add\", \"path\": \"/status/allocatable/$1\", \"value\": \"$2\"}]" >/dev/null
}

# ready_page: what the node agent says of itself, read through the network as a probe is.
ready_page() {
	local address
	address=$(driver get pod --selector "$driver_selector" --output jsonpath='{.items[0].status.podIP}')
	exec 3<>"/dev/tcp/$address/8080"
	printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
	timeout 5 cat <&3
}
not_ready() { local page; page=$(ready_page) && holds "/readyz" "$page" "$1" && holds "/readyz" "$page" "not ready"; }
event_on_node() {
	command kubectl get events --field-selector "involvedObject.kind=Node,reason=$1" --output jsonpath='{range .items[*]}{.message}{"\n"}{end}' |
		grep --fixed-strings -- "$2" >/dev/null || { command kubectl get events --field-selector involvedObject.kind=Node && return 1; }
}

# Another DRA driver of the same name is on the node: ours gives way to it, says so, and goes on when it has gone. The ComputeDomain
# half of NVIDIA's driver stays beside it.
install-other-driver() {
	registry=/var/lib/kubelet/plugins_registry half='' other=''
	trap 'kill $half $other 2>/dev/null; rm -f $registry/*.nvidia.com-reg.sock' EXIT
	half=$(serve "$registry/compute-domain.nvidia.com-reg.sock")
	other=$(serve "$registry/gpu.nvidia.com-reg.sock")
	eventually 60 not_ready "another DRA driver gpu.nvidia.com serves $registry/gpu.nvidia.com-reg.sock"
	eventually 20 event_on_node AnotherDriver "remove it from this node"
	kill "$other"
	driver_ready
	template gpu
	sleeper one template:gpu
}

# serve SOCKET: listens there and hangs up on who calls; prints the process id.
serve() {
	perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Local => shift, Listen => 8) or die; while (1) { my $c = $s->accept; close $c }' \
		"$1" >/dev/null 2>&1 </dev/null &
	eventually 5 test -S "$1"
	echo $!
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

# With the token of a node agent only this driver's slices of its own node can be written.
install-foreign-slice() {
	local token
	token=$(driver create token gpu-dra-node --bound-object-kind Pod --bound-object-name "$(driver_pod)" \
		--bound-object-uid "$(driver get pod "$(driver_pod)" --output jsonpath='{.metadata.uid}')")
	slice own "$node" | as_bearer "$token" create --dry-run=server --filename - >/dev/null
	refused "node agent of node $node may not write a slice of node other" "$token" create --filename - <<<"$(slice foreign other)"
	refused "slices of the driver gpu.nvidia.com only" "$token" create --filename - <<<"$(driver_of_slice=other.example.com slice own "$node")"
	refused "may not write a slice of node" "$token" create --filename - <<<"$(slice everywhere "$node" | sed 's/nodeName: [^,]*/allNodes: true/')"
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
		spec: {driver: ${driver_of_slice-gpu.nvidia.com}, nodeName: $2, pool: {name: other-pool, generation: ${3:-1}, resourceSliceCount: 1}, devices: [{name: some}]}
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
