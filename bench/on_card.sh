#!/usr/bin/env bash
# Runs on a machine with a card what `./dev card` collected in .card: parity of the kernels, the sanitizer,
# benchmarks, and the peers beside them. From the root of the checkout:
#
#   bench/on_card.sh [--seconds N] PART…      logs of each part in ${OUT:-/tmp}
#
#   parity       every test that has a card in its name
#   parity_ptx   op cases within 99 KB of shared memory, and models, from compute_80's PTX
#   sanitizer    memcheck, racecheck, initcheck and synccheck over op cases and a training step
#   bench        the steps of the 2.4B shape;  bench8b, small, decode: other shapes
#   ops          the 2.4B step op by op
#   tune         the 2.4B step as the heuristic multiplies, and by a table tuned here
#   offload      the 2.4B step with block inputs kept on the card, and in pinned host memory
#   qlora        steps of 4-bit bases: with memory free, within Unsloth's memory, with the smallest cache
#   qlora8b      the same of the 8B shape
#   qlora_long   long samples of the 8B shape within the memory of small cards
#   qlora_80GB   one step of one sample of 342,733 tokens of the 8B shape within 80 GB: about eight minutes
#   memory       4-bit steps of the 2.4B shape within small limits, and what the card then has in use
#   load         the 2.4B shape quantised while loading, its file on the disk and not in memory, beside reading that file
#   lora         the ops on groups of adapters beside their bytes
#   optimizer    a step under each of AdamW's names beside its bytes
#   quantized    4-bit weights decoded, made and multiplied, beside a copy
#   parity4      the card's 4-bit codes beside bitsandbytes' over 10^8 values a type (SITE: the peers' packages)
#   unsloth_8b   Unsloth on the 8B shape, beside qlora8b: it compiles for longer than the peers' script waits
#   peers        what users would run instead, on the same shapes (PEERS="bf16", "exaone unsloth unsloth_8b" …)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export OUT=${OUT:-/tmp} # the peers' scripts read it
readonly CARD=$PWD/.card OUT WORK=${TMPDIR:-/tmp}/garam-card
SECONDS_LEFT=570
[ "${1:-}" != --seconds ] || { SECONDS_LEFT=$2; shift 2; }
mkdir -p "$OUT"
rm -rf "$WORK"
mkdir -p "$WORK/data"
tar -C "$WORK" -xJf "$CARD/programs.tar.xz" || exit 1
[ ! -f "$CARD/data.tar.xz" ] || tar -C "$WORK/data" -xJf "$CARD/data.tar.xz"
export GARAM_TEST_DATA=$WORK/data GARAM_TEST_SOURCE=$PWD

# cuBLASLt comes with the toolkit or with PyTorch.
find_cublas() {
    local folder
    ldconfig -p | grep -q 'libcublasLt.so.13' && return 0
    folder=$(find /usr/local/cuda*/ /usr/lib /opt /usr/local/lib -name 'libcublasLt.so.13*' -printf '%h\n' 2>/dev/null | head -n 1)
    [ -z "$folder" ] || export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
find_cublas
export PATH=$PATH:/usr/local/cuda/bin LD_LIBRARY_PATH=$WORK/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

SUMMARY=$OUT/summary.txt
: >"$SUMMARY"
note() { printf '%s\n' "$*" | tee -a "$SUMMARY"; }

# limited SECONDS LOG COMMAND…: within what is left of the whole.
limited() {
    local limit=$1 log=$2 left=$((SECONDS_LEFT - SECONDS))
    shift 2
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -ge 5 ] || { note "no time left for: $*"; return 1; }
    timeout -k 5 "$limit" "$@" >>"$log" 2>&1
}

