"""Compare the whole commands ``lm_eval run`` and ``calipers run``, from the start of the interpreter to their files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness.answers import CLOSE
from bench.harness.tasks import Made


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of both commands, one after the other: wall-clock and CPU seconds."""

    ours: tuple[float, float]
    theirs: tuple[float, float]
    numbers: int  # of all tasks that are equal


def measure_commands(
    folder: Path, checkpoint: str, tasks: Sequence[Made], theirs: str, batch: int, repeat: int
) -> list[Turn]:
    """Run both commands, alternating; ValueError if a number of theirs differs from ours."""
    files = [str(folder / f"{task.name}.yaml") for task in tasks]
    names = ",".join(task.name for task in tasks)
    turns = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="calipers-bench-") as scratch:
            home = Path(scratch)
            command = [theirs, "-m", "lm_eval", "run", "--model", "hf", "--model_args", f"pretrained={checkpoint}"]
            command += ["--tasks", names, "--include_path", str(folder), "--batch_size", str(batch), "--device", "cpu"]
            command += ["--log_samples", "--output_path", str(home / "theirs")]
            they = _process(command, home)
            command = [sys.executable, "-m", "calipers", "run", *files, "--model", f"hf/{checkpoint}"]
            we = _process([*command, "--api", "completions", "--export", f"lm_eval={home / 'ours'}"], home)
            turns.append(Turn(we, they, _compared(_results(home / "ours"), _results(home / "theirs"))))
        print(f"  calipers run {we[0]:.1f} s, lm_eval run {they[0]:.1f} s", file=sys.stderr, flush=True)
    return turns


def commands_section(turns: Sequence[Turn], batch: int) -> str:
    """The section on the commands; empty if none was run."""
    if not turns:
        return ""
    rows = []
    for title, sides in (("`calipers run`", [t.ours for t in turns]), ("`lm_eval run`", [t.theirs for t in turns])):
        rows.append(f"| {title} | {min(one[0] for one in sides):.1f} | {min(one[1] for one in sides):.1f} |")
    clock, cpu = (median(turn.ours[place] / turn.theirs[place] for turn in turns) for place in (0, 1))
    lines = [
        "## Whole commands",
        "",
        "| all six tasks, best of all repeats | wall-clock seconds | CPU seconds |",
        "|---|---|---|",
        *rows,
        f"| ratio, median of the repeats | {clock:.2f} | {cpu:.2f} |",
        "",
        "Whole commands, including imports, loading, metrics, standard errors and files. `lm_eval` has `--batch_size "
        f"{batch}`, the faster of the two above. All {turns[0].numbers} numbers of its results, including standard "
        "errors, agree with Calipers' within 1e-5; Calipers adds intervals.",
    ]
    return "\n".join(lines) + "\n"


def _process(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a command with all its child processes."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | offline)
    seconds, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:4])} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds, sum(after[2:4]) - sum(before[2:4])


def _results(folder: Path) -> dict[str, dict[str, object]]:
    """The results of every task, from all results files."""
    found: dict[str, dict[str, object]] = {}
    for path in folder.rglob("results_*.json"):
        found |= json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def _compared(ours: Mapping[str, Mapping[str, object]], theirs: Mapping[str, Mapping[str, object]]) -> int:
    """The number of equal numbers; ValueError for the first that differs."""
    count = 0
    for task, values in theirs.items():
        for name, value in values.items():
            mine = ours.get(task, {}).get(name)
            if not isinstance(value, (int, float)):
                if mine != value:
                    raise ValueError(f"{task}: {name} is {mine!r}, and {value!r} in lm-eval")
            elif not isinstance(mine, (int, float)) or not math.isclose(mine, value, rel_tol=CLOSE, abs_tol=CLOSE):
                raise ValueError(f"{task}: {name} is {mine!r}, and {value!r} in lm-eval")
            else:
                count += 1
    return count
