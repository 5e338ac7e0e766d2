"""Measure `calipers certify` and `calipers verify` against `calipers score`, on the same million rollouts.

    python -m bench.certify_run [--rollouts N] [--turns N] [--write]

The commands alternate, and the best of the turns counts. Certify and verify should take at most 2 times the wall-clock
and CPU time of score, and 1.3 times its memory. Verify also gets a copy in which one reward was changed, and must name
it. ``--write`` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench import data
from bench.simulations.report import replaced

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
MARK = "certificates: bench/certify_run.py"
RATIO, MEMORY = 2.0, 1.3
COMMAND = (sys.executable, "-c", "from calipers.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Cost:
    """The time and memory of a command, and its output."""

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


def main() -> int:
    """Print a table for flat and for nested rows; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    asked = parser.parse_args()
    lines, missed = [], []
    for shape in ("flat", "nested"):
        made = [sys.executable, str(Path(data.__file__)), shape, str(asked.rollouts)]
        subprocess.run(made, check=True, capture_output=True)
        rows, over = _measured(shape, str(data.file(shape, asked.rollouts)), asked.turns)
        lines += rows
        missed += over
    text = "\n".join(
        [
            "## Certificates",
            "",
            f"`python -m bench.certify_run --write`, measured on {datetime.now(UTC):%Y-%m-%d} with {os.cpu_count()} "
            f"cores, load {os.getloadavg()[1]:.1f}: {asked.rollouts:,} rollouts in JSON Lines, the best of "
            f"{asked.turns} turns. The ratios are to `calipers score` of the same file. In the last row of each kind "
            "one reward was changed.",
            "",
            "| rows | command | seconds | CPU seconds | peak MB | ratio: time | CPU | memory |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            f"Targets: at most {RATIO:g} times the time and {MEMORY:g} times the memory of a score: "
            + (f"missed by {', '.join(missed)}." if missed else "met."),
            "",
        ]
    )
    print(text)
    if asked.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    return int(bool(missed))


def _measured(shape: str, path: str, turns: int) -> tuple[list[str], list[str]]:
    """The rows of the table for one file, and the measurements that are over their limits."""
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
                takes[name].append(cost(*arguments, code=3 if name == "verify" else 0))  # the certificate is not signed
        best = {
            name: Cost(min(t.seconds for t in some), min(t.cpu for t in some), min(t.megabytes for t in some), "")
            for name, some in takes.items()
        }
        rows, missed, base = [], [], best["score"]
        for name, took in best.items():
            ratios = {
                "time": (took.seconds / base.seconds, RATIO),
                "CPU": (took.cpu / base.cpu, RATIO),
                "memory": (took.megabytes / base.megabytes, MEMORY),
            }
            missed += [f"{name} of {shape} rows ({what})" for what, (ratio, most) in ratios.items() if ratio > most]
            cells = " | ".join(f"{ratio:.2f}" for ratio, _ in ratios.values())
            rows.append(f"| {shape} | {name} | {took.seconds:.2f} | {took.cpu:.2f} | {took.megabytes:.0f} | {cells} |")
        changed = os.path.join(folder, "changed.jsonl")
        line = _one_changed(path, changed)
        found = cost("verify", certificate, changed, "--format", "json", code=1)
        says = next(each["says"] for each in json.loads(found.out)["checks"] if each["check"] == "tree")
        print(f"{shape}, reward of line {line:,} changed: {says}", file=sys.stderr)
        rows.append(
            f"| {shape} | verify, refused | {found.seconds:.2f} | {found.cpu:.2f} | {found.megabytes:.0f} | | | |"
        )
        return rows, missed


def _one_changed(path: str, target: str) -> int:
    """Copy a file with one reward changed; returns the number of the changed line."""
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
    sys.exit(main())
