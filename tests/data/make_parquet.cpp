// Writes a Parquet file whose rows all lie in one row group, for tests of what memory reading takes.
//   make_parquet FILE MEGABYTES    columns i (int64), text (string), chat (list<struct<role, content>>)
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

void check(const arrow::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
}

template <typename T>
T take(arrow::Result<T> result) {
    check(result.status());
    return std::move(result).ValueUnsafe();
}

// Texts that no dictionary makes short.
std::string text_of(std::int64_t row, std::size_t bytes) {
    std::string text;
    auto state = static_cast<std::uint64_t>(row) * 2 + 1;
    while (text.size() < bytes) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        text += "word " + std::to_string(state >> 40) + ' ';
    }
    return text;
}

std::shared_ptr<arrow::RecordBatch> batch_of(const std::shared_ptr<arrow::Schema>& schema,
                                             std::int64_t begin, std::int64_t count) {
    const auto builder =
        take(arrow::RecordBatchBuilder::Make(schema, arrow::default_memory_pool()));
    auto& numbers = *builder->GetFieldAs<arrow::Int64Builder>(0);
    auto& texts = *builder->GetFieldAs<arrow::StringBuilder>(1);
    auto& chats = *builder->GetFieldAs<arrow::ListBuilder>(2);
    auto& turns = static_cast<arrow::StructBuilder&>(*chats.value_builder());
    for (std::int64_t row = begin; row < begin + count; ++row) {
        check(numbers.Append(row));
        check(texts.Append(text_of(row, 600)));
        check(chats.Append());
        for (const char* role : {"user", "assistant"}) {
            check(turns.Append());
            check(static_cast<arrow::StringBuilder&>(*turns.field_builder(0)).Append(role));
            check(static_cast<arrow::StringBuilder&>(*turns.field_builder(1))
                      .Append(text_of(-row, 200)));
        }
    }
    return take(builder->Flush());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "make_parquet FILE MEGABYTES\n");
        return 2;
    }
    const auto turn = arrow::struct_(
        {arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
    const auto schema =
        arrow::schema({arrow::field("i", arrow::int64()), arrow::field("text", arrow::utf8()),
                       arrow::field("chat", arrow::list(turn))});
    const auto properties = parquet::WriterProperties::Builder()
                                .compression(parquet::Compression::SNAPPY)
                                ->max_row_group_length(INT64_MAX)
                                ->build();
    const auto file = take(arrow::io::FileOutputStream::Open(argv[1]));
    const auto writer = take(
        parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), file, properties));
    check(writer->NewBufferedRowGroup());
    constexpr std::int64_t kRows = 1000;  // of about a kilobyte each
    const std::int64_t rows = std::atoll(argv[2]) * 1000;
    for (std::int64_t row = 0; row < rows; row += kRows)
        check(writer->WriteRecordBatch(*batch_of(schema, row, kRows)));
    check(writer->Close());
    check(file->Close());
    return 0;
}
