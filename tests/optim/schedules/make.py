"""Learning rates of Transformers' schedules with options. See README.md beside this file.

    python make.py > schedules.json
"""

import json
import sys

import torch
import transformers

CASES = [  # type, learning rate, warm-up, steps, options
    ("cosine", 3e-4, 3, 17, {"num_cycles": 1.5}),
    ("cosine_with_min_lr", 3e-4, 2, 15, {"min_lr": 2e-5}),
    ("cosine_with_min_lr", 1e-3, 0, 11, {"min_lr_rate": 0.05, "num_cycles": 0.25}),
    ("cosine_with_restarts", 2e-4, 4, 24, {"num_cycles": 3}),
    ("cosine_with_restarts", 2e-4, 0, 9, {}),
    ("polynomial", 1e-3, 3, 16, {"lr_end": 1e-5, "power": 2.0}),
    ("polynomial", 5e-5, 0, 10, {}),
    ("polynomial", 5e-5, 2, 10, {"power": 0.5}),
    ("inverse_sqrt", 1e-3, 4, 20, {"timescale": 50}),
    ("warmup_stable_decay", 1e-3, 4, 24, {"num_decay_steps": 8}),
    ("warmup_stable_decay", 1e-3, 4, 24, {"num_decay_steps": 8, "min_lr_ratio": 0.1, "decay_type": "linear"}),
    ("warmup_stable_decay", 2e-4, 5, 24,
     {"num_decay_steps": 6, "warmup_type": "cosine", "decay_type": "1-sqrt", "min_lr_ratio": 0.05}),
    ("warmup_stable_decay", 2e-4, 5, 20, {"num_decay_steps": 6, "num_stable_steps": 4, "warmup_type": "1-sqrt"}),
    ("warmup_stable_decay", 2e-4, 0, 20, {"num_decay_steps": 10, "num_cycles": 1.5}),
]


def rates(kind, learning_rate, warmup, total, options):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=learning_rate)
    schedule = transformers.get_scheduler(kind, optimizer, warmup, total, options)
    result = []
    for _ in range(total + 3):
        result.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return result


schedules = [
    {"type": kind, "learning_rate": rate, "warmup": warmup, "total": total, "kwargs": options,
     "lr": rates(kind, rate, warmup, total, options)}
    for kind, rate, warmup, total, options in CASES
]
json.dump({"transformers": transformers.__version__, "schedules": schedules}, sys.stdout)
print()
