#!/usr/bin/env bash
# Checks the service that docker-compose.yml starts, step by step. It fails at the first difference. See --help.
set -euo pipefail

cd "$(dirname "$0")/.."

usage() {
	cat <<'END'
testdata/verify.sh checks a running docker-compose.yml, step by step, and fails at the first difference.
It can run several times: it undoes its edits and starts what it stopped, also if it fails.

Variables; the defaults fit an unchanged `docker-compose up -d`:
  PROXY          Envoy, as clients see it           default: http://127.0.0.1:10000
  ADMIN          Envoy's admin interface            default: http://127.0.0.1:9901
  METRICS        extauthz's debug port              default: http://127.0.0.1:6070
  RULES          its rule file                      default: deploy/compose/rules/shop.yaml
  STOP_REDIS     command that stops Redis           default: none; steps that stop Redis are skipped
  START_REDIS    command that starts Redis again
  STOP_SERVICE   command that stops extauthz        default: none; steps that stop extauthz are skipped
  START_SERVICE  command that starts extauthz again

Example:
  STOP_REDIS="docker-compose stop redis" START_REDIS="docker-compose start redis" testdata/verify.sh
END
}

case ${1-} in
'') ;;
-h | --help)
	usage
	exit
	;;
*)
	printf 'verify.sh: takes no arguments, not %s: see --help\n' "$*" >&2
	exit 2
	;;
esac

