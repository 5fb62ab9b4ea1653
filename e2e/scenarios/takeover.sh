# The node was NVIDIA's driver's before, and ours leaves it as it was.

# restarting NAME CLAIM: a pod whose container ends when it is told to, and starts again.
restarting() {
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $1}
		spec:
		  restartPolicy: Always
		  terminationGracePeriodSeconds: 1
		  resourceClaims: [{name: gpu, resourceClaimName: $2}]
		  containers:
		  - name: main
		    image: $busybox_image
		    command: [sh, -c, 'trap "exit 1" TERM; sleep 1000 & wait']
		    resources: {claims: [{name: gpu}]}
	END
	running "$1"
}

restarted() { [[ $(kubectl get pod "$1" --output jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}') == "1 true" ]]; }

# incumbents UID: in place of our record and spec of a prepared claim, the state and the spec that NVIDIA's driver would have left.
incumbents() {
	local record=$plugin/claims/$1.json spec=/var/run/cdi/k8s.gpu.nvidia.com-claim_$1
	jq --compact-output --arg uid "$1" --arg boot "$(<"$hardware/proc/sys/kernel/random/boot_id")" '
		.devices[0] as $held | {
			status: {allocation: {devices: {results: [
				{request: $held.requests[0], driver: "gpu.nvidia.com", pool: $held.pool, device: $held.device}]}}},
			preparedDevices: [{devices: [{gpu: {info: {uuid: $held.gpu}, device: {
				Requests: $held.requests, PoolName: $held.pool, DeviceName: $held.device, CDIDeviceIDs: [$held.cdiDevice]}},
				mig: null}], configState: {}}]
		} as $claim | {
			checksum: 1, v1: {preparedClaims: {($uid): $claim}},
			v2: {checksum: 2, preparedClaims: {($uid): ({checkpointState: "PrepareCompleted"} + $claim)}, nodeBootID: $boot}
		}' "$record" >"$plugin/checkpoint.json"
	jq '.containerEdits.env += ["OF_THE_INCUMBENT=yes"]' "$spec.json" >"$spec.yaml"
	rm "$record" "$spec.json"
}

# A running pod's claim was prepared by NVIDIA's driver: ours takes it over, the pod runs on, its container can start again, another
# pod shares the claim, and when they are gone nothing is left.
takeover-running-pod() {
	claim gpu
	restarting old gpu
	local uid gpu before
	uid=$(kubectl get resourceclaim gpu --output jsonpath='{.metadata.uid}')
	gpu=$(seen old)
	before=$(kubectl get pod old --output jsonpath='{.status.containerStatuses[0].containerID}')
	stop_driver
	incumbents "$uid"
	start_driver
	driver_ready
	same "the claim's files" "$(prepared | grep --fixed-strings "$uid")" \
		"/var/lib/kubelet/plugins/gpu.nvidia.com/claims/$uid.json"$'\n'"/var/run/cdi/k8s.gpu.nvidia.com-claim_$uid.json"
	[[ ! -e $plugin/checkpoint.json && -s $plugin/checkpoint.json.bak ]]
	same "traces of the old spec" "$(grep --count OF_THE_INCUMBENT "/var/run/cdi/k8s.gpu.nvidia.com-claim_$uid.json" || true)" 0
	same "the pod's container" "$(kubectl get pod old --output jsonpath='{.status.containerStatuses[0].containerID}')" "$before"
	eventually 30 told_of_takeover
	# The kubelet hands out the ids that it got then.
	kubectl exec old -- kill 1 || (($? == 137)) # it may be ended with the container
	eventually 60 restarted old
	same "the GPU after the container's restart" "$(seen old)" "$gpu"
	sleeper second gpu
	same "the second pod's GPU" "$(seen second)" "$gpu"
	removed pod second
	removed pod old
	eventually 20 nothing_prepared
	rm "$plugin/checkpoint.json.bak"
}

told_of_takeover() {
	command kubectl get events --namespace default --field-selector reason=TakenOver --output jsonpath='{.items[*].message}' |
		grep --quiet 'took over 1 prepared claims'
}

# cleanup ...: gpu-dra cleanup on the node itself.
cleanup() {
	"$DRIVER_BIN_DIR/gpu-dra" cleanup --driver-root /run/nvidia/driver --sysfs "$hardware/sys" --proc "$hardware/proc" --log error "$@"
}

# The driver is uninstalled: cleanup refuses while a pod has a GPU, and then leaves the node as it was.
takeover-cleanup() {
	template gpu
	sleeper old template:gpu
	local words files
	stop_driver
	driver patch daemonset gpu-dra-mps-host --patch '{"spec": {"template": {"spec": {"nodeSelector": {"e2e": "nowhere"}}}}}' >/dev/null
	eventually 60 no_mps_host
	if words=$(cleanup 2>&1); then
		echo "cleanup took a pod's GPU" >&2
		return 1
	fi
	holds "the refusal" "$words" "takeover-cleanup/$(claim_of_pod old)"
	start_driver
	driver_ready
	removed pod old
	stop_driver
	cleanup
	files=$(find /var/lib/kubelet/plugins "$plugin" /var/run/cdi /run/gpu-dra /var/lib/gpu-dra -mindepth 1 2>/dev/null || true)
	same "files left on the node" "$files" ""
	same "sockets left" "$(ls /var/lib/kubelet/plugins_registry | grep --count gpu.nvidia.com || true)" 0
	cleanup >/dev/null
	driver patch daemonset gpu-dra-mps-host --type json --patch '[{"op": "remove", "path": "/spec/template/spec/nodeSelector/e2e"}]' >/dev/null
	start_driver
	driver_ready
	eventually 60 driver wait --for=condition=Ready --timeout=1s pods --selector app.kubernetes.io/component=mps-host
	: >"$state/prepared-before"
	sleeper new template:gpu
}

no_mps_host() { [[ ! $(driver get pods --selector app.kubernetes.io/component=mps-host --output name) ]]; }
