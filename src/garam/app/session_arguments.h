// The arguments that commands which ask a model share: which model, and how it answers.
#pragma once

#include <string>
#include <vector>

#include "garam/app/command.h"
#include "garam/serve/generation.h"
#include "garam/serve/session.h"

namespace garam {

struct SessionArguments {
    std::string model;
    std::string adapter;
    std::string device = "auto";
    std::string dtype = "auto";
    std::string tuned_products;

    // MODEL and the options; the model's place is the command's business where it is none.
    void declare(Arguments& arguments, bool model_is_positional = true);
    SessionOptions options() const;
};

struct AnswerArguments {
    std::int64_t max_new_tokens = 256;
    SamplingOptions sampling;
    std::int64_t seed = 0;
    std::vector<std::string> stop;

    void declare(Arguments& arguments);
    // Throws Error for what is out of range.
    GenerationOptions options(const Session& session) const;
};

// What the session has to tell the user, on stderr.
void print_warnings(const Session& session);

}  // namespace garam