proxy=${PROXY:-http://127.0.0.1:10000}
admin=${ADMIN:-http://127.0.0.1:9901}
metrics=${METRICS:-http://127.0.0.1:6070}
rules=${RULES:-deploy/compose/rules/shop.yaml}
stop_redis=${STOP_REDIS-} start_redis=${START_REDIS-}
stop_service=${STOP_SERVICE-} start_service=${START_SERVICE-}
patience=120 # the longest wait, in seconds; only a failing step waits that long

work=$(mktemp -d)
edited='' restart='' # to undo at the end

put_back() {
	if [ -n "$edited" ]; then
		write_rules <"$work/rules"
		edited=''
	fi
	if [ -n "$restart" ]; then
		sh -c "$restart" >/dev/null 2>&1 || printf 'this command failed; run it by hand: %s\n' "$restart" >&2
		restart=''
	fi
}
trap 'put_back; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# --- requests, and checks of their answers

# ask [ARGUMENT OF curl...]: one request to the proxy. The functions below check its answer.
ask() {
	printf '%s\n' "GET $proxy/hello $*" >"$work/asked"
	: >"$work/head"
	: >"$work/body"
	curl --silent --show-error --max-time 60 --output "$work/body" --dump-header "$work/head" --write-out '%{http_code}' \
		"$@" "$proxy/hello" >"$work/status" 2>>"$work/asked" || true
}

header() { tr -d '\r' <"$work/head" | sed -n "s/^$1: *//p"; }

# wrong WHAT WANTED GOT: prints the difference and ends the script.
wrong() {
	printf 'FAIL %s\n     %s: want %s, got %s\n' "$current" "$1" "$2" "${3:-nothing}" >&2
	exit 1
}

# wrong_answer WHAT WANTED GOT: the same, and prints the request and the answer.
wrong_answer() {
	printf 'FAIL %s\n     %s: want %s, got %s\n' "$current" "$1" "$2" "${3:-nothing}" >&2
	cat "$work/asked" "$work/head" "$work/body" | sed 's/^/     | /' >&2
	exit 1
}

want_status() { [ "$(<"$work/status")" = "$1" ] || wrong_answer 'the status' "$1" "$(<"$work/status")"; }

want_header() { [[ $(header "$1") =~ ^$2$ ]] || wrong_answer "the header $1" "$2" "$(header "$1")"; }

want_body() { grep -q -- "$1" "$work/body" || wrong_answer 'the body' "$1 in it" 'a body without it'; }

want_not_in_body() { ! grep -q -- "$1" "$work/body" || wrong_answer 'the body' "no $1 in it" 'a body with it'; }

want_problem() {
	want_status "$1"
	want_header content-type 'application/problem\+json'
	want_body "\"status\":$1"
}

# burst N KEY: the statuses of N requests without pauses on one connection.
burst() {
	curl --silent --max-time 60 --output /dev/null --write-out '%{http_code} ' --header "x-api-key: $2" "$proxy/hello?[1-$1]" || true
}

# count STATUS STATUSES
count() { tr ' ' '\n' <<<"$2" | awk -v status="$1" '$1 == status { n++ } END { print n + 0 }'; }

metric() { { curl --silent --max-time 60 "$metrics/metrics" || true; } | awk -v name="$1" '$1 == name { print $2 }'; }

want_metric() {
	local got
	got=$(metric "$1")
	[ "$got" = "$2" ] || wrong "the metric $1" "$2" "$got"
}

# eventually CHECK...: repeats a check until it succeeds. If that takes too long, it fails with the check's last output.
eventually() {
	local words deadline=$((SECONDS + patience))
	until words=$("$@" 2>&1); do
		if [ "$SECONDS" -ge "$deadline" ]; then
			printf '%s\n     (no success within %d s)\n' "$words" "$patience" >&2
			exit 1
		fi
		sleep 0.1
	done
}

# write_rules replaces the rule file by stdin in one step, as editors do. The service ignores names that begin with two dots.
write_rules() {
	local next
	next=$(dirname "$rules")/..verify
	cp -p "$rules" "$next" # for its mode
	cat >"$next"
	mv "$next" "$rules"
}

# edit_rules BEFORE AFTER
edit_rules() {
	cp -p "$rules" "$work/rules"
	sed "s/$1/$2/" "$work/rules" >"$work/next"
	! cmp -s "$work/rules" "$work/next" || wrong "$rules" "'$1' in it, to be changed" 'no such text'
	edited=yes
	write_rules <"$work/next"
}

# --- the steps

there() {
	ask
	[ "$(<"$work/status")" != 000 ] || wrong_answer 'the status' 'any' 'no answer'
}

no_key() {
	eventually there
	unanswered_before=$(unanswered) || wrong "$admin/stats" 'an answer' ''
	want_problem 401
	want_header www-authenticate 'ApiKey realm="shop"'
}

unknown_key() {
	ask --header 'x-api-key: guessed'
	want_problem 403
}

# alice's whole limit is available: at once, or ten seconds after its last use, for instance by an earlier run.
rested() {
	printf '%s' "$SECONDS" >"$work/rested"
	ask --header 'x-api-key: demo-alice' --header 'x-auth-owner: bob'
	want_status 200
	[[ $(header ratelimit) == *'r=4;'* ]] || sleep 10
	want_header ratelimit '"per-owner";r=4;t=2'
}

alice() {
	eventually rested
	want_header ratelimit-policy '"per-owner";q=5;w=10'
	want_body '"x-auth-owner": "alice"'
	want_body '"x-auth-plan": "free"'
	want_not_in_body demo-alice
	want_not_in_body x-api-key
}

# Four more requests are allowed, and one more for every two seconds since.
over() {
	local codes passed
	codes=$(burst 8 demo-alice)
	passed=$(count 200 "$codes")
	if [ "$passed" -lt 4 ] || [ "$passed" -gt $((4 + (SECONDS - $(<"$work/rested")) / 2)) ] || [ "$(count 429 "$codes")" != $((8 - passed)) ]; then
		wrong 'the statuses of 8 more' '200 200 200 200 429 429 429 429' "$codes"
	fi
	ask --header 'x-api-key: demo-alice'
	[ "$(<"$work/status")" != 200 ] || ask --header 'x-api-key: demo-alice' # a unit had just become available
	want_problem 429
	want_header retry-after '[12]'
	want_header ratelimit '"per-owner";r=0;t=[12]'
	want_header ratelimit-policy '"per-owner";q=5;w=10'
	want_body '"violated-policies":\["per-owner"\]'
	retry_after=$(header retry-after)
}

other_key() {
	ask --header 'x-api-key: demo-bob'
	want_status 200
	want_header ratelimit-policy '"per-owner";q=100;w=60'
	want_body '"x-auth-owner": "bob"'
}

# Waits as long as Retry-After says.
later() {
	sleep "$retry_after"
	ask --header 'x-api-key: demo-alice'
	want_status 200
}

shadowed='extauthz_ratelimit_decisions_total{decision="shadow_denied",domain="shop",limit="per-address",rule="masked_remote_address"}'

shadow() {
	local before after codes
	before=$(metric "$shadowed")
	codes=$(burst 6 demo-bob)
	[ "$(count 200 "$codes")" = 6 ] || wrong 'the statuses of 6 requests, more than the limit in shadow mode' 'six 200' "$codes"
	after=$(metric "$shadowed")
	[ "${after:-0}" -gt "${before:-0}" ] || wrong "the metric $shadowed" "more than ${before:-0}" "$after"
}

carol_has() {
	ask --header 'x-api-key: demo-carol'
	want_header ratelimit-policy "\"per-owner\";q=$1;w=60"
}

reload() {
	local codes
	carol_has 20
	edit_rules 'requests_per_unit: 20$' 'requests_per_unit: 2'
	eventually carol_has 2
	codes=$(burst 3 demo-carol)
	[ "$(count 429 "$codes")" -ge 1 ] || wrong 'the statuses of 3 requests with a limit of 2 a minute' 'a 429 among them' "$codes"
	put_back
	eventually carol_has 20
}

mistake() {
	edit_rules 'requests_per_unit: 20$' 'requests_per_unti: 50'
	eventually want_metric extauthz_config_last_reload_successful 0
	carol_has 20
	put_back
	eventually want_metric extauthz_config_last_reload_successful 1
}

# The number of Envoy's calls without an answer. The counter exists only after the first of them.
unanswered() {
	curl --silent --fail --max-time 60 "$admin/stats?filter=^cluster.application.ext_authz.error$" | awk '{ n = $2 } END { print n + 0 }'
}

answered() {
	local now
	now=$(unanswered) || wrong "$admin/stats" 'an answer' ''
	[ "$now" = "$unanswered_before" ] || wrong "Envoy's cluster.application.ext_authz.error" "$unanswered_before, as before" "$now"
}

run() { sh -c "$1" >"$work/run" 2>&1 || wrong "$1" 'exit status 0' "$(cat "$work/run")"; }

# The next request makes the service notice it.
noticed() {
	other_key
	want_metric extauthz_store_up 0
}

redis_stops() {
	eventually want_metric extauthz_store_up 1
	restart=$start_redis
	run "$stop_redis"
	other_key
	eventually noticed
	local codes
	codes=$(burst 10 demo-alice)
	[ "$(count 429 "$codes")" -ge 1 ] || wrong 'the statuses of 10 requests with a limit of 5 in 10 seconds' 'a 429 among them' "$codes"
	restart=''
	run "$start_redis"
	eventually want_metric extauthz_store_up 1
	answered
}

service_stops() {
	restart=$start_service
	run "$stop_service"
	ask --header 'x-api-key: demo-bob'
	want_status 503
	restart=''
	run "$start_service"
	eventually other_key
}

# step NAME FUNCTION [COMMAND]: runs a step and prints one line about it. It skips a step whose command is empty.
step() {
	current=$1
	if [ $# -gt 2 ] && [ -z "$3" ]; then
		printf -- '-    %s (skipped: see --help)\n' "$current"
		return
	fi
	"$2"
	printf 'ok   %s\n' "$current"
}

step 'no key: 401, and the challenge names the credential' no_key
step 'an unknown key: 403' unknown_key
step 'alice: 200 and the remaining requests; the upstream receives her name, not her key' alice
step 'alice over her limit: 429 and Retry-After' over
step 'bob at the same time: 200, because his key has its own limit' other_key
step 'alice after Retry-After: 200' later
step 'a rule in shadow mode: counted, not enforced' shadow
step 'an edited rule becomes active, and so does the original' reload
step 'a rule with a mistake: the previous rules stay active, and a metric reports it' mistake
step 'all calls of Envoy were answered' answered
step 'Redis stops: limits are decided in memory until Redis is back' redis_stops "$stop_redis"
step 'extauthz stops: 503 until it is back' service_stops "$stop_service"
