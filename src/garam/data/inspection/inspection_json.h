// All numbers of an inspection as one JSON object. Names stay as they are; new ones may come.
//
//   sources      [{name, role ("train", "validation"), shape, weight, epoch_share, rows, kept, truncated, skipped,
//                dropped {empty, no_assistant_turn, nothing_to_predict, beyond_max_length}, tokens, targets,
//                longest, tokens_lost, targets_lost}]
//   train, validation   the sums of the same numbers; validation only where there are rows for it
//   lengths      {before, after: {mean, min, p5, p25, p50, p75, p90, p95, p99, max}, of the training rows,
//                histogram [{from, to (behind the last length), before, after}],
//                limits [{max_length, set, rows_truncated, rows_dropped, tokens_lost, targets_lost}],
//                lossless, one_percent (smallest max_length), longest (place), longest_step}
//   batching     [{name ("plain", "grouped", "packed"), set, units, steps, tokens, room, waste}],
//   steps        of the run; epochs: that it begins
//   answers      [{text, count}], the most frequent first; empty where rows have no classes
//   characters_per_token, unknown_tokens, byte_tokens
//   findings     {duplicates, conflicting_answers, leakage, shared_prompts, validation_duplicates, truncated,
//                end_cut, empty_answers, no_end, double_bos, outside_vocabulary, unknown}: each
//                {count, examples [place], text}
//   samples      [{place, tokens, targets, full_tokens, pieces [{kind ("text", "special", "left_out"), target,
//                text}]}]
//   warnings     [{kind (see inspection.h), count, message, advice, examples [place], text}]
//   notes        [text]
// A place is {source (its name), row (from 0), where}.
#pragma once

#include "garam/core/json.h"
#include "garam/data/inspection/inspection.h"

namespace garam {

Json inspection_json(const Inspection& inspection);

}  // namespace garam
