"""The same steps in garam and in Transformers' Trainer (with PEFT): loss, gradient norm, learning rate of
each step, and the weights at the end.

Both compute in fp32 and differ in the order of their sums only. A number's rounding is 2^-24, 6e-8 of it;
along the 30 operations from the ids to the loss, each a sum of about 100 terms whose errors largely cancel,
sqrt(30 * 100) * 6e-8 = 3e-6 gathers in a single logit. A loss of about 6 is a mean over many of them: 5e-6.
A gradient norm, a mean too, passes through the backward as well: 5e-6 of its size. AdamW divides a gradient
by its own size, which makes noise of an element g near zero (of |g| / rounding below 1); few are, so on the
norm of a whole tensor's change it stays below 1e-3, and below 3e-5 of a tensor, which is larger than its
change (an adapter's B that began at zero is its own change: its limit is what counts there).
"""

import sys

import peft
import safetensors.torch
import torch
import transformers
from peers import program, tiny_llama
from peers.checks import Checks, largest_difference, relative
from peers.transformers_training import encode, loss_of, train

LOSS = 5e-6
GRADIENT_NORM = 5e-6
TENSOR = 3e-5
CHANGE = 1e-3

# Rows that leave a rest: the last micro-batch of an epoch has fewer rows, and its last step
# fewer micro-batches (7 rows in batches of two, three batches a step: 2+2+2 rows, then 1).
CASES = {
    "q and v, text, linear": dict(
        tied=True, sharded=False, rows=tiny_llama.text_rows(11, 11), random_b=False,
        lora=dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
        both=dict(learning_rate=2e-3, num_train_epochs=2, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                  lr_scheduler_type="linear", weight_decay=0.1),
    ),
    "all linears, rslora, completions, cosine": dict(
        tied=False, sharded=True, rows=tiny_llama.completion_rows(12, 7), random_b=True,
        lora=dict(r=8, lora_alpha=4, target_modules="all-linear", use_rslora=True),
        both=dict(learning_rate=1e-3, num_train_epochs=3, per_device_train_batch_size=2, gradient_accumulation_steps=3,
                  lr_scheduler_type="cosine", warmup_steps=2, max_grad_norm=0.1),
    ),
    "all linears, chats, inverse_sqrt": dict(
        tied=False, sharded=False, rows=tiny_llama.message_rows(13, 9), random_b=True,
        lora=dict(r=2, lora_alpha=2, target_modules="all-linear"),
        both=dict(learning_rate=1e-3, max_steps=7, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                  lr_scheduler_type="inverse_sqrt", warmup_steps=3, max_grad_norm=0.0, adam_beta1=0.8, adam_beta2=0.95),
    ),
    "all linears, chats, constant_with_warmup": dict(
        tied=True, sharded=True, rows=tiny_llama.message_rows(14, 10), random_b=False,
        lora=dict(r=4, lora_alpha=16, target_modules="all-linear"),
        both=dict(learning_rate=5e-4, num_train_epochs=1.5, per_device_train_batch_size=3, gradient_accumulation_steps=1,
                  lr_scheduler_type="constant_with_warmup", warmup_steps=2, weight_decay=0.01, adam_epsilon=1e-6),
        garam=dict(train__gradient_checkpointing=True),
    ),
}
FULL_CASES = {
    "full, tied": dict(
        tied=True, sharded=False, rows=tiny_llama.completion_rows(15, 7),
        both=dict(learning_rate=1e-3, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                  lr_scheduler_type="linear", weight_decay=0.2),
    ),
    "full, untied": dict(
        tied=False, sharded=True, rows=tiny_llama.text_rows(16, 5),
        both=dict(learning_rate=1e-3, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=1,
                  lr_scheduler_type="cosine", weight_decay=0.2, max_grad_norm=0.5),
    ),
}