# tests NAME FILTER LIMIT [COMMAND…]: a gtest binary.
tests() {
    local name=$1 filter=$2 limit=$3 log=$OUT/$1.log status=0
    shift 3
    [ -x "$WORK/bin/$name" ] || { note "$name was not built"; return; }
    : >"$log"
    limited "$limit" "$log" "$@" "$WORK/bin/$name" --gtest_filter="$filter" --gtest_brief=0 || status=$?
    note "$(printf '%-14s %s: %s passed, %s failed, %s skipped, status %s' "$name" "${*##*/}" \
        "$(grep -c '^\[       OK' "$log")" "$(grep -c '^\[  FAILED.*ms)' "$log")" \
        "$(grep -c '^\[  SKIPPED.*ms)' "$log")" "$status")"
    grep -q '^\[       OK' "$log" || note "    no case ran: is there a card? see $log"
    grep '^\[  FAILED.*ms)' "$log" | sed 's/^/    /' | head -n 60 | tee -a "$SUMMARY"
    [ $status -eq 0 ] || grep -A12 -m 6 'Failure' "$log" | cut -c1-300 | head -n 90
}

bench() { # LABEL ARGUMENT…
    local label=$1 log=$OUT/$1.log
    shift
    : >"$log"
    limited "${BENCH_LIMIT:-150}" "$log" "$WORK/bin/step_bench" --folder /dev/shm "$@" || note "$label: ended with $?"
    sed "s/^/$label: /" "$log" | tee -a "$SUMMARY"
}

