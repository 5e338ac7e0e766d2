"""Rows of the shape of LiveCodeBench's public per-problem results: 17 models, 713 tasks, one pass or fail each.

Made up, and the same on every machine: a task has a difficulty and a luck of its own, which all models share.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

MODELS = {
    "O1-Mini-2024-09-12": 0.710,
    "O1-Preview-2024-09-12": 0.624,
    "Claude-3.5-Sonnet-20241022": 0.580,
    "Claude-3.5-Sonnet-20240620": 0.551,
    "Qwen2.5-Ins-32B": 0.506,
    "GPT-4O-2024-05-13": 0.490,
    "GPT-4O-2024-08-06": 0.490,
    "Gemini-Pro-1.5-002": 0.470,
    "GPT-4-Turbo-2024-04-09": 0.451,
    "LLama3.1-405b-Ins-FP8": 0.444,
    "GPT-4O-mini-2024-07-18": 0.422,
    "Mistral-Large": 0.400,
    "Gemini-Flash-1.5-002": 0.397,
    "Qwen2-Ins-72B": 0.361,
    "LLama3.1-70b-Ins": 0.350,
    "Claude-3-Haiku": 0.262,
    "LLama3.1-8b-Ins": 0.207,
}
TASKS = 713


def problem_rows(seed: int = 0, tasks: int = TASKS, models: Sequence[str] = tuple(MODELS)) -> list[dict[str, Any]]:
    """A row for each model and task; a model passes where its skill beats the task, but for some luck."""
    dice = random.Random(seed)
    rows = []
    for task in range(tasks):
        difficulty = dice.random()
        for model in models:
            drawn = 0.8 * difficulty + 0.2 * dice.random()
            reward = float(drawn < 0.1 + 0.8 * MODELS[model])
            rows.append({"task": f"lcb-{task:03}", "dataset": "lcb-repair", "model": model, "reward": reward})
    return rows
