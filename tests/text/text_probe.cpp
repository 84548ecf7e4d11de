// Drives the tokenizer and the templates from outside: one JSON object a line on standard input, one a
// line back. The interop scripts compare the answers with the reference libraries.
//   {"op": "encode", "text": .., "add_special_tokens": false, "parse_special_tokens": true}
//       -> {"ids": [..], "spans": [[begin, end], ..]}
//   {"op": "decode", "ids": [..], "skip_special_tokens": false}   -> {"text": .., "streamed": ..}
//   {"op": "encode_all", "texts": [..]}
//       -> {"encodings": [{"ids": [..], "with_special": [..], "spans": [..]} or {"error": ..}, ..]}
//   {"op": "decode_all", "ids": [[..], ..], "skip_special_tokens": false}
//       -> {"decodings": [{"text": .., "streamed": ..}, ..]}
//   {"op": "render", "template": .., "messages": [..], "add_generation_prompt": false,
//    "bos_token": "", "eos_token": "", "tools": null, "variables": {}, "now": seconds}
//       -> {"text": .., "contents": [..]}
//   {"op": "turns", ..as render..} -> {"text": .., "turns": [[message, begin, end], ..]}
//   {"op": "builtin"}              -> {"names": [..]}; with "name": {"template": ..}
//   {"op": "save", "folder": ..}                                  -> {}
// or {"error": ..}. The argument names the model whose tokenizer is used.
#include <iostream>
#include <memory>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/text/builtin_templates.h"
#include "garam/text/chat_template.h"
#include "garam/text/chat_turns.h"
#include "garam/text/tokenizer.h"

namespace garam {
namespace {

bool flag(const Json& request, std::string_view key, bool otherwise) {
    const Json* value = request.find(key);
    return value == nullptr ? otherwise : value->boolean(std::string(key));
}

std::string text(const Json& request, std::string_view key) {
    const Json* value = request.find(key);
    return value == nullptr ? std::string() : value->string(std::string(key));
}

Json spans_of(const std::vector<ByteSpan>& spans) {
    Json::Array list;
    for (const ByteSpan& span : spans)
        list.push_back(Json::Array{static_cast<std::int64_t>(span.begin),
                                   static_cast<std::int64_t>(span.end)});
    return list;
}

Json list_of(const std::vector<std::int32_t>& ids) {
    Json::Array list;
    for (const std::int32_t id : ids)
        list.push_back(std::int64_t{id});
    return list;
}

Json encode_all(const Json& request, const Tokenizer& tokenizer) {
    Json::Array encodings;
    for (const Json& text : request.at("texts").array()) {
        try {
            const Encoding plain = tokenizer.encode(text.string(), {});
            const auto with_special =
                tokenizer.encode_ids(text.string(), {.add_special_tokens = true});
            encodings.push_back(Json::Object{{"ids", list_of(plain.ids)},
                                             {"with_special", list_of(with_special)},
                                             {"spans", spans_of(plain.spans)}});
        } catch (const Error& error) {
            encodings.push_back(Json::Object{{"error", error.what()}});
        }
    }
    return Json::Object{{"encodings", std::move(encodings)}};
}

Json decoded(const Json& list, const Json& request, const Tokenizer& tokenizer) {
    const bool skip = flag(request, "skip_special_tokens", false);
    std::vector<std::int32_t> ids;
    for (const Json& id : list.array())
        ids.push_back(static_cast<std::int32_t>(id.integer()));
    StreamDecoder stream(tokenizer, skip);
    std::string streamed;
    for (const std::int32_t id : ids)
        streamed += stream.push(id);
    streamed += stream.flush();
    return Json::Object{{"text", tokenizer.decode(ids, skip)}, {"streamed", streamed}};
}

Json answer(const Json& request, const Tokenizer* tokenizer) {
    const std::string& op = request.at("op").string();
    if (op == "builtin") {
        if (request.find("name") != nullptr)
            return Json::Object{{"template", builtin_chat_template(text(request, "name"))}};
        Json::Array names;
        for (const std::string& name : builtin_chat_templates())
            names.push_back(name);
        return Json::Object{{"names", std::move(names)}};
    }
    if (op == "render" || op == "turns") {
        std::vector<ChatMessage> messages;
        for (const Json& message : request.at("messages").array())
            messages.push_back(ChatMessage::from_json(message, "message"));
        const ChatTemplate chat_template(request.at("template").string(), "template");
        ChatTemplate::Options options{flag(request, "add_generation_prompt", false),
                                      text(request, "bos_token"), text(request, "eos_token")};
        if (const Json* tools = request.find("tools")) options.tools = *tools;
        if (const Json* variables = request.find("variables"))
            options.variables = variables->object("variables");
        if (const Json* now = request.find("now")) options.now = now->integer("now");
        const RenderedChat chat = chat_template.render(messages, options);
        if (op == "turns") {
            Json::Array turns;
            for (const ChatTurn& turn : find_turns(chat_template, chat, messages, options))
                turns.push_back(Json::Array{static_cast<std::int64_t>(turn.message),
                                            static_cast<std::int64_t>(turn.begin),
                                            static_cast<std::int64_t>(turn.end)});
            return Json::Object{{"text", chat.text}, {"turns", std::move(turns)}};
        }
        return Json::Object{{"text", chat.text}, {"contents", spans_of(chat.contents)}};
    }
    if (tokenizer == nullptr) throw Error("name a model to use its tokenizer");
    if (op == "encode") {
        const Encoding encoding = tokenizer->encode(
            request.at("text").string(),
            {.add_special_tokens = flag(request, "add_special_tokens", false),
             .parse_special_tokens = flag(request, "parse_special_tokens", true)});
        return Json::Object{{"ids", list_of(encoding.ids)}, {"spans", spans_of(encoding.spans)}};
    }
    if (op == "encode_all") return encode_all(request, *tokenizer);
    if (op == "decode") return decoded(request.at("ids"), request, *tokenizer);
    if (op == "decode_all") {
        Json::Array decodings;
        for (const Json& ids : request.at("ids").array())
            decodings.push_back(decoded(ids, request, *tokenizer));
        return Json::Object{{"decodings", std::move(decodings)}};
    }
    if (op == "save") {
        tokenizer->save(request.at("folder").string());
        return Json::Object{};
    }
    throw Error("unknown op " + op);
}

}  // namespace
}  // namespace garam

int main(int argc, char** argv) {
    std::unique_ptr<garam::Tokenizer> tokenizer;
    if (argc > 1) tokenizer = garam::load_tokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
        garam::Json reply;
        try {
            reply = garam::answer(garam::Json::parse(line, "request"), tokenizer.get());
        } catch (const std::exception& error) {
            reply = garam::Json::Object{{"error", error.what()}};
        }
        std::cout << reply.dump() << '\n';
    }
    return 0;
}
