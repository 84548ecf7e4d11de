#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "garam/core/error.h"
#include "garam/data/rows/labelled_rows.h"
#include "garam/data/samples/read_samples.h"
#include "garam/text/builtin_templates.h"
#include "garam/text/chat_spans.h"
#include "garam/text/chat_template.h"
#include "garam/text/precompiled_charsmap.h"
#include "garam/text/sentencepiece_model.h"
#include "garam/text/tokenizer.h"
#include "garam/text/unicode.h"
#include "testing/temp_dir.h"

namespace garam::fuzz {
namespace {

// Encodes and decodes a text, whole and piece by piece.
void use(const Tokenizer& tokenizer, std::string_view text) {
    for (const bool special : {false, true}) {
        const Encoding encoding = tokenizer.encode(
            text, {.add_special_tokens = special, .parse_special_tokens = special});
        expect(encoding.ids.size() == encoding.spans.size(), "ids and spans differ in number");
        for (const ByteSpan& span : encoding.spans)
            expect(span.begin <= span.end && span.end <= text.size(),
                   "a token covers what is not there");
        StreamDecoder decoder(tokenizer, special);
        std::string streamed;
        for (const std::int32_t id : encoding.ids) {
            expect(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
            static_cast<void>(tokenizer.token_of(id));
            static_cast<void>(tokenizer.is_special(id));
            streamed += decoder.push(id);
        }
        streamed += decoder.flush();
        static_cast<void>(tokenizer.decode(encoding.ids, special));
    }
    for (const std::int32_t id : {-1, 0, 1 << 20, INT32_MAX, INT32_MIN})
        static_cast<void>(tokenizer.decode(std::vector<std::int32_t>{id}, false));
    for (const auto& id : {tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id()})
        expect(!id || (*id >= 0 && *id < tokenizer.vocab_size()), "a role beyond the vocabulary");
}

void use_tokenizer(const std::filesystem::path& model, std::string_view text) {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model);
    use(*tokenizer, "Hello abc  12\u00e9\u4e16 \U0001f600\n<|im_start|>x<s>");
    try {
        use(*tokenizer, text.substr(0, 4096));  // it is used ten times over
    } catch (const Error&) {
        return;  // invalid UTF-8
    }
}

const char* const kText =
    "The quick brown fox's 1234 \u00fcber\u0301 \uac00\ub098 <|im_end|> \t\r\n  abcabc";

std::vector<std::string> tokenizer_words() {
    return {"type",
            "BPE",
            "WordPiece",
            "Unigram",
            "ByteLevel",
            "Metaspace",
            "Sequence",
            "Split",
            "Digits",
            "Whitespace",
            "WhitespaceSplit",
            "Punctuation",
            "BertPreTokenizer",
            "pretokenizers",
            "normalizers",
            "decoders",
            "processors",
            "pattern",
            "Regex",
            "String",
            "behavior",
            "Isolated",
            "Removed",
            "MergedWithPrevious",
            "MergedWithNext",
            "Contiguous",
            "invert",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Lowercase",
            "Strip",
            "Prepend",
            "Replace",
            "content",
            "individual_digits",
            "use_regex",
            "add_prefix_space",
            "trim_offsets",
            "replacement",
            "prepend_scheme",
            "always",
            "never",
            "first",
            "split",
            "ByteFallback",
            "Fuse",
            "start",
            "stop",
            "TemplateProcessing",
            "single",
            "special_tokens",
            "RobertaProcessing",
            "cls",
            "sep",
            "vocab",
            "merges",
            "unk_token",
            "byte_fallback",
            "fuse_unk",
            "ignore_merges",
            "dropout",
            "continuing_subword_prefix",
            "end_of_word_suffix",
            "added_tokens",
            "lstrip",
            "rstrip",
            "single_word",
            "normalized",
            "special",
            "id",
            "chat_template",
            "bos_token",
            "add_bos_token",
            "added_tokens_decoder",
            "\\\\p{L}+",
            "(a|a)*b",
            "(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+",
            "\\\\s+(?!\\\\S)",
            "(x+x+)+y",
            "((((a*)*)*)*)*$",
            "(?R)",
            "(?1)",
            "\\\\C",
            "[",
            "(?<=a*)",
            "\\\\K",
            "a{65535}",
            "(*COMMIT)",
            ".*.*.*.*.*=.*",
            ""};
}

Target tokenizer_target() {
    Target target;
    target.name = "tokenizer";
    target.files = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                    "chat_template.jinja", "text.txt"};
    target.bytes = kTokenizerBytes;
    target.cpu_seconds = kTokenizerSeconds;
    target.bytes_per_byte = 400;
    target.words = tokenizer_words();
    target.seeds = [names = target.files] {
        std::vector<InputFiles> seeds = {
            {{"tokenizer.json", SmallModel::tokenizer()},
             {"tokenizer_config.json", SmallModel::tokenizer_config()},
             {"special_tokens_map.json", "{\"eos_token\": \"<|im_end|>\"}"},
             {"text.txt", kText}},
            {{"tokenizer.json", sentencepiece_tokenizer()}, {"text.txt", kText}}};
        seeds.push_back(files_of(data_folder() / "golden" / "stories260K-hf", names));
        seeds.back().push_back({"text.txt", kText});
        // The pipelines of published tokenizers around a small vocabulary.
        const std::filesystem::path pipelines =
            data_folder() / "golden" / "tokenizers" / "pipelines.json";
        if (std::filesystem::exists(pipelines)) {
            const Json all = Json::parse_file(pipelines);
            for (const auto& [name, pipeline] : all.object()) {
                Json document = Json::parse(SmallModel::tokenizer(), "seed");
                for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
                    if (const Json* value = pipeline.find(part); value != nullptr)
                        document.set(part, *value);
                seeds.push_back({{"tokenizer.json", document.dump()}, {"text.txt", kText}});
            }
        }
        return seeds;
    };
    target.run = [](const Execution& execution) {
        use_tokenizer(execution.folder, execution.bytes("text.txt"));
    };
    return target;
}

Target bpe_files_target() {
    Target target;
    target.name = "bpe_files";
    target.files = {"vocab.json", "merges.txt", "tokenizer_config.json", "config.json", "text.txt"};
    target.bytes = kTokenizerBytes;
    target.cpu_seconds = kTokenizerSeconds;
    target.bytes_per_byte = 400;
    target.words = tokenizer_words();
    for (const char* name :
         {"Qwen2Tokenizer", "GPT2Tokenizer", "tokenizer_class", "model_type", "#version: 0.2"})
        target.words.emplace_back(name);
    target.seeds = [] {
        const Json tokenizer = Json::parse(SmallModel::tokenizer(), "seed");
        Json vocab = tokenizer.at("model").at("vocab");
        for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
            vocab.set(special, static_cast<std::int64_t>(vocab.object().size()));
        std::vector<InputFiles> seeds;
        for (const char* name : {"Qwen2Tokenizer", "GPT2Tokenizer"}) {
            Json config = Json::parse(SmallModel::tokenizer_config(), "seed");
            config.set("tokenizer_class", name);
            config.set("added_tokens_decoder", Json::Object{});
            seeds.push_back({{"vocab.json", vocab.dump()},
                             {"merges.txt", "#version: 0.2\na b\nab c\n"},
                             {"tokenizer_config.json", config.dump(1)},
                             {"text.txt", kText}});
        }
        return seeds;
    };
    target.run = [](const Execution& execution) {
        use_tokenizer(execution.folder, execution.bytes("text.txt"));
    };
    return target;
}

Target sentencepiece_target() {
    Target target;
    target.name = "sentencepiece";
    target.files = {"tokenizer.model", "tokenizer_config.json", "text.txt"};
    target.bytes = kTokenizerBytes;
    target.cpu_seconds = kTokenizerSeconds;
    target.bytes_per_byte = 400;
    for (const char* word : {"LlamaTokenizer", "T5Tokenizer", "GemmaTokenizer", "tokenizer_class",
                             "legacy", "extra_ids", "add_bos_token", "<0x41>", "\xE2\x96\x81"})
        target.words.emplace_back(word);
    target.seeds = [] {
        std::vector<InputFiles> seeds;
        const std::filesystem::path folder = source_folder() / "tests" / "text" / "files";
        for (const char* name : {"llama-bpe", "gemma-bpe", "t5-unigram"})
            seeds.push_back(
                {{"tokenizer.model", testing::read_file(folder / (std::string(name) + ".model"))},
                 {"tokenizer_config.json", "{\"tokenizer_class\": \"T5Tokenizer\"}"},
                 {"text.txt", kText}});
        return seeds;
    };
    target.run = [](const Execution& execution) {
        use_tokenizer(execution.folder, execution.bytes("text.txt"));
    };
    return target;
}

// Models other than byte-level BPE, and every kind of step around them.
Target tokenizer_structures_target() {
    Target target = tokenizer_target();
    target.name = "tokenizer_structures";
    for (const char* word : {"Precompiled",
                             "precompiled_charsmap",
                             "StripAccents",
                             "Nmt",
                             "BertNormalizer",
                             "clean_text",
                             "handle_chinese_chars",
                             "strip_accents",
                             "lowercase",
                             "CharDelimiterSplit",
                             "delimiter",
                             "FixedLength",
                             "length",
                             "BPEDecoder",
                             "suffix",
                             "prefix",
                             "cleanup",
                             "unk_id",
                             "max_input_chars_per_word",
                             "BertProcessing",
                             "RobertaProcessing"})
        target.words.emplace_back(word);
    target.seeds = [] {
        std::vector<InputFiles> seeds;
        const std::filesystem::path folder = source_folder() / "tests" / "text" / "files";
        for (const char* name : {"t5", "mt5", "xlm-r", "albert", "bert", "openai-gpt", "clip",
                                 "falcon", "gemma", "every-step"}) {
            const Json file = Json::parse_file(folder / (std::string(name) + ".json"));
            seeds.push_back({{"tokenizer.json", file.at("tokenizer").dump()}, {"text.txt", kText}});
        }
        return seeds;
    };
    return target;
}

Target charsmap_target() {
    Target target;
    target.name = "charsmap";
    target.files = {"charsmap", "text.txt"};
    target.bytes = kTokenizerBytes;
    target.cpu_seconds = kTokenizerSeconds;
    target.bytes_per_byte = 400;
    target.seeds = [] {
        const SentencePieceModel model = read_sentencepiece_model(
            source_folder() / "tests" / "text" / "files" / "t5-unigram.model");
        return std::vector<InputFiles>{
            {{"charsmap", model.precompiled_charsmap},
             {"text.txt", "\uFB01 \u00BD \u2167 e\u0301 u\u0308 \t\r\n\u3000 abc"}}};
    };
    target.run = [](const Execution& execution) {
        const PrecompiledCharsmap charsmap(execution.bytes("charsmap"), "charsmap");
        const std::string text = replace_invalid_utf8(execution.bytes("text.txt").substr(0, 4096));
        const AlignedText made = charsmap.apply(AlignedText(text, 0));
        expect(first_invalid_utf8(made.text()) == std::string::npos, "text that is no UTF-8");
        for (std::size_t i = 0; i < made.text().size(); ++i) {
            const ByteSpan from = made.source(i, i + 1);
            expect(from.begin <= from.end && from.end <= text.size(),
                   "a character comes from what is not there");
        }
    };
    return target;
}

Target gguf_tokenizer_target() {
    Target target;
    target.name = "gguf_tokenizer";
    target.files = {"model.gguf"};
    target.bytes = kTokenizerBytes;
    target.cpu_seconds = kTokenizerSeconds;
    target.bytes_per_byte = 400;
    target.seeds = gguf_seeds;
    target.run = [](const Execution& execution) { use_tokenizer(execution / "model.gguf", kText); };
    return target;
}

std::vector<ChatMessage> conversation() {
    std::vector<ChatMessage> messages = {{"system", "Be brief."},
                                         {"user", "Hi <|im_end|> {{ 1 }} \u00e9\n"},
                                         {"assistant", "<think>\nno\n</think>\n\nHello.  "},
                                         {"user", ""},
                                         {"assistant", ""},
                                         {"tool", "{\"sky\": 1}"},
                                         {"assistant", "1, 2"}};
    const Json call = Json::Object{
        {"name", "get"},
        {"arguments",
         Json::Object{{"city", "\uac00"}, {"n", 2}, {"x", Json::Array{1.5, nullptr}}}}};
    messages[4].more = {
        {"content", nullptr},
        {"tool_calls", Json::Array{Json::Object{{"type", "function"}, {"function", call}}}}};
    messages[6].more = {{"reasoning_content", "hm"},
                        {"content", Json::Array{Json::Object{{"type", "text"}, {"text", "1, 2"}}}}};
    messages[2].train = false;
    return messages;
}

Target template_target() {
    Target target;
    target.name = "template";
    target.files = {"chat_template.jinja"};
    // The budget of a template (text/jinja/budget.h) bounds what it makes, not the size of its source.
    target.bytes = std::size_t{1} << 30;
    target.bytes_per_byte = 1000;
    target.cpu_seconds = 20;
    target.words = {"{% for m in messages %}",
                    "{% endfor %}",
                    "{% for i in range(100) %}",
                    "{% if true %}",
                    "{% endif %}",
                    "{% else %}",
                    "{% elif loop.first %}",
                    "{% set x = x ~ x %}",
                    "{% set x = [x, x] %}",
                    "{% set x %}",
                    "{% endset %}",
                    "{% set ns = namespace(a=1) %}",
                    "{% set ns.a = ns.a + 1 %}",
                    "{% macro f(a, b=1) %}",
                    "{{ f(a) }}",
                    "{% endmacro %}",
                    "{{ f(f(1)) }}",
                    "{{ x }}",
                    "{#",
                    "#}",
                    "{%- break -%}",
                    "{% continue %}",
                    "{% generation %}",
                    "{% endgeneration %}",
                    "{% raw %}",
                    "| trim",
                    "| tojson(indent=4)",
                    "| join(x)",
                    "| length",
                    "| list",
                    "| map(attribute='role')",
                    "| selectattr('role', 'equalto', 'user')",
                    "| rejectattr('content')",
                    "| map('upper')",
                    "| default('d', true)",
                    "| replace('', 'abc')",
                    "| indent(1000000)",
                    "| int",
                    "| float",
                    "| string",
                    "| items",
                    "| dictsort",
                    "| reverse",
                    "| first",
                    "| last",
                    "| unique",
                    "| sort",
                    "| title",
                    ".split('')",
                    ".split(none, 1)",
                    ".strip('a')",
                    ".replace('a', 'aa')",
                    ".items()",
                    ".get('a', 1)",
                    ".keys()",
                    ".startswith(('a', 'b'))",
                    ".upper()",
                    ".find('')",
                    ".rsplit('n')",
                    ".splitlines()",
                    ".removeprefix('H')",
                    "[::-1]",
                    "[1:-1]",
                    "[::0]",
                    "[-9223372036854775808:]",
                    "* 1000000",
                    "* -1",
                    "** 100000",
                    "// 0",
                    "% 0",
                    "% -1",
                    "- -9223372036854775807",
                    "~ x",
                    "+ x",
                    "is defined",
                    "is not none",
                    "is mapping",
                    "is divisibleby(0)",
                    "is sameas x",
                    "in x",
                    "not ",
                    "if x else y",
                    "range(1, 9223372036854775807, 4611686018427387904)",
                    "range(1000000)",
                    "range(0, 10, 0)",
                    "range(5, -9223372036854775807, -9223372036854775807)",
                    "loop.index",
                    "loop.cycle('a', 'b')",
                    "loop.previtem",
                    "messages",
                    "raise_exception('no')",
                    "namespace(a=messages)",
                    "dict(a=1)",
                    "{'a': 1, 'b': [1, {}]}",
                    "1e400",
                    "9223372036854775807",
                    "-9223372036854775808",
                    "0x10",
                    "1_000",
                    "'\\x41\\u00e9\\U0001f600\\n'",
                    "\"\"",
                    "(1,)",
                    "()",
                    "strftime_now('%d')",
                    "tools[0].items",
                    "messages[4].tool_calls",
                    "message.reasoning_content",
                    "tojson(indent=2, sort_keys=true)",
                    "| sort(attribute='role')",
                    "| groupby('role')",
                    "| dictsort",
                    "| unique",
                    "| batch(2)",
                    "'{}{}'.format(",
                    "'%s' % ",
                    "{% generation %}",
                    "{% endgeneration %}",
                    "{% call f() %}",
                    "{% endcall %}",
                    "caller()",
                    "recursive",
                    "loop(messages)",
                    "{% filter trim %}",
                    "{% endfilter %}",
                    "{% with x = messages %}",
                    "{% endwith %}",
                    "| safe",
                    "| e",
                    "%}",
                    "}}",
                    "{{",
                    "{%",
                    "-%}",
                    "{%-",
                    "{%+"};
    target.seeds = [] {
        std::vector<InputFiles> seeds;
        for (const std::string& name : builtin_chat_templates())
            seeds.push_back({{"chat_template.jinja", builtin_chat_template(name)}});
        for (InputFiles& files :
             reference_files(data_folder() / "golden" / "chat", ".jinja", "chat_template.jinja"))
            seeds.push_back(std::move(files));
        const std::string snippets =
            testing::read_file(source_folder() / "tests" / "interop" / "template_snippets.txt");
        for (std::size_t at = 0; at < snippets.size();) {
            const std::size_t end = std::min(snippets.find("%%%%\n", at), snippets.size());
            seeds.push_back({{"chat_template.jinja", snippets.substr(at, end - at)}});
            at = end + 5;
        }
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const ChatTemplate chat(execution.bytes("chat_template.jinja"), "template");
        const std::vector<ChatMessage> messages = conversation();
        const RenderedChat rendered = chat.render(
            messages, {.add_generation_prompt = true,
                       .bos_token = "<s>",
                       .eos_token = "</s>",
                       .tools = Json::Array{Json::Object{{"name", "get"}, {"items", 1}}},
                       .variables = {{"enable_thinking", false}},
                       .now = 0});
        for (std::size_t i = 0; i < rendered.marks.size(); ++i) {
            const jinja::Mark& mark = rendered.marks[i];
            expect(mark.begin <= mark.end && mark.end <= rendered.text.size() &&
                       (i == 0 || rendered.marks[i - 1].end <= mark.begin),
                   "marks out of order");
            expect(mark.message < static_cast<int>(messages.size()), "a mark of no message");
        }
        expect(rendered.contents.size() == messages.size() &&
                   rendered.present.size() == messages.size(),
               "not one span for each message");
        for (const ByteSpan& span : rendered.contents)
            expect(span.begin <= span.end && span.end <= rendered.text.size(),
                   "a message's span lies outside of the text");
        if (rendered.text.size() > 10000) return;
        try {
            const testing::ByteTokenizer tokenizer;
            const ChatTokens tokens = tokenize_chat(chat, messages, {}, tokenizer);
            expect(tokens.num_targets > 0 || !tokens.why_no_targets.empty(),
                   "no targets and no reason");
        } catch (const Error&) {
            return;
        }
    };
    return target;
}

Target rows_target() {
    Target target;
    target.name = "rows";
    target.files = {"rows.jsonl"};
    target.cpu_seconds =
        20;  // thousands of turns, each rendered up to its prompt where those differ
    target.bytes = std::size_t{4} << 20;
    target.bytes_per_byte = 400;
    target.words = {"messages", "role",  "content", "user",       "assistant",
                    "system",   "tool",  "prompt",  "completion", "text",
                    "label",    "<bos>", "<eos>",   "<|im_end|>"};
    target.seeds = [] {
        std::vector<InputFiles> seeds;
        for (const char* rows : {"{\"text\": \"one\"}\n{\"text\": \"two\"}\n",
                                 "{\"prompt\": \"a\", \"completion\": \"b\"}\r\n\n{\"prompt\": "
                                 "\"\", \"completion\": \"c\"}",
                                 "{\"text\": \"win now\", \"label\": \"spam\"}\n{\"text\": \"hi\", "
                                 "\"label\": \"ham\"}\n",
                                 "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, "
                                 "{\"role\": \"user\", \"content\": \"q\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"\u00e9\"}]}\n"})
            seeds.push_back({{"rows.jsonl", rows}});
        const std::string spam =
            testing::read_file(source_folder() / "examples" / "spam" / "train.jsonl");
        seeds.push_back({{"rows.jsonl", spam.substr(0, spam.find('\n', 1500) + 1)}});
        return seeds;
    };
    target.run = [](const Execution& execution) {
        testing::ByteTokenizer::Setup setup;
        setup.adds_bos = true;
        setup.merges = {"\nb", "in"};
        setup.chat_template = testing::kChatMl;
        const testing::ByteTokenizer tokenizer(setup);
        const std::filesystem::path file = execution / "rows.jsonl";
        DataConfig config;
        EncodingSettings settings;
        settings.max_length = 64;
        settings.vocab_size = tokenizer.vocab_size();
        config.on_error = "skip";
        std::string refusal;
        try {
            const SampleSet set = read_samples(file, config, settings, tokenizer);
            for (const Sample& sample : set.samples)
                expect(sample.ids.size() == sample.labels.size() && sample.ids.size() <= 64,
                       "a sample is longer than max_length");
            static_cast<void>(set.report.summary());
        } catch (const Error& error) {
            refusal = error.what();
        }
        config.label_column = "label";
        config.instruction = "What is {text}?";
        settings.truncation = Truncation::keep_end;
        read_labelled_rows(DataPlaces::of(file.string()), config, settings, tokenizer);
        if (!refusal.empty()) throw Error(refusal);
    };
    return target;
}

}  // namespace

std::vector<Target> text_targets() {
    return {tokenizer_target(),
            bpe_files_target(),
            gguf_tokenizer_target(),
            sentencepiece_target(),
            tokenizer_structures_target(),
            charsmap_target(),
            template_target(),
            rows_target()};
}

}  // namespace garam::fuzz
