#include "garam/text/piece_model.h"

#include "garam/core/error.h"
#include "garam/text/unigram_model.h"
#include "garam/text/wordpiece_model.h"

namespace garam {
namespace {

// Old files leave the type of BPE and WordPiece out.
std::string type_of(const Json& model, const std::string& where) {
    if (const Json* type = model.find("type"); type != nullptr && !type->is_null())
        return type->string(where + ".type");
    return model.find("merges") != nullptr ? "BPE" : "WordPiece";
}

}  // namespace

void read_model_vocabulary(const Json& model, const std::string& source, Vocabulary& vocabulary) {
    const std::string where = source + ": model";
    if (const std::string type = type_of(model, where);
        type != "BPE" && type != "Unigram" && type != "WordPiece")
        throw Error(where + " of type \"" + type +
                    "\" is not supported; supported are BPE, Unigram and WordPiece");
    const Json& vocab = model.at("vocab", where);
    if (vocab.is_array()) {
        const Json::Array& pieces = vocab.array();
        for (std::size_t id = 0; id < pieces.size(); ++id) {
            const std::string here = where + ".vocab[" + std::to_string(id) + "]";
            const Json::Array& piece = pieces[id].array(here);
            if (piece.size() != 2) throw Error(here + " is not a piece with its score");
            vocabulary.add(piece[0].string(here), static_cast<std::int64_t>(id));
        }
    } else {
        for (const auto& [token, id] : vocab.object(where + ".vocab"))
            vocabulary.add(token, id.integer(where + ".vocab[\"" + token + "\"]"));
    }
    if (vocabulary.size() == 0) throw Error(where + ".vocab is empty");
}

std::unique_ptr<PieceModel> make_piece_model(const Json& model, const Vocabulary& vocabulary,
                                             const std::string& source) {
    const std::string type = type_of(model, source + ": model");
    if (type == "Unigram") return std::make_unique<UnigramModel>(model, vocabulary, source);
    if (type == "WordPiece") return std::make_unique<WordPieceModel>(model, vocabulary, source);
    return nullptr;
}

}  // namespace garam
