"""Make the data of the recipes: questions, and results of twenty models.

    python scripts/make_recipe_data.py

Writes ``examples/questions.csv`` (100 sums, half of them easy) and ``examples/twenty_models.csv`` (twenty fictional
models on 300 tasks, one sample each). The bytes are the same on every machine, because only `random.Random.random` is
used, whose sequence is the same in all versions of Python.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

HOME = Path(__file__).parents[1] / "examples"
EACH = 50  # questions of each level
TASKS = 300
# The true share of tasks that each model solves: a leader, two groups of near equals, and a tail.
SKILLS = (
    *(0.86, 0.80, 0.80, 0.79, 0.79, 0.78, 0.70, 0.69, 0.68, 0.66),
    *(0.62, 0.58, 0.55, 0.54, 0.50, 0.45, 0.40, 0.33, 0.25, 0.12),
)


def main() -> None:
    """Write both files."""
    (HOME / "questions.csv").write_text(questions(random.Random(2024)), encoding="utf-8")
    (HOME / "twenty_models.csv").write_text(results(random.Random(2025)), encoding="utf-8")


def questions(dice: random.Random) -> str:
    """Sums of two numbers, then products."""
    rows = ["id,question,answer,level"]
    for number in range(EACH):
        first, second = whole(dice, 11, 99), whole(dice, 11, 99)
        rows.append(f"add-{number:02},What is {first} + {second}?,{first + second},easy")
    for number in range(EACH):
        first, second = whole(dice, 11, 99), whole(dice, 11, 99)
        rows.append(f"mul-{number:02},What is {first} * {second}?,{first * second},hard")
    return "".join(f"{row}\n" for row in rows)


def results(dice: random.Random) -> str:
    """A row for each task and model; hard tasks are hard for every model."""
    rows = ["task,model,reward"]
    for task in range(TASKS):
        ease = dice.random()  # shared by the models, so their rewards are correlated
        for model, skill in enumerate(SKILLS, 1):
            passed = 0.6 * ease + 0.4 * dice.random() < threshold(skill)
            rows.append(f"task-{task:03},model-{model:02},{int(passed)}")
    return "".join(f"{row}\n" for row in rows)


def threshold(skill: float) -> float:
    """The point below which 0.6 x + 0.4 y lies with probability ``skill``, for x and y uniform from 0 to 1."""
    if skill <= 1 / 3:  # the corner where the sum is below 0.4
        return math.sqrt(0.48 * skill)
    if skill >= 2 / 3:
        return 1 - math.sqrt(0.48 * (1 - skill))
    return 0.6 * skill + 0.2


def whole(dice: random.Random, low: int, high: int) -> int:
    """A random integer from low to high, both included."""
    return low + int(dice.random() * (high - low + 1))


if __name__ == "__main__":
    main()
