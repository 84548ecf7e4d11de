#include "garam/serve/adapter_vocabulary.h"

#include "garam/models/vocabulary_size.h"

namespace garam {

bool take_vocabulary(ModelFiles& files, std::unique_ptr<Tokenizer>& tokenizer,
                     const PeftAdapter& adapter, const std::string& source) {
    std::unique_ptr<Tokenizer> own = tokenizer_of_adapter(source, *tokenizer);
    fit_vocabulary(files, adapter, source, (own ? own : tokenizer)->vocab_size());
    if (!own || own->vocab_size() > vocabulary_size(files)) return false;
    tokenizer = std::move(own);
    return true;
}

}  // namespace garam
