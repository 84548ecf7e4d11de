#include "garam/io/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "garam/core/error.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

// Variables that decide about the cache, put back at the end.
class HubCache : public ::testing::Test {
  protected:
    HubCache() {
        for (const char* name : kNames) {
            const char* const value = std::getenv(name);
            before_.emplace_back(value == nullptr ? std::optional<std::string>() : value);
            unsetenv(name);
        }
        setenv("HF_HUB_CACHE", cache().c_str(), 1);
    }
    ~HubCache() override {
        for (std::size_t i = 0; i < before_.size(); ++i) {
            unsetenv(kNames[i]);
            if (before_[i]) setenv(kNames[i], before_[i]->c_str(), 1);
        }
    }
    fs::path cache() const { return dir_ / "hub"; }
    // A snapshot of a repository, which the revision names.
    fs::path add_snapshot(const std::string& folder, const std::string& revision,
                          const std::string& commit) const {
        const fs::path snapshot = cache() / folder / "snapshots" / commit;
        fs::create_directories(snapshot);
        const fs::path ref = cache() / folder / "refs" / revision;
        fs::create_directories(ref.parent_path());
        dir_.write(ref.lexically_relative(dir_.path()).string(), commit + "\n");
        return snapshot;
    }
    static std::string refusal_of(const std::string& given) {
        try {
            return "found " + find_model_path(given).path.string();
        } catch (const Error& error) {
            return error.what();
        }
    }

    TempDir dir_;

  private:
    static constexpr const char* kNames[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                             "XDG_CACHE_HOME", "HOME"};
    std::vector<std::optional<std::string>> before_;
};

TEST_F(HubCache, Names) {
    const auto name = parse_hub_name("HuggingFaceTB/SmolLM2-135M@refs/pr/3");
    ASSERT_TRUE(name);
    EXPECT_EQ(name->repository, "HuggingFaceTB/SmolLM2-135M");
    EXPECT_EQ(name->revision, "refs/pr/3");
    EXPECT_EQ(parse_hub_name("a/b")->revision, "");
    for (const char* other :
         {"", "model", "/a/b", "./a", "../b", "a/b/c", "a/", "/b", "a/b@", "a/b@../../c", "a/b@/c",
          "a--b/c", "a/b c", "models/base.gguf", "a/.b", "a/b@c..d", "a/b@c//d"})
        EXPECT_FALSE(parse_hub_name(other)) << other;
}

TEST_F(HubCache, FolderByVariables) {
    EXPECT_EQ(hub_cache_folder(), cache());
    unsetenv("HF_HUB_CACHE");
    setenv("HOME", "/home/me", 1);
    EXPECT_EQ(hub_cache_folder(), "/home/me/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
    EXPECT_EQ(hub_cache_folder(), "/var/cache/me/huggingface/hub");
    setenv("HF_HOME", "~/hf", 1);
    EXPECT_EQ(hub_cache_folder(), "/home/me/hf/hub");
    setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    EXPECT_EQ(hub_cache_folder(), "/old");
}

TEST_F(HubCache, FindsSnapshotsByRevision) {
    const fs::path main = add_snapshot("models--org--base", "main", "0123abcd");
    const fs::path other = add_snapshot("models--org--base", "refs/pr/1", "4567cdef");
    EXPECT_EQ(find_model_path("org/base").path, main);
    EXPECT_EQ(find_model_path("org/base").repository, "org/base");
    EXPECT_EQ(find_model_path("org/base@refs/pr/1").path, other);
    EXPECT_EQ(find_model_path("org/base@4567cdef").path, other);
}

TEST_F(HubCache, WhatExistsCountsFirst) {
    const fs::path snapshot = add_snapshot("models--org--base", "main", "0123abcd");
    EXPECT_EQ(find_model_path(snapshot).path, snapshot);
    EXPECT_EQ(find_model_path(snapshot).repository, "");
    EXPECT_EQ(find_model_path("/no/such/folder").path, "/no/such/folder");
}

TEST_F(HubCache, AbsentNamesGetTheCommandThatDownloadsThem) {
    EXPECT_EQ(
        refusal_of("org/base"),
        "org/base: is no file or folder, and the Hugging Face cache (" + cache().string() +
            ") does not hold it; if it is on the hub, download it with: hf download org/base");
    add_snapshot("models--org--base", "v2", "0123abcd");
    const std::string refusal = refusal_of("org/base@v1");
    EXPECT_NE(refusal.find("(it holds org/base@v2)"), std::string::npos) << refusal;
    EXPECT_TRUE(refusal.ends_with(": hf download org/base --revision v1")) << refusal;
}

TEST_F(HubCache, RefsLeadNowhereElse) {
    fs::create_directories(dir_ / "secret");
    const fs::path snapshot = add_snapshot("models--org--base", "main", "0123abcd");
    for (const char* content : {"../../../secret", "", "0123", "zz"}) {
        dir_.write("hub/models--org--base/refs/main", content);
        EXPECT_NE(refusal_of("org/base").find("does not hold it"), std::string::npos) << content;
    }
    EXPECT_EQ(find_model_path("org/base@0123abcd").path, snapshot);
}

TEST_F(HubCache, ModelsAndAdaptersOpenByName) {
    const fs::path model = add_snapshot("models--org--base", "main", "0123abcd");
    testing::write_tiny_model(model);
    const ModelFiles files = ModelFiles::open("org/base");
    EXPECT_EQ(files.path(), model);
    EXPECT_EQ(files.name(), "org/base");
    const fs::path adapter = add_snapshot("models--me--lora", "main", "89ab");
    try {
        read_peft_adapter("me/lora");
        FAIL() << "an empty folder was read";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find(adapter.string()), 0u) << error.what();
    }
}

}  // namespace
}  // namespace garam
