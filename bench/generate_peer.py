"""Transformers' generate beside `step_bench --device cpu --decode`: random weights of a config's shape, greedy, one
sequence, a prompt of 64 tokens. Prints the median, least and most milliseconds a token after the first eight.
Usage: generate_peer.py CONFIG {fp32|bf16} [THREADS [TOKENS]]"""
import json
import statistics
import sys
import time

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class Clock(StoppingCriteria):
    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def main(config_file, dtype_name, threads, tokens):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with open(config_file) as file:
        fields = {k: v for k, v in json.load(file).items() if not k.startswith("_") and k not in ("torch_dtype", "dtype")}
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype_name]
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    prompt = torch.arange(5, 69).unsqueeze(0)
    clock = Clock()
    with torch.no_grad():
        model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=tokens,
                       pad_token_id=0, stopping_criteria=StoppingCriteriaList([clock]))
    gaps = [1e3 * (b - a) for a, b in zip(clock.times[8:], clock.times[9:])]
    print(f"generate {dtype_name}, {threads} threads: {statistics.median(gaps):.2f} ms a token ({min(gaps):.2f}-{max(gaps):.2f}), "
          f"torch {torch.__version__}, transformers {transformers.__version__}")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2, int(sys.argv[4]) if len(sys.argv) > 4 else 128)
