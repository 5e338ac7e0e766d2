"""Fixtures for tests of whole runs: a benchmark of sums, and its model server in a process of its own."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forks import FORKS
from waiting import PATIENCE

MODEL = "openai/any"


def sums(folder: Path, tasks: int = 30, name: str = "sums") -> str:
    """Write a benchmark of ``a + b`` tasks with exact_match; returns its path."""
    home = folder / name
    home.mkdir()
    rows = [
        {
            "task_id": f"s{i}",
            "instruction": f"What is {i} + {i * 7}?",
            "verifier": {"kind": "in_process", "fn_name": "exact_match", "expected": str(i * 8)},
            "metadata": {"level": "easy" if i % 2 else "hard"},
        }
        for i in range(tasks)
    ]
    (home / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(home)


@contextmanager
def weather(*arguments: str) -> Iterator[str]:
    """A context with the base URL of the running server."""
    with FORKS.server("clients.weather", "--port", "0", *arguments) as port:
        yield f"http://127.0.0.1:{int(port)}/v1"


def served(url: str, go: str = "") -> Any:
    """The server's record of its calls; "/go" also releases calls that it holds."""
    with urllib.request.urlopen(url.replace("/v1", "/weather") + go, timeout=PATIENCE) as answer:
        return json.load(answer)


def records(folder: Path) -> list[dict[str, Any]]:
    """The records in the log of a run."""
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]


def digest(folder: Path) -> str:
    """The digest of a run's result."""
    found: str = json.loads((folder / "result.json").read_text())["digest"]
    return found
