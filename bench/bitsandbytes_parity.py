#!/usr/bin/env python3
"""Codes, scales and decoded values of garam's quantiser on a card beside those of bitsandbytes' CUDA kernels.

    bitsandbytes_parity.py --program build/cuda/bin/quantized_parity [--million 100] [--work /dev/shm]

Needs torch and bitsandbytes on the same card. Values are random: normal ones as weights are, heavy tails, blocks of
zeros, values beside the thresholds of the types, and subnormal ones. Each kind is quantised as bf16 and f32, to nf4
and fp4. Blocks whose absmax is zero or within 2^26 of the subnormal numbers are counted apart: bitsandbytes flushes
those to zero and divides by it. Ends with status 1 when an ordinary block differs in a code, a scale or a value.
"""
import argparse
import os
import subprocess
import sys

import torch
import bitsandbytes.functional as F

LEAST_ORDINARY = 2.0**-100
NF4_THRESHOLDS = [-0.8480964, -0.6106329, -0.45999527, -0.33967943, -0.2346074, -0.13791173, -0.045525018, 0.03979015,
                  0.12025525, 0.20352125, 0.29201377, 0.38931254, 0.50166342, 0.64278692, 0.86147842]
FP4_THRESHOLDS = [0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333]


def normal(n, block):
    return torch.randn(n, device="cuda") * 0.02


def heavy(n, block):
    return torch.randn(n, device="cuda") / torch.rand(n, device="cuda").clamp_min(1e-6).sqrt()


def some_zero(n, block):
    x = torch.randn(n, device="cuda").view(-1, block)
    x[torch.rand(x.shape[0], device="cuda") < 0.3] = 0
    x[torch.rand_like(x) < 0.3] = 0
    return x.view(-1)


def beside_thresholds(n, block):
    """Absmax times a threshold, a few units in the last place off."""
    t = torch.tensor(NF4_THRESHOLDS + FP4_THRESHOLDS + [-t for t in FP4_THRESHOLDS], device="cuda")
    x = t[torch.randint(len(t), (n,), device="cuda")].view(-1, block)
    scale = torch.rand(x.shape[0], 1, device="cuda") + 0.5
    off = torch.randint(-3, 4, x.shape, device="cuda", dtype=torch.int32)
    x = ((x * scale).view(torch.int32) + off).view(torch.float32)
    x[:, :1] = scale
    return x.reshape(-1)


def subnormal(n, block):
    x = torch.randn(n, device="cuda").view(-1, block)
    powers = torch.randint(-145, -110, (x.shape[0], 1), device="cuda").float()
    return (x.double() * torch.exp2(powers.double())).float().view(-1)


KINDS = [normal, heavy, some_zero, beside_thresholds, subnormal]


def of_garam(args, values, kind, block, double):
    source, result = os.path.join(args.work, "parity-values.bin"), os.path.join(args.work, "parity-result.bin")
    dtype = "bf16" if values.dtype == torch.bfloat16 else "f32"
    values.view(torch.uint8).cpu().numpy().tofile(source)
    words = [args.program, source, dtype, kind, str(block), "double" if double else "plain", result]
    subprocess.run(words, check=True)
    with open(result, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    os.remove(source)
    os.remove(result)
    n = values.numel()
    blocks = (n + block - 1) // block
    sizes = [(n + 1) // 2] + ([blocks, (blocks + 255) // 256 * 4, 4] if double else [blocks * 4])
    parts = list(data.split(sizes + [data.numel() - sum(sizes)]))
    as_float = [p.clone().view(torch.float32).cuda() for p in parts[1 + double : len(sizes)]]
    scales = ([parts[1].cuda()] if double else []) + as_float
    return parts[0].cuda(), scales, parts[-1].clone().view(values.dtype).cuda()


def nibbles(codes):
    codes = codes.view(-1)
    return torch.stack([codes >> 4, codes & 15], 1).view(-1)


def bits(x):
    return x.view(torch.int16 if x.dtype == torch.bfloat16 else torch.int32)


def compare(args, make, dtype, kind, block):
    n = args.elements
    values = make(n, block).to(dtype)
    packed, state = F.quantize_4bit(values, blocksize=block, quant_type=kind)
    decoded = F.dequantize_4bit(packed, state).view(-1)
    codes, (absmax,), own = of_garam(args, values, kind, block, False)
    ordinary = state.absmax.view(-1) >= LEAST_ORDINARY
    each = ordinary.repeat_interleave(block)[:n]
    other_codes = nibbles(codes)[:n] != nibbles(packed)[:n]
    # Zeros may differ in their signs, as products of subnormal numbers do.
    other_values = (bits(own) != bits(decoded)) & ~((own == 0) & (decoded == 0))
    other_scales = bits(absmax) != bits(state.absmax.view(-1))
    wrong = [int((other_codes & each).sum()), int((other_scales & ordinary).sum()), int((other_values & each).sum())]
    print(f"{make.__name__:18} {str(dtype)[6:]:9} {kind} block {block:4}: {n} values, {int(ordinary.sum())} ordinary blocks: "
          f"other codes {wrong[0]}, scales {wrong[1]}, values {wrong[2]}; of {int((~ordinary).sum())} other blocks: "
          f"codes {int((other_codes & ~each).sum())}, values {int((other_values & ~each).sum())}", flush=True)
    return sum(wrong)


def compare_double(args, make, dtype, kind, block):
    """The mean is of another order of summation, which the codes of absmax may show where they are beside a midpoint."""
    values = make(args.elements, block).to(dtype)
    _, state = F.quantize_4bit(values, blocksize=block, quant_type=kind, compress_statistics=True)
    _, (absmax, nested, offset), _ = of_garam(args, values, kind, block, True)
    units = int((bits(offset.view(-1)) - bits(state.offset.view(-1).float())).abs().item())
    off = (absmax.int() - state.absmax.view(-1).int()).abs()
    nested_off = ((nested - state.state2.absmax.view(-1)).abs() / nested.abs().clamp_min(1e-30)).max().item()
    print(f"{make.__name__:18} {str(dtype)[6:]:9} {kind} double: offset {units} units off, nested absmax {nested_off:.1e}, "
          f"{int((off > 0).sum())} of {off.numel()} codes of absmax differ, by {int(off.max())} at the most", flush=True)
    return 0 if units <= 8 and int(off.max()) <= 1 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--million", type=int, default=100, help="values of each dtype and type, over all kinds")
    parser.add_argument("--work", default="/dev/shm")
    args = parser.parse_args()
    args.elements = max(args.million * 1_000_000 // len(KINDS) // 4096, 1) * 4096
    torch.manual_seed(7)
    wrong = 0
    for kind in ("nf4", "fp4"):
        for dtype in (torch.bfloat16, torch.float32):
            for make in KINDS:
                wrong += compare(args, make, dtype, kind, 64)
            wrong += compare_double(args, normal, dtype, kind, 64)
    args.elements = 1 << 22
    for block in (32, 128, 256, 512, 1024, 2048, 4096):
        wrong += compare(args, heavy, torch.bfloat16, "nf4", block)
    print("all ordinary blocks are the same" if wrong == 0 else f"{wrong} DIFFER")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
