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

