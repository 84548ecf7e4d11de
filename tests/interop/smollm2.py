"""SmolLM2 from its GGUF file in garam and in Transformers: losses, classification, training with a kill in
the middle, the adapter in PEFT, the merged model in Transformers.

Both compute in fp32 from the same dequantised weights. Thirty blocks of ten operations, each a sum of some
600 terms rounded by 2^-24: sqrt(300 * 600) * 6e-8 = 2.5e-5 of the largest logits, near 20: 5e-4 for the worst
of all logits. A row's loss has two to five targets, whose errors are a few times smaller than the worst of
49152 logits: 1e-4 (beside a model in double precision Transformers' fp32 is off by up to 1.6e-5 here, garam
by up to 2.1e-5). The loss of a whole file, a mean over many, is held to 2e-5.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time

import peft
import safetensors.torch
import torch
import transformers
from peers import program
from peers.checks import Checks, largest_difference
from peers.gguf_llama import GgufLlama
from peers.transformers_training import encode, greedy, loss_of

ROW_LOSS = 1e-4
LOSS = 2e-5
LOGIT = 5e-4
# A log-probability's error as a share of a probability near one half is at most twice its own size.
PROBABILITY = 2 * ROW_LOSS
INSTRUCTION = "Is this message spam or ham?\n"
SYSTEM = "You judge messages."
STEPS = 4

SPAM = pathlib.Path(__file__).resolve().parents[2] / "examples" / "spam"


def spam_rows(count):
    lines = (SPAM / "validation.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def conversation(row):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": INSTRUCTION + row["text"]}]


def chat_rows(count):
    rows = [{"messages": conversation(row) + [{"role": "assistant", "content": row["label"]}]} for row in spam_rows(count)]
    # Without a system message the template puts in its own; two turns of the assistant.
    rows[1]["messages"] = rows[1]["messages"][1:]
    rows[2]["messages"] = rows[2]["messages"] + rows[3]["messages"][1:]
    return rows


class Setting:
    def __init__(self, options):
        self.garam = program.Garam(options.garam)
        self.gguf = options.gguf.resolve()
        self.work = options.work
        source = GgufLlama(self.gguf)
        self.model = source.model()
        self.tokenizer = source.tokenizer()
        self.rows = chat_rows(10)
        self.rows_file = program.write_rows(self.work / "chats.jsonl", self.rows)
        self.samples = [encode(self.tokenizer, row) for row in self.rows]


def base(checks, s):
    """The whole way without an adapter's part in it: file, tokenizer, template, model, loss."""
    want = [loss_of(s.model, [sample]) for sample in s.samples]
    # A fresh adapter adds zero; with a learning rate of zero it stays so.
    got = s.garam.losses_of_rows(s.gguf, s.rows_file, s.work / "rows")
    checks.within(f"base: training loss of {len(want)} chats one by one", largest_difference(got, want), ROW_LOSS)
    first = s.garam.train(
        s.gguf, s.rows_file, s.work / "first", train__learning_rate=0, train__max_steps=1, train__per_device_train_batch_size=10
    )
    total = loss_of(s.model, s.samples)
    checks.within("base: training loss of the chats as one batch", abs(first[0]["loss"] - total), LOSS)
    result = s.garam.evaluate(s.gguf, s.rows_file)
    checks.within("base: eval of the chats", abs(result["loss"] - total), LOSS)

    texts = [{"text": row["text"]} for row in spam_rows(12)] + [{"text": "Call 0800 1234   567 at 3.14, won't you?\n\n\tYes"}]
    file = program.write_rows(s.work / "texts.jsonl", texts)
    result = s.garam.evaluate(s.gguf, file)
    samples = [encode(s.tokenizer, row) for row in texts]
    checks.equal("base: target tokens of texts", result["target_tokens"], sum(len(ids) - 1 for ids, _ in samples))
    checks.within("base: eval of texts", abs(result["loss"] - loss_of(s.model, samples)), LOSS)


