# The driver: built, packed into its image, and installed from deploy/ on a node with simulated GPUs.

tree=$(dirname "$e2e")
gpus=8xh100+2xl4                # two products, pairs of GPUs that share a PCIe root, and GPUs that can be partitioned
hardware=/run/gpu-node          # the simulated machine: its /sys, /proc, and the driver's files
state_of_gpus=$hardware/run/nvidia/driver/config
plugin=/var/lib/kubelet/plugins/gpu.nvidia.com
agree=${E2E_AGREE-}             # compares us with the API server and the scheduler (crates/agree)
driver_selector=app.kubernetes.io/name=gpu-dra,app.kubernetes.io/component=node

# Host: the programs, and the driver's image as its Dockerfile describes it.
built_driver() {
	if [[ ! ${DRIVER_BIN_DIR-} ]]; then
		command -v cargo >/dev/null || skip "cargo is needed to build the driver, or DRIVER_BIN_DIR with its programs"
		(cd "$tree" && cargo xtask build --release) >"$state/logs/build.log" 2>&1 || { tail "$state/logs/build.log" >&2 && return 1; }
		export DRIVER_BIN_DIR=${CARGO_TARGET_DIR:-$tree/target}/release
	fi
	archive_of "$tree/Dockerfile" "$(driver_image)" "$DRIVER_BIN_DIR" "$state/driver.tar"
}

# built_agree [WORD...]: host: the program of the scenarios *-agreement, if one of them is among those named.
built_agree() {
	[[ $(scenario_names "$@") == *-agreement* ]] || return 0
	export E2E_AGREE=${DRIVER_BIN_DIR-}/gpu-dra-agree
	[[ ! ${DRIVER_BIN_DIR-} || ! -x $E2E_AGREE ]] || return 0
	command -v cargo >/dev/null || skip "cargo is needed to build gpu-dra-agree, or DRIVER_BIN_DIR with it"
	(cd "$tree" && cargo build --package gpu-dra-agree) >"$state/logs/agree.log" 2>&1 || { tail "$state/logs/agree.log" >&2 && return 1; }
	E2E_AGREE=${CARGO_TARGET_DIR:-$tree/target}/debug/gpu-dra-agree
}

driver_image() { sed -n 's/^ *image: //p' "$tree/deploy/node.yaml"; }

# Box: GPUs as GPU Operator leaves them: the driver in /run/nvidia/driver, whose /dev is the host's.
furnish_gpus() {
	local root=$hardware/run/nvidia/driver
	"$DRIVER_BIN_DIR/stage-node" "$gpus" "$hardware" gpu-operator >"$logs/stage.log"
	jq --arg proc "$hardware/proc" '.procRoot = $proc' "$state_of_gpus/node.json" >"$state/node.json"
	cp "$state/node.json" "$state_of_gpus/node.json"
	cp -a "$root/dev/." /dev/
	mount --rbind /dev "$root/dev"
	mkdir -p /run/nvidia/driver/config
	attach_gpus
}

# attach_gpus: GPU Operator's driver container has loaded the driver and shows its files; detach_gpus: it has not yet started.
attach_gpus() {
	[[ ! -e $hardware/proc/driver/not-yet ]] || mv "$hardware/proc/driver/not-yet" "$hardware/proc/driver/nvidia"
	mountpoint --quiet /run/nvidia/driver || mount --rbind "$hardware/run/nvidia/driver" /run/nvidia/driver
}
detach_gpus() {
	umount --recursive /run/nvidia/driver
	mv "$hardware/proc/driver/nvidia" "$hardware/proc/driver/not-yet"
}

# driver_ready: waits until the DaemonSet's pods are ready and all GPUs are published.
driver_ready() {
	eventually 60 driver_rolled_out
	eventually 60 published 10
}

driver_rolled_out() { command kubectl --namespace gpu-dra rollout status daemonset/gpu-dra-node --timeout=1s; }

driver() { command kubectl --namespace gpu-dra "$@"; }

driver_pod() { driver get pods --selector "$driver_selector" --field-selector status.phase=Running --output jsonpath='{.items[*].metadata.name}'; }

# agent_process: the node agent's process id on the node.
agent_process() { pgrep --full '^/usr/bin/gpu-dra node'; }

# driver_log TIME: what its containers have said since then (RFC 3339), those that ended too.
driver_log() {
	local pod
	for pod in $(driver get pods --selector "$driver_selector" --output name); do
		driver logs --since-time "$1" --previous "$pod" 2>/dev/null || true
		driver logs --since-time "$1" "$pod"
	done
}

# stop_driver: as if the node were not selected any more; start_driver: the contrary.
stop_driver() {
	driver patch daemonset gpu-dra-node --patch '{"spec": {"template": {"spec": {"nodeSelector": {"e2e": "nowhere"}}}}}' >/dev/null
	eventually 60 no_driver_pod
}

start_driver() { driver patch daemonset gpu-dra-node --type json --patch '[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]' >/dev/null; }

no_driver_pod() { [[ ! $(driver get pods --selector "$driver_selector" --output name) ]]; }

# slices: the driver's, as JSON. devices: the whole GPUs in them, as JSON; mig_devices: the MIG devices.
slices() { command kubectl get resourceslices --output json | jq '.items | map(select(.spec.driver == "gpu.nvidia.com"))'; }
devices() { devices_of gpu; }
mig_devices() { devices_of mig; }
devices_of() { slices | jq --arg type "$1" 'map(.spec.devices // [] | .[] | select(.attributes.type.string == $type))'; }

# published NUMBER: whether that many whole GPUs can be allocated: in complete pools only.
published() {
	local is
	is=$(slices | jq '
		group_by(.spec.pool.name) | map(
			(map(.spec.pool.generation) | max) as $newest | map(select(.spec.pool.generation == $newest))
			| select(length == .[0].spec.pool.resourceSliceCount) | map(.spec.devices // [] | map(select(.attributes.type.string == "gpu")) | length) | add) | add // 0')
	[[ $is == "$1" ]] || { echo "$is devices in complete pools, not $1" && return 1; }
}

# sick JSON: what goes wrong with the GPUs from now on (crates/sim-data/src/lib.rs says how); healthy: nothing does.
sick() {
	echo "$1" >"$state_of_gpus/control.new"
	mv "$state_of_gpus/control.new" "$state_of_gpus/control.json"
}
healthy() {
	rm -f "$state_of_gpus/control.json"
	attach_gpus
}

# prepared: the files that claims have on the node.
prepared() { find "$plugin/claims" /var/run/cdi -type f | sort; }

# nothing_prepared: no claim has left anything on the node, but what a failed scenario before left.
nothing_prepared() {
	local left
	left=$(comm -13 "$state/prepared-before" <(prepared))
	[[ ! $left ]] || { echo "left on the node: $left" && return 1; }
}
