"""Adapters that cross between garam and PEFT, and merged models, on small random models: next-token
probabilities, losses and greedy text of both.

Both compute in fp32 with sums in another order. A log-probability here stands behind some 30 operations that
are each a sum of about 100 rounded terms: errors of 2^-24 that add up at random give sqrt(30 * 100) * 6e-8
= 3e-6 of the largest logits, which are near 5: 1.5e-5, and 2e-5 is the bound for the worst of several
hundred. A loss is the mean of some 300 of them, and garam adds it up in fp32 in batches: half a unit in the
last place of a sum of 1000, 3e-5 over 300 tokens, is 1e-7 for each of some additions: 1e-6.
"""

import sys

import peft
import safetensors.torch
import torch
import transformers
from peers import program, tiny_llama
from peers.checks import Checks, largest_difference
from peers.transformers_training import encode, greedy, loss_of, train

LOG_PROBABILITY = 2e-5
LOSS = 1e-6
# A greedy choice that leads by less than the bound of two logits may be either.
LEAD = 2 * LOG_PROBABILITY

CASES = {
    "q and v, tied": dict(tied=True, sharded=False, lora=dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "q and v, rslora, untied": dict(
        tied=False, sharded=False, lora=dict(r=4, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True)
    ),
    "all linears, untied, sharded": dict(tied=False, sharded=True, lora=dict(r=8, lora_alpha=16, target_modules="all-linear")),
    "all linears, rslora, tied, sharded": dict(
        tied=True, sharded=True, lora=dict(r=6, lora_alpha=6, target_modules="all-linear", use_rslora=True)
    ),
    "bf16 base, sharded": dict(
        tied=False, sharded=True, dtype=torch.bfloat16, lora=dict(r=4, lora_alpha=8, target_modules=["k_proj", "down_proj"])
    ),
    "ranks and scales by patterns, some layers": dict(
        tied=True, sharded=False, lora=dict(
            r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "down_proj"], layers_to_transform=[0, 2],
            exclude_modules=["layers.0.self_attn.q_proj"], rank_pattern={"k_proj": 2, "layers.2.mlp.down_proj": 3},
            alpha_pattern={"down_proj": 5},
        ),
    ),
    "all linears, DoRA": dict(
        tied=False, sharded=False, lora=dict(r=4, lora_alpha=6, target_modules="all-linear", use_dora=True)
    ),
    "a pattern, orthogonal": dict(
        tied=False, sharded=False,
        lora=dict(r=4, lora_alpha=8, target_modules=r".*layers\.[02]\..*\.(v|o|up)_proj", init_lora_weights="orthogonal"),
    ),
    "embedding and head, untied": dict(
        tied=False, sharded=False, lora=dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "v_proj"]),
    ),
    "saved modules, tied": dict(
        tied=True, sharded=False,
        lora=dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head", "input_layernorm"]),
    ),
    "trained tokens, tied": dict(
        tied=True, sharded=False, lora=dict(r=4, lora_alpha=8, target_modules=["q_proj"], trainable_token_indices=[260, 7, 65]),
    ),
    "trained tokens, untied": dict(
        tied=False, sharded=True, lora=dict(r=4, lora_alpha=8, target_modules=["q_proj"], trainable_token_indices=[100, 101, 9]),
    ),
}
# What only PEFT writes: targets by a pattern, tensors in bf16.
PEFT_CASES = {
    "a pattern, adapter in bf16": dict(
        tied=True, sharded=False, adapter_dtype=torch.bfloat16,
        lora=dict(r=4, lora_alpha=8, target_modules=r".*layers\.[02]\..*\.(v|o|up)_proj"),
    ),
}


class Model:
    """A base on the disk with rows to compare on."""

    def __init__(self, case, work, seed):
        self.dtype = case.get("dtype", torch.float32)
        self.folder = tiny_llama.write_tiny_llama(work / "base", case["tied"], case["sharded"], seed, self.dtype)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        self.work = work
        self.rows = tiny_llama.text_rows(seed, 5) + tiny_llama.completion_rows(seed, 5) + tiny_llama.message_rows(seed, 5)
        self.rows_file = program.write_rows(work / "rows.jsonl", self.rows)
        self.samples = [encode(self.tokenizer, row) for row in self.rows]
        self.prompt = "<|im_start|>user\nthe old mill<|im_end|>"
        self.prompt_ids = self.tokenizer(self.prompt)["input_ids"]
        # Completions of one token that do not merge with the prompt; a cut behind them leaves no other target.
        self.tokens = []
        completions = []
        for token in range(len(self.tokenizer)):
            text = self.tokenizer.decode([token])
            if self.tokenizer(self.prompt + text)["input_ids"] == self.prompt_ids + [token]:
                self.tokens.append(token)
                completions.append({"prompt": self.prompt, "completion": text})
        self.completions_file = program.write_rows(work / "completions.jsonl", completions)

    def base(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)


