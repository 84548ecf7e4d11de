"""GGUF files that garam writes, read by the gguf package: keys, types, and each dequantised value.

Values are compared bit for bit: what the package decodes from a file of blocks must be what garam decodes
from it (and writes as F32), and Q8_0 and Q4_0 blocks must be the bytes that the package's own quantiser
makes. Q4_K's codes are searched for, so its error is bounded instead: SmolLM2's weights lie near a normal
distribution, for which a relative error of sqrt(0.0062) = 0.079 is what tests/io/gguf_quantize_test.cpp
allows.
"""

import json
import sys

import gguf
import numpy
import safetensors.numpy
from gguf.quants import dequantize, quantize
from peers import program
from peers.checks import Checks

TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_k": "Q4_K"}
Q4_K_ERROR = 0.0062**0.5
RANK, ALPHA = 4, 6


def contents(reader):
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}


def decoded(tensor):
    return dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)


def same_bits(got, want):
    return got.shape == want.shape and bool((got.view(numpy.uint32) == want.view(numpy.uint32)).all())


def exported(checks, name, garam, source, work):
    """One type, beside the weights of the file that it came from."""
    path, plain = work / f"{name}.gguf", work / f"{name}-plain.gguf"
    garam.run("export", source.path, path, "--type", name)
    garam.run("export", path, plain, "--type", "f32")
    reader = gguf.GGUFReader(str(path))
    own = contents(reader)
    differing = [
        key
        for key, value in source.keys.items()
        if key.startswith(("tokenizer.", "llama.")) and key in own and own[key] != value
    ]
    checks.equal(f"{name}: keys of model and tokenizer as in the source", differing, [])
    missing = [key for key in source.keys if key.startswith("tokenizer.") and key not in own]
    checks.equal(f"{name}: no key of the tokenizer is lost", missing, [])
    checks.equal(f"{name}: tensors", sorted(t.name for t in reader.tensors), sorted(source.values))

    values = {tensor.name: decoded(tensor) for tensor in gguf.GGUFReader(str(plain)).tensors}
    # The types of whole blocks; 576 columns are no whole blocks of 256.
    wide = {"token_embd.weight"} if name in ("q4_0", "q4_k") else set()
    others, elsewhere, rounded, errors = [], [], [], []
    for tensor in reader.tensors:
        matrix = len(tensor.shape) == 2
        if tensor.name in wide or (name == "q4_k" and tensor.shape[0] % 256 != 0):
            expected = "Q8_0"
        else:
            expected = TYPES[name]
        if tensor.tensor_type.name != (expected if matrix else "F32"):
            others.append(tensor.name)
        if not same_bits(decoded(tensor), values[tensor.name]):
            elsewhere.append(tensor.name)
        if tensor.tensor_type.name == "Q4_K":
            want = source.values[tensor.name].astype(numpy.float64)
            off = decoded(tensor).astype(numpy.float64) - want
            errors.append(float(numpy.linalg.norm(off) / numpy.linalg.norm(want)))
        else:
            made = quantize(source.values[tensor.name], tensor.tensor_type)
            if made.tobytes() != tensor.data.tobytes():
                rounded.append(tensor.name)
    checks.equal(f"{name}: types", others, [])
    checks.equal(f"{name}: {len(values)} tensors decode to garam's bits", elsewhere, [])
    checks.equal(f"{name}: bytes of the package's own quantiser", rounded, [])
    if name == "q4_k":
        checks.within(f"{name}: worst relative error of {len(errors)} tensors", max(errors), Q4_K_ERROR)


class Source:
    def __init__(self, path):
        self.path = path
        reader = gguf.GGUFReader(str(path))
        self.keys = contents(reader)
        self.values = {tensor.name: decoded(tensor) for tensor in reader.tensors}


def write_adapter(folder, source, rng):
    """A PEFT folder for q, k, v and down of the first two layers."""
    folder.mkdir()
    tensors = {}
    for layer in range(2):
        for short, name in (("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
                            ("attn_v", "self_attn.v_proj"), ("ffn_down", "mlp.down_proj")):  # fmt: skip
            rows, columns = source.values[f"blk.{layer}.{short}.weight"].shape
            key = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{key}.lora_A.weight"] = rng.standard_normal((RANK, columns)).astype(numpy.float32)
            tensors[f"{key}.lora_B.weight"] = rng.standard_normal((rows, RANK)).astype(numpy.float32)
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = dict(peft_type="LORA", r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "k_proj", "v_proj", "down_proj"])
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    return tensors


def permuted(rows, heads):
    """As llama.cpp's converter lays the rows of q and k: the two halves of a head in turns."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def adapter(checks, garam, source, work):
    tensors = write_adapter(work / "adapter", source, numpy.random.default_rng(5))
    heads = {"attn_q": source.keys["llama.attention.head_count"], "attn_k": source.keys["llama.attention.head_count_kv"]}
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "mlp.down_proj": "ffn_down"}
    want = {}
    for key, value in tensors.items():
        layer, module = key.removeprefix("base_model.model.model.layers.").split(".", 1)
        module, part = module.removesuffix(".weight").rsplit(".", 1)
        own = names[module]
        if part == "lora_B" and own in heads:
            value = permuted(value, heads[own])
        want[f"blk.{layer}.{own}.weight.{part.lower()}"] = value

    path = work / "adapter.gguf"
    garam.run("export", source.path, path, "--adapter", work / "adapter", "--adapter-only")
    reader = gguf.GGUFReader(str(path))
    keys = contents(reader)
    checks.equal(
        "adapter: keys",
        [keys.get(k) for k in ("general.type", "general.architecture", "adapter.type", "adapter.lora.alpha")],
        ["adapter", "llama", "lora", float(ALPHA)],
    )
    got = {tensor.name: tensor.data for tensor in reader.tensors}
    checks.equal("adapter: names", sorted(got), sorted(want))
    checks.equal("adapter: bits", [name for name in want if not same_bits(got[name], want[name])], [])

    merged = work / "merged.gguf"
    garam.run("export", source.path, merged, "--adapter", path, "--type", "f32")
    off = []
    for tensor in gguf.GGUFReader(str(merged)).tensors:
        exact = source.values[tensor.name].astype(numpy.float64)
        if f"{tensor.name}.lora_a" in want:
            a, b = (want[f"{tensor.name}.{part}"].astype(numpy.float64) for part in ("lora_a", "lora_b"))
            exact = exact + ALPHA / RANK * (b @ a)
        # Rounded once to fp32, from sums in double precision of either order.
        off.append(float(numpy.max(numpy.abs(tensor.data - exact) / numpy.maximum(numpy.abs(exact), 1e-30))))
    checks.within("merged: worst relative distance from W + s B A", max(off), 2**-23)


def main():
    options = program.arguments(__doc__.splitlines()[0])
    checks = Checks()
    garam = program.Garam(options.garam)
    source = Source(options.gguf.resolve())
    for name in TYPES:
        checks.run(name, exported, name, garam, source, options.work)
    checks.run("adapter", adapter, garam, source, options.work)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
