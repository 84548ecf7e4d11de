#!/usr/bin/env python3
"""What 4-bit bases and 8-bit optimisers cost in quality: real messages, a real small model, on a processor.

    bench/quality.py --garam PROGRAM --model SMOLLM2 --data SPAM --work FOLDER [--parts optimizer,base,agent]

PROGRAM: a built garam. SMOLLM2: SmolLM2-135M-Instruct, a GGUF file or a 16-bit folder. SPAM: the folder of
SMSSpamCollection and korean_smishing.csv. The interpreter needs transformers; part `base` torch, peft and bitsandbytes,
too. Runs that FOLDER holds results of are not run again, so a stopped measurement goes on where it was.

optimizer  LoRA on the NF4 base by fp32 and by 8-bit AdamW, the same seeds, rows, masks: evaluation loss at the end
base       evaluation loss of the base in 16 bits and in 4, untrained and after the same training from the same adapter
           on the same batches, by garam and by bitsandbytes + PEFT
agent      examples/spam-agent on the NF4 base: accuracy and F1 before and after training

The rows of the first two are messages of the SMS Spam Collection, `label: text` and the end-of-text token, every token a
target; a tenth is held out and all of that evaluated.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "spam-agent")
ROWS, HELD_OUT, RANK, ALPHA, RATE, WARMUP = 16, 0.1, 16, 32, 1e-3, 0.05
METHODS = {"adamw_torch": "fp32 AdamW", "adamw_8bit": "8-bit AdamW"}


class Bench:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.work, exist_ok=True)
        self.results = {}
        if os.path.exists(self.path("results.jsonl")):
            with open(self.path("results.jsonl"), encoding="utf-8") as file:
                self.results = {row["name"]: row for row in map(json.loads, file)}

    def path(self, name):
        return os.path.join(self.args.work, name)

    def measure(self, name, work):
        """The figures of `work()`, or those that an earlier run left."""
        if name not in self.results:
            began = time.monotonic()
            row = {"name": name, **work(), "seconds": round(time.monotonic() - began, 1)}
            with open(self.path("results.jsonl"), "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self.results[name] = row
            print(json.dumps(row), flush=True)
        return self.results[name]

    def garam(self, *words):
        run = subprocess.run([self.args.garam, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if run.returncode != 0:
            sys.exit(f"garam {' '.join(map(str, words))}\n{run.stderr}")
        return run.stdout

    def prepare(self):
        """The base in 16 bits and in 4, and the rows as token ids."""
        if not os.path.exists(self.path("bf16")):
            first = self.path("one-step")
            # No command decodes a GGUF file by itself: an adapter merged with weight 0 leaves its values.
            self.garam("train", f"model={self.args.model}", f"data.train={self.args.data}/korean_smishing.csv", "device=cpu",
                       "data.label_column=", "data.max_rows=1", "lora.r=1", "train.max_steps=1", f"train.output_dir={first}",
                       "train.overwrite_output_dir=true")
            self.garam("merge", self.args.model, f"{first}/adapter", self.path("bf16"), "--weights", "0", "--dtype", "bf16")
        for name, words in (("nf4", []), ("nf4-double", ["--double"])):
            if not os.path.exists(self.path(name)):
                self.garam("quantize", self.path("bf16"), self.path(name), *words)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.path("bf16"))
        with open(os.path.join(self.args.data, "SMSSpamCollection"), encoding="utf-8") as file:
            messages = [line.rstrip("\n").split("\t", 1) for line in file]
        random.Random(0).shuffle(messages)
        held_out = int(len(messages) * HELD_OUT)
        self.rows = {}
        for name, part in (("validation", messages[:held_out]), ("train", messages[held_out:])):
            texts = [f"{label}: {text}" for label, text in part]
            ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
            self.rows[name] = [row + [tokenizer.eos_token_id] for row in ids]
            with open(self.path(f"{name}.jsonl"), "w", encoding="utf-8") as file:
                for row in self.rows[name]:
                    file.write(json.dumps({"input_ids": row, "labels": row}) + "\n")

    def train(self, name, model, *keys):
        """Evaluation losses before and after a training by garam."""
        out = self.path(name)
        self.garam("train", f"model={self.path(model)}", f"data.train={self.path('train.jsonl')}", "device=cpu",
                   f"data.validation={self.path('validation.jsonl')}", f"data.cache_dir={self.path('cache')}",
                   f"train.output_dir={out}", "train.overwrite_output_dir=true", "train.max_length=512",
                   f"train.per_device_train_batch_size={ROWS}", f"train.max_steps={self.args.steps}",
                   f"train.learning_rate={RATE}", "train.lr_scheduler_type=cosine", f"train.warmup_ratio={WARMUP}",
                   "train.eval_steps=0", "train.save_steps=0", "train.eval_on_start=true", *keys)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            losses = [row["eval_loss"] for row in map(json.loads, file) if "eval_loss" in row]
        return {"before": losses[0], "after": losses[-1]}

    def optimizer(self):
        print(f"\n{self.args.steps} steps of {ROWS} rows on the NF4 base: evaluation loss")
        gaps = []
        for seed in self.args.seeds:
            loss = {}
            for method in METHODS:
                loss[method] = self.measure(f"{method}-seed{seed}", lambda: self.train(
                    f"{method}-seed{seed}", "nf4", f"train.optim={method}", f"train.seed={seed}", f"lora.r={RANK}",
                    f"lora.lora_alpha={ALPHA}", "lora.lora_dropout=0.05", "lora.target_modules=all-linear"))
            first, second = (loss[method] for method in METHODS)
            gaps.append(second["after"] / first["after"] - 1)
            print(f"seed {seed}: {first['before']:.4f} before, {first['after']:.4f} by fp32 AdamW, "
                  f"{second['after']:.4f} by 8-bit AdamW: {100 * gaps[-1]:+.2f} %")
        ends = [self.results[f"adamw_torch-seed{seed}"]["after"] for seed in self.args.seeds]
        print(f"largest difference {100 * max(map(abs, gaps)):.2f} %; fp32 AdamW over the seeds: mean "
              f"{statistics.mean(ends):.4f}, from {min(ends):.4f} to {max(ends):.4f}")

    def base(self):
        peer = Peer(self)
        peer.write_first_adapter()
        print(f"\n{self.args.steps} steps of {ROWS} rows, fp32 AdamW, from one adapter on the same batches: evaluation loss")
        losses = {}
        for model in ("bf16", "nf4"):
            losses["garam", model] = self.measure(f"base-garam-{model}", lambda: self.train(
                f"base-garam-{model}", model, f"adapter={self.path('first-adapter')}", "data.shuffle=false"))
            losses["peer", model] = self.measure(f"base-peer-{model}", lambda: peer.train(model))
        for who, title in (("garam", "garam"), ("peer", "bitsandbytes + PEFT")):
            for when in ("before", "after"):
                full, four = (losses[who, model][when] for model in ("bf16", "nf4"))
                print(f"{title}, {when} training: 16 bits {full:.4f}, NF4 {four:.4f}, gap {four - full:+.4f} "
                      f"({100 * (four / full - 1):+.2f} %)")
        check = self.measure("base-peer-check", peer.check)
        print(f"values of garam's NF4 folder that differ from bitsandbytes': {check['other_values']} of {check['values']}; "
              f"logits differ from its own linears' by at most {check['logits']:.3g}, the largest is {check['largest']:.3g}")

    def agent(self):
        sets = {"sms": ("SMSSpamCollection", 120, 100), "korean": ("korean_smishing.csv", 80, 60)}
        for name, (file, steps, answered) in sets.items():
            out = self.path(f"agent-{name}")
            settings = [os.path.join(EXAMPLES, "smollm2.yaml"), os.path.join(EXAMPLES, f"{name}.yaml"), "device=cpu",
                        f"model={self.path('nf4')}", f"data.train={self.args.data}/{file}", f"train.output_dir={out}",
                        f"data.cache_dir={self.path('cache')}", f"train.max_steps={steps}", f"eval.generate_rows={answered}",
                        "train.per_device_train_batch_size=4", f"train.eval_steps={steps // 2}", f"train.save_steps={steps // 2}"]

            def judge(*more):
                answers = json.loads(self.garam("eval", *settings, *more, "--json"))
                likelier = json.loads(self.garam("eval", *settings, *more, "eval.metrics=[]", "--json"))
                keys = ("rows", "unparsable", "accuracy", "f1", "macro_f1", "ece")
                return {kind: {key: row[key] for key in keys if key in row}
                        for kind, row in (("answers", answers), ("likelier", likelier))}

            def train():
                self.garam("train", *settings, "train.overwrite_output_dir=true")
                with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
                    return {"lines": [row for row in map(json.loads, lines) if "eval_loss" in row]}

            self.measure(f"agent-{name}-before", judge)
            self.measure(f"agent-{name}-train", train)
            self.measure(f"agent-{name}-after", lambda: judge(f"adapter={out}/adapter"))
            for when in ("before", "after"):
                row = self.results[f"agent-{name}-{when}"]
                print(f"{name}, NF4, {when}: answers {json.dumps(row['answers'])}, likelier label {json.dumps(row['likelier'])}")


class Peer:
    """The same work by Transformers, bitsandbytes and PEFT, in bf16 with adapters in fp32."""

    def __init__(self, bench):
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import torch

        self.torch, self.bench = torch, bench

    def model(self, kind, decode=True):
        """Linear4bit decodes its weights in every pass, minutes a step on a processor; `decode` has them decoded once,
        to the same values (`check`)."""
        import transformers

        torch = self.torch
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        options = {"dtype": torch.bfloat16, "device_map": "cpu"}
        if kind == "nf4":
            options["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.bench.path("bf16"), **options)
        if kind == "nf4" and decode:
            plain = transformers.AutoModelForCausalLM.from_pretrained(self.bench.path("bf16"), dtype=torch.bfloat16)
            plain.load_state_dict({**plain.state_dict(), **self.decoded(model)})
            model = plain
        return model

    def decoded(self, model):
        import bitsandbytes as bnb

        return {f"{name}.weight": bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
                for name, module in model.named_modules() if isinstance(module, bnb.nn.Linear4bit)}

    def write_first_adapter(self):
        import peft

        if not os.path.exists(self.bench.path("first-adapter")):
            self.torch.manual_seed(0)
            config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
            peft.get_peft_model(self.model("bf16"), config).save_pretrained(self.bench.path("first-adapter"))

    def loss(self, model, rows):
        """Sum over the targets of right-padded rows, and their number."""
        torch = self.torch
        length = max(map(len, rows))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        targets = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return total, int((targets != -100).sum())

    def evaluate(self, model):
        rows = sorted(self.bench.rows["validation"], key=len)
        total = targets = 0
        model.eval()
        with self.torch.no_grad():
            for begin in range(0, len(rows), ROWS):
                loss, count = self.loss(model, rows[begin : begin + ROWS])
                total, targets = total + loss.item(), targets + count
        return total / targets

    def train(self, kind):
        import peft
        import transformers

        torch, steps = self.torch, self.bench.args.steps
        model = peft.PeftModel.from_pretrained(self.model(kind), self.bench.path("first-adapter"), is_trainable=True)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0)
        schedule = transformers.get_cosine_schedule_with_warmup(optimizer, math.ceil(WARMUP * steps), steps)
        before = self.evaluate(model)
        print(f"peer, {kind}: {before:.4f} before", flush=True)
        model.train()
        rows = self.bench.rows["train"]
        for step in range(steps):
            loss, count = self.loss(model, rows[step * ROWS : (step + 1) * ROWS])
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if (step + 1) % 10 == 0:
                print(f"peer, {kind}: step {step + 1}, loss {loss.item() / count:.4f}", flush=True)
        return {"before": before, "after": self.evaluate(model)}

    def check(self):
        """Whether the decoded linears are bitsandbytes' own, and whether garam's quantiser gives the same values."""
        import transformers

        torch = self.torch
        own = self.model("nf4", decode=False)
        values = self.decoded(own)
        # garam's 4-bit folder as Transformers and bitsandbytes read it.
        other = self.decoded(transformers.AutoModelForCausalLM.from_pretrained(
            self.bench.path("nf4"), dtype=torch.bfloat16, device_map="cpu"))
        assert values.keys() == other.keys()
        different = sum(int((values[name] != other[name]).sum()) for name in values)
        ids = torch.tensor([self.bench.rows["validation"][0][:16]])
        # As in training: without gradients, Linear4bit rounds its scales to bf16 on processors that have AVX512-BF16.
        own.train()
        own.enable_input_require_grads()
        logits = own(input_ids=ids).logits.detach().float()
        with torch.no_grad():
            decoded = self.model("nf4")(input_ids=ids).logits.float()
        return {"other_values": different, "values": sum(v.numel() for v in values.values()),
                "logits": (logits - decoded).abs().max().item(), "largest": logits.abs().max().item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--garam", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--parts", type=lambda s: s.split(","), default=["optimizer", "base", "agent"])
    parser.add_argument("--steps", type=int, default=120, help="of the parts optimizer and base")
    parser.add_argument("--seeds", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2, 3])
    args = parser.parse_args()
    unknown = set(args.parts) - {"optimizer", "base", "agent"}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    bench = Bench(args)
    bench.prepare()
    for part in args.parts:
        getattr(bench, part)()


if __name__ == "__main__":
    main()
