#include "garam/train/foreign_keys.h"

namespace garam {

namespace {

struct ForeignKey {
    const char* name;
    const char* advice;
};

constexpr const char* kFourBits =
    "a base is quantised to 4 bits (load_in_4bit), or used as a GGUF file has it; remove it";
constexpr const char* kFourBitKeys =
    "the keys are load_in_4bit, bnb_4bit_quant_type, bnb_4bit_use_double_quant and "
    "bnb_4bit_compute_dtype";
constexpr const char* kOneProcess = "a run is one process on one device; remove it";
constexpr const char* kNoHub = "files stay on this machine; upload the folder with `hf upload`";
constexpr const char* kNoCompile = "nothing is compiled at run time; remove it";
constexpr const char* kNoLoader = "the data loader needs no settings; remove it";
constexpr const char* kThreads = "all processors tokenise: threads";
constexpr const char* kPlaces =
    "the key is data.train: files, folders, patterns, or org/name in the local cache";
constexpr const char* kOneConfiguration =
    "of several configurations name the folder or the files of one as data.train";
constexpr const char* kTold =
    "what rows are is told from their columns: see data.columns, and `garam config`";
constexpr const char* kStreamed = "rows are always streamed, with bounded memory; remove it";
constexpr const char* kHoldOut = "use data.validation_fraction, or data.validation_split";
constexpr const char* kTurns =
    "the assistant's turns and what ends them are trained on: data.train_on_turns, data.roles";
constexpr const char* kNewTokens = "the key is data.add_special_tokens";
constexpr const char* kPlainLora = "only LoRA, rank-stabilised LoRA and DoRA are; remove it";
constexpr const char* kBySteps =
    "it is counted in steps: use train.logging_steps, train.eval_steps (with data.validation) and "
    "train.save_steps";

constexpr ForeignKey kForeignKeys[] = {
    // Precision and quantisation.
    {"fp16", "use train.bf16 (auto, true or false)"},
    {"half_precision_backend", "use train.bf16 (auto, true or false)"},
    {"bf16_full_eval", "evaluation computes as training does (train.bf16); remove it"},
    {"fp16_full_eval", "evaluation computes as training does (train.bf16); remove it"},
    {"torch_dtype", "use train.bf16 (auto, true or false)"},
    {"dtype", "use train.bf16 (auto, true or false)"},
    {"load_in_8bit", kFourBits},
    {"llm_int8_threshold", kFourBits},
    {"llm_int8_has_fp16_weight", kFourBits},
    {"llm_int8_enable_fp32_cpu_offload", "a base lies on one device; remove it"},
    {"bnb_4bit_quant_storage", "two codes are one byte; remove it"},
    {"use_bnb_nested_quant", "the key is bnb_4bit_use_double_quant"},
    {"quantization_config", kFourBitKeys},
    {"bnb_config", kFourBitKeys},
    {"quantization_bit", kFourBitKeys},
    {"quantization_method", kFourBitKeys},
    {"bits", kFourBitKeys},
    {"quant_type", "the key is bnb_4bit_quant_type"},
    {"double_quant", "the key is bnb_4bit_use_double_quant"},
    {"double_quantization", "the key is bnb_4bit_use_double_quant"},
    {"low_cpu_mem_usage", "tensors are always read piece by piece; remove it"},
    {"max_memory", "the key is memory.limit, such as 6GB"},
    {"max_memory_MB", "the key is memory.limit, such as 6GB"},
    // Several processes and devices.
    {"deepspeed", kOneProcess},
    {"fsdp", kOneProcess},
    {"fsdp_config", kOneProcess},
    {"accelerator_config", kOneProcess},
    {"parallelism_config", kOneProcess},
    {"local_rank", kOneProcess},
    {"ddp_backend", kOneProcess},
    {"ddp_timeout", kOneProcess},
    {"ddp_find_unused_parameters", kOneProcess},
    {"ddp_bucket_cap_mb", kOneProcess},
    {"average_tokens_across_devices", kOneProcess},
    {"use_cpu", "use device=cpu"},
    {"no_cuda", "use device=cpu"},
    {"device_map", "a base lies on one device: use device (auto, cpu, cuda or cuda:N)"},
    // Hub and trackers.
    {"push_to_hub", kNoHub},
    {"hub_model_id", kNoHub},
    {"hub_token", kNoHub},
    {"hub_strategy", kNoHub},
    {"hub_private_repo", kNoHub},
    {"hub_revision", kNoHub},
    {"run_name", "a run is named by train.output_dir; remove it"},
    {"project", "trackers are not connected: use train.report_to=tensorboard"},
    {"wandb_project", "trackers are not connected: use train.report_to=tensorboard"},
    {"logging_dir", "events lie in train.output_dir; remove it"},
    {"disable_tqdm", "plain lines come by themselves when the output is not a terminal; remove it"},
    {"log_level", "remove it"},
    {"trust_remote_code", "no code of a model is ever run; remove it"},
    // Speed.
    {"torch_compile_backend", kNoCompile},
    {"torch_compile_mode", kNoCompile},
    {"use_liger_kernel", "the loss is chunked always; remove it"},
    {"attn_implementation", "attention always uses linear memory; remove it"},
    {"gradient_checkpointing_kwargs", "train.gradient_checkpointing has no options; remove it"},
    {"activation_checkpointing", "use train.gradient_checkpointing"},
    {"activation_offloading", "use train.gradient_checkpointing"},
    {"torch_empty_cache_steps", "memory is taken once, at the start; remove it"},
    {"dataloader_prefetch_factor", kNoLoader},
    {"dataloader_persistent_workers", kNoLoader},
    {"remove_unused_columns", "columns that are not named are ignored; remove it"},
    {"dataloader_drop_last", "the last, smaller batch of an epoch always counts; remove it"},
    {"use_cache", "remove it"},
    // Regularisation and loss.
    {"loss_type", "the loss is the plain cross-entropy, in chunks; remove it"},
    {"optim_args", "use train.adam_beta1, train.adam_beta2 and train.adam_epsilon"},
    {"optim_target_modules", "use lora.target_modules"},
    // Batches.
    {"train_sampling_strategy", "use data.shuffle, or train.group_by_length"},
    {"length_column_name", "use train.packing=true, which leaves no padding"},
    {"padding_free", "padding is never computed; remove it"},
    {"pad_to_multiple_of", "padding is never computed; remove it"},
    {"pad_token", "padding is masked by position and needs no token; remove it"},
    {"packing_strategy", "packing is by best fit and never splits a sample; remove it"},
    {"eval_packing", "train.packing counts for both; remove it"},
    // Strategies and best model.
    {"eval_strategy", kBySteps},
    {"evaluation_strategy", kBySteps},
    {"save_strategy", kBySteps},
    {"logging_strategy", kBySteps},
    {"logging_first_step", "use train.logging_steps=1"},
    {"eval_delay", "use train.eval_steps"},
    {"eval_accumulation_steps", "evaluation keeps no logits; remove it"},
    {"save_only_model", "checkpoints are always complete, so that a run can go on; remove it"},
    {"save_safetensors", "safetensors are always written; remove it"},
    {"data_seed", "use train.seed"},
    {"full_determinism", "a run always gives the same bits for any number of threads; remove it"},
    {"ignore_data_skip", "a resumed run goes on where it stopped; remove it"},
    {"do_train", "use `garam train`"},
    {"do_eval", "use data.validation, or `garam eval`"},
    {"do_predict", "use `garam generate`"},
    // LoRA's variants.
    {"use_qalora", kPlainLora},
    {"lora_bias", kPlainLora},
    {"ensure_weight_tying",
     "what is trained of one of two tied weights leaves the other as it is; train the embedding "
     "and "
     "the head both, or lora.trainable_token_indices, which are rows of both"},
    {"eva_config", kPlainLora},
    {"corda_config", kPlainLora},
    {"megatron_config", kPlainLora},
    {"layer_replication", kPlainLora},
    {"target_parameters", kPlainLora},
    {"fan_in_fan_out", "the model's layout is known from its files; remove it"},
    {"task_type", "causal language models are trained; remove it"},
    {"peft_type", "adapters are LoRA's; remove it"},
    {"inference_mode", "remove it"},
    // Other names for what is here.
    {"model_name_or_path", "the key is model"},
    {"base_model", "the key is model"},
    {"use_peft", "use train.method (lora or full)"},
    {"finetuning_type", "use train.method (lora or full)"},
    {"lora_r", "the key is lora.r"},
    {"lora_rank", "the key is lora.r"},
    {"lora_target", "the key is lora.target_modules"},
    {"lora_target_modules", "the key is lora.target_modules"},
    {"max_seq_length", "the key is train.max_length"},
    {"cutoff_len", "the key is train.max_length"},
    {"sequence_len", "the key is train.max_length"},
    {"sample_packing", "the key is train.packing"},
    {"micro_batch_size", "the key is train.per_device_train_batch_size"},
    {"train_on_inputs", "use train.assistant_only_loss and train.completion_only_loss"},
    {"num_epochs", "the key is train.num_train_epochs"},
    {"epochs", "the key is train.num_train_epochs"},
    {"lr", "the key is train.learning_rate"},
    {"batch_size", "the key is train.per_device_train_batch_size"},
    {"optimizer", "the key is train.optim"},
    {"lr_scheduler", "the key is train.lr_scheduler_type"},
    // Data.
    {"dataset", kPlaces},
    {"datasets", kPlaces},
    {"dataset_name", kPlaces},
    {"dataset_path", kPlaces},
    {"dataset_id", kPlaces},
    {"train_file", kPlaces},
    {"train_data", kPlaces},
    {"data_files", kPlaces},
    {"data_path", kPlaces},
    {"dataset_dir", kPlaces},
    {"dataset_info", kPlaces},
    {"eval_dataset", "the key is data.validation"},
    {"test_datasets", "the key is data.validation"},
    {"validation_file", "the key is data.validation"},
    {"eval_file", "the key is data.validation"},
    {"dataset_config", kOneConfiguration},
    {"dataset_config_name", kOneConfiguration},
    {"subset", kOneConfiguration},
    {"dataset_train_split", "the key is data.train_split"},
    {"dataset_split", "the key is data.train_split"},
    {"split", "the keys are data.train_split and data.validation_split"},
    {"dataset_test_split", "the key is data.validation_split"},
    {"val_set_size", kHoldOut},
    {"val_size", kHoldOut},
    {"test_size", kHoldOut},
    {"max_samples", "the key is data.max_rows"},
    {"max_train_samples", "the key is data.max_rows"},
    {"interleave_probs", "the key is data.weights: passes over each source an epoch"},
    {"mix_strategy", "the key is data.weights: passes over each source an epoch"},
    {"dataset_num_proc", kThreads},
    {"preprocessing_num_workers", kThreads},
    {"num_proc", kThreads},
    {"streaming", kStreamed},
    {"dataset_streaming", kStreamed},
    {"buffer_size", kStreamed},
    {"dataset_kwargs", kTold},
    {"skip_prepare_dataset", kTold},
    {"formatting_func", kTold},
    {"formatting", kTold},
    {"dataset_format", kTold},
    {"prompt_template", "the key is data.instruction, with {text} for the text"},
    {"dataset_text_field", "the key is data.text_column"},
    {"text_column_name", "the key is data.text_column"},
    {"label_column_name", "the key is data.label_column"},
    {"field_messages", "the key is data.columns.messages"},
    {"field_system", "the key is data.columns.system"},
    {"field_tools", "the key is data.columns.tools"},
    {"field_instruction", "the key is data.columns.instruction"},
    {"field_input", "the key is data.columns.input"},
    {"field_output", "the key is data.columns.output"},
    {"message_property_mappings", "the keys are data.columns.role and data.columns.content"},
    {"message_field_role", "the key is data.columns.role"},
    {"message_field_content", "the key is data.columns.content"},
    {"role_tag", "the key is data.columns.role"},
    {"content_tag", "the key is data.columns.content"},
    {"roles_to_train", kTurns},
    {"train_on_eos", kTurns},
    {"train_on_responses_only", kTurns},
    {"mask_history", "use data.train_on_turns=last"},
    {"dataset_prepared_path", "the key is data.cache_dir"},
    {"overwrite_cache", "rows are made anew when what they come from has changed; remove it"},
    {"shuffle_dataset", "the key is data.shuffle"},
    {"shuffle_merged_datasets", "the key is data.shuffle"},
    {"chat_template_path", "the key is data.chat_template"},
    {"chat_template_jinja", "the key is data.chat_template: a file"},
    {"add_special_tokens", kNewTokens},
    {"add_tokens", kNewTokens},
    {"new_special_tokens", kNewTokens},
    {"tokens", kNewTokens},
    {"additional_special_tokens", kNewTokens},
    {"resize_vocab",
     "data.add_special_tokens make the vocabulary as large as it must be; remove it"},
    {"resize_token_embeddings_to_32x",
     "data.add_special_tokens make the vocabulary as large as it must be; remove it"},
};

}  // namespace

void refuse_foreign_keys(ConfigTable& table) {
    for (const ForeignKey& key : kForeignKeys)
        table.refuse(key.name, key.advice);
}

}  // namespace garam
