"""Logits, losses and gradients of models whose RoPE depends on lengths, as Transformers computes them. See README.md.

    python make.py GOLDEN [OUT]     GOLDEN: the folder golden/ of the reference data; OUT: here by default
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

IGNORE = -100
LONGEST = 24
# Each takes the weights of a reference folder, and changes these keys of its config.
CASES = {
    "dynamic": ("llama-bias-linearrope", {"max_position_embeddings": 16,
                                          "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    "yarn": ("llama-llama3rope-tied", {"max_position_embeddings": 64,
                                       "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0,
                                                        "beta_slow": 1.0, "original_max_position_embeddings": 16}}),
    "yarn-mscale": ("qwen2-tied", {"max_position_embeddings": 128,
                                   "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "mscale": 1.2,
                                                    "mscale_all_dim": 0.5, "truncate": False,
                                                    "original_max_position_embeddings": 16}}),
    "longrope": ("phi3-partial", {"max_position_embeddings": 64, "original_max_position_embeddings": 16,
                                  "rope_scaling": {"type": "longrope",
                                                   "short_factor": [1.0, 1.05, 1.2, 1.4, 1.7, 2.0],
                                                   "long_factor": [1.1, 1.5, 2.5, 4.0, 6.0, 9.0]}}),
}


def is_kept(name):
    """Gradients that RoPE reaches, of few elements."""
    return any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "norm.weight", "layernorm"))


def make(golden, name, out):
    source, changes = CASES[name]
    folder = golden / "families" / source
    config = json.loads((folder / "config.json").read_text()) | changes
    case = out / name
    case.mkdir(exist_ok=True)
    (case / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    random = torch.Generator().manual_seed(len(name))
    # The dynamic frequencies of garam are those of its longest sequence for all that go beyond.
    lengths = [LONGEST, 9, LONGEST if name == "dynamic" else 17, 16]
    ids = torch.zeros(len(lengths), LONGEST, dtype=torch.int64)
    labels = torch.full_like(ids, IGNORE)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, config["vocab_size"], (length,), generator=random)
        labels[row, 2:length] = ids[row, 2:length]
        mask[row, :length] = 1
    count = int((labels[:, 1:] != IGNORE).sum())

    # Each row alone, in a model that has seen no other: the frequencies follow its own length.
    grads = {}
    logits = torch.zeros(*ids.shape, config["vocab_size"])
    loss = 0.0
    frequencies = {}
    for row, length in enumerate(lengths):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=transformers.AutoConfig.from_pretrained(case), dtype=torch.float32,
            attn_implementation="eager")
        model.train()
        row_logits = model(input_ids=ids[row:row + 1, :length]).logits
        part = torch.nn.functional.cross_entropy(row_logits[0, :-1], labels[row, 1:length], ignore_index=IGNORE,
                                                 reduction="sum") / count
        part.backward()
        logits[row, :length] = row_logits[0].detach()
        loss += part.item()
        for key, parameter in model.named_parameters():
            if is_kept(key):
                grads[key] = grads.get(key, 0) + parameter.grad
        rotary = model.model.rotary_emb
        frequencies[length] = rotary.inv_freq.clone()
        scaling = rotary.attention_scaling
    tensors = {"input_ids": ids, "labels": labels, "attention_mask": mask, "logits": logits,
               "num_valid_tokens": torch.tensor([count]), "loss": torch.tensor([loss]),
               "rope.attention_scaling": torch.tensor([float(scaling)])}
    tensors |= {f"grad.{key}": value for key, value in grads.items()}
    tensors |= {f"rope.inv_freq.{length}": value for length, value in frequencies.items()}
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, case / "golden.safetensors")
    print(f"{name}: loss {loss:.6f}, scaling {float(scaling):.6f}, "
          f"frequencies differ by length: {not torch.equal(frequencies[9], frequencies[LONGEST])}")


def main():
    golden = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent
    for name in CASES:
        make(golden, name, out)


if __name__ == "__main__":
    main()
