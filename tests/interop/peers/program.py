"""The garam program: its commands as functions."""

import argparse
import json
import pathlib
import subprocess
import warnings

import torch


def arguments(description):
    """The arguments that ./dev test --interop gives to each script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--garam", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--gguf", type=pathlib.Path, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="an empty folder to write to")
    options = parser.parse_args()
    options.work = options.work.resolve()
    return options


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def settings_of(values):
    """key=value words; lists, null and booleans as YAML writes them."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}" for key, value in values.items()]


class Garam:
    def __init__(self, binary):
        self.binary = str(pathlib.Path(binary).resolve())

    def run(self, *words):
        done = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True, encoding="utf-8")
        if done.returncode != 0:
            raise RuntimeError(f"garam {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def train_words(self, model, rows, out, **settings):
        """The settings of a reproducible run in fp32 that logs each step; double underscores are dots."""
        values = {
            "model": str(model),
            "data.train": str(rows),
            "data.shuffle": False,
            "train.output_dir": str(out),
            "train.bf16": False,
            "train.logging_steps": 1,
            "train.report_to": "none",
            "train.save_steps": 0,
        }
        values.update({key.replace("__", "."): value for key, value in settings.items()})
        return settings_of(values)

    def train(self, model, rows, out, **settings):
        """Trains; the lines of metrics.jsonl."""
        self.run("train", *self.train_words(model, rows, out, **settings))
        return metrics(out)

    def losses_of_rows(self, model, rows, out, **settings):
        """The loss of each row by itself: steps of one row that change nothing."""
        count = len(pathlib.Path(rows).read_text("utf-8").splitlines())
        lines = self.train(
            model, rows, out, train__learning_rate=0, train__per_device_train_batch_size=1, train__max_steps=count, **settings
        )
        return [line["loss"] for line in lines]

    def evaluate(self, model, rows, adapter=None, **settings):
        """The loss of all target tokens of a file, through inference instead of training."""
        words = ["--perplexity", "--dtype", "f32", "--json", "--model", model, "--data", rows]
        if adapter:
            words += ["--adapter", adapter]
        return json.loads(self.run("eval", *words, *settings_of({k.replace("__", "."): v for k, v in settings.items()})))

    def generate(self, model, prompt, adapter=None, count=24, *more):
        words = ["--dtype", "f32", "--temperature", 0, "--max-new-tokens", count, "--json", "--prompt", prompt]
        if adapter:
            words += ["--adapter", adapter]
        return json.loads(self.run("generate", model, *words, *more))


def metrics(out):
    return [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text("utf-8").splitlines()]


def quiet():
    """Peers that neither chat nor touch the network, and give the same numbers in each run."""
    import transformers

    warnings.simplefilter("ignore", FutureWarning)  # of Transformers about itself
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(1)  # its threads wait busily for each other, on machines that do other work too for long
