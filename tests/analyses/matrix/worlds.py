"""Random small runs of two models or more: complete, with lost rollouts, retried until a pass, and graded."""

from __future__ import annotations

import random
from typing import Any

KINDS = ("complete", "lost", "lost failures", "retried", "graded", "steady", "other tasks", "clustered")


def random_rows(seed: int, models: str = "ab", dataset: str = "x") -> list[dict[str, Any]]:
    """Rows of models on one benchmark; the kind of their world follows from the seed."""
    draws = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    tasks, samples = draws.choice((12, 30, 60)), draws.choice((1, 1, 2, 4))
    chances = {model: draws.uniform(0.2, 0.95) for model in models}
    rows = []
    for number in range(tasks):
        hard = draws.betavariate(2, 2) - 0.5
        for model in models:
            if kind == "other tasks" and model == models[-1] and number % 3 == 0:
                continue
            chance = min(max(chances[model] + hard * 0.4, 0.0), 1.0)
            row = {"task": f"t{number}", "dataset": dataset, "model": model, "group": f"g{number % 9}"}
            rows += [
                {**row, "sample": at, **one} for at, one in enumerate(_samples(kind, model, chance, samples, draws))
            ]
    return rows


def _samples(kind: str, model: str, chance: float, samples: int, draws: random.Random) -> list[dict[str, Any]]:
    """The samples of one task."""
    found: list[dict[str, Any]] = []
    for _ in range(4 if kind == "retried" and model == "b" else samples):
        reward = float(draws.random() < chance)
        if kind == "graded":
            reward = round(min(max(chance + draws.gauss(0, 0.2), 0.0), 1.0), 3)
        if kind == "steady" and model == "a":
            reward = 0.9
        is_lost = kind == "lost" and draws.random() < 0.1
        is_lost = is_lost or (kind == "lost failures" and model == "b" and reward == 0 and draws.random() < 0.6)
        found.append({"reward": None, "outcome": "client_failed"} if is_lost else {"reward": reward})
        if kind == "retried" and model == "b" and reward == 1:
            break
    return found
