#!/usr/bin/env bash
# The whole main job, typed as a user types it: train, export, serve, ask over HTTP, stop. `make demo` runs this.
# Everything it makes stays in build/demo.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/build/demo
rm -rf "$work" && mkdir -p "$work" && cd "$work"

say() { # shows a command as it is typed, then runs it
    printf '\n$ %s\n' "$*"
    "$@"
}

began=$SECONDS
say ox train digits
say ox export model.onnx

# The same file, run in this process on the same held-back digits: the server must get exactly as many right.
ox eval model.onnx --json >in_process.json

port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '\n$ ox serve model.onnx --port %s &\n' "$port"
ox serve model.onnx --port "$port" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT

say python "$root/scripts/demo_client.py" "http://127.0.0.1:$port" --model model --in-process in_process.json --server "$server"

printf '\n$ kill -TERM %s\n' "$server"
kill -TERM "$server"
(sleep 20 && kill -KILL "$server") 2>/dev/null & # a server that does not drain must not hang the demo
watchdog=$!
status=0
wait "$server" || status=$?
kill "$watchdog" 2>/dev/null || true
trap - EXIT
if [ "$status" -ne 0 ]; then
    echo "demo: the server ended with exit code $status instead of draining" >&2
    exit 1
fi
printf '\nThe server drained and stopped. Train, export, serve and answers took %s s; all files are in build/demo.\n' "$((SECONDS - began))"