part_parity() {
    local room
    for room in ${PARITY_ROOMS:-runtime ops optim nn models serve train}; do
        tests "${room}_tests" "${PARITY_FILTER:-*uda*}" "${PARITY_LIMIT:-150}"
    done
}
part_parity_ptx() {
    local name
    export CUDA_CACHE_PATH=$WORK/compiled
    for name in ops models; do
        python3 bench/only_ptx.py "$WORK/bin/${name}_tests" "$WORK/bin/${name}_ptx_tests" || continue
        tests "${name}_ptx_tests" '*cuda_99k*' "${PARITY_LIMIT:-150}"
    done
    note "compiled from PTX: $(du -sh "$CUDA_CACHE_PATH" 2>/dev/null | cut -f1)"
    unset CUDA_CACHE_PATH
}
# Every tool at once, the op cases in shards: a tool works on the processor while the card waits.
sanitized() { # TOOL LOG PROGRAM…
    local tool=$1 log=$2 status=0
    shift 2
    : >"$log"
    limited "${SANITIZER_LIMIT:-400}" "$log" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" || status=$?
    printf 'status %d, %s' "$status" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1)" >"$log.end"
}
part_sanitizer() {
    local tool shard step
    # Its files, which the tools' runs then share.
    "$WORK/bin/step_bench" --shape tiny --device cpu --decode 1 --no-roofs >/dev/null
    local tools=(${SANITIZERS:-memcheck racecheck synccheck initcheck}) shards=${SANITIZER_SHARDS:-4}
    for tool in "${tools[@]}"; do
        # Of the library's bf16 products initcheck does not see what the tensor copy engine writes.
        step=()
        [ "$tool" != initcheck ] || step=(--f32)
        sanitized "$tool" "$OUT/$tool-step.log" "$WORK/bin/step_bench" --shape tiny --device cuda --batch 2 \
            --length 100 --steps 2 --warmup 2 --no-roofs "${step[@]}" &
        sanitized "$tool" "$OUT/$tool-qlora.log" "$WORK/bin/step_bench" --shape tiny --device cuda --batch 2 \
            --length 100 --steps 2 --warmup 2 --base nf4 --resident 0 --optim paged_adamw_8bit --no-roofs "${step[@]}" &
        for ((shard = 0; shard < shards; shard++)); do
            GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard sanitized "$tool" "$OUT/$tool-ops-$shard.log" \
                "$WORK/bin/ops_tests" --gtest_filter="${SANITIZER_FILTER:-*/cuda}" &
        done
    done
    wait
    for tool in "${tools[@]}"; do
        note "$tool, training steps: $(<"$OUT/$tool-step.log.end"); on 4 bits: $(<"$OUT/$tool-qlora.log.end")"
        for ((shard = 0; shard < shards; shard++)); do
            note "$tool, op cases, shard $shard: $(grep -c '^\[       OK' "$OUT/$tool-ops-$shard.log") passed," \
                "$(<"$OUT/$tool-ops-$shard.log.end")"
        done
    done
}
readonly EXAONE=(--shape exaone-2.4b)
part_bench() {
    bench 2x8x512-block "${EXAONE[@]}" --batch 2 --accumulation 8 --length 512 --recompute block
    bench 2x8x512-merged "${EXAONE[@]}" --batch 2 --accumulation 8 --length 512 --merge 8
    bench 16x512 "${EXAONE[@]}" --batch 16 --length 512
    bench 4x2048 "${EXAONE[@]}" --batch 4 --length 2048
}
part_ops() { bench ops-16x512 "${EXAONE[@]}" --batch 16 --length 512 --steps 3 --ops; }
part_ops_small() { bench ops-2x512 "${EXAONE[@]}" --batch 2 --length 512 --steps 3 --ops; }
# Limits are what Unsloth's runs used on the device, less 0.55 GiB for the context.
readonly QLORA=(--base nf4 --optim paged_adamw_8bit --no-roofs)
part_qlora() {
    local ragged=("${EXAONE[@]}" "${QLORA[@]}" --batch 2 --accumulation 8 --length 512 --merge 0
        --lengths "$CARD/peers/lengths.txt" --steps 12 --warmup 12)
    local full=("${EXAONE[@]}" "${QLORA[@]}" --batch 16 --length 512)
    bench qlora-2x8x512-free "${ragged[@]}" --recompute auto
    bench qlora-2x8x512-in-2.99 "${ragged[@]}" --recompute auto --limit 2.44
    bench qlora-16x512-free "${full[@]}"
    bench qlora-16x512-smallest-cache "${full[@]}" --resident 0
    bench qlora-16x512-in-19.8 "${full[@]}" --recompute auto --limit 19.25
    bench qlora-16x512-in-3.95 "${full[@]}" --recompute auto --limit 3.40
}
part_qlora8b() {
    local shape=(--shape llama-8b "${QLORA[@]}" --batch 2 --accumulation 4 --length 2048 --merge 0
        --recompute auto --steps 4 --warmup 3)
    bench qlora-8b-free "${shape[@]}"
    bench qlora-8b-in-7.85 "${shape[@]}" --limit 7.30
}
# One sample of the length that Unsloth publishes for a card of so many GB.
part_qlora_long() {
    local long=(--shape llama-8b "${QLORA[@]}" --rank 32 --batch 1 --recompute auto --steps 1 --warmup 1)
    bench long-in-8GB "${long[@]}" --length 2972 --limit 6.90
    bench long-in-12GB "${long[@]}" --length 21848 --limit 10.62
    bench long-in-24GB "${long[@]}" --length 78475 --limit 21.80
}
part_qlora_80GB() {
    BENCH_LIMIT=580 bench long-in-80GB --shape llama-8b "${QLORA[@]}" --rank 32 --batch 1 --recompute auto \
        --length 342733 --limit 73.5 --host-limit 88 --once
}
part_memory() {
    local small=("${EXAONE[@]}" "${QLORA[@]}" --steps 4 --warmup 3)
    bench memory-2x512-norms+activation "${small[@]}" --batch 2 --length 512 --recompute norms+activation --limit 3.9
    bench memory-2x512-in-2.0 "${small[@]}" --batch 2 --length 512 --recompute auto --limit 2.0
    bench memory-8x512-in-6GB "${small[@]}" --batch 8 --length 512 --recompute auto --limit 5.0
}
drop_caches() { (echo 3 >/proc/sys/vm/drop_caches) 2>/dev/null || { note "load: caches cannot be dropped"; return 1; }; }
part_load() {
    local folder=${TMPDIR:-/tmp}/garam-load log=$OUT/load.log begin
    local load=("$WORK/bin/step_bench" "${EXAONE[@]}" "${QLORA[@]}" --folder "$folder" --batch 1 --length 64 --once)
    mkdir -p "$folder"
    : >"$log"
    limited 60 "$log" "${load[@]}" # writes the model
    sync
    for _ in 1 2; do
        drop_caches || break
        begin=$(date +%s.%N)
        cat "$folder"/*/model.safetensors >/dev/null
        note "$(stat -c %s "$folder"/*/model.safetensors) bytes read from the disk in" \
            "$(awk "BEGIN { print $(date +%s.%N) - $begin }") s"
        drop_caches || break
        limited 60 "$log" "${load[@]}"
    done
    limited 60 "$log" "${load[@]}" # from the page cache
    grep -o 'loaded in.*' "$log" | sed 's/^/load: /' | tee -a "$SUMMARY"
    rm -rf "$folder"
}
part_tune() {
    bench 16x512-heuristic "${EXAONE[@]}" --batch 16 --length 512 --tune "$OUT/products.json"
    bench 16x512-tuned "${EXAONE[@]}" --batch 16 --length 512 --products "$OUT/products.json"
}
part_offload() {
    bench 16x512-block "${EXAONE[@]}" --batch 16 --length 512 --recompute block
    bench 16x512-offload "${EXAONE[@]}" --batch 16 --length 512 --recompute offload
}
part_lora() {
    local log=$OUT/lora.log
    : >"$log"
    limited 100 "$log" "$WORK/bin/lora_bench" || note "lora: ended with $?"
    tee -a "$SUMMARY" <"$log"
}

