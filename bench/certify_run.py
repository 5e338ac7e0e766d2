"""Times `calipers certify` and `calipers verify` beside `calipers score`, on the same million rollouts, taking turns.

    python -m bench.certify_run [ROLLOUTS] [TURNS]

Certify and verify should take at most 2 times the time of score and 1.3 times its memory. The best of the turns
counts; processor time is printed beside it, which other work on the machine changes less. Verify is also given a copy
in which one reward was changed, and names it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench import data

RATIO, MEMORY = 2.0, 1.3
COMMAND = (sys.executable, "-c", "from calipers.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took."""

    seconds: float
    cpu: float
    megabytes: float
    out: str


def cost(*arguments: str, code: int = 0) -> Cost:
    """Run a command in a fresh process."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen([*COMMAND, *arguments], stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            raise SystemExit(f"calipers {' '.join(arguments)}: exit {process.returncode}")
        out.seek(0)
        return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read().decode())


def main(rows: int, turns: int) -> int:
    """Print a table for flat and for nested rows; 1 where a target is missed."""
    missed = 0
    print(f"{rows:,} rollouts, best of {turns} turns\n")
    print("| rows | command | s | processor s | MB | of score: time | memory |\n|---|---|---|---|---|---|---|")
    for shape in ("flat", "nested"):
        subprocess.run([sys.executable, str(Path(data.__file__)), shape, str(rows)], check=True, capture_output=True)
        missed += _measured(shape, str(data.file(shape, rows)), turns)
    return int(missed > 0)


def _measured(shape: str, path: str, turns: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        certificate = os.path.join(folder, "c.json")
        commands = {
            "score": ("score", path),
            "certify": ("certify", path, "-o", certificate, "--force"),
            "verify": ("verify", certificate, path),
        }
        takes: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(turns):
            for name, arguments in commands.items():
                takes[name].append(cost(*arguments, code=3 if name == "verify" else 0))  # nobody signed it
        best = {
            name: Cost(min(t.seconds for t in some), min(t.cpu for t in some), min(t.megabytes for t in some), "")
            for name, some in takes.items()
        }
        missed = 0
        for name, took in best.items():
            ratios = took.seconds / best["score"].seconds, took.megabytes / best["score"].megabytes
            missed += ratios[0] > RATIO or ratios[1] > MEMORY
            print(
                f"| {shape} | {name} | {took.seconds:.2f} | {took.cpu:.2f} | {took.megabytes:.0f} | {ratios[0]:.2f} | "
                f"{ratios[1]:.2f} |"
            )
        changed = os.path.join(folder, "changed.jsonl")
        line = _one_changed(path, changed)
        found = cost("verify", certificate, changed, "--format", "json", code=1)
        says = next(each["says"] for each in json.loads(found.out)["checks"] if each["check"] == "tree")
        print(f"| {shape} | verify, reward of line {line:,} changed | {found.seconds:.2f} | | | | {says} |")
        return missed


def _one_changed(path: str, target: str) -> int:
    """Copy a file with one reward changed; the line."""
    wanted = sum(1 for _ in open(path, "rb")) * 2 // 3  # noqa: SIM115
    with open(path, "rb") as source, open(target, "wb") as out:
        for number, line in enumerate(source, 1):
            if number == wanted:
                row = json.loads(line)
                row["reward"] = 1 - (row.get("reward") or 0)
                line = json.dumps(row).encode() + b"\n"
            out.write(line)
    return wanted


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    arguments = [int(text) for text in sys.argv[1:]]
    sys.exit(main(*(arguments or [1_000_000]), *([3] if len(arguments) < 2 else [])))
