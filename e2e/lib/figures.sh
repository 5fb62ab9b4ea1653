# Measurements, which the run prints after the scenarios.

# figure TEXT: a line for the reader of the run.
figure() { echo "$*" >>"$state/figures"; }

# prepare_durations: the kubelet's own histogram of NodePrepareResources: upper bound in seconds and calls below it, by line.
prepare_durations() {
	command kubectl get --raw "/api/v1/nodes/$node/proxy/metrics" |
		sed -n '/^dra_grpc_operations_duration_seconds_bucket{.*NodePrepareResources/s/.*le="\([^"]*\)".*} \(.*\)$/\1 \2/p' |
		awk '{calls[$1] += $2} END {for (bound in calls) print bound, calls[bound]}' | sort --general-numeric-sort
}

# quantile Q BEFORE AFTER: of the calls between two outputs of prepare_durations, in milliseconds; linear within a bucket.
quantile() {
	awk -v q="$1" '
		NR == FNR {before[$1] = $2; next}
		{bound[++n] = $1; calls[n] = $2 - before[$1]}
		END {
			rank = q * calls[n]
			for (i = 1; calls[i] < rank; i++) {}
			from = i > 1 ? bound[i - 1] : 0; below = i > 1 ? calls[i - 1] : 0
			if (bound[i] == "+Inf") {printf "more than %d ms", from * 1000; exit}
			printf "%.1f ms", 1000 * (from + (bound[i] - from) * (rank - below) / (calls[i] - below))
		}' <(echo "$2") <(echo "$3")
}

# started PROCESS: when it was started, as seconds since 1970; the kernel counts in hundredths of a second since boot.
started() {
	local ticks uptime now=$EPOCHREALTIME
	ticks=$(sed 's/.*) //' "/proc/$1/stat" | cut --delimiter ' ' --fields 20)
	read -r uptime _ </proc/uptime
	awk -v now="$now" -v uptime="$uptime" -v ticks="$ticks" 'BEGIN {printf "%.2f", now - uptime + ticks / 100}'
}
