// Regular expressions over the names of a model's modules, as Python's re reads them, over PCRE2.
#pragma once

#include <memory>
#include <string>

namespace garam {

class ModulePattern {
  public:
    // Throws Error "<source>: …" when the expression is none.
    ModulePattern(const std::string& expression, const std::string& source);
    ~ModulePattern();
    ModulePattern(ModulePattern&&) noexcept;
    ModulePattern& operator=(ModulePattern&&) noexcept;

    // re.fullmatch. Throws Error when the engine's limits do not suffice.
    bool fits(const std::string& name) const;

  private:
    struct Compiled;
    std::unique_ptr<Compiled> compiled_;
};

// Letters, digits, '_', '-' and '.': what a module may be called, and no expression.
bool is_module_name(const std::string& text);

}  // namespace garam
