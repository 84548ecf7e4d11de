"""Small random Llama models as Transformers saves them, and rows for them."""

import random

import tokenizers
import torch
import transformers

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WORDS = (
    "the river bends past an old mill where two brothers sell honey and paper kites every spring "
    "강가에 오래된 방앗간이 있다 and so they say: 12 kites, 7 jars; isn't it odd?"
).split()


def sentence(rng, most=14):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, most)))


def tokenizer():
    """A byte-level BPE with a few merges, so that a prompt's end and a completion's beginning may merge."""
    rng = random.Random(3)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([sentence(rng) for _ in range(200)], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def write_tiny_llama(folder, tied, sharded, seed, dtype=torch.float32):
    """Grouped-query attention, ragged sizes, norms that are not all one."""
    torch.manual_seed(seed)
    words = tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        initializer_range=0.12,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder, max_shard_size="100KB" if sharded else "5GB")
    words.save_pretrained(folder)
    if sharded != (folder / "model.safetensors.index.json").exists():
        raise RuntimeError("save_pretrained did not cut the model as wanted")
    return folder


def text_rows(seed, count):
    rng = random.Random(seed)
    return [{"text": sentence(rng, 20)} for _ in range(count)]


def completion_rows(seed, count):
    rng = random.Random(seed)
    return [{"prompt": sentence(rng) + rng.choice(["", " ", ": "]), "completion": sentence(rng, 8)} for _ in range(count)]


def message_rows(seed, count):
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        messages = [{"role": "system", "content": sentence(rng, 6)}] if rng.random() < 0.5 else []
        for _ in range(rng.randrange(1, 4)):
            messages.append({"role": "user", "content": sentence(rng)})
            messages.append({"role": "assistant", "content": sentence(rng, 8)})
        rows.append({"messages": messages})
    return rows
