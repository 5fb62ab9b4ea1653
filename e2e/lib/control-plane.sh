# etcd, the API server, the controller manager and the scheduler, with the certificates that hold them together.

pki=$state/pki
export KUBECONFIG=$state/admin.kubeconfig

# certificate NAME SUBJECT [SAN]: a key and a certificate of the cluster's authority.
certificate() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 30 -CA "$pki/ca.crt" -CAkey "$pki/ca.key" \
		-subj "$2" ${3:+-addext "subjectAltName=$3"} -addext basicConstraints=critical,CA:FALSE \
		-keyout "$pki/$1.key" -out "$pki/$1.crt" 2>>"$logs/openssl.log"
}

# identity NAME SUBJECT: a kubeconfig that acts as the subject.
identity() {
	certificate "$1" "$2"
	cat >"$state/$1.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		clusters: [{name: e2e, cluster: {server: "https://127.0.0.1:443", certificate-authority: $pki/ca.crt}}]
		users: [{name: $1, user: {client-certificate: $pki/$1.crt, client-key: $pki/$1.key}}]
		contexts: [{name: e2e, context: {cluster: e2e, user: $1}}]
		current-context: e2e
	END
}

make_identities() {
	mkdir "$pki"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 30 -subj /CN=e2e \
		-keyout "$pki/ca.key" -out "$pki/ca.crt" 2>>"$logs/openssl.log"
	openssl genrsa -out "$pki/accounts.key" 2048 2>>"$logs/openssl.log"
	certificate apiserver /CN=kube-apiserver \
		"IP:127.0.0.1,IP:$node_address,IP:$service_address,DNS:localhost,DNS:kubernetes.default.svc"
	certificate kubelet-client /O=system:masters/CN=kube-apiserver
	identity admin /O=system:masters/CN=admin
}

# start_api_server [FLAG...]
start_api_server() {
	make_identities
	start etcd etcd --data-dir "$state/etcd" --unsafe-no-fsync --logger zap --log-level warn \
		--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
		--listen-peer-urls http://127.0.0.1:2380
	start kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 \
		--bind-address 0.0.0.0 --secure-port 443 --advertise-address "$node_address" --cert-dir "$state" \
		--service-cluster-ip-range 10.96.0.0/24 --allow-privileged \
		--tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
		--kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key" \
		--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.key" \
		--service-account-signing-key-file "$pki/accounts.key" \
		--authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction "$@"
	eventually 120 kubectl get --raw /readyz
}

start_controllers() {
	identity controller-manager /CN=system:kube-controller-manager
	identity scheduler /CN=system:kube-scheduler
	start kube-controller-manager kube-controller-manager --kubeconfig "$state/controller-manager.kubeconfig" \
		--leader-elect=false --use-service-account-credentials --cert-dir "$state" \
		--service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt"
	start kube-scheduler kube-scheduler --kubeconfig "$state/scheduler.kubeconfig" --leader-elect=false --cert-dir "$state"
}

# start_devices_first: a second scheduler, for pods that name it. It asks for devices before it looks at a node's CPU, so that a pod
# that wants more CPU than there is shows what comes of its claims and is never bound; nothing slows its answers down.
start_devices_first() {
	cat >"$state/devices-first.yaml" <<-END
		apiVersion: kubescheduler.config.k8s.io/v1
		kind: KubeSchedulerConfiguration
		leaderElection: {leaderElect: false}
		clientConnection: {kubeconfig: $state/scheduler.kubeconfig, qps: 2000, burst: 4000}
		profiles:
		- schedulerName: devices-first
		  plugins:
		    multiPoint:
		      disabled: [{name: "*"}]
		      enabled:
		      - {name: PrioritySort}
		      - {name: NodeAffinity}
		      - {name: DynamicResources}
		      - {name: NodeResourcesFit}
		      - {name: DefaultBinder}
	END
	start devices-first kube-scheduler --config "$state/devices-first.yaml" --secure-port 0
}

# open_door: where lead_to_door leads to.
open_door() {
	start door socat "UNIX-LISTEN:$state/door,fork" TCP:127.0.0.1:443
	sed "s/127.0.0.1:443/127.0.0.1:$E2E_PORT/" "$state/admin.kubeconfig" >"$state/kubeconfig"
	echo "KUBECONFIG=$state/kubeconfig (Ctrl-C removes the cluster)"
}