def compare_steps(checks, name, garam, peer):
    def column(lines, key):
        return [line[key] for line in lines]

    checks.within(f"{name}: loss of {len(peer)} steps", largest_difference(column(garam, "loss"), column(peer, "loss")), LOSS)
    norms = [g["grad_norm"] / p["grad_norm"] for g, p in zip(garam, peer)]
    checks.within(f"{name}: grad_norm", largest_difference(norms, [1.0] * len(peer)), GRADIENT_NORM)
    rates = largest_difference(column(garam, "learning_rate"), column(peer, "learning_rate"))
    checks.within(f"{name}: learning_rate", rates, 1e-18)
    epochs = largest_difference(column(garam, "epoch"), [float(line["epoch"]) for line in peer])
    checks.within(f"{name}: epoch", epochs, 1e-3)  # the peer rounds to four digits


def compare_tensors(checks, name, garam, peer, start):
    if set(garam) != set(peer):
        checks.fail(f"{name}: tensors", f"names differ: {sorted(set(garam) ^ set(peer))[:6]}")
        return
    worst = max(peer, key=lambda key: relative(garam[key], peer[key]))
    checks.within(f"{name}: {len(peer)} tensors, worst {worst}", relative(garam[worst], peer[worst]), TENSOR)

    def change(key):
        return relative(garam[key].double() - start[key].double(), peer[key].double() - start[key].double())

    worst = max(peer, key=change)
    checks.within(f"{name}: what training changed, worst {worst}", change(worst), CHANGE)


def garam_settings(both):
    return {f"train__{key}": value for key, value in both.items()}


def adapters(checks, name, case, garam, work):
    base = tiny_llama.write_tiny_llama(work / "base", case["tied"], case["sharded"], seed=len(name))
    rows = program.write_rows(work / "rows.jsonl", case["rows"])
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    torch.manual_seed(5)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
    if case["random_b"]:
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_B" in key:
                    parameter.copy_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(work / "start")
    samples = [encode(tokenizer, row) for row in case["rows"]]
    peer = train(model, samples, work / "peer", **case["both"])
    model.save_pretrained(work / "peer")

    validation = tiny_llama.text_rows(17, 6) + tiny_llama.message_rows(18, 4)
    ours = garam.train(
        base, rows, work / "garam", adapter=str(work / "start"),
        data__validation=str(program.write_rows(work / "validation.jsonl", validation)), train__eval_steps=0,
        **garam_settings(case["both"]), **case.get("garam", {}),
    )
    compare_steps(checks, name, [line for line in ours if "loss" in line], peer)
    evaluated = [line["eval_loss"] for line in ours if "eval_loss" in line]
    want = loss_of(model.eval(), [encode(tokenizer, row) for row in validation])
    checks.within(f"{name}: eval_loss at the end", largest_difference(evaluated, [want]), LOSS)
    load = lambda folder: safetensors.torch.load_file(folder / "adapter_model.safetensors")
    compare_tensors(checks, name, load(work / "garam" / "adapter"), load(work / "peer"), load(work / "start"))


def full(checks, name, case, garam, work):
    base = tiny_llama.write_tiny_llama(work / "base", case["tied"], case["sharded"], seed=len(name))
    rows = program.write_rows(work / "rows.jsonl", case["rows"])
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    samples = [encode(tokenizer, row) for row in case["rows"]]
    weights = lambda model: {key: tensor.clone() for key, tensor in model.named_parameters()}
    start = weights(model)
    peer = train(model, samples, work / "peer", **case["both"])
    ours = garam.train(base, rows, work / "garam", train__method="full", **garam_settings(case["both"]))
    compare_steps(checks, name, ours, peer)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(work / "garam" / "model", dtype=torch.float32)
    compare_tensors(checks, name, weights(loaded), weights(model), start)
    checks.equal(f"{name}: tied as the base", loaded.config.tie_word_embeddings, case["tied"])
    reread = transformers.AutoTokenizer.from_pretrained(work / "garam" / "model")
    checks.equal(f"{name}: tokenizer of the result", [encode(reread, row) for row in case["rows"]], samples)


def main():
    options = program.arguments(__doc__.splitlines()[0])
    program.quiet()
    checks = Checks()
    garam = program.Garam(options.garam)
    for kind, cases in ((adapters, CASES), (full, FULL_CASES)):
        for number, (name, case) in enumerate(cases.items()):
            work = options.work / f"{kind.__name__}-{number}"
            work.mkdir(parents=True)
            checks.run(name, kind, name, case, garam, work)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
