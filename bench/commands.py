"""Time and memory of whole commands, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import data

COMPLETION = "Let us see. Some thoughts that lead nowhere in particular, and then some more of the same kind. "
TESTS = [{"input": f"{n}\n", "output": f"{n * n}\n"} for n in range(1)]
CANDIDATE = "```python\nprint(int(input()) ** 2)\n```"


@dataclass(frozen=True, slots=True)
class Took:
    """The measurement of a command."""

    what: str
    seconds: float  # by the clock
    cpu: float  # of all cores
    megabytes: float  # the largest process
    rows: int
    target: str
    met: bool | None  # None where nothing was promised
    per_core: bool = False  # the rate is that of one core

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / (self.cpu if self.per_core else self.seconds)


def measure_commands(quick: bool = False) -> list[Took]:
    """Run each command once, on generated files."""
    rows = 100_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as folder:
        return [_export(Path(folder), rows), *_rescorings(Path(folder), rows), _sandbox(20 if quick else 100)]


def commands_section(found: Sequence[Took]) -> str:
    """The table of the commands."""
    lines = [
        "## Whole commands",
        "",
        "| | wall-clock s | CPU s | peak MB | per second | target |",
        "|---|---|---|---|---|---|",
    ]
    for took in found:
        verdict = "" if took.met is None else f": {'met' if took.met else '**missed**'}"
        figures = f"{took.seconds:.2f} | {took.cpu:.2f} | {took.megabytes:.0f} | {took.rate:,.0f}"
        lines.append(f"| {took.what} | {figures} | {took.target}{verdict} |")
    lines += ["", "One run each, including interpreter start and imports. The memory is that of the largest process."]
    return "\n".join(lines) + "\n"


def _export(folder: Path, rows: int) -> Took:
    path = data.file("nemo_gym", rows)
    subprocess.run([sys.executable, str(Path(data.__file__)), "nemo_gym", str(rows)], check=True, capture_output=True)
    out = folder / "metrics.json"
    command = ["score", str(path), "--dialect", "nemo_gym", "--metric", "mean/reward", "--export", f"nemo_gym={out}"]
    seconds, cpu, megabytes = run_command(command, folder)
    met = seconds <= 8 and megabytes <= 600 if rows == 1_000_000 else None
    what = f"{rows:,} rollouts to NeMo Gym's whole file ({out.stat().st_size / 1e6:.0f} MB)"
    return Took(what, seconds, cpu, megabytes, rows, "<= 8 s, <= 600 MB", met)


def _rescorings(folder: Path, rows: int) -> list[Took]:
    """Verify stored completions again. The rate is that of one core, so CPU time is used."""
    log, suite = folder / "rollouts.jsonl", folder / "suite"
    suite.mkdir()
    tasks = rows // 16
    with open(suite / "tasks.jsonl", "w") as file:
        for task in range(tasks):
            verifier = {"kind": "in_process", "fn_name": "exact_match", "expected": str(task)}
            file.write(json.dumps({"task_id": f"t{task}", "instruction": "?", "verifier": verifier}) + "\n")
    with open(log, "w") as file:
        for task in range(tasks):
            for sample in range(16):
                row = {"task": f"t{task}", "sample": sample, "reward": 1, "completion": f"{COMPLETION * 3}#### {task}"}
                file.write(json.dumps(row) + "\n")
    found = []
    for name, more in {
        "exact_match": [],
        "a regex, then exact_match": ["--filter", r"regex=#### (\-?[0-9\.\,]+)"],
    }.items():
        command = ["rescore", str(log), "--benchmark", str(suite), "--verifier", "exact_match", *more]
        command += ["--metric", "pass@1", "--out", str(folder / "again.jsonl")]
        (folder / "again.jsonl").unlink(missing_ok=True)
        seconds, cpu, megabytes = run_command(command, folder)
        met = rows / cpu >= 200_000
        found.append(
            Took(
                f"rescore by {name}",
                seconds,
                cpu,
                megabytes,
                tasks * 16,
                ">= 200,000 per CPU second",
                met,
                per_core=True,
            )
        )
    return found


def _sandbox(candidates: int) -> Took:
    """Verify programs one after the other with ``python_tests``, each in its own sandbox."""
    code = (
        "import asyncio, json, sys\n"
        "from calipers.clients import Completion\n"
        "from calipers.verifiers.user_code import find_verifier\n"
        "from calipers.tasks import Task\n"
        "count, tests, text = json.loads(sys.argv[1])\n"
        "judge = find_verifier('python_tests')\n"
        "async def main():\n"
        "    for n in range(count):\n"
        "        verdict = await judge.verify(Task(str(n), '?', 'python_tests', tests), Completion(text))\n"
        "        assert verdict.reward == 1.0, verdict\n"
        "asyncio.run(main())\n"
    )
    asked = json.dumps([candidates, TESTS, CANDIDATE])
    seconds, cpu, megabytes = _process([sys.executable, "-c", code, asked], None)
    met = candidates / cpu >= 20
    return Took(
        "python_tests, candidates with one test each",
        seconds,
        cpu,
        megabytes,
        candidates,
        ">= 20 per CPU second",
        met,
        per_core=True,
    )


def run_command(arguments: Sequence[str], folder: Path) -> tuple[float, float, float]:
    """(clock seconds, processor seconds, megabytes of the largest process) of ``calipers`` with these arguments."""
    return _process([sys.executable, "-m", "calipers", *arguments], folder)


def _process(command: Sequence[str], folder: Path | None) -> tuple[float, float, float]:
    """(clock seconds, processor seconds, megabytes of the largest process) of a command and its child processes."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read() if child.stderr else b""
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {said.decode()[-300:]}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3
