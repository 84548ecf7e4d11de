// A chat template in Ollama's words: a Modelfile has a Go template, which ranges over the messages.
//
// Jinja cannot be translated in general, so the template is asked instead: rendered on marked messages,
// it shows what it puts before and behind each role. The pieces count only where they reassemble other
// conversations exactly as the template renders them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "garam/text/tokenizer.h"

namespace garam {

struct OllamaTemplate {
    std::string go_template;         // without BOS, which Ollama adds where the tokenizer does
    std::vector<std::string> stops;  // what ends an answer, or would begin the next turn
};

// Nothing when the tokenizer has no template, or one that is more than words around messages.
std::optional<OllamaTemplate> ollama_template(const Tokenizer& tokenizer);

// The Modelfile: FROM `model` (a path or a name), ADAPTER where `adapter` is not empty, TEMPLATE and
// PARAMETER stop. Without a template its lines are left out: Ollama then looks for one that it
// knows in the GGUF.
std::string ollama_modelfile(const std::string& model, const std::string& adapter,
                             const std::optional<OllamaTemplate>& chat);

}  // namespace garam
