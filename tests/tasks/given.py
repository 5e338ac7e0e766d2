"""Benchmarks on disk, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def row(task_id: Any = "a", expected: Any = "A", **more: Any) -> dict[str, Any]:
    """The row of a task with exact_match."""
    verifier = {"kind": "in_process", "fn_name": "exact_match", "expected": expected}
    return {"task_id": task_id, "instruction": f"q {task_id}", "verifier": verifier, **more}


def benchmark(folder: Path, *rows: Any, name: str = "arith", metadata: str | None = None) -> Path:
    """Write the directory of a benchmark; a row that is text is written unchanged."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in rows or (row(),)]
    (place / "tasks.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode())
    if metadata is not None:
        (place / "metadata.yaml").write_bytes(metadata.encode())
    return place
