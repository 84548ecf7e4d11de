#include "garam/text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/text/builtin_templates.h"
#include "garam/text/jinja/budget.h"
#include "io/mutation.h"

namespace garam {
namespace {

const std::vector<ChatMessage> kTalk = {{"system", " Be brief. "},
                                        {"user", "가나 hi"},
                                        {"assistant", "<think>hm</think>\n\nyo"},
                                        {"user", ""},
                                        {"assistant", ""}};

std::string render(std::string_view source, const std::vector<ChatMessage>& messages = kTalk,
                   const ChatTemplate::Options& options = {}) {
    return ChatTemplate(source, "t").render(messages, options).text;
}

// The contents as the rendered text has them, "-" for a message that is left out.
std::vector<std::string> contents(std::string_view source,
                                  const std::vector<ChatMessage>& messages = kTalk) {
    const RenderedChat chat = ChatTemplate(source, "t").render(messages, {});
    std::vector<std::string> out;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const ByteSpan span = chat.contents[i];
        EXPECT_LE(span.begin, span.end);
        EXPECT_LE(span.end, chat.text.size());
        out.push_back(chat.present[i] ? chat.text.substr(span.begin, span.end - span.begin) : "-");
    }
    return out;
}

std::string parse_error(std::string_view source) {
    try {
        const ChatTemplate made(source, "t.jinja");
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}
std::string render_error(std::string_view source) {
    try {
        const ChatTemplate made(source, "t.jinja");
        made.render(kTalk, {});
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST(ChatTemplate, Language) {
    const std::pair<const char*, const char*> cases[] = {
        {"a{{ 1 + 2 * 3 }}b", "a7b"},
        {"{% for i in range(3) %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}", "0,1,2"},
        {"{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor "
         "%}{{ ns.n }}",
         "5"},
        {"  {% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"},
        {"{%- if false -%} a {%- elif 1 == 1.0 -%}  b  {%- else -%} c {%- endif -%}", "b"},
        {"{% macro f(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f('y', b='?') }}",
         "x!y?"},
        {"{{ 'abc'[1:] ~ 'abc'[-1] ~ [1, 2][0] }}", "bcc1"},
        {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "2"},
        {"{{ {'a': [1, none, true], 'b': '가\"'} | tojson }}",
         "{\"a\": [1, null, true], \"b\": \"가\\\"\"}"},
        {"{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{% if "
         "loop.index0 == 3 %}{% break %}{% endif %}{{ m.role[0] }}{% endfor %}",
         "sa"},
        {"{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "1False"},
        {"{{ missing }}{{ missing | default('d') }}{{ tools is none }}", "dTrue"},
        {"{% raw %}{{ x }}{% endraw %}{# gone #}", "{{ x }}"},
        {"{% set t %}a{{ 1 }}{% endset %}{{ t * 2 }}", "a1a1"},
        {"{{ strftime_now is defined }}{{ strftime_now('') }}", "True"}};
    for (const auto& [source, want] : cases)
        EXPECT_EQ(render(source), want) << source;
}

// What a filter goes through then exists for this filter alone.
TEST(ChatTemplate, FiltersGoThroughCharactersAndKeys) {
    EXPECT_EQ(render("{{ 'abc' | map('upper') | join('-') }}"), "A-B-C");
    EXPECT_EQ(render("{{ 'a' | map(attribute='role') | list }}"), "[Undefined]");
    EXPECT_EQ(render("{{ {'a': 1, 'b': 2, 'c': 3} | reject('eq', 'b') | join }}"), "ac");
    EXPECT_EQ(render("{{ messages[0] | select('in', ['role']) | join }}"), "role");
    EXPECT_EQ(render("{{ 'ab' | join('-', attribute=0) }}"), "a-b");
}

TEST(ChatTemplate, MembersToolsAndVariables) {
    const Json tools = Json::parse(
        R"([{"name": "get", "parameters": {"items": {"type": "string"}, "b": 1, "a": "é"}}])", "t");
    ChatTemplate::Options options;
    options.tools = tools;
    options.variables = {{"enable_thinking", false}, {"documents", Json::Array{"d"}}};
    options.now = 86400 * 200;
    const std::vector<ChatMessage> talk = {
        ChatMessage::from_json(Json::parse(R"({"role": "assistant", "content": null, "name": null,
            "thinking": "hm", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]})",
                                           "t"),
                               "t"),
        ChatMessage::from_json(
            Json::parse(R"({"role": "user", "content": [{"type": "text", "text": "p"}]})", "t"),
            "t")};
    const std::pair<const char*, const char*> cases[] = {
        {"{{ tools | tojson }}",
         "[{\"name\": \"get\", \"parameters\": {\"items\": {\"type\": \"string\"}, \"b\": 1, "
         "\"a\": "
         "\"é\"}}]"},
        {"{{ tools[0].parameters | tojson(sort_keys=true, ensure_ascii=true, separators=(',', "
         "':')) }}",
         "{\"a\":\"\\u00e9\",\"b\":1,\"items\":{\"type\":\"string\"}}"},
        // A key that is the name of a method is reached by brackets alone, as in Python.
        {"{{ tools[0].parameters['items'].type }}{{ tools[0].parameters.items is mapping }}",
         "stringFalse"},
        {"{{ enable_thinking is false }}{{ documents[0] }}", "Trued"},
        {"{{ 'content' in messages[0] }}{{ messages[0].content is defined }}{{ 'name' in "
         "messages[0] }}",
         "FalseFalseFalse"},
        {"{{ messages[0].reasoning_content }}{{ messages[0].tool_calls[0].function.arguments.x }}",
         "hm1"},
        {"{{ messages[1].content[0].text }}", "p"},
        {"{{ strftime_now('%Y-%m') }}", "1970-07"}};
    for (const auto& [source, want] : cases)
        EXPECT_EQ(render(source, talk, options), want) << source;
}

TEST(ChatTemplate, MessagesFromJsonAreChecked) {
    const auto refusal = [](const char* json) -> std::string {
        try {
            ChatMessage::from_json(Json::parse(json, "row"), "rows.jsonl:3: messages[0]");
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    };
    for (const char* json :
         {R"({"content": "x"})", R"({"role": 1})", R"("x")", R"({"role": "user", "content": 1})",
          R"({"role": "assistant", "content": "x", "weight": 0.5})",
          R"({"role": "user", "content": {}})",
          R"({"role": "user", "content": "x", "train": "no"})",
          R"({"role": "user", "content": [{"type": "image_url"}]})"})
        EXPECT_NE(refusal(json).find("rows.jsonl:3: messages[0]"), std::string::npos) << json;
}

TEST(ChatTemplate, BlocksAndFilters) {
    const std::pair<const char*, const char*> cases[] = {
        {"{% macro box(t) %}[{{ t }}{{ caller(1) }}]{% endmacro %}{% call(n) box('a') %}b{{ n }}{% "
         "endcall %}",
         "[ab1]"},
        {"{% filter upper | replace('A', 'o') %}ab{% endfilter %}", "oB"},
        {"{% set t | trim %} x {% endset %}<{{ t }}>", "<x>"},
        {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
        {"{% for i in [1, [2, [3]]] recursive %}{{ i if i is number else '(' ~ loop(i) ~ ')' }}{{ "
         "loop.depth }}{% endfor %}",
         "11(22(33)2)1"},
        {"{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "TrueFalseTrue"},
        {"{{ ['b', 'A', 'c'] | sort | join }}{{ ['b', 'A', 'B'] | unique | join }}", "AbcbA"},
        {"{% for role, group in messages | groupby('role') %}{{ role }}{{ group | length }}{% "
         "endfor %}",
         "assistant2system1user2"},
        {"{{ {'b': 1, 'a': 2} | dictsort }}{{ [1, 2, 3] | sum }}{{ [1, 3, 2] | max }}",
         "[('a', 2), ('b', 1)]63"},
        {"{{ '{} {x}'.format(1, x='y') }}{{ '%s-%d' % ('a', 2) }}{{ 'a-b-c'.rpartition('-')[0] }}",
         "1 ya-2a-b"},
        {"{{ ['a\u2028\x7f'] }}", "['a\\u2028\\x7f']"},
        {"{{ 'a\r\nb' | indent(1) }}", "a\n b"},
        {"{{ 'ǆ' | capitalize }}{{ 'ǆ'.title() }}{{ 'ǆ' | title }}{{ 'ǆ' | upper }}", "ǅǅǄǄ"},
        {"{{ messages | selectattr('role', '==', 'user') | list | length }}", "2"}};
    for (const auto& [source, want] : cases)
        EXPECT_EQ(render(source), want) << source;
}

TEST(ChatTemplate, RemaindersOfLargeNumbers) {
    EXPECT_EQ(render("{{ 9223372036854775807 % -3074457345618258603 }}"), "-2");
    EXPECT_EQ(render("{{ 9223372036854775807 // -3074457345618258603 }}"), "-3");
    EXPECT_EQ(render("{{ 7000000000000000000 % -4000000000000000000 }}"), "-1000000000000000000");
    EXPECT_EQ(render("{{ -7000000000000000000 % 4000000000000000000 }}"), "1000000000000000000");
}

TEST(ChatTemplate, ContentsAreFoundThroughChanges) {
    using Parts = std::vector<std::string>;
    const std::string all = "{% for m in messages %}";
    EXPECT_EQ(contents(all + "[{{ m.content }}]{% endfor %}"),
              (Parts{" Be brief. ", "가나 hi", "<think>hm</think>\n\nyo", "", ""}));
    EXPECT_EQ(contents(all + "{{ '<' + m['content'] | trim + '>' }}{% endfor %}"),
              (Parts{"Be brief.", "가나 hi", "<think>hm</think>\n\nyo", "", ""}));
    EXPECT_EQ(
        contents(all + "{{ m.role ~ m.content.split('</think>')[-1].lstrip('\\n') }}{% endfor %}"),
        (Parts{" Be brief. ", "가나 hi", "yo", "", ""}));
    EXPECT_EQ(contents(all + "{{ m.content | upper | replace('HI', 'bye') }}{% endfor %}"),
              (Parts{" BE BRIEF. ", "가나 bye", "<TbyeNK>HM</TbyeNK>\n\nYO", "", ""}));
    EXPECT_EQ(contents(all + "{{ m.content | tojson }}{% endfor %}"),
              (Parts{" Be brief. ", "가나 hi", "<think>hm</think>\\n\\nyo", "", ""}));
    EXPECT_EQ(contents(all + "{{ m.content[1:3] }}{% endfor %}"),
              (Parts{"Be", "나 ", "th", "", ""}));
    EXPECT_EQ(contents("{{ messages | map(attribute='content') | join('|') }}"),
              (Parts{" Be brief. ", "가나 hi", "<think>hm</think>\n\nyo", "", ""}));
    EXPECT_EQ(
        contents("{% macro say(m) %}{% set c %}{{ m.content }}{% endset %}<{{ c }}>{% endmacro "
                 "%}{% for m in messages %}{{ say(m) }}{% endfor %}"),
        (Parts{" Be brief. ", "가나 hi", "<think>hm</think>\n\nyo", "", ""}));
    // A message that is left out, and one whose content is empty, are not the same.
    EXPECT_EQ(contents(all + "{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"),
              (Parts{"-", "가나 hi", "<think>hm</think>\n\nyo", "", ""}));
    // A system message put into the first user's turn.
    EXPECT_EQ(contents("{{ '<<' + messages[0].content + '>>' + messages[1].content }}"),
              (Parts{" Be brief. ", "가나 hi", "-", "-", "-"}));
}

TEST(ChatTemplate, PartsOfOneContent) {
    // Thought and answer apart: the content is all of it.
    EXPECT_EQ(contents("{% set c = messages[2].content %}<t>{{ c.split('</think>')[0] }}</t>{{ "
                       "c.split('</think>')[-1] }}")[2],
              "<think>hm</t>\n\nyo");
    // Said again later, behind another message: the last place counts.
    const RenderedChat chat =
        ChatTemplate("{{ messages[1].content }}{{ messages[2].content }}{{ messages[1].content }}",
                     "t")
            .render(kTalk, {});
    EXPECT_EQ(chat.contents[1].end, chat.text.size());
    EXPECT_EQ(chat.contents[1].begin, chat.text.size() - kTalk[1].content.size());
}

TEST(ChatTemplate, ContentIsNeverRunAsATemplate) {
    const std::vector<ChatMessage> talk = {{"user", "{{ 1 + 1 }}{% if %}{# x"}};
    EXPECT_EQ(render("{{ messages[0].content }}", talk), talk[0].content);
}

TEST(ChatTemplate, BuiltIn) {
    const std::vector<ChatMessage> talk = {{"user", " hi "}, {"assistant", "yo"}};
    EXPECT_EQ(render(builtin_chat_template("chatml"), talk),
              "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n");
    EXPECT_EQ(render(builtin_chat_template("llama3"), talk,
                     {.add_generation_prompt = true, .bos_token = "<|begin_of_text|>"}),
              "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\nyo<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_THROW(builtin_chat_template("wizard"), Error);
}

TEST(ChatTemplate, WhatCannotBeParsedIsNamedWithItsLine) {
    const std::pair<const char*, const char*> cases[] = {
        {"a\n{% include 'x' %}", "t.jinja: line 2: the block \"include\""},
        {"{{ x | nofilter }}", "line 1: the filter \"nofilter\" is not supported"},
        {"\n\n{{ x is notest }}", "line 3: the test \"notest\" is not supported"},
        {"{{ x.encode(1) }}", "the method \"encode\" is not supported"},
        {"{% for x in y recursively %}{% endfor %}", "recursive"},
        {"{% if true %}", "the block \"if\" has no end"},
        {"{% endif %}", "line 1: the block \"endif\""},
        {"{{ 1 + }}", "expected an expression, found \"}}\""},
        {"{{ 'x }}", "a string has no end"},
        {"{{ x", "\"{{\" has no end"},
        {"{# x", "a comment has no end"},
        {"{{ (1 }}", "line 1"},
        {"{{ 1 ! 2 }}", "unexpected character"},
        {"{{ f(*a) }}", "arguments are not supported"},
        {"{{ 99999999999999999999 }}", "too large"},
        {"{% break %}", "outside of a loop"},
        {"{{ x is defined if y }}", "put it in brackets"},
        {"{% if a if b else c %}{% endif %}", "expected"},
        {"{% call f %}{% endcall %}", "the block \"call\" needs a call"},
        {"\xFF", "UTF-8 at byte 0"}};
    for (const auto& [source, part] : cases)
        EXPECT_NE(parse_error(source).find(part), std::string::npos)
            << source << "\n got: " << parse_error(source);
}

TEST(ChatTemplate, WhatCannotBeRenderedIsNamedWithItsLine) {
    const std::pair<const char*, const char*> cases[] = {
        {"a\n{{ raise_exception('no system') }}",
         "line 2: the template refuses this conversation: no system"},
        {"{{ nothing.role }}", "\"nothing\" is undefined"},
        {"{{ nothing | float }}", "\"nothing\" is undefined"},
        {"{{ nothing | int }}", "\"nothing\" is undefined"},
        {"\n{{ 'a' + nothing }}", "line 2: \"nothing\" is undefined"},
        {"{{ 'a' + 1 }}", "\"+\" of str and int"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ strftime_now(1) }}", "strftime_now"},
        {"{{ messages.append(1) }}", "\"append\" is forbidden"},
        {"{% set ns = namespace(_x=1) %}", "cannot hold the name"},
        {"{{ nothing() }}", "\"nothing\" is not a function"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ (0 - 9223372036854775807 - 1) // -1 }}", "64 bits"},
        {"{{ 'a' < 1 }}", "no order"},
        {"{% for a, b in [1] %}{% endfor %}", "cannot be iterated"},
        {"{% set x.y = 1 %}", "no namespace"},
        {"{{ 'a'.split('') }}", "empty str"}};
    for (const auto& [source, part] : cases)
        EXPECT_NE(render_error(source).find(part), std::string::npos)
            << source << "\n got: " << render_error(source);
}

TEST(ChatTemplate, LimitsHoldOnHostileTemplates) {
    const auto repeat = [](const std::string& text, int times) {
        std::string out;
        for (int i = 0; i < times; ++i)
            out += text;
        return out;
    };
    // Deep nesting, while parsing and while running.
    for (const std::string& source :
         {"{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}",
          "{{ " + repeat("not ", 100000) + "1 }}", "{{ " + repeat("-", 100000) + "1 }}",
          "{{ " + repeat("[", 100000) + " }}", "{{ " + repeat("{'a':", 100000) + " }}",
          "{{ " + repeat("1 if 1 else ", 100000) + "1 }}", repeat("{% if 1 %}", 100000),
          repeat("{% for x in y %}", 100000), "{{ 1" + repeat(" + 1", 100000) + " }}",
          "{{ a" + repeat(".b", 100000) + " }}", "{{ a" + repeat("[0]", 100000) + " }}",
          "{{ a" + repeat(" | trim", 100000) + " }}", "{{ 1" + repeat(" and 1", 100000) + " }}"})
        EXPECT_FALSE(parse_error(source).empty()) << source.substr(0, 40);
    // Endless or growing work.
    for (
        const char* source : {
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(1000) %}{% set ns.x = "
            "ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = ns.x + ns.x "
            "%}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x, ns.x] "
            "%}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
            "endfor %}{{ ns.x == ns.x | list }}{{ ns.x }}",
            "{{ 'aaaaaaaaaaaaaaaa' * 1000000000 }}",
            "{{ [1] * 4611686018427387904 }}",
            "{{ range(1000000000) }}",
            "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
            "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
            "{% for i in range(100000) %}{{ strftime_now('%d') }}{% endfor %}",
            "{{ (range(50000) | list) | unique | length }}",
            "{{ 'x' | batch(100000000000) }}{{ [1] | slice(1000000000) }}",
            "{{ 'x'.center(1000000000) }}",
            "{{ 'a' | indent(1000000000) }}",
            "{% set ns = namespace(x=messages[3].content) %}{% for i in range(100) %}{% set ns.x = "
            "messages[1].content[:0] ~ ns.x ~ messages[2].content[:0] ~ ns.x %}{% endfor %}",
            "{% set a = 'x' * 1000000 %}{% for i in range(100000) %}{{ a }}{% endfor %}",
            "{% set a = 'x' * 1000000 %}{% for i in range(100000) %}{% set b = a.replace('x', 'y') "
            "%}{% endfor %}",
            "{% set a = 'x' * 60000000 %}{% for i in range(100000) %}{% set b = a | upper %}{% "
            "endfor %}",
        })
        EXPECT_FALSE(render_error(source).empty()) << source;
}

// Twice what a rendering may make: what holds it grows by doubling.
TEST(ChatTemplate, HostileTemplatesTakeLittleMemory) {
    for (const char* source : {
             // Marks, which are larger than the text that bears them.
             "{% set a = (messages[0].content[:1] ~ 'x') * 9000000 %}{{ a[:1] }}",
             "{% set a = messages[0].content[:1] * 9000000 %}{% set b = a.replace('', 'x') %}",
             // Texts, each of which is larger than the character that it holds.
             "{{ ('a' * 30000000).split('a') | length }}",
             "{{ ('a' * 30000000).rsplit('a') | length }}",
             "{{ ('a ' * 30000000).split() | length }}",
             "{{ ('a\n' * 30000000).splitlines() | length }}",
             "{{ ('a\n' * 30000000) | indent | length }}",
             "{{ ('a' * 20000000) | list | length }}",
             "{{ ('a' * 20000000) | reverse | length }}",
             "{{ ('a' * 20000000) | sort | length }}",
             "{{ ('a' * 60000000)[::2] | length }}",
             // Keys and names.
             "{% set k = 'k' * 1000000 %}{% set ns = namespace(x=[]) %}{% for i in range(10000) "
             "%}{% set ns.x = ns.x + [{k: 1}] %}{% endfor %}",
             "{% set k = {'k' * 1000000: 1} %}{% set ns = namespace(x=[]) %}{% for i in "
             "range(10000) %}{% set ns.x = ns.x + [k.copy()] %}{% endfor %}",
             "{% set k = 'k' * 10000 %}{{ range(100000) | map('attr', k) | list | length }}",
         }) {
        const std::size_t peak = testing::peak_allocation_of([&] { render_error(source); });
        EXPECT_LT(peak, 2 * jinja::Budget::kMaxBytes) << source;
    }
}

// Each would take minutes to years if it were not counted or did as the plainest code does.
TEST(ChatTemplate, HostileTemplatesEndSoon) {
    for (const char* source : {
             "{{ ('a' * 30000000).find('a' * 1000000 ~ 'b') }}",
             "{{ ('a' * 30000000).rfind('b' ~ 'a' * 1000000) }}",
             "{{ ('a' * 30000000).rsplit('b' ~ 'a' * 1000000) | length }}",
             "{{ 'a' * 1000000 ~ 'b' in 'a' * 30000000 }}",
             "{{ ('a' * 30000000).replace('a' * 1000000 ~ 'b', '') | length }}",
             "{{ ('a' * 30000000).strip('b' * 1000000 ~ 'a') }}",
             "{{ (messages[0].content[:1] ~ 'x') * 1000000 | upper | length }}",
             "{{ ((messages[0].content[:1] ~ 'x') * 1000000) | upper | length }}",
             "{{ [(messages[0].content[:1] ~ 'x') * 1000000] | tojson | length }}",
             "{{ ('a' * 60000000).startswith((('a' * 60000000,) * 1000000) + ('',)) }}",
             "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] "
             "%}{% endfor %}{{ [ns.x, ns.x] | sort | length }}",
             "{{ dict(range(100000) | map('string') | batch(2) | list) | length }}",
         }) {
        const auto begun = std::chrono::steady_clock::now();
        render_error(source);
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30)) << source;
    }
}

// Damaged templates end in an Error or in a text, never in anything else.
TEST(ChatTemplate, DamagedTemplatesDoNoHarm) {
    const std::string good =
        builtin_chat_template("llama3") +
        "{% macro f(a, b=1) %}{{ a[1:b] | tojson }}{% endmacro %}{% set ns = namespace(x=[1, {'a': "
        "2}]) %}{% for k, v in {'x': 'y'}.items() if k %}{{ loop.index ~ f(k) }}{% else %}{% set "
        "ns.x = -1 ** 2 %}{% endfor %}{{ 'a' if ns.x is defined and not 1 < 2 <= 3 else 'b' }}{# c "
        "#}{% raw %}{{{% endraw %}{{ 'x'.split('y', 1)[0].strip() }}";
    EXPECT_EQ(parse_error(good), "");
    Random random(3);
    int rendered = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text = good;
        for (std::uint64_t i = 0, n = 1 + random.below(3); i < n && !text.empty(); ++i) {
            const std::size_t at = random.below(text.size());
            switch (random.below(4)) {
                case 0:
                    text[at] = static_cast<char>(random.below(128));
                    break;
                case 1:
                    text.erase(at, random.below(12));
                    break;
                case 2:
                    text.resize(at + 1);
                    break;
                default:
                    text.insert(at, text.substr(random.below(text.size()), random.below(30)));
            }
        }
        rendered += render_error(text).empty() ? 1 : 0;
    }
    EXPECT_GT(rendered, 0);
    EXPECT_LT(rendered, 3000);
}

TEST(ChatTemplate, ValuesNestedTooDeeplyAreAnError) {
    Json nest = 1;
    for (int i = 0; i < 200; ++i)
        nest = Json(Json::Array{nest});
    const ChatMessage message =
        ChatMessage::from_json(Json(Json::Object{{"role", "user"}, {"content", nest}}), "message");
    EXPECT_THROW(ChatTemplate("{{ messages[0].role }}", "t").render({message}, {}), Error);
    ChatTemplate::Options options;
    options.variables.emplace_back("deep", nest);
    EXPECT_THROW(ChatTemplate("{{ deep }}", "t").render({}, options), Error);
}

TEST(ChatTemplate, DictsAreMadeOfPairsMadeOnTheWay) {
    const ChatTemplate made(
        "{% set d = dict('ab' | list | map('list') | list + [['k', 1], ['l', 'x' ~ 'y']]) %}{{ d.k "
        "}}{{ d.l }}",
        "t");
    EXPECT_THROW(made.render({}, {}), Error);  // 'a' is no pair
    EXPECT_EQ(
        ChatTemplate("{% set d = dict({'k': 1}.items()) %}{{ d.k }}", "t").render({}, {}).text,
        "1");
    EXPECT_EQ(ChatTemplate("{{ dict(['ab', 'cd']).c }}", "t").render({}, {}).text, "d");
}

}  // namespace
}  // namespace garam
