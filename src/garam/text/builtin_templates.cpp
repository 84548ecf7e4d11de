#include "garam/text/builtin_templates.h"

#include "garam/core/error.h"

namespace garam {

const std::string& builtin_chat_template(std::string_view name) {
    static const std::string chatml = R"({%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";
    static const std::string llama3 = R"({{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' -}}
    {{- message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";
    if (name == "chatml") return chatml;
    if (name == "llama3") return llama3;
    throw Error("there is no built-in chat template \"" + std::string(name) +
                "\"; known are chatml and llama3");
}

}  // namespace garam
