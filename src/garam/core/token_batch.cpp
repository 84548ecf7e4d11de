#include "garam/core/token_batch.h"

#include "garam/core/error.h"

namespace garam {

void TokenBatch::append(const std::vector<std::int32_t>& sample_tokens,
                        const std::vector<std::int32_t>& labels, std::int64_t sample_id) {
    GARAM_CHECK(sample_tokens.size() == labels.size(), "labels and ids differ in length");
    if (cu_seqlens.empty()) cu_seqlens.push_back(0);
    const std::size_t length = sample_tokens.size();
    for (std::size_t t = 0; t < length; ++t) {
        ids.push_back(sample_tokens[t]);
        targets.push_back(t + 1 < length ? labels[t + 1] : kIgnore);
        positions.push_back(static_cast<std::int32_t>(t));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(ids.size()));
    sample_ids.push_back(sample_id);
}

}  // namespace garam
