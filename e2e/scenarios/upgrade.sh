# Parts come and go while pods run.

# untouched: what must not change while a part restarts: containers, their restarts, and the slices. 1.35 drops fields, and each
# start asks once more whether it still does: the slice stays, with a new generation.
untouched() {
	kubectl get pods --output json | jq --raw-output '.items[].status.containerStatuses[] | "\(.containerID) \(.restartCount)"'
	slices | jq --raw-output --arg minor "$E2E_MINOR" '.[] | "\(.metadata.uid) \(if $minor == "1.35" then "" else .spec.pool.generation end)"'
}

# The kubelet restarts (and deletes the node's slices when it starts): pods stay, slices come back, new pods run, old ones end.
upgrade-kubelet-restart() {
	template gpu
	sleeper old template:gpu
	local before
	before=$(kubectl get pod old --output jsonpath='{.status.containerStatuses[0].containerID}')
	stop kubelet
	start_kubelet
	sleeper new template:gpu
	same "the old pod's container" "$(kubectl get pod old --output jsonpath='{.status.containerStatuses[0].containerID}')" "$before"
	eventually 30 published 10
	same "GPUs of the new pod" "$(seen new | wc --words)" 1
	removed pod old
}

# The driver is killed and starts again: no pod and no slice notices.
upgrade-driver-killed() {
	template gpu
	sleeper old template:gpu
	local before
	before=$(untouched)
	kill -KILL "$(agent_process)"
	eventually 60 restarted_driver
	driver_ready
	same "containers and slices" "$(untouched)" "$before"
	sleeper new template:gpu
	same "GPUs of both pods" "$(sort --unique <(seen old) <(seen new) | wc --lines)" 2
	removed pod old
}

restarted_driver() { (($(driver get pods --selector "$driver_selector" --output jsonpath='{.items[0].status.containerStatuses[0].restartCount}') > 0)); }

# The CDI specs are gone, as after a reboot: the driver's next start makes those of prepared claims again.
upgrade-cdi-lost() {
	claim gpu
	sleeper old gpu
	local spec before
	spec=$(ls /var/run/cdi/*"$(kubectl get resourceclaim gpu --output jsonpath='{.metadata.uid}')"*)
	before=$(<"$spec")
	rm "$spec"
	driver delete pod "$(driver_pod)" >/dev/null
	driver_ready
	eventually 20 test -s "$spec"
	same "the CDI spec" "$(<"$spec")" "$before"
	sleeper new gpu
	same "the new pod's GPU" "$(seen new)" "$(seen old)"
}

# The DaemonSet rolls to a new pod: no slice is lost for a moment, no pod is touched, and pods start all the while.
upgrade-rolling() {
	template gpu
	sleeper old template:gpu
	local before was lane lanes=()
	before=$(untouched)
	was=$(driver_pod)
	kubectl get resourceslices --watch-only --output-watch-events --output json >"$state/slice-events" 2>/dev/null &
	local watcher=$!
	for lane in a b c d; do
		pods_come_and_go "$lane" &
		lanes+=($!)
	done
	eventually 60 test -s "$state/came"
	driver patch daemonset gpu-dra-node --patch "{\"spec\": {\"template\": {\"metadata\": {\"annotations\": {\"e2e\": \"$EPOCHREALTIME\"}}}}}" >/dev/null
	eventually 60 replaced_driver_pod "$was"
	: >"$state/came"
	eventually 60 test -s "$state/came"
	: >"$state/enough"
	for lane in "${lanes[@]}"; do wait "$lane"; done
	figure "pods that came and went while the driver was replaced: $(kubectl get pods --field-selector status.phase=Succeeded --output name | wc --lines)"
	driver_ready
	same "failed prepares" "$(kubectl get events --field-selector reason=FailedPrepareDynamicResources --output name)" ""
	sleep 32 # so long after the last of a driver's sockets the kubelet deletes its slices
	kill "$watcher"
	same "slices deleted meanwhile" "$(jq --raw-output 'select(.type == "DELETED").object.metadata.name' "$state/slice-events")" ""
	kubectl delete pods --selector '!none' --field-selector status.phase=Succeeded >/dev/null
	same "containers and slices" "$(untouched)" "$before"
	removed pod old
}

# pods_come_and_go LANE: one after another has a GPU and ends, until there are enough.
pods_come_and_go() {
	local number=0
	until [[ -e $state/enough ]]; do
		((++number <= 60)) || { echo "the driver's old pod stays: $(driver_pod)" >&2 && return 1; }
		pod "$1-$number" "$nodes_of_gpus" template:gpu
		same "GPUs of a pod that came meanwhile" "$(output "$1-$number" | wc --words)" 1
		echo "$1-$number" >>"$state/came"
	done
}

replaced_driver_pod() { [[ $(driver_pod) != *"$1"* ]]; }

# A pod is bound while no driver is there, as its slices stay for a while: it runs soon after the driver is back.
upgrade-bound-while-down() {
	template gpu
	stop_driver
	pod early 'exec sleep 1000' template:gpu
	event early FailedPrepareDynamicResources gpu.nvidia.com
	local since=$EPOCHREALTIME
	start_driver
	driver_ready
	kubectl annotate pod early now=again >/dev/null # by itself the kubelet tries again within 90 s
	running early 10
	figure "bound while the driver was down, running after: $(awk -v a="$since" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", b - a}')"
	removed pod early
}

# A pod is deleted while no driver is there: it waits, and goes when the driver is back. What was prepared stays until then.
upgrade-driver-down() {
	template gpu
	sleeper old template:gpu
	stop_driver
	kubectl delete pod old --wait=false >/dev/null
	sleep 5
	same "the pod, which can't give back its GPU" "$(kubectl get pod old --output jsonpath='{.metadata.name}')" old
	being_prepared >/dev/null
	start_driver
	driver_ready
	eventually 90 gone_pod old
	eventually 20 nothing_prepared
}

# From the start of the driver's process to complete slices, when there are none before.
upgrade-start() {
	stop_driver
	kubectl delete resourceslices --all >/dev/null
	start_driver
	eventually 60 published 10
	local now=$EPOCHREALTIME
	figure "driver's start to complete slices: $(awk -v now="$now" -v from="$(started "$(agent_process)")" 'BEGIN {printf "%.2f s", now - from}')"
}
