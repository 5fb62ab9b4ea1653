# What happens on the host: see that everything needed is there, and make the box in which the cluster runs.
#
# The box is a set of namespaces (mounts, network, processes, host name, IPC). Nothing that runs inside can leave a mount,
# an interface, a firewall rule or a process behind: they go with the box. The host keeps only two things in sight, and
# both go when the run ends: a folder for the run's state, and a cgroup (the kubelet needs one in the host's tree).

minor=${E2E_KUBERNETES:-1.36}
export E2E_MINOR=$minor
case $minor in 1.35 | 1.36 | 1.37) ;; *) echo "E2E_KUBERNETES=$minor: choose 1.35, 1.36 or 1.37" >&2 && exit 2 ;; esac
release=$(sed -n 's/^require k8s.io\/kubernetes v//p' "$e2e/build/kubernetes-$minor/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpu-dra-e2e
kubernetes_programs=$cache/kubernetes-$release
runtime=$(sed -n 's/^\t[^ ]*\/\(containerd\|server\)\/v[23] v\(.*\)$/\1-\2/p' "$e2e/build/runtime/go.mod")
runtime_programs=$cache/${runtime//$'\n'/-}
helm_programs=$cache/helm-$(sed -n 's/^require helm.sh\/helm\/v3 v//p' "$e2e/build/helm/go.mod")
export PATH=${KUBE_BIN_DIR:+$KUBE_BIN_DIR:}$kubernetes_programs:$runtime_programs:$helm_programs:$PATH:/usr/sbin:/sbin

# skip REASON: ends the run without a verdict, in one line, with the exit status that means "not run" to automake and meson.
skip() {
	echo "SKIPPED: the cluster tests: $*"
	exit 77
}

# from_debian PROGRAM=PACKAGE...: installs what is missing, or says what that is.
from_debian() {
	local pair missing=()
	for pair; do
		command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}")
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null || skip "these Debian packages, or what stands for them here, are missing: ${missing[*]}"
	local install=(apt-get install --yes --no-install-recommends "${missing[@]}")
	{ "${install[@]}" || { apt-get update && "${install[@]}"; }; } >"$state/apt.log" 2>&1 ||
		skip "apt-get can't install ${missing[*]}: $(tail -n 1 "$state/apt.log")"
}

# built PROGRAM...: builds what neither KUBE_BIN_DIR nor the cache has.
built() {
	local program folder
	for program; do
		case $program in
		kube*) folder=$kubernetes_programs ;;
		helm) folder=$helm_programs ;;
		*) folder=$runtime_programs ;;
		esac
		[[ ! -x $folder/$program && ! -x ${KUBE_BIN_DIR:+$KUBE_BIN_DIR/$program} ]] || continue
		command -v go >/dev/null || skip "Go is needed to build $program, or KUBE_BIN_DIR with it"
		"$e2e/build/programs" "$minor" "$folder" "$program"
	done
}

# The run's cgroup, in each hierarchy that the host has (one with cgroup v2; with v1 one a controller).
make_cgroup() {
	local root=/sys/fs/cgroup controllers hierarchy
	cgroup=/gpu-dra-e2e-$$
	if [[ ! -e $root/cgroup.controllers ]]; then
		for hierarchy in $(sed -n 's/^[^ ]* \([^ ]*\) cgroup .*/\1/p' /proc/mounts); do
			mkdir "$hierarchy$cgroup"
		done
		return
	fi
	controllers=$(<$root/cgroup.controllers)
	if [[ $controllers != "$(<$root/cgroup.subtree_control)" ]]; then
		echo "+${controllers// / +}" >$root/cgroup.subtree_control ||
			skip "the host's cgroup can't hand on its controllers (this may be a container with a cgroup namespace)"
	fi
	mkdir $root$cgroup
	echo "+${controllers// / +}" >$root$cgroup/cgroup.subtree_control
}

remove_cgroup() {
	local folder tries
	for folder in "/sys/fs/cgroup$cgroup" /sys/fs/cgroup/*"$cgroup"; do
		for ((tries = 0; tries < 50; tries++)); do
			[[ -d $folder ]] || break
			find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
		done
		[[ ! -d $folder ]] || echo "left behind: $folder" >&2
	done
}

make_state() {
	[[ $EUID == 0 ]] || skip "they start containers, so they need root"
	[[ $(uname -s) == Linux ]] || skip "they need Linux"
	state=$(mktemp -d "${TMPDIR:-/tmp}/gpu-dra-e2e.XXXXXX")
	trap leave EXIT
	trap 'exit 130' INT TERM
	mkdir "$state/logs"
	local path
	for path in "$e2e" "$cache" "$state"; do
		case $path in
		/run/* | /var/lib/* | /var/log/*) skip "they need $path outside of /run, /var/lib and /var/log, which the box has of its own" ;;
		esac
	done
}

# With --keep the API server, which the host's network doesn't reach, is met at a port of the host's loopback interface.
lead_to_door() {
	export E2E_PORT=${E2E_PORT:-16443}
	socat "TCP-LISTEN:$E2E_PORT,bind=127.0.0.1,reuseaddr,fork" "UNIX-CONNECT:$state/door" &
	door=$!
}

# Everything in the box dies with its first process, and the kernel then takes the box down.
leave() {
	local status=$?
	trap - EXIT
	if [[ ${box-} ]] && kill -KILL "$box" 2>/dev/null; then
		wait "$box" 2>/dev/null || true
	fi
	[[ ! ${door-} ]] || kill "$door" 2>/dev/null || true
	[[ ! ${cgroup-} ]] || remove_cgroup
	case $status in
	0 | 77 | 130) rm -rf "$state" ;;
	*)
		find "$state" -mindepth 1 -maxdepth 1 ! -name logs -exec rm -rf {} +
		echo "logs: $state/logs" >&2
		;;
	esac
	exit "$status"
}

# inside SCRIPT [ARGUMENT...]: runs a script in a new box, and returns with its exit status.
inside() {
	export E2E_STATE=$state E2E_CGROUP=${cgroup-}
	setpriv --pdeathsig KILL unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc -- bash "$@" &
	box=$!
	local status=0
	wait "$box" || status=$?
	box=
	return "$status"
}
