# The controller: classes that follow what is declared, whoever dies meanwhile, and configs that are checked when they are created.

controller_selector=app.kubernetes.io/name=gpu-dra,app.kubernetes.io/component=controller

controller_ready() { eventually 60 driver rollout status deployment/gpu-dra-controller --timeout=1s; }

# gpu_class NAME SPEC: declares a class.
gpu_class() { gpu_classes "$2" "$1"; }

# gpu_classes SPEC NAME...: declares many alike, at once.
gpu_classes() {
	local spec=$1 name
	shift
	for name; do
		printf 'apiVersion: gpu-dra.io/v1alpha1\nkind: GpuClass\nmetadata: {name: %s}\nspec: %s\n---\n' "$name" "$spec"
	done | apply
}

# class_status NAME FILTER: of a GpuClass, by jq. class_status_is waits for nothing: it looks.
class_status() { kubectl get gpuclass "$1" --output json | jq --compact-output ".status | $2"; }
class_status_is() {
	local is
	is=$(class_status "$1" "$2")
	[[ $is == "$3" ]] || { echo "$1: $2 is $is, not $3" && return 1; }
}

# condition_is NAME TYPE STATUS REASON [WORDS]: whether a GpuClass's condition is so, and says that.
condition_is() {
	class_status_is "$1" ".conditions[] | select(.type == \"$2\") | [.status, .reason]" "[\"$3\",\"$4\"]" &&
		holds "condition $2 of $1" "$(class_status "$1" ".conditions[] | select(.type == \"$2\").message")" "${5-}"
}

# expression CLASS: the selector of a DeviceClass. selects CLASS TEXT: whether that text is in it.
expression() { kubectl get deviceclass "$1" --output jsonpath='{.spec.selectors[0].cel.expression}'; }
selects() { holds "the selector of $1" "$(expression "$1")" "$2"; }

no_class() { ! kubectl get deviceclass "$1" 2>/dev/null; }

# classes_but NAME...: all other DeviceClasses, with their versions.
classes_but() {
	local names=" $* "
	kubectl get deviceclasses --output json | jq --raw-output --arg but "$names" \
		'.items[].metadata | select(.name as $name | $but | contains(" " + $name + " ") | not) | "\(.name) \(.uid) \(.resourceVersion)"'
}

version() { kubectl get deviceclass "$1" --output jsonpath='{.metadata.resourceVersion}'; }

# foreign_class NAME: a DeviceClass that somebody else keeps.
foreign_class() {
	kubectl apply --server-side --field-manager somebody --filename - >/dev/null <<-END
		apiVersion: resource.k8s.io/v1
		kind: DeviceClass
		metadata: {name: $1}
		spec: {selectors: [{cel: {expression: "device.driver == 'somebody.example.com'"}}]}
	END
}

# A GpuClass becomes a DeviceClass, its status says how many match and are free; both follow its changes, and it goes alone.
controller-classes() {
	controller_ready
	local others
	others=$(classes_but big)
	gpu_class big '{model: {contains: [H100]}, memoryAtLeast: 79Gi, extendedResourceName: example.com/big}'
	eventually 10 class_status_is big '[.valid, .deviceClassName, .matchingDevices, .matchingNodes, .freeDevices]' '[true,"big",8,1,8]'
	condition_is big Valid True Compiled
	condition_is big Applied True Applied
	condition_is big Matching True DevicesFound
	selects big "quantity('79Gi')"
	same "its extended resource" "$(kubectl get deviceclass big --output jsonpath='{.spec.extendedResourceName}')" example.com/big
	claim_of one "{requests: [{name: gpu, exactly: {deviceClassName: big}}]}"
	sleeper one one
	same "the product" "$(attribute "$(allocated one)" productName)" 'NVIDIA H100 80GB HBM3'
	eventually 20 class_status_is big .freeDevices 7

	gpu_class big '{model: {contains: [L4]}}'
	eventually 10 selects big "contains('L4')"
	eventually 10 class_status_is big .matchingDevices 2
	same "its extended resource" "$(kubectl get deviceclass big --output jsonpath='{.spec.extendedResourceName}')" ""
	gpu_class big '{model: {contains: [L5]}}'
	eventually 10 condition_is big Matching False NoDevices productName

	# One that can't be compiled says why, and leaves the class as it was.
	gpu_class big '{profile: MIG-1g.10gb}'
	eventually 10 condition_is big Valid False Invalid 'did you mean 1g.10gb?'
	selects big "contains('L5')"

	removed gpuclass big
	eventually 10 no_class big
	same "the other classes" "$(classes_but big)" "$others"
}

