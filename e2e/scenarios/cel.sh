# The CEL of crates/cel against that of the API server and the scheduler.

# Each selector of the table is taken or refused as a class, and matches devices or not, as the table says; crates/cel's own test
# judges the same table.
cel-agreement() {
	start_devices_first
	"$agree" --namespace "$namespace" cel "$tree"/crates/cel/tests/data/agreement{.tsv,-devices.yaml}
	stop devices-first
}
