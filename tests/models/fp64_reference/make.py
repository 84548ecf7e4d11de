"""Gradients in fp64, and how far PEFT's own bf16 is from them. See README.md beside this file.

    python make.py GOLDEN [OUT]     GOLDEN: the folder golden/ of the reference data; OUT: here by default
"""

import json
import pathlib
import sys

import numpy
import peft
import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode

IGNORE = -100
DRAWS = 16
# Of the reference data what garam computes in bf16.
FAMILIES = ["llama-bias-linearrope", "llama-llama3rope-tied"]
# Of these the reference data's own gradients in fp32 are the truth: their weights are bf16.
SCALARS_ONLY = ["exaone4", "gemma2", "gemma3-text", "granite", "mistral-sw8", "olmo2", "phi3-partial", "qwen2-tied",
                "qwen3-tied", "smollm3-nope"]
PEFT_CASES = ["case1_lora_r8_all", "case2_lora_r4_qv", "case3_rslora_r8_all", "case6_full_finetune"]


class NeverBelowFp64(TorchFunctionMode):
    """Norms, softmax, rotary tables and losses of the library ask for fp32 by name; here they stay fp64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def widened(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(widened, args), **{name: widened(value) for name, value in (kwargs or {}).items()})


def mean_loss(logits, labels):
    """Over the targets; in the logits' dtype, at least fp32."""
    logits = logits[:, :-1]
    logits = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)


def base_model(folder, dtype, draw):
    """The model with its weights rounded to bf16: what bf16 training starts from. Computes in `dtype`. Draw 0 has the
    weights of the file; in others each is changed by at most 2^-7 of itself, so that everything rounds anew."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    random = torch.Generator().manual_seed(draw)
    for weight in model.parameters() if draw > 0 else []:
        weight.data *= 1 + (torch.rand(weight.shape, generator=random) - 0.5) / 64
    return model.to(torch.float64) if dtype == torch.float64 else model


def file_name(name):
    return name.replace(".default.weight", ".weight")


def gradients(model, golden, dtype):
    """The mean loss, and every trained tensor's gradient in fp64. bf16 is computed as the Trainer's bf16=True does."""
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        logits = model(input_ids=golden["input_ids"], attention_mask=golden["attention_mask"], use_cache=False).logits
    loss = mean_loss(logits, golden["labels"])
    loss.backward()
    trained = [(file_name(name), p) for name, p in model.named_parameters() if p.requires_grad]
    return loss.item(), {name: p.grad.to(torch.float64) for name, p in trained}


def with_adapter(base, dtype, settings, golden):
    """PEFT keeps adapters in fp32 beside a bf16 base, and so do we; in fp64 the same values."""
    model = peft.get_peft_model(base, peft.LoraConfig(**settings))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data = golden[file_name(name)].to(torch.float64 if dtype == torch.float64 else torch.float32)
    return model


def relative(got, want):
    return float((got - want).norm() / want.norm())


def root_mean_square(values):
    return float(numpy.sqrt(numpy.mean(numpy.square(list(values)))))


def reference(model_folder, golden, settings, prefix):
    """{tensor name: tensor} of one case: loss and gradients in fp64, loss and errors of PEFT in bf16."""
    def run(dtype, draw):
        model = base_model(model_folder, dtype, draw)
        if settings is not None:
            model = with_adapter(model, dtype, settings, golden)
        return gradients(model, golden, dtype)

    stored, draws = {}, []
    for draw in range(DRAWS):
        with NeverBelowFp64():
            loss, truth = run(torch.float64, draw)
        bf16_loss, bf16 = run(torch.bfloat16, draw)
        assert bf16.keys() == truth.keys()
        errors = {name: relative(bf16[name], want) for name, want in truth.items()}
        draws.append(errors)
        if draw == 0:
            stored |= {prefix + "loss": loss, prefix + "peft.loss": bf16_loss}
            stored |= {"grad." + name: want for name, want in truth.items()}
            stored |= {"peft.error." + name: error for name, error in errors.items()}
            # Where the file's weights are bf16, the fp32 gradients of the reference data must be these.
            fp32 = max(relative(golden["grad." + name].double(), want) for name, want in truth.items())
            print(f"    {'adapter' if settings else 'all weights'}: loss {loss:.6f}, worst gradient of PEFT in bf16 "
                  f"{max(errors.values()):.2g}, of the fp32 golden {fp32:.2g}")
    typical = {name: root_mean_square(errors[name] for errors in draws) for name in draws[0]}
    stored |= {"peft.rms_error." + name: error for name, error in typical.items()}
    one = max(errors[name] / typical[name] for errors in draws for name in typical)
    every = max(map(lambda errors: root_mean_square(errors.values()), draws)) / root_mean_square(typical.values())
    print(f"    a draw's error over the mean of {DRAWS}: one tensor's at most {one:.2f}, all tensors' {every:.2f}")
    return {
        name: value.to(torch.float32) if isinstance(value, torch.Tensor) else torch.tensor([value], dtype=torch.float32)
        for name, value in stored.items()
    }


def main():
    golden_dir = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent
    load = safetensors.torch.load_file
    for case in PEFT_CASES:
        print(case)
        folder = golden_dir / "peft" / case
        settings = None
        if (folder / "adapter_config.json").exists():
            config = json.loads((folder / "adapter_config.json").read_text())
            settings = {key: config[key] for key in ("r", "lora_alpha", "target_modules", "use_rslora")}
        stored = reference(golden_dir / "stories260K-hf", load(folder / "golden.safetensors"), settings, "")
        safetensors.torch.save_file(stored, out / f"{case}.safetensors")
    for case in FAMILIES + SCALARS_ONLY:
        print(case)
        folder = golden_dir / "families" / case
        golden = load(folder / "golden.safetensors")
        settings = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
        stored = reference(folder, golden, None, "") | reference(folder, golden, settings, "lora.")
        if case in SCALARS_ONLY:
            stored = {name: value for name, value in stored.items() if not name.startswith("grad.")}
        safetensors.torch.save_file(stored, out / f"{case}.safetensors")


main()
