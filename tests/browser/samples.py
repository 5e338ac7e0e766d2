"""Reports that the tests open: one run, two runs, a leaderboard, and several benchmarks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from calipers.web import HtmlReport, report

ARITH, NEXT, CALCULATORS = (
    str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl", "calculators.csv")
)


def several_benchmarks(folder: Path, models: int = 2) -> str:
    """A file of models on three benchmarks, with costs."""
    rng = random.Random(5)
    rows = []
    for dataset, tasks, level in (("easy", 40, 0.8), ("medium", 60, 0.5), ("hard", 30, 0.1)):
        for task in range(tasks):
            for model in range(models):
                for sample in range(2):
                    reward = int(rng.random() < min(level + 0.08 * model, 1))
                    usage = {"cost_usd": 0.001 * (model + 1) * rng.uniform(0.5, 1.5)}
                    who = {
                        "task": f"{dataset}-{task:02}",
                        "sample": sample,
                        "dataset": dataset,
                        "model": f"model-{model}",
                    }
                    rows.append({**who, "outcome": "scored", "reward": reward, "usage": usage})
    path = folder / "suite.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


REPORTS: dict[str, Callable[[Path], HtmlReport]] = {
    "run": lambda folder: report(ARITH, by="difficulty"),
    "pair": lambda folder: report(ARITH, NEXT, by="difficulty"),
    "board": lambda folder: report(CALCULATORS),
    "suite": lambda folder: report(several_benchmarks(folder)),
}
