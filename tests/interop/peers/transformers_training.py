"""Rows to token ids by the peers' rules, and training with Transformers' own Trainer."""

import os

import torch
import transformers

IGNORE = -100


def encode(tokenizer, row):
    """(ids, labels) of a row, as docs and TRL have it: EOS behind text and completion, the loss of a
    completion from where its ids part from the prompt's, of a chat on what the assistant says and on the
    token that ends its turn."""
    if "messages" in row:
        return encode_chat(tokenizer, row["messages"])
    eos = tokenizer.eos_token_id
    prompt = row.get("prompt", "")
    ids = tokenizer(prompt + row["completion"] if "prompt" in row else row["text"])["input_ids"]
    if ids[-1] != eos:
        ids = ids + [eos]
    labels = list(ids)
    if "prompt" in row:
        for i, (a, b) in enumerate(zip(tokenizer(prompt)["input_ids"], ids)):
            if a != b:
                break
            labels[i] = IGNORE
    return ids, labels


def encode_chat(tokenizer, messages):
    def render(count, asked):
        return tokenizer.apply_chat_template(messages[:count], tokenize=False, add_generation_prompt=asked)

    end_of_turn = "<|im_end|>"
    text = render(len(messages), False)
    spans = []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            begin = len(render(i, True))
            spans.append((begin, text.index(end_of_turn, begin) + len(end_of_turn)))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = [
        token if any(begin <= first and last <= end for begin, end in spans) else IGNORE
        for token, (first, last) in zip(encoded["input_ids"], encoded["offset_mapping"])
    ]
    return encoded["input_ids"], labels


def collate(samples):
    """Right-padded to the longest of the batch."""
    longest = max(len(ids) for ids, _ in samples)

    def padded(values, fill):
        return torch.tensor([list(v) + [fill] * (longest - len(v)) for v in values])

    return {
        "input_ids": padded([ids for ids, _ in samples], 0),
        "labels": padded([labels for _, labels in samples], IGNORE),
        "attention_mask": padded([[1] * len(ids) for ids, _ in samples], 0),
    }


@torch.no_grad()
def loss_of(model, samples):
    """Mean over all target tokens of the samples, added up in double precision, each sample alone."""
    total, targets = 0.0, 0
    for ids, labels in samples:
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].double()
        wanted = torch.tensor(labels[1:])
        total += float(torch.nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORE, reduction="sum"))
        targets += int((wanted != IGNORE).sum())
    return total / targets


@torch.no_grad()
def greedy(model, ids, count, stop):
    """The likeliest tokens one after the other, and the least lead of a chosen token over the second: a lead
    within rounding makes the choice a matter of luck."""
    chosen, lead, cache = [], float("inf"), None
    for _ in range(count):
        output = model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        best = torch.topk(output.logits[0, -1], 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        chosen.append(int(best.indices[0]))
        ids = chosen[-1:]
        if chosen[-1] == stop:
            break
    return chosen, lead


def train(model, samples, out, **arguments):
    """Transformers' Trainer over the samples in their order; its log lines that have a loss."""
    os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(out),
            use_cpu=True,
            optim="adamw_torch",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            train_sampling_strategy="sequential",
            **arguments,
        ),
        train_dataset=samples,
        data_collator=collate,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line]
