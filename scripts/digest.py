"""Print the digest of a fixed set of rollouts with every metric, which must be the same on every interpreter.

`make test-interpreters` runs this with each installed Python and compares the lines.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import calipers
from calipers.names import METRICS

# metrics that were added later: without them, the digest is the same as that of older versions
LATER = ("total_cost_per_task", "bootstrap_best@{k}")
COLUMNS = ("mean", "median", "min", "max", "sum", "std")


def records() -> list[dict[str, Any]]:
    """Rollouts that are hard for floating-point sums: real rewards, gaps, uneven tasks, columns that begin late."""
    draw = random.Random(20)
    rows: list[dict[str, Any]] = []
    for task in range(300):
        for sample in range(draw.randrange(1, 9)):
            row: dict[str, Any] = {"task": f"t{task}", "sample": sample, "reward": draw.random() ** 0.3}
            if draw.random() < 0.1:
                row = {**row, "reward": None, "outcome": draw.choice(["refused", "client_failed", "judge_failed"])}
            row["answer"] = draw.choice(["1/2", 0.5, None, True])
            row["usage"] = {"cost_usd": draw.expovariate(7), "latency_s": draw.lognormvariate(0, 2)}
            row["metadata"] = {"level": draw.choice(["easy", "hard", None]), "source": {"book": task % 20}}
            if task > 250:
                row["f1"] = draw.gauss(0, 1e6)
            rows.append(row)
    return rows


def metrics() -> list[str]:
    """The names of all metrics, with parameters where they are needed."""
    of_columns = [f"{name}(column=f1)" for name in COLUMNS] + ["percentile(column=f1, q=37)"]
    others = [name for name in METRICS.entries if name not in (*COLUMNS, "percentile", *LATER)]
    return of_columns + [name.replace("{k}", k) for name in others for k in ("1", "3")]


def digest(paths: list[Path]) -> str:
    """The digest of the score of files, with slices and clusters."""
    names = list(dict.fromkeys(metrics()))
    return calipers.score(paths, names, by=["level"], cluster="source.book").digest


def main() -> None:
    """Score the rollouts in one file, and shuffled in three files; print the digest, which must be the same."""
    rows = records()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole.jsonl")
        whole.write_text("".join(json.dumps(row) + "\n" for row in rows))
        random.Random(1).shuffle(rows)
        parts = [Path(folder, f"{n}.jsonl") for n in range(3)]
        for number, part in enumerate(parts):
            part.write_text("".join(json.dumps(row) + "\n" for row in rows[number::3]))
        first, second = digest([whole]), digest(parts)
    if first != second:
        raise SystemExit(f"row order changed the digest: {first} is not {second}")
    print(first)


if __name__ == "__main__":
    main()