def compare(checks, name, garam, model, peer, folder, adapter):
    """garam with folder (and adapter) against a model in torch: by training's and inference's way."""
    peer.eval()
    work = model.work / name.replace(" ", "-")
    with torch.no_grad():
        logits = peer(input_ids=torch.tensor([model.prompt_ids])).logits[0, -1].double()
    want = torch.log_softmax(logits, 0)[model.tokens].tolist()
    if adapter:
        got = garam.losses_of_rows(
            folder, model.completions_file, work, adapter=str(adapter), train__max_length=len(model.prompt_ids) + 1
        )
        difference = largest_difference([-loss for loss in got], want)
        checks.within(f"{name}: {len(want)} log-probabilities of the next token", difference, LOG_PROBABILITY)
    result = garam.evaluate(folder, model.rows_file, adapter)
    checks.equal(f"{name}: target tokens", result["target_tokens"], sum(l != -100 for _, ls in model.samples for l in ls[1:]))
    checks.within(f"{name}: loss of text, completions and chats", abs(result["loss"] - loss_of(peer, model.samples)), LOSS)
    for prompt in (model.prompt + "\n<|im_start|>assistant\n", "kites and", "강가에 오래된"):
        ids, lead = greedy(peer, model.tokenizer(prompt)["input_ids"], 24, model.tokenizer.eos_token_id)
        if lead < LEAD:
            checks.fail(f"{name}: greedy ids of {prompt!r}", f"a choice by {lead:.1e} decides nothing: take another seed")
            continue
        answer = garam.generate(folder, prompt, adapter, 24)
        checks.equal(f"{name}: {len(ids)} greedy ids of {prompt!r}", answer["ids"], ids)


def merged(checks, name, garam, model, peer, adapter):
    """What garam merge writes beside PEFT's merge_and_unload."""
    folder = model.work / "merged"
    garam.run("merge", model.folder, adapter, folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    checks.equal(f"{name}: dtype of the merged model", loaded.dtype, model.dtype)
    reference = peer.merge_and_unload().eval()
    if model.dtype == torch.float32:
        with torch.no_grad():
            ids = torch.tensor([model.samples[-1][0]])
            difference = (loaded(input_ids=ids).logits - reference(input_ids=ids).logits).abs().max()
        checks.within(f"{name}: logits of the merged model", float(difference), LOG_PROBABILITY)
    else:
        # The fp32 of PEFT's merge, off by about 2^-23, goes another way where it is that near to the middle of
        # two bf16, which are at least 2^-8 apart: one weight in 2^14.
        pairs = list(zip(loaded.parameters(), reference.parameters(), strict=True))
        elsewhere = sum(int((a != b.to(model.dtype)).sum()) for a, b in pairs)
        checks.within(f"{name}: share of merged weights not PEFT's", elsewhere / sum(a.numel() for a, _ in pairs), 2**-13)
        loaded = loaded.float()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    checks.equal(f"{name}: tokenizer of the merged model", [encode(tokenizer, row) for row in model.rows], model.samples)
    compare(checks, f"{name}, merged", garam, model, loaded, folder, None)


def from_garam(checks, name, case, garam, work):
    """An adapter that garam trained."""
    model = Model(case, work, seed=len(name))
    lora = {f"lora__{key}": value for key, value in case["lora"].items()}
    rate = {"train__learning_rate": 1e-2, "train__max_steps": 6, "train__per_device_train_batch_size": 4}
    lines = garam.train(model.folder, model.rows_file, work / "run", **lora, **rate)
    adapter = work / "run" / "adapter"
    peer = peft.PeftModel.from_pretrained(model.base(), adapter)
    # Training has to have changed something, or the comparison below says nothing about the adapter.
    change = abs(loss_of(peer, model.samples) - loss_of(model.base(), model.samples))
    checks.equal(f"{name}: six steps change the loss", change > 0.05 and lines[-1]["step"] == 6, True)
    compare(checks, name, garam, model, peer, model.folder, adapter)

    # PEFT finds the base by the name in the adapter's config, and writes the same tensors again.
    found = peft.AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    checks.within(f"{name}: base found by PEFT itself", abs(loss_of(found, model.samples) - loss_of(peer, model.samples)), 0.0)
    peer.save_pretrained(work / "again")
    first = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    second = safetensors.torch.load_file(work / "again" / "adapter_model.safetensors")
    # PEFT adds the base's own embedding and head where an adapter has one of them.
    second = {key: tensor for key, tensor in second.items() if ".base_layer." not in key}
    checks.equal(f"{name}: tensor names as PEFT writes them", sorted(first), sorted(second))
    checks.equal(f"{name}: tensors after PEFT saved them", all(torch.equal(first[key], second[key]) for key in first), True)
    merged(checks, name, garam, model, peer, adapter)


def from_peft(checks, name, case, garam, work):
    """An adapter that PEFT and Transformers trained."""
    model = Model(case, work, seed=100 + len(name))
    torch.manual_seed(7)
    peer = peft.get_peft_model(model.base(), peft.LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
    train(peer, model.samples, work / "peer", learning_rate=1e-2, max_steps=6, per_device_train_batch_size=4)
    adapter = work / "adapter"
    peer.save_pretrained(adapter)
    if narrow := case.get("adapter_dtype"):
        file = adapter / "adapter_model.safetensors"
        tensors = safetensors.torch.load_file(file)
        safetensors.torch.save_file({key: tensor.to(narrow) for key, tensor in tensors.items()}, file, {"format": "pt"})
        peer = peft.PeftModel.from_pretrained(model.base(), adapter)
    compare(checks, name, garam, model, peer, model.folder, adapter)
    merged(checks, name, garam, model, peer, adapter)


def main():
    options = program.arguments(__doc__.splitlines()[0])
    program.quiet()
    checks = Checks()
    garam = program.Garam(options.garam)
    for direction, trainer, cases in (("garam to PEFT", from_garam, CASES), ("PEFT to garam", from_peft, CASES | PEFT_CASES)):
        for number, (name, case) in enumerate(cases.items()):
            work = options.work / f"{trainer.__name__}-{number}"
            work.mkdir(parents=True)
            checks.run(f"{direction}, {name}", trainer, f"{direction}, {name}", case, garam, work)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
