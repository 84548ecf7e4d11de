"""Tokenizers of the structures that published models have, trained on small text by `tokenizers` and
`sentencepiece`: for families whose own files cannot lie beside the tests. tests/interop/tokenizer_families.py
compares them, make_files.py writes the small ones that lie here.
"""

import base64
import io
import json

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from sentencepiece import sentencepiece_model_pb2

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
SENTENCES = """오늘은 비가 온다. 내일은 맑을까? 한국어 문장도 조금 섞는다.
日本語の文も、少し混ぜます。テストです。東京タワーへ行きました。
这是一个测试句子,用来训练分词器。今天天气很好。
Grüße aus München! Straße, Äpfel, Öl, Übermut; naïve façade, coöperate, São Paulo, Łódź.
Привет, мир! Это предложение на русском языке. В 1999 году было 12345 человек.
مرحبا بالعالم، هذه جملة قصيرة. שלום עולם, זה משפט קצר.
for (int i = 0; i < 10; ++i) { printf("%d\\n", i * 2); }  // a loop\tand a tab
def f(x):\n    return {"a": [1, 2, 3], 'b': x ** 2}
ﬁne ½ cup, Ⅷ, ①, ｆｕｌｌ ｗｉｄｔｈ, ㈱, e\u0301clair, 100℃, 🙂🦙 😀
""".splitlines()
ALPHABET = 300  # characters that a trained vocabulary keeps
# More options for sentencepiece: make_files.py takes rules of its own, since the charsmap of nmt_nfkc has 300 KB.
SENTENCEPIECE_OPTIONS = {}
TURN = ["<start_of_turn>", "<end_of_turn>"]


def corpus(path, share=1.0):
    lines = SENTENCES * 20
    if path.exists():
        text = path.read_text("utf-8").split("\n")
        lines = lines + text[: int(len(text) * share)]
    return [line for line in lines if line.strip()]


def bytes_of_fallback():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def specials(tokenizer, names, **flags):
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False, **flags) for name in names])


def surrounded(tokenizer, before=None, behind=None):
    single = " ".join(filter(None, [before, "$A", behind]))
    pair = " ".join(filter(None, [before, "$A", behind, before and before + ":1", "$B:1", behind and behind + ":1"]))
    tokens = [(name, tokenizer.token_to_id(name)) for name in {before, behind} if name]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)


def byte_level(lines, size, pre, normalizer=None, names=("<|endoftext|>",), **options):
    made = Tokenizer(models.BPE(**options))
    if normalizer:
        made.normalizer = normalizer
    made.pre_tokenizer = pre
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[]
    )
    made.train_from_iterator(lines, trainer)
    specials(made, names)
    return made


