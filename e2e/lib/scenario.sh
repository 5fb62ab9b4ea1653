# Runs one scenario, in a shell that ends at the first command that fails and says which that was:
#
#   bash lib/scenario.sh NAME
set -Eeuo pipefail
shopt -s inherit_errexit
trap 'echo "failed at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND" >&2' ERR
namespace=$1
. "$e2e/lib/box.sh"
. "$e2e/lib/image.sh"
. "$e2e/lib/control-plane.sh"
. "$e2e/lib/node.sh"
. "$e2e/lib/driver.sh"
. "$e2e/lib/figures.sh"
. "$e2e/lib/check.sh"
for file in "$e2e"/scenarios/*.sh; do
	. "$file"
done

kubectl create namespace "$namespace" >/dev/null
eventually 30 kubectl get serviceaccount default
if [[ $1 == install-driver ]]; then
	: >"$state/prepared-before"
else # whatever the scenario before did
	healthy
	driver_ready
	prepared >"$state/prepared-before"
fi
"$1"
# What the scenario made goes away when asked to; nothing is forced, so a device that stays prepared fails it.
kubectl delete pods,resourceclaims,resourceclaimtemplates --all --timeout=120s >/dev/null
eventually 20 nothing_prepared
