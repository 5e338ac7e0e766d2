"""Measure ``calipers watch`` on a folder of step files against ``calipers score``: the first look, new steps, memory.

``python bench/watch_run.py --files 1000`` makes the files in a temporary folder, with 10,000 rollouts each, as JSON
Lines of about 200 bytes per row or as Parquet, and prints a table; ``--write`` writes it into docs/watching.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np
import polars as pl

from bench.data import ROOT
from bench.simulations.report import filled, replaced
from calipers.analyses.watch.watch import RunWatch

PAGE = ROOT / "docs" / "watching.md"
ROLLOUTS, SAMPLES = 10_000, 8
NEW = 5  # steps that appear after the first look
TURNS = 3  # runs of each command
MOST_RATIO, MOST_SECONDS, MOST_BYTES = 1.3, 0.3, 500 << 20
PROMPT = "x" * 90  # fills a row to about 200 bytes


def frame(step: int, rng: np.random.Generator) -> pl.DataFrame:
    """The rollouts of a step on new prompts, so that a score of all files counts each of them once."""
    tasks = ROLLOUTS // SAMPLES
    chances = rng.beta(0.8, 0.8, tasks)
    passes = rng.random((tasks, SAMPLES)) < chances[:, None]
    return pl.DataFrame(
        {
            "task": np.repeat([f"task-{step}-{number}" for number in range(tasks)], SAMPLES),
            "sample": np.tile(np.arange(SAMPLES), tasks),
            "step": np.full(ROLLOUTS, step),
            "reward": passes.ravel().astype(float),
            "output_tokens": rng.integers(50, 500, ROLLOUTS),
            "note": [PROMPT] * ROLLOUTS,
        }
    )


def write_step(folder: Path, step: int, kind: str, rng: np.random.Generator) -> None:
    """Write the file of a step, and rename it when it is complete."""
    beside = folder / f".{step}.part"
    if kind == "parquet":
        frame(step, rng).write_parquet(beside)
    else:
        frame(step, rng).write_ndjson(beside)
    os.replace(beside, folder / f"step_{step}.{kind}")


@dataclass(frozen=True, slots=True)
class Cost:
    """The time and memory of a command."""

    clock: float  # seconds
    processor: float  # seconds of all its threads and children; other work on the machine hardly affects it
    memory: int  # bytes, at the peak


def timed(*words: str) -> Cost:
    """Run a command and measure it; its output is not shown."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "from calipers.cli import main; main()", *words], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(words[:3])} failed")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def measured(files: int, kind: str) -> dict[str, float]:
    """Measure one folder of files: the score of all files, the first look, and looks after each new step."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        folder.mkdir()
        for step in range(files):
            write_step(folder, step, kind, rng)
        size = sum(path.stat().st_size for path in folder.iterdir())
        paths = [str(folder / f"step_{step}.{kind}") for step in range(files)]
        score, first = [], []
        for turn in range(TURNS):  # alternating, because other work on the machine comes and goes
            score.append(timed("score", *paths))
            state = ["--state", str(Path(place, f"state-{turn}"))] if turn + 1 < TURNS else []
            first.append(timed("watch", str(folder), "--once", "--alarm", "rl", *state))
        start_up = timed("watch", str(folder), "--once")
        each = []
        watching = RunWatch(str(folder), {})
        for step in range(files, files + NEW):
            write_step(folder, step, kind, rng)
            start = time.perf_counter()
            watching.look()
            each.append(time.perf_counter() - start)
        watching.close()
    least = {
        name: tuple(min(getattr(cost, kind) for cost in costs) for kind in ("clock", "processor"))
        for name, costs in (("score", score), ("first", first))
    }
    return {
        "bytes": size,
        "score": least["score"][0],
        "score, processor": least["score"][1],
        "first": least["first"][0],
        "first, processor": least["first"][1],
        "ratio": least["first"][0] / least["score"][0],
        "ratio, processor": least["first"][1] / least["score"][1],
        "nothing new": start_up.clock,
        "each": float(np.median(each)),
        "memory": max(cost.memory for cost in first),
    }


def main() -> int:
    """Measure, print, and report measurements over their limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    head = filled(
        f"A folder of {asked.files:,} step files of {ROLLOUTS:,} rollouts each, 1,250 new prompts x 8: seconds for "
        "calipers score of the same files, for the first look, for a look of a running watch that finds one new step, "
        f"and the largest memory of the first look. The least of {TURNS} runs each, in turns: seconds on the clock, "
        "and in brackets seconds of the processor. Written by `make bench-watch`."
    )
    lines = [
        head,
        "",
        "| files | MB | score | first look | ratio | new step | memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    over = []
    for kind in ("jsonl", "parquet"):
        found = measured(asked.files, kind)
        times = [f"{found[name]:.2f} ({found[f'{name}, processor']:.2f})" for name in ("score", "first", "ratio")]
        cells = [f"{found['bytes'] / 1e6:,.0f}", *times, f"{found['each']:.2f}", f"{found['memory'] / 2**20:.0f}"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
        print(f"{kind}: a look that finds nothing takes {found['nothing new']:.2f} s", file=sys.stderr)
        ratios = [(name, MOST_RATIO) for name in ("ratio", "ratio, processor")]
        checks = (*ratios, ("each", MOST_SECONDS), ("memory", MOST_BYTES))
        over += [
            f"{kind}: {name} is {found[name]:.3g}; at most {most:g}" for name, most in checks if found[name] > most
        ]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), "speed", text), encoding="utf-8")
    for line in over:
        print(f"not kept: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
