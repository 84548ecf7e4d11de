"""Writes the files of this folder: small tokenizers of the structures that published models have, trained by
`tokenizers` and `sentencepiece` on the reference data's text and the sentences of tokenizer_structures.py, with
what those packages make of some texts.

    python make_files.py --data REFERENCE_DATA

NAME.json: {"tokenizer": the tokenizer.json, "vectors": [{"text", "ids", "with_special", "decoded"}, ..]}; NAME.model:
a SentencePiece model, with NAME.vectors.json: {"config": tokenizer_config.json, "vectors": [{"text", "ids", "decoded"}]}.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "interop"))

import tokenizer_structures
from text_interop import random_text
from tokenizer_families import alone, bos_and_eos, older, once

NAMES = {
    "phi-3": "Phi-3",
    "o200k": "Phi-4-mini (o200k)",
    "gemma": "Gemma",
    "falcon": "Falcon",
    "deepseek": "DeepSeek",
    "mistral": "Mistral",
    "metaspace-always": "Metaspace always",
    "metaspace-never": "Metaspace never",
    "t5": "T5",
    "mt5": "mT5 (byte fallback)",
    "xlm-r": "XLM-R",
    "albert": "ALBERT",
    "bert": "BERT",
    "openai-gpt": "OpenAI-GPT",
    "clip": "CLIP",
    "every-step": "every step",
}
MODELS = {
    "llama-bpe": "Llama's tokenizer.model (BPE)",
    "gemma-bpe": "Gemma's tokenizer.model (BPE)",
    "t5-unigram": "T5's spiece.model (Unigram)",
}
# From, to: in code points, as sentencepiece reads them.
RULES = [
    ("ﬁ", "fi"), ("½", "1⁄2"), ("Ⅷ", "VIII"), ("①", "1"), ("㈱", "(株)"), ("℃", "°C"), ("e\u0301", "é"), ("u\u0308", "ü"),
    ("\t", " "), ("\n", " "), ("\r", " "), ("\u3000", " "), ("\u00a0", " "), ("\u200b", " "), ("\ufeff", ""), ("\u0301\u0301", "\u0301"),
]


def texts_of(names, rng):
    fixed = ["", " ", "  two  spaces  ", "Hello, world! It's 1234567 o'clock.", "naïve café ﬁne ½ ①", "한국어 문장 日本語の文", "🙂🦙\n\n\ttab"]
    return [older(text) for text in fixed + [random_text(rng, names) for _ in range(25)]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="the reference data")
    options = parser.parse_args()
    rng = random.Random(7)
    lines = tokenizer_structures.corpus(options.data / "text" / "wikitext2.valid.raw", 0.05)
    tokenizer_structures.ALPHABET = 120
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        spelled = lambda text: " ".join(f"{ord(character):X}" for character in text)
        rules.write_text("".join(f"{spelled(source)}\t{spelled(target)}\n" for source, target in RULES))
        tokenizer_structures.SENTENCEPIECE_OPTIONS = {"normalization_rule_tsv": str(rules), "character_coverage": 0.98}
        made = tokenizer_structures.structures(lines, 700)
        for file, name in NAMES.items():
            reference = Tokenizer.from_str(made[name]().to_str())
            special = [token.content for token in reference.get_added_tokens_decoder().values()]
            before, behind = bos_and_eos(reference)
            vectors = []
            for text in texts_of(special, rng):
                ids = reference.encode(text, add_special_tokens=False).ids
                decoded = reference.decode(ids, skip_special_tokens=False) if ids else ""
                vectors.append({"text": text, "ids": ids, "with_special": once(ids, before, behind), "decoded": decoded})
            content = {"tokenizer": json.loads(reference.to_str()), "vectors": vectors}
            (HERE / f"{file}.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
        tokenizer_structures.SENTENCEPIECE_OPTIONS = {"character_coverage": 0.98}
        for file, name in MODELS.items():
            if "unigram" in file:
                tokenizer_structures.SENTENCEPIECE_OPTIONS["normalization_rule_tsv"] = str(rules)
            make, config = tokenizer_structures.sentencepiece_models(lines, 700)[name]
            model = make()
            package = sentencepiece.SentencePieceProcessor(model_proto=model)
            rows = [(text, package.encode(text)) for text in map(alone, texts_of([], rng))]
            # sentencepiece writes a surface of its own for unknown pieces.
            known = lambda ids: package.unk_id() not in ids
            vectors = [{"text": t, "ids": ids, "decoded": package.decode(ids) if known(ids) else None} for t, ids in rows]
            (HERE / f"{file}.model").write_bytes(model)
            content = {"config": config, "vectors": vectors}
            (HERE / f"{file}.vectors.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