def split_then_bytes(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def fallback_bpe(lines, size, normalizer, pre, decoder, names, train_pre=None):
    """SentencePiece-style BPE: characters, and bytes of those that are not known."""
    first = ["<unk>", "<s>", "</s>"] if "<unk>" not in names else list(names)
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = train_pre or pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=first + bytes_of_fallback(), limit_alphabet=ALPHABET
    )
    trained.train_from_iterator(lines, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    made = Tokenizer(models.BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        made.normalizer = normalizer
    if pre:
        made.pre_tokenizer = pre
    made.decoder = decoders.Sequence(decoder)
    specials(made, first)
    return made


def llama_decoder():
    return [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def sentencepiece_model(lines, size, kind, **options):
    """The bytes of a trained tokenizer.model."""
    out = io.BytesIO()
    options = {"character_coverage": 0.9995, "num_threads": 2, "minloglevel": 2, **options, **SENTENCEPIECE_OPTIONS}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=size, model_type=kind, hard_vocab_limit=False, **options
    )
    return out.getvalue()


def proto_of(model):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto


def unigram(lines, size, before=(), **options):
    """(pieces with scores, precompiled charsmap) of a Unigram model that sentencepiece trained."""
    proto = proto_of(sentencepiece_model(lines, size, "unigram", **options))
    return [(piece.piece, piece.score) for piece in proto.pieces], proto.normalizer_spec.precompiled_charsmap


def t5(lines, size):
    pieces, charsmap = unigram(lines, size, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    pieces += [(f"<extra_id_{i}>", 0.0) for i in range(4, -1, -1)]
    made = Tokenizer(models.Unigram(pieces, 2, False))
    made.normalizer = normalizers.Precompiled(charsmap)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    specials(made, ["<pad>", "</s>", "<unk>"])
    specials(made, [f"<extra_id_{i}>" for i in range(5)], lstrip=True)
    surrounded(made, None, "</s>")
    return made


def mt5(lines, size):
    pieces, charsmap = unigram(lines, size, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, byte_fallback=True)
    made = Tokenizer(models.Unigram(pieces, 2, True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    specials(made, ["<pad>", "</s>", "<unk>"])
    surrounded(made, None, "</s>")
    return made


def xlm_r(lines, size):
    pieces, charsmap = unigram(lines, size)
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + pieces[3:] + [("<mask>", 0.0)]
    made = Tokenizer(models.Unigram(pieces, 3, False))
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    specials(made, ["<s>", "<pad>", "</s>", "<unk>"])
    specials(made, ["<mask>"], lstrip=True)
    surrounded(made, "<s>", "</s>")
    return made


def albert(lines, size):
    lower = [line.lower() for line in lines]
    pieces, charsmap = unigram(lower, size)
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0)] + pieces[3:]
    made = Tokenizer(models.Unigram(pieces, 1, False))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Precompiled(charsmap),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    specials(made, ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    surrounded(made, "[CLS]", "[SEP]")
    return made


def bert(lines, size):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=True)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        lines, trainers.WordPieceTrainer(vocab_size=size, show_progress=False, special_tokens=names, limit_alphabet=ALPHABET)
    )
    made.post_processor = processors.BertProcessing(
        ("[SEP]", made.token_to_id("[SEP]")), ("[CLS]", made.token_to_id("[CLS]"))
    )
    return made


def openai_gpt(lines, size):
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous")])
    made.decoder = decoders.BPEDecoder("</w>")
    made.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=size, show_progress=False, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=ALPHABET
        ),
    )
    return made


def clip(lines, size):
    made = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                behavior="removed",
                invert=True,
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=size,
            show_progress=False,
            special_tokens=["<|startoftext|>", "<|endoftext|>"],
            end_of_word_suffix="</w>",
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    specials(made, ["<|startoftext|>", "<|endoftext|>"])
    made.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", made.token_to_id("<|endoftext|>")), ("<|startoftext|>", made.token_to_id("<|startoftext|>"))
    )
    return made


def split_all(lines, size):
    """Each of the small pre-tokenizers once, and added tokens with every flag."""
    made = byte_level(
        lines,
        size,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.CharDelimiterSplit("|"),
                pre_tokenizers.Split(Regex(r"[aeiou]+"), "merged_with_next"),
                pre_tokenizers.Split("t", "merged_with_previous"),
                pre_tokenizers.Split(Regex(r"[A-Z ]"), "contiguous", invert=True),
                pre_tokenizers.Punctuation("merged_with_previous"),
                pre_tokenizers.Digits(),
                pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
            ]
        ),
        normalizers.Sequence([normalizers.NFD(), normalizers.Strip(), normalizers.Replace(Regex(r"e\u0301|x{2,}"), "<e>")]),
    )
    made.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("left", lstrip=True, normalized=False),
            AddedToken("right", rstrip=True, normalized=True),
            AddedToken("both", lstrip=True, rstrip=True, normalized=False),
            AddedToken("éa", normalized=True),
            AddedToken("the best", normalized=True, single_word=True),
        ]
    )
    return made


# Their normalizers change characters as a whole, for which the reference's offsets are another convention.
NORMALIZED = ("T5", "mT5 (byte fallback)", "XLM-R", "ALBERT", "BERT", "OpenAI-GPT", "CLIP", "every step")


