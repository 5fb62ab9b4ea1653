# Inside the box: its network and its view of the host's files. Fixed addresses and ports are fine here, nobody shares them.

state=$E2E_STATE
logs=$state/logs
node=e2e-node
node_address=10.77.0.1    # the node's own, on the loopback interface
service_address=10.96.0.1 # the cluster's "kubernetes" service: the API server listens there itself, so no kube-proxy

furnish_network() {
	hostname "$node"
	ip link set lo up
	ip address add "$node_address/32" dev lo
	ip address add "$service_address/32" dev lo
}

# Private stand-ins for every place where a node writes, so that paths are those of a real node and the host's stay clean.
furnish_files() {
	local place
	for place in /run /var/lib /var/log; do
		mount -t tmpfs tmpfs "$place"
	done
	for place in /etc/cdi /etc/cni; do
		[[ ! -d $place ]] || mount -t tmpfs tmpfs "$place"
	done
	mkdir -p /run/lock /var/lib/kubelet "$state/kubelet"
	mount --bind "$state/kubelet" /var/lib/kubelet # on a disk, as the driver's journal is on a real node
	printf '127.0.0.1 localhost\n%s %s\n' "$node_address" "$node" >"$state/hosts"
	mount --bind "$state/hosts" /etc/hosts
	furnish_devices
	keep_sysctl vm/overcommit_memory 1
	keep_sysctl vm/panic_on_oom 0
	keep_sysctl kernel/panic 10
	keep_sysctl kernel/panic_on_oops 1
	keep_sysctl kernel/keys/root_maxkeys 1000000
	keep_sysctl kernel/keys/root_maxbytes 25000000
	mount --make-rshared / # as on a host, so that pods can have mounts propagated
}

# A /dev without the host's GPUs, in which scenarios may make devices.
furnish_devices() {
	local new=$state/dev name
	mkdir "$new"
	mount -t tmpfs -o mode=755 tmpfs "$new"
	for name in null zero full random urandom tty kmsg; do
		[[ ! -e /dev/$name ]] || cp -a "/dev/$name" "$new/$name"
	done
	mkdir "$new"/{pts,shm,mqueue}
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$new/pts"
	ln -s pts/ptmx "$new/ptmx"
	ln -s /proc/self/fd "$new/fd"
	mount --move "$new" /dev
}

# keep_sysctl NAME VALUE: gives the kubelet the value that it insists on, as a file; the kernel's own is never touched.
keep_sysctl() {
	[[ -e /proc/sys/$1 ]] || return 0
	local file=$state/sysctl/$1
	mkdir -p "${file%/*}"
	echo "$2" >"$file"
	mount --bind "$file" "/proc/sys/$1"
}

# start NAME COMMAND...: a program of the cluster, in the background; its log is $logs/NAME.log.
start() {
	local name=$1
	shift
	mkdir -p "$state/pids"
	setsid "$@" >>"$logs/$name.log" 2>&1 </dev/null &
	echo $! >"$state/pids/$name"
}

# stop NAME [SIGNAL]: ends it and waits until it is gone.
stop() {
	local pid
	pid=$(<"$state/pids/$1")
	kill "-${2:-TERM}" "$pid"
	eventually 30 gone "$pid"
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# eventually SECONDS COMMAND...: tries a command until it succeeds, and shows its last words if it never does.
eventually() {
	local limit=$((SECONDS + $1)) words
	shift
	until words=$("$@" 2>&1); do
		if ((SECONDS >= limit)); then
			echo "in vain: $*" >&2
			[[ ! $words ]] || echo "$words" >&2
			return 1
		fi
		sleep 0.1
	done
}
