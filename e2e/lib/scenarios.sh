# Runs scenarios one after the other, and says what came of each.

# scenario_names [WORD...]: those whose names contain one of the words, in the order of the files.
scenario_names() {
	local name word
	sed -n 's/^\([a-z0-9]*-[a-z0-9-]*\)() {$/\1/p' "$e2e"/scenarios/*.sh | while read -r name; do
		(($#)) || echo "$name"
		for word; do
			[[ $name != *"$word"* ]] || { echo "$name" && break; }
		done
	done
}

# run_scenario NAME: in a namespace of its own; its words go to $logs/NAME.log, and here if it fails. Counts in $passed and
# $failed; one that isn't for this version of Kubernetes (NONE) counts in neither.
run_scenario() {
	local name=$1 started=$EPOCHREALTIME verdict=PASS log=$logs/$1.log
	mark_logs
	timeout --foreground "${E2E_SCENARIO_SECONDS:-300}" bash "$e2e/lib/scenario.sh" "$name" >"$log" 2>&1 ||
		case $? in 77) verdict=NONE ;; *) verdict=FAIL ;; esac
	printf '%s %s (%.1f s)\n' "$verdict" "$name" "$(seconds_since "$started")"
	[[ $verdict != FAIL ]] || { report "$name" 2>&1 | tee "$logs/$name.report" | sed 's/^/    /' || true; }
	command kubectl delete namespace "$name" --wait="$([[ $verdict == FAIL ]] && echo true || echo false)" --timeout=60s >/dev/null || true
	case $verdict in PASS) ((++passed)) ;; FAIL) ((++failed)) ;; esac
}

seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN {print to - from}'; }

# mark_logs: report shows what comes after this point.
mark_logs() {
	local log
	declare -gA marks=()
	mark=$(date --utc +%FT%TZ)
	for log in "$logs"/*.log; do
		marks[$log]=$(stat --format %s "$log")
	done
}

since_mark() { [[ ! -e $1 ]] || tail --bytes "+$((${marks[$1]:-0} + 1))" "$1"; }

# report NAME: what explains a failure of the scenario.
report() {
	local namespace=$1
	cat "$logs/$1.log"
	echo "--- objects"
	kubectl get pods,resourceclaims --output wide
	kubectl get resourceslices
	driver get pods --output wide
	echo "--- events"
	kubectl get events --sort-by=.lastTimestamp
	echo "--- driver"
	driver_log "$mark" | last_words 60
	echo "--- kubelet"
	since_mark "$logs/kubelet.log" | grep --extended-regexp '^E[0-9]|DRA|CDI|Claim|PrepareResources|plugins_registry' | last_words 40
	echo "--- containerd"
	since_mark "$logs/containerd.log" | grep --extended-regexp 'level=(error|fatal)|cdi' | last_words 20
}

last_words() { tail --lines "$1" | cut --characters -500; }
