"""Measure the processor time of each test, and print the slowest.

    python scripts/testtime.py                      the whole suite, with one worker per processor
    python scripts/testtime.py --top 50 -n 2 tests/cli
    python scripts/testtime.py --write before.json  also write every figure to a file

All other options go to pytest. The time of a test is the user and system time of its own process and of its children,
from its set-up to its clean-up: the first test that uses a shared fixture pays for it. Wall-clock time would also
measure other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

FOLDER = "CALIPERS_TEST_TIME"  # variable with the folder for the plugin's output, which has one file for each worker
COLLECTED = "(start and collection)"


def spent() -> float:
    """The processor time in seconds of this process, of the children it has waited for, and of running children."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_of_process, _children()))


def _children() -> list[str]:
    """The ids of the running child processes; none except on Linux."""
    ids: list[str] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            ids += file.read_text().split()
    return ids


def _of_process(number: str) -> float:
    """The seconds of one process and of the children it has waited for; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _note(name: str, seconds: float) -> None:
    """Append the seconds of one test to this process's own file."""
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps([name, seconds]) + "\n")


def pytest_collection_finish() -> None:
    """Plugin: the time of this process before its first test."""
    _note(COLLECTED, spent())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Plugin: the time of one test, with its set-up and clean-up."""
    before = spent()
    try:
        return (yield)
    finally:
        _note(item.nodeid, spent() - before)


def measure(arguments: list[str]) -> tuple[int, dict[str, float], float]:
    """Run pytest; returns its exit code, the seconds of each test, and the total seconds."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, FOLDER: folder, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "pytest", "-q", "-p", Path(__file__).stem, *arguments]
        code = subprocess.run(command, env=environment, check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds: dict[str, float] = defaultdict(float)
        for file in Path(folder).iterdir():
            for line in file.read_text().splitlines():
                name, took = json.loads(line)
                seconds[name] += took
    return code, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(seconds: dict[str, float], total: float, top: int) -> str:
    """The slowest tests with their share; then the folders; then the total."""
    tests = {name: took for name, took in seconds.items() if name != COLLECTED}
    folders: dict[str, float] = defaultdict(float)
    for name, took in tests.items():
        folders["/".join(name.split("::")[0].split("/")[:-1][:2])] += took
    lines = [f"{'s':>8} {'%':>5}  test"]

    def add(rows: dict[str, float], most: int) -> None:
        for name, took in sorted(rows.items(), key=lambda row: (-row[1], row[0]))[:most]:
            lines.append(f"{took:8.2f} {100 * took / total:5.1f}  {name}")

    add(tests, top)
    lines.append(f"{'s':>8} {'%':>5}  folder")
    add(folders, len(folders))
    add({COLLECTED: seconds.get(COLLECTED, 0.0)}, 1)
    lines.append(f"{total:8.2f} 100.0  everything: {len(tests)} tests, {total / 60:.1f} min of processor time")
    return "\n".join(lines)


def main() -> int:
    """Run pytest, print the table, and return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--top", type=int, default=20, help="how many tests to show (20)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write every test's seconds to this file, as JSON")
    asked, rest = parser.parse_known_args()
    workers = [] if any(argument.startswith("-n") for argument in rest) else ["-n", "auto"]
    code, seconds, total = measure([*workers, *rest])
    sys.stdout.write(table(seconds, total, asked.top) + "\n")
    if asked.write is not None:
        figures: dict[str, Any] = {"total": total, "tests": dict(sorted(seconds.items()))}
        asked.write.write_text(json.dumps(figures, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
