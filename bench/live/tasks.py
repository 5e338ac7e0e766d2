"""Tasks for a live run in each contestant's own format: the same questions, half of them with the served answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.data import DATA
from bench.live.server import ANSWER

WRONG = "41"


def question(number: int) -> str:
    """The question of a task."""
    return f"Problem {number}: what is {number % 97} * {number % 89}? Answer with the number alone."


def target(number: int) -> str:
    """The target of a task: in every other task the server's fixed answer, else another number."""
    return WRONG if number % 2 else ANSWER


def row(number: int) -> dict[str, Any]:
    """The task as a row of Calipers' format."""
    verifier = {"kind": "in_process", "fn_name": "exact_match", "expected": target(number)}
    return {"task_id": f"task-{number:06}", "instruction": question(number), "verifier": verifier}


def benchmark(tasks: int) -> Path:
    """A directory with that many tasks for `calipers run`; written if it does not exist."""
    folder = DATA / f"live-{tasks}"
    lines = (json.dumps(row(number)) for number in range(tasks))
    return _written(folder / "tasks.jsonl", "".join(f"{line}\n" for line in lines)).parent


def pairs(tasks: int) -> Path:
    """A file with the same questions and targets for the other tools."""
    lines = (json.dumps({"question": question(number), "target": target(number)}) for number in range(tasks))
    return _written(DATA / f"live-pairs-{tasks}.jsonl", "".join(f"{line}\n" for line in lines))


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path