# What somebody else keeps, or has changed, is left alone and told; when it goes, the declared class takes its place.
controller-foreign-class() {
	controller_ready
	local before
	foreign_class taken
	before=$(version taken)
	gpu_class taken '{model: {contains: [H100]}}'
	eventually 10 condition_is taken Applied False Conflict 'kept by somebody'
	class_status_is taken '[.valid, .deviceClassName]' '[true,null]'
	sleep 2
	same "the version of somebody's class" "$(version taken)" "$before"
	removed deviceclass taken
	eventually 10 condition_is taken Applied True Applied
	selects taken "contains('H100')"

	kubectl patch deviceclass taken --field-manager somebody --type json --patch \
		'[{"op": "replace", "path": "/spec/selectors/0/cel/expression", "value": "device.driver == '"'x'"'"}]' >/dev/null
	before=$(version taken)
	eventually 10 condition_is taken Applied False Conflict somebody
	sleep 2
	same "the version of the changed class" "$(version taken)" "$before"
	removed deviceclass taken
	eventually 10 condition_is taken Applied True Applied
	removed gpuclass taken
	eventually 10 no_class taken

	# Nothing of somebody's goes with a GpuClass of its name.
	foreign_class taken
	before=$(version taken)
	gpu_class taken '{}'
	eventually 10 condition_is taken Applied False Conflict
	removed gpuclass taken
	sleep 2
	same "the version of somebody's class" "$(version taken)" "$before"
	removed deviceclass taken
}

# A class that somebody keeps and that another driver's devices would break gets an Event, and is left as it is.
controller-unguarded-class() {
	controller_ready
	local class=$cases/35-class-unguarded-but-known-attribute.yaml name
	kubectl create --filename "$class" --dry-run=client --output json | jq 'select(.kind == "DeviceClass")' >"$state/unguarded.json"
	name=$(jq --raw-output .metadata.name "$state/unguarded.json")
	kubectl apply --filename "$state/unguarded.json" >/dev/null
	local before
	before=$(version "$name")
	namespace=default event "$name" Unguarded "put device.driver == 'gpu.nvidia.com' && before it" 20
	same "the version of the class" "$(version "$name")" "$before"
	removed deviceclass "$name"
}

leader() { driver get lease gpu-dra-controller --output jsonpath='{.spec.holderIdentity}'; }

# process_of POD: the controller's process in it.
process_of() {
	local process
	for process in $(pgrep --full '^/usr/bin/gpu-dra controller'); do
		if tr '\0' '\n' <"/proc/$process/environ" | grep --line-regexp "POD_NAME=$1" >/dev/null; then
			echo "$process"
			return
		fi
	done
	return 1
}

# some_say COUNT TEXT: how many classes named many-* there are at least whose selectors have the text; all_say: exactly.
say() { kubectl get deviceclasses --output json | jq --arg text "$1" '[.items[] | select(.metadata.name | startswith("many-")) | select(.spec.selectors[0].cel.expression | contains($text))] | length'; }
some_say() { (($(say "$2") >= $1)); }
all_say() {
	local is
	is=$(say "$2")
	[[ $is == "$1" ]] || { echo "$is classes say $2, not $1" && return 1; }
}

# The leader is killed in the middle of its writes, and another time stopped and its pod lost: all classes come out right.
controller-leader-lost() {
	controller_ready
	local many first since others
	many=$(printf 'many-%d ' {1..40})
	others=$(classes_but $many)
	eventually 30 test -n "$(leader)"
	gpu_classes '{model: {contains: [H100]}}' $many &
	eventually 20 some_say 1 H100
	kill -KILL "$(process_of "$(leader)")"
	wait
	eventually 60 all_say 40 "contains('H100')"

	controller_ready
	eventually 30 process_of "$(leader)"
	first=$(leader)
	gpu_classes '{model: {contains: [L4]}}' $many &
	eventually 20 some_say 1 L4
	kill -STOP "$(process_of "$first")"
	since=$EPOCHREALTIME
	wait
	gpu_classes '{model: {contains: [A100]}}' $many
	driver delete pod "$first" --force --grace-period=0 >/dev/null 2>&1
	eventually 60 all_say 40 "contains('A100')"
	figure "controller's leader lost, until another has 40 classes right: $(seconds_from "$since")"
	[[ $(leader) != "$first" ]]

	kubectl delete gpuclasses --all --timeout=60s >/dev/null
	eventually 20 all_say 0 ""
	same "the other classes" "$(classes_but)" "$others"
	controller_ready
}

seconds_from() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", to - from}'; }

# restart_api_server [FLAG...]: as if it crashed; with flags besides those that it was first started with.
restart_api_server() {
	local words
	[[ -e $state/api-server-words ]] || cp "/proc/$(<"$state/pids/kube-apiserver")/cmdline" "$state/api-server-words"
	mapfile -d '' -t words <"$state/api-server-words"
	stop kube-apiserver KILL
	start kube-apiserver "${words[@]}" "$@"
	eventually 60 kubectl get --raw /readyz
}

