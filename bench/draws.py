"""Draws and comparisons: bootstrap, sign flips, and two runs of a million rollouts side by side.

``python bench/draws.py WHAT TASKS`` times one of DRAWS in this process, and prints its best seconds.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench import data
from bench.commands import Took, run_command

TURNS = 3
TOGETHER = 5.0  # seconds, the target of sign flips and paired draws over 100,000 tasks
CHANGED = 0.05  # share of rollouts that differ in the second of the two compared runs


@dataclass(frozen=True, slots=True)
class Drawn:
    """A measurement of 10,000 draws over a number of tasks."""

    what: str
    tasks: int
    seconds: float
    most: float | None  # seconds; None where the target is of several together


def measure_draws(quick: bool = False) -> list[Drawn]:
    """Measure each kind of draws in its own process; the best of three turns counts."""
    large = 10_000 if quick else 100_000
    asked = [("bootstrap", 1_319, 0.2), ("bootstrap", large, None), ("flips", large, 1.0), ("paired", large, None)]
    return [Drawn(TITLES[what], tasks, _in_a_process(what, tasks), most) for what, tasks, most in asked]


def measure_comparison(folder: Path, quick: bool = False) -> Took:
    """Measure ``calipers compare`` on two runs of the same tasks in which one rollout in twenty differs."""
    rows = 100_000 if quick else 1_000_000
    subprocess.run([sys.executable, str(Path(data.__file__)), "flat", str(rows)], check=True, capture_output=True)
    first, second = data.file("flat", rows), folder / "second.jsonl"
    with first.open(encoding="utf-8") as source, second.open("w", encoding="utf-8") as out:
        out.writelines(_turned(source))
    command = ["compare", str(first), str(second), "--metric", "mean_reward", "--metric", "pass@4"]
    seconds, cpu, megabytes = run_command(command, folder)
    met = None if quick else seconds < 10
    return Took(f"compare of two runs of {rows:,} rollouts", seconds, cpu, megabytes, 2 * rows, "< 10 s", met)


def draws_section(found: Sequence[Drawn]) -> str:
    """The table of the draws."""
    lines = ["## 10,000 draws", "", "| | tasks | seconds | target |", "|---|---|---|---|"]
    for one in found:
        target = "" if one.most is None else f"<= {one.most:g} s: {_verdict(one.seconds <= one.most)}"
        lines.append(f"| {one.what} | {one.tasks:,} | {one.seconds:.2f} | {target} |")
    both = sum(one.seconds for one in found if one.what in (TITLES["flips"], TITLES["paired"]))
    lines += [
        "",
        f"The time of the call alone, on one core, the best of {TURNS} repeats. Sign flips and paired resamples "
        f"together take {both:.2f} s (target: < {TOGETHER:g} s: {_verdict(both < TOGETHER)}). Both resample a mean of "
        "rewards.",
    ]
    return "\n".join(lines) + "\n"


def _verdict(reached: bool) -> str:
    return "met" if reached else "**missed**"


def _turned(lines: Iterator[str]) -> Iterator[str]:
    draw = random.Random(1).random
    other = {'"reward":1.0': '"reward":0.0', '"reward":0.0': '"reward":1.0'}
    for line in lines:
        if draw() < CHANGED:
            now = next(reward for reward in other if reward in line)
            line = line.replace(now, other[now], 1)
        yield line


def _in_a_process(what: str, tasks: int) -> float:
    done = subprocess.run([sys.executable, __file__, what, str(tasks)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _bootstrap(tasks: int) -> Callable[[], object]:
    import numpy as np

    from calipers.stats.intervals import draw

    values = np.random.default_rng(0).integers(0, 17, tasks) / 16
    return lambda: draw(values, np.ones(tasks), seed=0)


def _flips(tasks: int) -> Callable[[], object]:
    from calipers.stats.paired import sign_flip

    values = _differences(tasks)
    return lambda: sign_flip(values)


def _paired(tasks: int) -> Callable[[], object]:
    import numpy as np

    from calipers.stats.paired import paired_bootstrap, ratio

    first = np.stack([_differences(tasks), np.ones(tasks)], axis=1)
    second = first * [0, 1]
    return lambda: paired_bootstrap(first, second, ratio)


def _differences(tasks: int) -> Any:
    import numpy as np

    first, second = np.random.default_rng(0).integers(0, 17, (2, tasks)) / 16
    return first - second


TITLES: Mapping[str, str] = {
    "bootstrap": "bootstrap of a mean",
    "flips": "sign flips of a difference",
    "paired": "paired bootstrap of a difference",
}
DRAWS: Mapping[str, Callable[[int], Callable[[], object]]] = {
    "bootstrap": _bootstrap,
    "flips": _flips,
    "paired": _paired,
}


def _best(work: Callable[[], object]) -> float:
    takes = []
    for _ in range(TURNS):
        start = time.perf_counter()
        work()
        takes.append(time.perf_counter() - start)
    return min(takes)


if __name__ == "__main__":
    print(_best(DRAWS[sys.argv[1]](int(sys.argv[2]))))