part_optimizer() {
    local log=$OUT/optimizer.log
    : >"$log"
    limited 100 "$log" "$WORK/bin/optimizer_bench" || note "optimizer: ended with $?"
    tee -a "$SUMMARY" <"$log"
}
part_quantized() {
    local log=$OUT/quantized.log
    : >"$log"
    limited 150 "$log" "$WORK/bin/quantized_bench" || note "quantized_bench: ended with $?"
    tee -a "$SUMMARY" <"$log"
}
part_parity4() {
    local log=$OUT/parity4.log site=$WORK/site
    : >"$log"
    [ ! -f "${SITE:-$CARD/peers/site.tar.xz}" ] || { mkdir -p "$site" && tar -C "$site" -xJf "${SITE:-$CARD/peers/site.tar.xz}"; }
    PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} limited 240 "$log" python3 bench/bitsandbytes_parity.py \
        --program "$WORK/bin/quantized_parity" || note "bitsandbytes_parity: ended with $?"
    tee -a "$SUMMARY" <"$log"
}
part_bench8b() { bench 8b-2x4x2048 --shape llama-8b --batch 2 --accumulation 4 --length 2048 --steps 4 --warmup 3; }
part_small() { bench smollm2-1x512 --shape smollm2-135m --batch 1 --length 512 --steps 20; }
part_decode() {
    local log=$OUT/decode_kernels.log
    bench decode "${EXAONE[@]}" --decode 128 --ops
    bench decode-nf4 "${EXAONE[@]}" --decode 128 --base nf4 --ops
    : >"$log"
    limited 60 "$log" "$WORK/bin/decode_bench" || note "decode_bench: ended with $?"
    tee -a "$SUMMARY" <"$log"
}
part_unsloth_8b() {
    (cd "$CARD/peers" && sed 's/unsloth_8b) one $p 120/unsloth_8b) one $p 300/' run.sh >run_longer.sh &&
        BUDGET=$((SECONDS_LEFT - SECONDS)) bash run_longer.sh unsloth_8b) | tee -a "$SUMMARY"
}
part_peers() {
    (cd "$CARD/peers" && BUDGET=$((SECONDS_LEFT - SECONDS)) bash run.sh ceilings ${PEERS:-bf16}) | tee -a "$SUMMARY"
}

note "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader)"
for part in "$@"; do
    declare -F "part_$part" >/dev/null || { note "there is no part $part"; continue; }
    begin=$SECONDS
    "part_$part"
    note "== $part took $((SECONDS - begin)) s"
done
echo
cat "$SUMMARY"