# watched_api_server: one that writes down the controller's requests, reaches webhooks at their pods, since there is no kube-proxy,
# and serves the old versions of the API that a case is written in.
watched_api_server() {
	cat >"$state/audit.yaml" <<-END
		apiVersion: audit.k8s.io/v1
		kind: Policy
		omitStages: [RequestReceived]
		rules:
		- {level: Metadata, users: ["system:serviceaccount:gpu-dra:gpu-dra-controller"]}
		- {level: None}
	END
	restart_api_server --audit-policy-file "$state/audit.yaml" --audit-log-path "$state/audit.log" --enable-aggregator-routing=true \
		--runtime-config resource.k8s.io/v1beta1=true
}

is_watched() { tr '\0' '\n' <"/proc/$(<"$state/pids/kube-apiserver")/cmdline" | grep aggregator-routing >/dev/null; }

# The API server crashes and comes back: the controller goes on, and idle it asks for nothing but its watches and the lease.
controller-api-server-restart() {
	controller_ready
	gpu_class before '{model: {contains: [H100]}}'
	eventually 10 condition_is before Applied True Applied
	local restarts since
	restarts=$(controller_restarts)
	watched_api_server
	gpu_class before '{model: {contains: [L4]}}'
	gpu_class after '{profile: 1g.10gb}'
	eventually 40 selects before "contains('L4')"
	eventually 40 condition_is after Applied True Applied
	same "restarts of the controller" "$(controller_restarts)" "$restarts"
	removed gpuclass before
	removed gpuclass after
	eventually 10 no_class after
	controller_ready
	sleep 2
	since=$(date --utc +%FT%TZ)
	sleep 20
	same "what it asks for when idle, but watches and the lease" "$(requests "$since" | grep -v '^watch \|^[a-z]* leases$' || true)" ""
	# The leader renews it every 5 s, and the other looks at it as often.
	local renewals looks
	renewals=$(requests "$since" | grep --count '^update leases$' || true)
	looks=$(requests "$since" | grep --count '^get leases$' || true)
	figure "controller idle for 20 s: $renewals renewals of the lease by the leader, $looks looks at it by the other"
	((renewals >= 3 && renewals <= 5 && looks >= 3 && looks <= 5))
}

controller_restarts() { driver get pods --selector "$controller_selector" --output jsonpath='{range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount}{"\n"}{end}' | sort; }

# requests SINCE: the controller's, one a line: verb and resource.
requests() {
	jq --raw-output --arg since "$1" 'select(.requestReceivedTimestamp >= $since and .stage == "ResponseComplete" or .stage == "ResponseStarted" and .stageTimestamp >= $since)
		| "\(.verb) \(.objectRef.resource)"' "$state/audit.log"
}

# An opaque config that the node agent would refuse is refused when it is created, in the same words; without any replica it is taken.
controller-webhook() {
	is_watched || watched_api_server
	controller_ready
	local bad good sentence
	bad=$(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Loong}}')
	good=$(gpu_config 'sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}')
	eventually 30 denied_claim "$bad"
	sentence=$(denied_claim "$bad" | sed 's/.*spec\.devices\.config\[0\]\.opaque\.parameters: //')
	holds "the sentence" "$sentence" 'use Default, Short, Medium or Long'
	holds "what is said of a template" "$(denied template_of "{requests: [$(request gpu)], $bad}")" "spec.spec.devices.config[0].opaque.parameters: $sentence"
	claim_of good "{requests: [$(request gpu)], $good}"
	template_of good "{requests: [$(request gpu)], $good}"
	holds "what is said of case 51" "$(refused_file "$cases/51-timeslicing-device-plugin-habit.yaml")" 'use shares'
	local words
	words=$(refused_file "$cases/54-mps-bad-values.yaml")
	holds "what is said of case 54" "$words" '150 is not allowed'
	holds "what is said of case 54" "$words" '512Ki is not allowed'
	holds "what is said of case 54" "$words" 'no device 7 among the 1'
	# As published it fails open.
	driver scale deployment gpu-dra-controller --replicas 0 >/dev/null
	eventually 60 no_controller_pod
	claim_of bad "{requests: [$(request gpu)], $bad}"
	pod bad 'exec sleep 1000' bad
	event bad FailedPrepareDynamicResources "$sentence"
	driver scale deployment gpu-dra-controller --replicas 2 >/dev/null
	controller_ready
	eventually 30 denied_claim "$bad"
}

no_controller_pod() { [[ ! $(driver get pods --selector "$controller_selector" --output name) ]]; }

