#!/usr/bin/env bash
# Tokens per second and memory of training steps on this machine's processor: full micro-batches of
# 4 x 256 tokens, LoRA r=16 on all linears, AdamW, every token a target.
#   bench/train_step.sh GARAM MODEL [key=value …]
# MODEL: a SmolLM2-135M (folder or GGUF). Prints the median, minimum and maximum of five steps after two.
set -euo pipefail
garam=$1 model=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
text=$(tr -c '[:alnum:].,:;()' ' ' <"$(dirname "$0")/../docs/architecture.md")
# Rows far longer than 256 tokens, each beginning elsewhere in the text; truncation makes them equal.
for row in $(seq 28); do
    printf '{"text": "%s"}\n' "${text:$((row * 97)):3000}"
done >"$work/rows.jsonl"
command time -f 'peak resident memory %M KiB' "$garam" train \
    "model=$model" "data.train=$work/rows.jsonl" data.validation= \
    lora.target_modules=all-linear lora.r=16 lora.lora_alpha=32 \
    train.max_length=256 train.per_device_train_batch_size=4 train.max_steps=7 train.logging_steps=1 \
    train.learning_rate=1e-4 train.save_steps=0 train.report_to=none train.warmup_steps=0 \
    "train.output_dir=$work/run" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
grep -E 'peak resident|memory:|time:' "$work/log"
sed -n 's/.*"tokens_per_second": \([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | tail -n 5 | sort -n |
    awk '{v[NR] = $1} END {printf "tokens/s: median %.1f (min %.1f, max %.1f)\n", v[3], v[1], v[5]}'
