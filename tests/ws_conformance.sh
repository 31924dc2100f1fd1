#!/usr/bin/env bash
# WebSocket conformance: kosoku's core cases and its large-message cases against our echo server.
#
#   tests/ws_conformance.sh PATH_TO_WS_ECHO [KOSOKU_COMMAND]
#
# Prints the cases that failed, then `N passed, N failed` alone on the last line. Exit status 0: all passed; 1: some
# failed; 2: it could not be run.
set -euo pipefail

echo_server=${1:?usage: ws_conformance.sh PATH_TO_WS_ECHO [KOSOKU_COMMAND]}
kosoku=${2:-kosoku}
# So many cases there are in kosoku 0.1.0: a run of fewer is not a pass.
expected_core=247
expected_large=54

work=$(mktemp -d)
mkfifo "$work/out"
"$echo_server" >"$work/out" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
exec 3<"$work/out"
if ! read -r -t 10 url <&3; then
  echo "ws_conformance: $echo_server printed no address" >&2
  exit 2
fi
address=${url#ws://}
address=${address%/}

passed=0
failed=0
# run NAME EXPECTED ARGS...: one run of the suite, counted from its report.
run() {
  local name=$1 expected=$2
  shift 2
  local report="$work/$name" status=0
  "$kosoku" "$@" -o "$report" "$address" >"$work/$name.log" 2>&1 || status=$?
  local counts
  if ! counts=$(python3 - "$report" <<'PY'
import glob, json, sys

good = bad = 0
for path in sorted(glob.glob(sys.argv[1] + "/*_case_*.json")):
    with open(path) as file:
        case = json.load(file)
    if case["behavior"] in ("OK", "NON-STRICT", "INFORMATIONAL") and case["behaviorClose"] in ("OK", "INFORMATIONAL"):
        good += 1
    else:
        bad += 1
        print("failed:", case["id"], case["behavior"], case["behaviorClose"], case["description"], file=sys.stderr)
print(good, bad)
PY
  ); then
    echo "ws_conformance: no report of the $name cases" >&2
    cat "$work/$name.log" >&2
    exit 2
  fi
  local good=${counts% *} bad=${counts#* }
  # Cases that did not run, and a failure that the report does not show, are failures too.
  if ((good + bad < expected)); then
    echo "ws_conformance: only $((good + bad)) of $expected $name cases ran" >&2
    cat "$work/$name.log" >&2
    bad=$((expected - good))
  elif ((status != 0 && bad == 0)); then
    echo "ws_conformance: kosoku says that $name cases failed" >&2
    cat "$work/$name.log" >&2
    bad=1
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
}

run core "$expected_core" -p 4 -x '9.*' -x '12.*' -x '13.*'
run large "$expected_large" -i '9.*'
echo "$passed passed, $failed failed"
((failed == 0))
