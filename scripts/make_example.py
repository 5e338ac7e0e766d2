"""Make the bundled example data: 40 sums, with 8 samples each from a fictional model.

    python scripts/make_example.py

Writes ``arith.jsonl`` (Calipers' own records, with outcomes, usage and a second number), ``rewards.json``
(the same rewards in EvSys' format, a list for each task), ``arith/`` (the benchmark itself, which
``replay/arith.jsonl`` answers), ``arith_next.jsonl`` (the same sums, answered by a slightly better
successor) and ``calculators.csv`` (seven models on 120 other sums, one sample each). The bytes are the same on every
machine, because only `random.Random.random` is used, whose sequence is the same in all versions of Python.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1] / "src" / "calipers" / "examples"
SAMPLES = 8
EACH = 20  # tasks of each difficulty
WORTH_NOTHING = ("refused", "truncated", "unparsed")  # the model is responsible: counts 0
METADATA = """name: arith
version: 1
description: 40 sums, half of them easy; made up for the tour
"""
LOST = ("verifier_failed", "client_failed")  # the model is not responsible: missing


def main() -> None:
    """Write all files."""
    dice = random.Random(2021)
    tasks = _tasks(dice)
    rows = [row for task in tasks for row in _samples(task, dice)]
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    (HOME / "arith.jsonl").write_text("".join(lines), encoding="utf-8")
    better = [{**task, "skill": 0.2 + 0.8 * task["skill"], "model": "next-calculator"} for task in tasks]
    later = random.Random(2022)
    after = [json.dumps(row, separators=(",", ":")) + "\n" for task in better for row in _samples(task, later)]
    (HOME / "arith_next.jsonl").write_text("".join(after), encoding="utf-8")
    (HOME / "rewards.json").write_text(_rewards(rows), encoding="utf-8")
    (HOME / "calculators.csv").write_text(_calculators(random.Random(2023)), encoding="utf-8")
    (HOME / "arith").mkdir(exist_ok=True)
    questions = [json.dumps(_question(task), separators=(",", ":")) + "\n" for task in tasks]
    (HOME / "arith" / "tasks.jsonl").write_text("".join(questions), encoding="utf-8")
    (HOME / "arith" / "metadata.yaml").write_text(METADATA, encoding="utf-8")


def _tasks(dice: random.Random) -> list[dict[str, Any]]:
    tasks = []
    for number in range(EACH):
        a, b = _whole(dice, 11, 99), _whole(dice, 11, 99)
        skill = 0.55 + 0.45 * dice.random()
        tasks.append({"id": f"add-{number:02}", "ask": f"{a} + {b}", "right": a + b, "level": "easy", "skill": skill})
    for number in range(EACH):
        a, b = _whole(dice, 112, 989), _whole(dice, 12, 98)
        skill = 0.75 * dice.random() ** 1.5
        tasks.append({"id": f"mul-{number:02}", "ask": f"{a} * {b}", "right": a * b, "level": "hard", "skill": skill})
    return tasks


def _question(task: dict[str, Any]) -> dict[str, Any]:
    verifier = {"kind": "in_process", "fn_name": "numeric_match", "expected": task["right"]}
    return {
        "task_id": task["id"],
        "instruction": _prompt(task),
        "verifier": {**verifier, "params": {"marker": "####"}},
        "metadata": {"difficulty": task["level"]},
    }


def _prompt(task: dict[str, Any]) -> str:
    return f"What is {task['ask']}? End with #### and the number."


def _samples(task: dict[str, Any], dice: random.Random) -> list[dict[str, Any]]:
    return [_sample(task, number, dice) for number in range(SAMPLES)]


def _sample(task: dict[str, Any], number: int, dice: random.Random) -> dict[str, Any]:
    passed = dice.random() < task["skill"]
    answer = task["right"] if passed else task["right"] + _whole(dice, 1, 9) * 10
    words = _whole(dice, 18, 60) * (1 if task["level"] == "easy" else 3)
    latency = 0.3 + words / 45 + dice.random() ** 4 * 3
    outcome = _outcome(dice.random(), task["level"])
    row: dict[str, Any] = {
        "task": task["id"],
        "sample": number,
        "dataset": "arith",
        "model": task.get("model", "tiny-calculator"),
        "outcome": outcome,
        "prompt": _prompt(task),
        "metadata": {"difficulty": task["level"]},
    }
    if outcome == "client_failed":
        return {**row, "error": {"kind": "timeout", "message": "no answer after 60 s"}}
    completion = {
        "refused": "I would rather not do sums.",
        "truncated": f"Let us take {task['ask']} step by step. First",
        "unparsed": f"That makes {answer}, I think.",
    }.get(outcome, f"{task['ask']} makes {answer}.\n#### {answer}")
    row["completion"] = completion
    row["usage"] = {
        "input_tokens": 20 + len(task["ask"]),
        "output_tokens": words,
        "cost_usd": round((20 + len(task["ask"])) * 5e-7 + words * 2e-6, 7),
        "latency_s": round(latency, 3),
    }
    if outcome == "verifier_failed":
        return {**row, "error": "the verifier stopped before it had an answer"}
    if outcome == "scored":
        row.update(answer=str(answer), reward=int(passed))
        row["f1"] = round(0.75 + 0.25 * dice.random() if passed else 0.15 + 0.5 * dice.random(), 3)
    return row


def _outcome(chance: float, level: str) -> str:
    """The outcome at a random number: mostly scored; hard tasks are truncated more often."""
    shares = {"refused": 0.02, "truncated": 0.01 if level == "easy" else 0.05, "unparsed": 0.02}
    shares |= {"verifier_failed": 0.02, "client_failed": 0.015}
    for outcome, share in shares.items():
        chance -= share
        if chance < 0:
            return outcome
    return "scored"


def _rewards(rows: list[dict[str, Any]]) -> str:
    """A list of rewards for each task, without the lost rollouts, which EvSys drops."""
    tasks: dict[str, list[int]] = {}
    for row in rows:
        rewards = tasks.setdefault(row["task"], [])
        if row["outcome"] not in LOST:
            rewards.append(0 if row["outcome"] in WORTH_NOTHING else row["reward"])
    return "[\n" + ",\n".join(json.dumps(rewards) for rewards in tasks.values()) + "\n]\n"


CALCULATORS = {
    "abacus": 0.86,
    "slide-rule": 0.66,
    "adder-7b": 0.64,
    "adder-3b": 0.6,
    "tally-1": 0.45,
    "tally-0": 0.42,
    "finger-count": 0.12,
}
SUMS = 120


def _calculators(dice: random.Random) -> str:
    """A pass or fail of each model on each sum; hard sums are hard for all models."""
    lines = ["task,dataset,model,reward\n"]
    for number in range(SUMS):
        difficulty = dice.random()
        for model, skill in CALCULATORS.items():
            passed = 0.75 * difficulty + 0.25 * dice.random() < skill
            lines.append(f"sum-{number:03},sums,{model},{int(passed)}\n")
    return "".join(lines)


def _whole(dice: random.Random, low: int, high: int) -> int:
    return low + int(dice.random() * (high - low + 1))


if __name__ == "__main__":
    main()
