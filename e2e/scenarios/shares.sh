# One GPU for claims of several namespaces, each with a share of it.

# share_claim NAME NAMESPACE MEMORY: a claim for so much memory of an L4.
share_claim() {
	command kubectl apply --namespace "$2" --filename - >/dev/null <<-END
		apiVersion: resource.k8s.io/v1
		kind: ResourceClaim
		metadata: {name: $1}
		spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {memory: $3}},
			selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L4' && device.allowMultipleAllocations"}}]}}]}}
	END
}

# Five shares of 4Gi fit an L4, from two namespaces; the sixth waits until one of them ends. Each has its limit in its environment.
shares-of-memory() {
	needs_kubernetes 1.36
	local other=$namespace-b number
	command kubectl create namespace "$other" >/dev/null
	for number in 1 2 3; do
		share_claim "four-gi-$number" "$namespace" 4Gi
		sleeper "share-$number" "four-gi-$number"
	done
	for number in 4 5; do
		share_claim "four-gi-$number" "$other" 4Gi
		namespace=$other sleeper "share-$number" "four-gi-$number"
	done
	same "GPUs of all shares" "$({ for number in 1 2 3; do seen "share-$number"; done; for number in 4 5; do namespace=$other seen "share-$number"; done; } | sort --unique)" nvidia9
	daemons_are 1
	same "the limit" "$(kubectl exec share-1 -- sh -c 'echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT')" 0=4096M
	kubectl exec share-1 -- sh -euc '[ -S /tmp/nvidia-mps/control ]'
	same "different CDI devices" "$(cat /var/run/cdi/*.json | jq --raw-output '.devices[].name' | grep gpu-9 | sort --unique | wc --lines)" 5
	share_claim four-gi-6 "$namespace" 4Gi
	pod share-6 'exec sleep 1000' four-gi-6
	sleep 3
	same "the sixth" "$(phase share-6)" Pending
	namespace=$other removed pod share-4
	command kubectl delete --namespace "$other" resourceclaim four-gi-4 >/dev/null
	running share-6 60
	daemons_are 1
	kubectl delete pods --all --timeout=60s >/dev/null
	daemons_are 1
	namespace=$other removed pod share-5
	eventually 20 daemons_are 0
	command kubectl delete namespace "$other" --wait=false >/dev/null
}

# Who asks for no share has the GPU alone.
shares-whole() {
	needs_kubernetes 1.36
	claim_of whole "{requests: [$(request gpu "$(cel "device.allowMultipleAllocations")")]}"
	sleeper whole whole
	share_claim one "$namespace" 1Gi
	pod one 'exec sleep 1000' one
	sleep 3
	same "a share beside the whole" "$(phase one)" Pending
	daemons_are 0
	removed pod whole
	kubectl delete resourceclaim whole >/dev/null
	running one 60
}
