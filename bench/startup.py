"""The time of the command and of the import, beyond that of the bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peer import clean_environment

BARE = "bare"
TARGETS = {"`calipers --help`": 0.12, '`python -c "import calipers"`': 0.03}  # seconds beyond the bare interpreter


@dataclass(frozen=True, slots=True)
class StartUp:
    """The median seconds of each command, including the bare interpreter."""

    seconds: Mapping[str, float]
    repeat: int

    def beyond(self, name: str) -> float:
        """The seconds of a command beyond the bare interpreter."""
        return self.seconds[name] - self.seconds[BARE]


def measure_start_up(repeat: int) -> StartUp:
    """Run every command ``repeat`` times, alternating; the first turn only warms the caches."""
    python, command = sys.executable, str(Path(sys.executable).parent / "calipers")
    help_, import_ = TARGETS
    commands = {BARE: [python, "-c", "pass"], help_: [command, "--help"], import_: [python, "-c", "import calipers"]}
    takes: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(repeat + 1):
        for name, words in commands.items():
            seconds = _once(words)
            if turn:
                takes[name].append(seconds)
    return StartUp({name: statistics.median(found) for name, found in takes.items()}, repeat)


def _once(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr.strip()}")
    return seconds
