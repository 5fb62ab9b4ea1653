# Asking for GPUs by class.

# A pod that was written for the device plugin gets a GPU through the class.
class-extended-resource() {
	needs_kubernetes 1.36
	apply <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: classic}
		spec:
		  restartPolicy: Never
		  terminationGracePeriodSeconds: 1
		  containers:
		  - {name: main, image: $busybox_image, command: [sleep, "1000"], resources: {limits: {nvidia.com/gpu: 2}}}
	END
	running classic
	same "GPUs of the pod" "$(seen classic | wc --words)" 2
	removed pod classic
}

# Every manifest of docs/authoring.md is taken by the API server as it is, and its pods run.
class-authoring() {
	needs_kubernetes 1.36
	local file pod
	mkdir -p "$state/authoring"
	awk -v dir="$state/authoring" '/^<!-- e2e: /{name=$3} /^```yaml$/{on=1;next} /^```$/{on=0} on{print > (dir "/" name ".yaml")}' "$tree/docs/authoring.md"
	for file in "$state"/authoring/*.yaml; do
		kubectl apply --filename "$file" --output json | jq --raw-output '.items[]?, . | select(.kind == "Pod").metadata.name' >"$state/pods"
		while read -r pod; do
			[[ ! $pod ]] || eventually 60 running "$pod" 30
		done <"$state/pods"
		kubectl delete --grace-period=1 --timeout=90s --filename "$file" >/dev/null
	done
}
