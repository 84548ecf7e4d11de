#include "garam/text/builtin_templates.h"

#include <map>

#include "garam/core/error.h"

namespace garam {
namespace {

// Formats without tools must not lose them without a word.
constexpr const char* kNoTools = R"({%- if tools -%}
    {{- raise_exception('this chat template has no place for tools; the built-in qwen has') -}}
{%- endif -%}
{%- for message in messages if message.tool_calls or message.role == 'tool' -%}
    {{- raise_exception('this chat template has no place for tool calls; the built-in qwen has') -}}
{%- endfor -%}
)";

// Turns that differ in their words alone: each is a beginning, the content and an end.
struct Turns {
    std::string start;  // of the text
    std::string system;
    std::string system_end;
    std::string user;
    std::string user_end;
    std::string assistant;
    std::string said;            // behind the header, said by the assistant before the content
    std::string said_end;        // what ends its turn
    std::string behind;          // what stands behind that
    std::string prompt;          // asks for an answer
    std::string default_system;  // where the conversation has none
    bool trims = false;
};

// The pieces are expressions.
std::string turn_by_turn(const Turns& turns) {
    const std::string content = turns.trims ? "message.content | trim" : "message.content";
    std::string source = kNoTools;
    if (!turns.start.empty()) source += "{{- " + turns.start + " -}}\n";
    if (!turns.default_system.empty()) {
        source += "{%- if not messages or messages[0].role != 'system' -%}\n    {{- " +
                  turns.default_system + " -}}\n{%- endif -%}\n";
    }
    source += "{%- for message in messages -%}\n";
    source += "    {%- if message.role == 'system' -%}\n        {{- " + turns.system + " ~ (" +
              content + ") ~ " + turns.system_end + " -}}\n";
    source += "    {%- elif message.role == 'user' -%}\n        {{- " + turns.user + " ~ (" +
              content + ") ~ " + turns.user_end + " -}}\n";
    source += "    {%- elif message.role == 'assistant' -%}\n        {{- " + turns.assistant +
              " -}}\n        {%- generation -%}\n            {{- " + turns.said + " ~ (" + content +
              ") ~ " + turns.said_end + " -}}\n        {%- endgeneration -%}\n";
    if (!turns.behind.empty()) source += "        {{- " + turns.behind + " -}}\n";
    source +=
        "    {%- else -%}\n        {{- raise_exception('this chat template has no role ' ~ "
        "message.role) -}}\n    {%- endif -%}\n{%- endfor -%}\n";
    source += "{%- if add_generation_prompt -%}\n    {{- " + turns.prompt + " -}}\n{%- endif -%}\n";
    return source;
}

// No system role: its words stand before the first user's. `folded` is the template of those turns.
std::string with_folded_system(const std::string& around_system, const std::string& turns) {
    return std::string(kNoTools) + R"({%- set rest = messages -%}
{%- set system = '' -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set system = )" +
           around_system + R"( -%}
    {%- set rest = messages[1:] -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}
        {{- raise_exception('user and assistant must take turns, behind one system message at most') -}}
    {%- endif -%}
{%- endfor -%}
)" + turns;
}

std::string chatml(const std::string& role_end, const std::string& end, const std::string& behind) {
    return turn_by_turn({.start = "",
                         .system = "'<|im_start|>system" + role_end + "'",
                         .system_end = "'" + end + behind + "'",
                         .user = "'<|im_start|>user" + role_end + "'",
                         .user_end = "'" + end + behind + "'",
                         .assistant = "'<|im_start|>assistant" + role_end + "'",
                         .said = "''",
                         .said_end = "'" + end + "'",
                         .behind = behind.empty() ? "" : "'" + behind + "'",
                         .prompt = "'<|im_start|>assistant" + role_end + "'",
                         .default_system = ""});
}

std::string llama3() {
    const auto header = [](const std::string& role) {
        return "'<|start_header_id|>" + role + R"(<|end_header_id|>\n\n')";
    };
    return turn_by_turn({.start = "bos_token",
                         .system = header("system"),
                         .system_end = "'<|eot_id|>'",
                         .user = header("user"),
                         .user_end = "'<|eot_id|>'",
                         .assistant = header("assistant"),
                         .said = "''",
                         .said_end = "'<|eot_id|>'",
                         .behind = "",
                         .prompt = header("assistant"),
                         .default_system = "",
                         .trims = true});
}

std::string alpaca() {
    return turn_by_turn(
        {.start = "bos_token",
         .system = "''",
         .system_end = R"('\n\n')",
         .user = R"('### Instruction:\n')",
         .user_end = R"('\n\n')",
         .assistant = R"('### Response:\n')",
         .said = "''",
         .said_end = "eos_token",
         .behind = R"('\n\n')",
         .prompt = R"('### Response:\n')",
         .default_system =
             R"('Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n')"});
}

std::string vicuna() {
    return turn_by_turn(
        {.start = "bos_token",
         .system = "''",
         .system_end = "' '",
         .user = "'USER: '",
         .user_end = "' '",
         .assistant = "'ASSISTANT:'",
         .said = "' '",
         .said_end = "eos_token",
         .behind = "",
         .prompt = "'ASSISTANT:'",
         .default_system =
             R"("A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions. ")"});
}

std::string zephyr() {
    return turn_by_turn({.start = "",
                         .system = R"('<|system|>\n')",
                         .system_end = R"(eos_token ~ '\n')",
                         .user = R"('<|user|>\n')",
                         .user_end = R"(eos_token ~ '\n')",
                         .assistant = R"('<|assistant|>\n')",
                         .said = "''",
                         .said_end = "eos_token",
                         .behind = R"('\n')",
                         .prompt = R"('<|assistant|>\n')",
                         .default_system = ""});
}

