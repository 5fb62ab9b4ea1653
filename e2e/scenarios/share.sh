# One claim, several users.

# Two containers of a pod use one claim: both see the same GPU.
share-two-containers() {
	claim gpu
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: both}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
		  containers:
		  - {name: left, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpu}]}}
		  - {name: right, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpu}]}}
		  - {name: neither, image: $busybox_image, command: [sleep, "1000"]}
	END
	running both
	local expected
	expected="nvidia$(attribute "$(allocated gpu)" index)"
	same "the left one's GPU" "$(kubectl exec both --container left -- sh -c "$nodes_of_gpus")" "$expected"
	same "the right one's GPU" "$(kubectl exec both --container right -- sh -c "$nodes_of_gpus")" "$expected"
	same "what a container without claim has in /dev" "$(kubectl exec both --container neither -- sh -c 'ls /dev | grep -c nvidia || true')" 0
}

# Two requests of a claim, one for each container.
share-request-each() {
	claim_of two "{requests: [$(request left), $(request right)]}"
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: both}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [{name: gpus, resourceClaimName: two}]
		  containers:
		  - {name: left, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpus, request: left}]}}
		  - {name: right, image: $busybox_image, command: [sleep, "1000"], resources: {claims: [{name: gpus, request: right}]}}
	END
	running both
	local side
	for side in left right; do
		same "the $side one's GPU" "$(kubectl exec both --container "$side" -- sh -c "$nodes_of_gpus")" \
			"nvidia$(attribute "$(kubectl get resourceclaim two --output jsonpath="{.status.allocation.devices.results[?(@.request=='$side')].device}")" index)"
	done
}

# Two pods use one claim at once; the GPU stays prepared until the last of them ends.
share-two-pods() {
	claim gpu
	sleeper first gpu
	sleeper second gpu
	same "the second pod's GPU" "$(seen second)" "$(seen first)"
	same "prepared claims" "$(ls "$plugin"/claims/*.json | wc --lines)" 1
	removed pod first
	same "the second pod's GPU, later" "$(seen second)" "nvidia$(attribute "$(allocated gpu)" index)"
	same "prepared claims, later" "$(ls "$plugin"/claims/*.json | wc --lines)" 1
	sleeper third gpu
	same "the third pod's GPU" "$(seen third)" "$(seen second)"
}
