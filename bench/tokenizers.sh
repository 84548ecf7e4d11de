#!/usr/bin/env bash
# Tokenizers beside the `tokenizers` package in turns, on the texts of the reference data.
#   bench/tokenizers.sh BUILD PYTHON [--per_core]
# BUILD: a build folder with tokenizer_bench. PYTHON: an interpreter with tokenizers. GARAM_TEST_DATA: the reference
# data. --per_core: one thread and processor time on both sides, which other work on the machine distorts less; else all
# threads and wall time.
set -euo pipefail
build=$1 python=$2 per_core=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/tokenizer_peer.py" prepare "$GARAM_TEST_DATA" "$folder"
for _ in 1 2; do
    uptime
    "$build/bin/tokenizer_bench" "$folder" --passes 7 ${per_core:+"$per_core"}
    "$build/bin/tokenizer_bench" "$folder" --passes 7 --spans ${per_core:+"$per_core"}
    "$python" "$here/tokenizer_peer.py" measure "$folder" 5 ${per_core:+"$per_core"}
done
uptime
