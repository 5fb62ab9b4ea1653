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