std::string phi3() {
    return turn_by_turn({.start = "",
                         .system = R"('<|system|>\n')",
                         .system_end = R"('<|end|>\n')",
                         .user = R"('<|user|>\n')",
                         .user_end = R"('<|end|>\n')",
                         .assistant = R"('<|assistant|>\n')",
                         .said = "''",
                         .said_end = "'<|end|>'",
                         .behind = R"('\n')",
                         .prompt = R"('<|assistant|>\n')",
                         .default_system = ""});
}

std::string exaone() {
    return turn_by_turn({.start = "",
                         .system = "'[|system|]'",
                         .system_end = R"('[|endofturn|]\n')",
                         .user = "'[|user|]'",
                         .user_end = R"('\n')",
                         .assistant = "'[|assistant|]'",
                         .said = "''",
                         .said_end = "'[|endofturn|]'",
                         .behind = R"('\n')",
                         .prompt = "'[|assistant|]'",
                         .default_system = R"('[|system|][|endofturn|]\n')"});
}

std::string llama2() {
    return with_folded_system(R"('<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n')",
                              R"({%- for message in rest -%}
    {%- if message.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ (message.content | trim) ~ ' [/INST]' -}}
    {%- else -%}
        {%- generation -%}
            {{- ' ' ~ (message.content | trim) ~ ' ' ~ eos_token -}}
        {%- endgeneration -%}
    {%- endif -%}
{%- endfor -%}
)");
}

std::string mistral() {
    return with_folded_system(R"(messages[0].content ~ '\n\n')",
                              R"({{- bos_token -}}
{%- for message in rest -%}
    {%- if message.role == 'user' -%}
        {{- '[INST] ' ~ (system if loop.first else '') ~ message.content ~ '[/INST]' -}}
    {%- else -%}
        {%- generation -%}
            {{- ' ' ~ (message.content | trim) ~ eos_token -}}
        {%- endgeneration -%}
    {%- endif -%}
{%- endfor -%}
)");
}

std::string gemma() {
    return with_folded_system(R"((messages[0].content | trim) ~ '\n\n')",
                              R"({{- bos_token -}}
{%- for message in rest -%}
    {%- if message.role == 'user' -%}
        {{- '<start_of_turn>user\n' ~ (system if loop.first else '') ~ (message.content | trim) ~ '<end_of_turn>\n' -}}
    {%- else -%}
        {{- '<start_of_turn>model\n' -}}
        {%- generation -%}
            {{- (message.content | trim) ~ '<end_of_turn>' -}}
        {%- endgeneration -%}
        {{- '\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\n' -}}
{%- endif -%}
)");
}

// ChatML with thoughts, tool calls and their answers in the tags that Qwen and Hermes use.
std::string qwen() {
    return R"({%- set rest = messages -%}
{%- set system = '' -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set system = messages[0].content -%}
    {%- set rest = messages[1:] -%}
{%- endif -%}
{%- if tools -%}
    {{- '<|im_start|>system\n' ~ system ~ ('\n\n' if system else '') -}}
    {{- '# Tools\n\nThese functions can be called:\n<tools>' -}}
    {%- for tool in tools -%}
        {{- '\n' ~ (tool | tojson) -}}
    {%- endfor -%}
    {{- '\n</tools>\n\nA call is written as JSON between <tool_call></tool_call> tags:\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' -}}
{%- elif rest | length != messages | length -%}
    {{- '<|im_start|>system\n' ~ system ~ '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in rest -%}
    {%- if message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- generation -%}
            {%- if message.reasoning_content -%}
                {{- '<think>\n' ~ (message.reasoning_content | trim) ~ '\n</think>\n\n' -}}
            {%- endif -%}
            {{- message.content -}}
            {%- for call in message.tool_calls or [] -%}
                {%- set function = call.function or call -%}
                {{- ('\n' if message.content or not loop.first else '') ~ '<tool_call>\n{"name": ' ~ (function.name | tojson) ~ ', "arguments": ' -}}
                {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
                {{- '}\n</tool_call>' -}}
            {%- endfor -%}
            {{- '<|im_end|>' -}}
        {%- endgeneration -%}
        {{- '\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' -}}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' -}}
        {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' -}}
    {%- else -%}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
    {{- '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false -}}
{%- endif -%}
)";
}

const std::map<std::string, std::string, std::less<>>& table() {
    static const std::map<std::string, std::string, std::less<>> made = {
        {"alpaca", alpaca()},
        {"chatml", chatml("\\n", "<|im_end|>", "\\n")},
        {"exaone", exaone()},
        {"gemma", gemma()},
        {"llama2", llama2()},
        {"llama3", llama3()},
        {"mistral", mistral()},
        {"phi3", phi3()},
        {"phi4", chatml("<|im_sep|>", "<|im_end|>", "")},
        {"qwen", qwen()},
        {"vicuna", vicuna()},
        {"zephyr", zephyr()}};
    return made;
}

}  // namespace

bool is_builtin_chat_template(std::string_view name) {
    return table().find(name) != table().end();
}

std::vector<std::string> builtin_chat_templates() {
    std::vector<std::string> names;
    for (const auto& [name, source] : table())
        names.push_back(name);
    return names;
}

const std::string& builtin_chat_template(std::string_view name) {
    if (const auto found = table().find(name); found != table().end()) return found->second;
    std::string known;
    for (const std::string& other : builtin_chat_templates())
        known += (known.empty() ? "" : ", ") + other;
    throw Error("there is no built-in chat template \"" + std::string(name) + "\"; known are " +
                known);
}

}  // namespace garam