@torch.no_grad()
def label_probabilities(s, model, row):
    """Of spam and ham: the answer's tokens and the end of the turn, added up, then among the two."""
    prompt = s.tokenizer.apply_chat_template(conversation(row), tokenize=False, add_generation_prompt=True)
    ids = s.tokenizer(prompt)["input_ids"]
    sums = {}
    for label in ("spam", "ham"):
        answer = s.tokenizer(label + "<|im_end|>")["input_ids"]
        logits = model(input_ids=torch.tensor([ids + answer])).logits[0].double()
        scores = torch.log_softmax(logits[len(ids) - 1 : -1], 1)
        sums[label] = float(scores.gather(1, torch.tensor(answer)[:, None]).sum())
    spam = 1 / (1 + torch.exp(torch.tensor(sums["ham"] - sums["spam"], dtype=torch.double)).item())
    return {"spam": spam, "ham": 1 - spam}


def classification(checks, name, s, model, adapter):
    rows = spam_rows(8)
    file = program.write_rows(s.work / "labelled.jsonl", rows)
    words = ["--dtype", "f32", "--json", "--show", len(rows), "--model", s.gguf, "--data", file]
    if adapter:
        words += ["--adapter", adapter]
    result = json.loads(s.garam.run("eval", *words, f"data.system={SYSTEM}", f"data.instruction={INSTRUCTION}{{text}}"))
    differences = []
    for row, example in zip(rows, result["examples"], strict=True):
        differences.append(abs(label_probabilities(s, model, row)[example["predicted"]] - example["probability"]))
        if example["probability"] < 0.5:
            checks.fail(f"{name}: classification", f"{example} is not the likelier one")
    checks.within(f"{name}: probabilities of {len(rows)} labels", max(differences), PROBABILITY)


def settings(s):
    # Order, dropout and rate differ from step to step: a resumed run has to find its place in each.
    return dict(
        data__shuffle=True, lora__r=8, lora__lora_alpha=16, lora__lora_dropout=0.1, lora__target_modules="all-linear",
        lora__base_model_name_or_path="SmolLM2", train__learning_rate=1e-3, train__lr_scheduler_type="cosine",
        train__max_steps=STEPS, train__per_device_train_batch_size=2, train__gradient_accumulation_steps=2, train__save_steps=1,
    )


