# The node: containerd with CDI, the kubelet, and a network of the box's own for the pods.

start_containerd() {
	mkdir -p "$state/cni"
	cat >"$state/containerd.toml" <<-END
		version = 3
		root = "/var/lib/containerd"
		state = "/run/containerd"

		[grpc]
		address = "/run/containerd/containerd.sock"

		[plugins.'io.containerd.cri.v1.images'.pinned_images]
		sandbox = "$busybox_image"

		[plugins.'io.containerd.cri.v1.runtime']
		cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
		disable_apparmor = true
		restrict_oom_score_adj = true # a root without CAP_SYS_RESOURCE can't lower the score of a sandbox

		[plugins.'io.containerd.cri.v1.runtime'.cni]
		bin_dirs = ["/usr/lib/cni"]
		conf_dir = "$state/cni"

		[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
		runtime_type = "io.containerd.runc.v2"

		[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
		BinaryName = "runc"
	END
	cat >"$state/cni/pods.conflist" <<-END
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
		  "type": "host-local", "ranges": [[{"subnet": "10.88.0.0/22"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	END
	start containerd containerd --config "$state/containerd.toml"
	eventually 30 ctr version
}

# import ARCHIVE: makes an image known to the node.
import() {
	ctr --namespace k8s.io images import "$1" >>"$logs/images.log" 2>&1
}

configure_kubelet() {
	identity kubelet "/O=system:nodes/CN=system:node:$node"
	cat >"$state/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
		authorization: {mode: Webhook}
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		cgroupDriver: cgroupfs
		cgroupRoot: $E2E_CGROUP
		failCgroupV1: false
		failSwapOn: false
		evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
		imageGCHighThresholdPercent: 100
		makeIPTablesUtilChains: false
		resolvConf: ""
		clusterDNS: [10.96.0.10] # nobody answers there; without one the kubelet complains about each pod
		maxPods: 250
		volumePluginDir: $state/volume-plugins
	END
}

start_kubelet() {
	start kubelet kubelet --config "$state/kubelet.yaml" --kubeconfig "$state/kubelet.kubeconfig" \
		--hostname-override "$node" --node-ip "$node_address" --v "${E2E_KUBELET_V:-2}"
}

start_node() {
	start_containerd
	configure_kubelet
	start_kubelet
	eventually 60 kubectl get node "$node"
	kubectl wait --for=condition=Ready --timeout=60s "node/$node" >/dev/null
}