# denied COMMAND DEVICES: what the webhook says of a claim or template, which is refused. denied_claim CONFIG: of a claim.
denied() {
	local words
	if words=$("$1" denied "$2" 2>&1); then
		kubectl delete resourceclaim,resourceclaimtemplate denied --ignore-not-found >/dev/null
		echo "not denied: $2" >&2
		return 1
	fi
	holds "the refusal" "$words" configs.gpu-dra.io
	echo "$words"
}
denied_claim() { denied claim_of "{requests: [$(request gpu)], $1}"; }

# refused_file FILE: what is said of the first document of a manifest that is refused.
refused_file() {
	local words
	if words=$(kubectl create --dry-run=server --filename "$1" 2>&1 >/dev/null); then
		echo "taken: $1" >&2
		return 1
	fi
	echo "$words"
}

cases=$tree/crates/lint/tests/data/cases

# Every case is taken or refused by the API server as its head says, in the words that it gives. The webhook, which knows more, is away.
controller-cases() {
	is_watched || watched_api_server
	command kubectl delete validatingwebhookconfiguration gpu-dra-configs --ignore-not-found >/dev/null
	local file verdict wanted words taken=0 turned_down=0
	for file in "$cases"/*.yaml; do
		verdict=$(sed -n 's/^# api server: //p' "$file")
		# A namespace that a case brings has to be there for what is in it.
		if grep --quiet '^kind: Namespace' "$file"; then
			command kubectl create --filename "$file" --dry-run=client --output json | jq 'select(.kind == "Namespace")' | command kubectl apply --filename - >/dev/null
		fi
		if words=$(command kubectl apply --dry-run=server --validate=strict --filename "$file" 2>&1); then
			[[ $verdict == accepted* ]] || { echo "${file##*/} is taken: $verdict" >&2 && return 1; }
			((++taken))
		else
			[[ $verdict == *rejected:* ]] || { printf '%s is refused: %s\n%s\n' "${file##*/}" "$verdict" "$words" >&2 && return 1; }
			wanted=${verdict##*rejected: }
			wanted=${wanted%% (*}
			holds "what is said of ${file##*/}" "${words//\"/}" "${wanted##*: }"
			((++turned_down))
		fi
		[[ $verdict != *'deprecation warning'* ]] || holds "what is said of ${file##*/}" "$words" deprecated
		! grep --quiet '^kind: Namespace' "$file" || command kubectl delete namespace gpu-monitoring --wait=false >/dev/null
	done
	figure "cases: $taken taken and $turned_down refused by the API server, as they say"
	((taken + turned_down >= 32 && turned_down == 5))
	command kubectl apply --filename "$state/deploy/webhook.yaml" >/dev/null
	restart_api_server # without webhooks again: other scenarios show what the node agent says of bad configs
}

# Asked to, the controller makes a class of each product and MIG profile; asked no more, it takes them away.
controller-fleet-classes() {
	controller_ready
	local others
	others=$(classes_but)
	driver set env deployment/gpu-dra-controller GPU_DRA_FLEET_CLASSES=true >/dev/null
	eventually 60 expression nvidia-h100-80gb-hbm3.gpu.nvidia.com
	expression mig-1g.10gb.gpu.nvidia.com >/dev/null
	claim_of l4 "{requests: [{name: gpu, exactly: {deviceClassName: nvidia-l4.gpu.nvidia.com}}]}"
	claim_of part "{requests: [{name: gpu, exactly: {deviceClassName: mig-1g.10gb.gpu.nvidia.com}}]}"
	sleeper l4 l4
	sleeper part part
	same "the product" "$(attribute "$(allocated l4)" productName)" 'NVIDIA L4'
	holds "the part" "$(allocated part)" 1g10gb
	eventually 60 controller_ready
	driver set env deployment/gpu-dra-controller GPU_DRA_FLEET_CLASSES- >/dev/null
	eventually 60 no_class nvidia-l4.gpu.nvidia.com
	eventually 10 no_class mig-1g.10gb.gpu.nvidia.com
	same "the classes" "$(classes_but)" "$others"
	controller_ready
}

# The controller is taken away, then its CRD: what it made of GpuClasses goes, standard and others' classes stay, claims are taken as before.
controller-uninstall() {
	controller_ready
	foreign_class theirs
	gpu_class mine '{model: {contains: [H100]}}'
	eventually 10 condition_is mine Applied True Applied
	local others
	others=$(classes_but mine)
	command kubectl delete --ignore-not-found --filename "$state/deploy/controller.yaml" --filename "$state/deploy/webhook.yaml" --timeout=60s >/dev/null
	same "the classes without a controller" "$(classes_but mine)" "$others"
	selects mine "contains('H100')"
	command kubectl delete --filename "$state/deploy/gpuclass-crd.yaml" --timeout=60s >/dev/null
	eventually 60 no_class mine
	same "the other classes" "$(classes_but mine)" "$others"
	removed deviceclass theirs
	command kubectl apply --filename "$state/deploy" >/dev/null
	controller_ready
}
