# crates/allocator against the scheduler.

# On each node of random small worlds the same verdict, can or can't. E2E_SEED chooses other worlds.
allocator-agreement() {
	[[ $E2E_MINOR != 1.35 ]] || exit 77 # it drops counters, taints and shares
	start_devices_first
	kubectl label namespace "$namespace" resource.kubernetes.io/admin-access=true >/dev/null
	"$agree" --namespace "$namespace" allocator ${E2E_SEED:+--seed "$E2E_SEED"}
	stop devices-first
}
