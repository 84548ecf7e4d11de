"""A Llama GGUF file as Transformers' model and tokenizer, read with the gguf package alone.

Transformers' own import of GGUF leaves out that `smollm` splits off digits, so the tokenizer is put
together here from the file's keys.
"""

import gguf
import tokenizers
import torch
import transformers
from gguf.quants import dequantize

# GGUF's names of a block's tensors and Transformers'.
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class GgufLlama:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(str(path))

    def key(self, name):
        return self.reader.fields[name].contents()

    def config(self):
        llama = lambda name: self.key(f"llama.{name}")
        return transformers.LlamaConfig(
            vocab_size=len(self.key("tokenizer.ggml.tokens")),
            hidden_size=llama("embedding_length"),
            intermediate_size=llama("feed_forward_length"),
            num_hidden_layers=llama("block_count"),
            num_attention_heads=llama("attention.head_count"),
            num_key_value_heads=llama("attention.head_count_kv"),
            max_position_embeddings=llama("context_length"),
            rms_norm_eps=llama("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": llama("rope.freq_base")},
            tie_word_embeddings=all(tensor.name != "output.weight" for tensor in self.reader.tensors),
            bos_token_id=self.key("tokenizer.ggml.bos_token_id"),
            eos_token_id=self.key("tokenizer.ggml.eos_token_id"),
        )

    def model(self):
        """In fp32, the weights as the blocks of the file decode."""
        config = self.config()
        state = {}
        for tensor in self.reader.tensors:
            values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
            stem = tensor.name.removesuffix(".weight")
            if stem in OUTER:
                state[f"{OUTER[stem]}.weight"] = values
                continue
            _, layer, name = stem.split(".")
            if name in ("attn_q", "attn_k"):
                # GGUF rotates neighbouring rows of a head together, Transformers a row and the one half a
                # head further on.
                heads = config.num_attention_heads if name == "attn_q" else config.num_key_value_heads
                rows, columns = values.shape
                values = values.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
            state[f"model.layers.{layer}.{BLOCK[name]}.weight"] = values
        model = transformers.LlamaForCausalLM(config).float()
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or [key for key in missing if not (key == "lm_head.weight" and config.tie_word_embeddings)]:
            raise RuntimeError(f"tensors of the file do not fit: {missing} {unexpected}")
        return model.eval()

    def tokenizer(self):
        if self.key("tokenizer.ggml.pre") != "smollm":
            raise RuntimeError("the pre-tokenizer smollm is the one known here")
        tokens = self.key("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in self.key("tokenizer.ggml.merges")]
        made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Digits(individual_digits=True),
                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        made.decoder = tokenizers.decoders.ByteLevel()
        control = [token for token, kind in zip(tokens, self.key("tokenizer.ggml.token_type")) if kind == 3]
        made.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in control])
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=made,
            bos_token=tokens[self.key("tokenizer.ggml.bos_token_id")],
            eos_token=tokens[self.key("tokenizer.ggml.eos_token_id")],
        )
        fast.chat_template = self.key("tokenizer.chat_template")
        return fast
