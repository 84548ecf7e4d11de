#!/usr/bin/env bash
# Training and decoding on this machine's processor beside Transformers and PEFT, in turns, SmolLM2-135M's shape.
#   bench/on_processor.sh BUILD PEERS PYTHON [--per_core]
# BUILD: a build folder with step_bench. PEERS: the folder of cpu_peft.py; the shape's config.json is read from
# GARAM_TEST_DATA/configs. PYTHON: an interpreter with torch, transformers and peft. --per_core: one thread and processor
# time on both sides, which other work on the machine distorts less; else all threads and wall time.
set -euo pipefail
build=$1 peers=$2 python=$3 per_core=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
config=$GARAM_TEST_DATA/configs/SmolLM2-135M.config.json
threads=$(nproc)
clock='pass'
if [[ $per_core == --per_core ]]; then
    threads=1
    clock='time.perf_counter = time.process_time'
fi
peer() {
    OMP_NUM_THREADS=$threads "$python" -W ignore -c "
import runpy, sys, time
$clock
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')" "$@"
}
garam() {
    "$build/bin/step_bench" --device cpu --shape smollm2-135m ${per_core:+"$per_core"} "$@"
}
uptime
for dtype in bf16 fp32; do
    garam --batch 4 --length 256 --dropout 0 --warmup 2 --steps 5 --ops
    peer "$peers/cpu_peft.py" "$dtype" "$threads"
    garam --decode 128
    peer "$here/generate_peer.py" "$config" "$dtype" "$threads"
done
uptime