def structures(lines, size):
    """name -> a function that makes the tokenizer."""
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    prepend = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])

    def phi3():
        made = fallback_bpe(lines, size, prepend, None, llama_decoder(), ())
        specials(made, ["<|endoftext|>", "<|user|>", "<|end|>"], rstrip=True)
        return made

    def mistral():
        made = fallback_bpe(lines, size, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama_decoder(), ())
        specials(made, ["[INST]", "[/INST]"])
        surrounded(made, "<s>")
        return made

    def metaspace(scheme):
        def make():
            made = fallback_bpe(lines, size, None, pre_tokenizers.Metaspace(prepend_scheme=scheme), llama_decoder(), ())
            specials(made, ["<|x|>"])
            surrounded(made, "<s>", "</s>")
            return made

        return make

    def gemma():
        decoder = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        names = ["<pad>", "<eos>", "<bos>", "<unk>"]
        pre = pre_tokenizers.Split(" ", "merged_with_previous")
        made = fallback_bpe(lines, size, normalizers.Replace(" ", "▁"), pre, decoder, names)
        specials(made, TURN)
        made.add_tokens([AddedToken(name, normalized=False) for name in ("\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>")])
        surrounded(made, "<bos>")
        return made

    def falcon():
        steps = [
            pre_tokenizers.Punctuation("contiguous"),
            plain_bytes,
            pre_tokenizers.Digits(),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
        return byte_level(lines, size, pre_tokenizers.Sequence(steps), names=(">>TITLE<<", "<|endoftext|>"))

    def llama3():
        made = byte_level(lines, size, split_then_bytes(CL100K), names=("<|begin_of_text|>", "<|eot_id|>"), ignore_merges=True)
        template = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
            special_tokens=[("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))],
        )
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
        return made

    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain_bytes])
    return {
        "Phi-3": phi3,
        "Phi-4, OLMo-2": lambda: byte_level(lines, size, split_then_bytes(CL100K_POSSESSIVE), names=("<|im_start|>", "<|im_end|>")),
        "Phi-4-mini (o200k)": lambda: byte_level(lines, size, split_then_bytes(O200K)),
        "Gemma": gemma,
        "Falcon": falcon,
        "Granite": lambda: byte_level(lines, size, digits),
        "DeepSeek": lambda: byte_level(lines, size, split_then_bytes(*DEEPSEEK)),
        "Llama-3": llama3,
        "Mistral": mistral,
        "Metaspace always": metaspace("always"),
        "Metaspace never": metaspace("never"),
        "T5": lambda: t5(lines, size),
        "mT5 (byte fallback)": lambda: mt5(lines, size),
        "XLM-R": lambda: xlm_r(lines, size),
        "ALBERT": lambda: albert(lines, size),
        "BERT": lambda: bert(lines, size),
        "OpenAI-GPT": lambda: openai_gpt(lines, size),
        "CLIP": lambda: clip(lines, size),
        "every step": lambda: split_all(lines, size),
    }


def sentencepiece_models(lines, size):
    """name -> a function that makes the bytes of a tokenizer.model, and its tokenizer_config.json."""
    identity = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    symbols = ["\n\n", "<table>", "▁▁▁", "<b>"]
    gemma = {**identity, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "add_dummy_prefix": False, "split_digits": True}
    return {
        "Llama's tokenizer.model (BPE)": (
            lambda: sentencepiece_model(lines, size, "bpe", **identity),
            {"tokenizer_class": "LlamaTokenizer", "legacy": True},
        ),
        "Gemma's tokenizer.model (BPE)": (
            lambda: sentencepiece_model(
                lines, size, "bpe", user_defined_symbols=symbols, control_symbols=["<start_of_turn>"], **gemma
            ),
            {"tokenizer_class": "GemmaTokenizer"},
        ),
        "T5's spiece.model (Unigram)": (
            lambda: sentencepiece_model(lines, size, "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
            {"tokenizer_class": "T5Tokenizer", "extra_ids": 10},
        ),
        "a tokenizer.model (Unigram, nmt_nfkc_cf, byte fallback)": (
            lambda: sentencepiece_model(
                lines, size, "unigram", normalization_rule_name="nmt_nfkc_cf", byte_fallback=True, user_defined_symbols=["<sep>", "##"]
            ),
            {},
        ),
    }