def kill_and_resume(checks, s):
    """Four steps in one go, and with a kill -9 behind the second."""
    whole, cut = s.work / "whole", s.work / "cut"
    want = s.garam.train(s.gguf, s.rows_file, whole, **settings(s))
    words = s.garam.train_words(s.gguf, s.rows_file, cut, **settings(s))
    with open(s.work / "killed.log", "wb") as log:
        process = subprocess.Popen([s.garam.binary, "train", *words], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 600
            while not (cut / "checkpoint-2").is_dir() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    end = (process.returncode, (cut / "adapter").exists())
    checks.equal("resume: the run was killed after its second step", end, (-signal.SIGKILL, False))
    # The third step may have got as far as its checkpoint.
    before = sorted(folder.name for folder in cut.glob("checkpoint-*") if folder.name != "checkpoint-3")
    got = s.garam.train(s.gguf, s.rows_file, cut, **settings(s), train__resume_from_checkpoint=True)
    checks.equal("resume: checkpoints at the kill", before, ["checkpoint-1", "checkpoint-2"])

    numbers = lambda lines: [[line[key] for key in ("step", "epoch", "loss", "grad_norm", "learning_rate")] for line in lines]
    checks.equal("resume: metrics of all steps", numbers(got), numbers(want))
    last = f"checkpoint-{STEPS}/adapter_model.safetensors"
    for file in ("adapter/adapter_model.safetensors", "adapter/adapter_config.json", last):
        checks.equal(f"resume: {file} to the bit", (cut / file).read_bytes() == (whole / file).read_bytes(), True)
    return whole / "adapter"


def merged(checks, s, adapter):
    """The adapter in PEFT on the dequantised base, and the merged folder in Transformers, beside the GGUF
    file with the adapter."""
    tensors = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    checks.equal("adapter: B is not zero", all(float(t.abs().max()) > 0 for k, t in tensors.items() if "lora_B" in k), True)
    before = loss_of(s.model, s.samples)
    tuned = peft.PeftModel.from_pretrained(s.model, adapter).eval()
    want = loss_of(tuned, s.samples)
    checks.equal("adapter: training lowered the loss", want < before - 0.1, True)
    result = s.garam.evaluate(s.gguf, s.rows_file, adapter)
    checks.within("adapter: eval beside PEFT", abs(result["loss"] - want), LOSS)
    classification(checks, "adapter", s, tuned, adapter)

    folder = s.work / "merged"
    s.garam.run("merge", s.gguf, adapter, folder, "--dtype", "f32")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    checks.equal("merged: dtype, tied", (loaded.dtype, loaded.config.tie_word_embeddings), (torch.float32, True))
    with torch.no_grad():
        ids = torch.tensor([s.samples[2][0]])
        difference = (loaded(input_ids=ids).logits - tuned(input_ids=ids).logits).abs().max()
    checks.within("merged: logits beside PEFT", float(difference), LOGIT)
    checks.within("merged: loss in Transformers", abs(loss_of(loaded, s.samples) - want), LOSS)
    result = s.garam.evaluate(folder, s.rows_file)
    checks.within("merged: eval in garam", abs(result["loss"] - want), LOSS)

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    checks.equal("merged: AutoTokenizer's ids and targets", [encode(tokenizer, row) for row in s.rows], s.samples)
    checks.equal("merged: end of sequence", tokenizer.eos_token_id, s.tokenizer.eos_token_id)
    for prompt in ("A river is", "Kim paid 1,250 won   for"):
        same_text(checks, s, loaded, tokenizer, adapter, prompt, tokenizer(prompt)["input_ids"], [])
    question = "Name three colours."
    messages = [{"role": "user", "content": question}]
    chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    same_text(checks, s, loaded, tokenizer, adapter, question, tokenizer(chat)["input_ids"], ["--chat"])

    s.garam.run("merge", s.gguf, adapter, s.work / "merged-bf16")
    narrow = transformers.AutoModelForCausalLM.from_pretrained(s.work / "merged-bf16")
    checks.equal("merged: dtype by default", narrow.dtype, torch.bfloat16)
    # bf16 comes from double precision by one rounding; by way of fp32 it is two, which differ where the first
    # lands on the middle of two bf16: one in 2^16 numbers, of which half then go the other way.
    pairs = [(a.detach(), b.detach()) for a, b in zip(narrow.parameters(), loaded.parameters(), strict=True)]
    elsewhere = sum(int((a != b.to(torch.bfloat16)).sum()) for a, b in pairs)
    share = elsewhere / sum(a.numel() for a, _ in pairs)
    checks.within("merged: share of bf16 weights that are not the rounded fp32", share, 2**-16)
    farthest = max(float(((a.float() - b).abs() / b.abs().clamp_min(1e-30)).max()) for a, b in pairs)
    checks.within("merged: distance of bf16 from fp32", farthest, 2**-8 * 1.0001)


def same_text(checks, s, model, tokenizer, adapter, prompt, ids, more):
    name = f"merged: greedy text of {prompt!r}"
    want, lead = greedy(model, ids, 24, tokenizer.eos_token_id)
    if lead < 2 * LOGIT:
        checks.fail(name, f"a choice by {lead:.1e} decides nothing: take another prompt")
        return
    answer = s.garam.generate(s.gguf, prompt, adapter, 24, *more)
    checks.equal(name, answer["text"], tokenizer.decode(want, skip_special_tokens=True))


def main():
    options = program.arguments(__doc__.splitlines()[0])
    if options.gguf is None or not options.gguf.exists():
        print("skip smollm2: needs --gguf")
        return 0
    program.quiet()
    checks = Checks()
    setting = Setting(options)
    checks.run("base", base, setting)
    checks.run("base: classification", lambda c, s: classification(c, "base", s, s.model, None), setting)
    adapter = checks.run("resume", kill_and_resume, setting)
    if adapter:
        checks.run("adapter", merged, setting, adapter)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
