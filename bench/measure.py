"""Time contestants: every call in a fresh process, alternating, and the best of several counts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.peer import MissingPeerError, Numbers, Peer, clean_environment, interpreter

CHILD = Path(__file__).resolve().parent / "child.py"
SAME = 1e-9  # maximum relative difference of numbers with the same meaning


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant in a job, with its arguments."""

    peer: Peer
    asked: Mapping[str, Any]
    title: str = ""  # instead of the peer's own title, if that is not specific enough


@dataclass(frozen=True, slots=True)
class Target:
    """The targets of our own entry; None for no target."""

    ratio: float | None = None  # of our time to the rival's
    seconds: float | None = None
    megabytes: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Our entries, and the rival to compare them with."""

    name: str
    title: str
    rival: Entry
    ours: Sequence[Entry]
    target: Target = field(default_factory=Target)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """One call: its seconds, those of the whole process, peak memory, and its results."""

    seconds: float
    cpu: float  # seconds of all cores, in the call
    process: float
    own_mb: float
    child_mb: float  # the largest process it started
    numbers: Numbers
    versions: Mapping[str, str]

    @property
    def megabytes(self) -> float:
        """Peak memory of the process and the largest one it started."""
        return self.own_mb + self.child_mb


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurement of a job: the best of each entry; ``left_out`` has the skipped entries with their reasons."""

    job: Job
    best: Mapping[str, Timing]  # by the entry's title
    compared: int  # numbers of both sides that are equal
    left_out: Sequence[str]


def measure(job: Job, repeat: int) -> Outcome:
    """Run the entries, alternating, ``repeat`` times each.

    ValueError if two entries have different values for a number with the same meaning.
    """
    takes: dict[str, list[Timing]] = {}
    left_out = []
    pythons: dict[str, str] = {}
    for entry in (job.rival, *job.ours):
        try:
            pythons[title(entry)] = interpreter(entry.peer)
        except MissingPeerError as why:
            left_out.append(f"{title(entry)} was skipped: {why}.")
            print(left_out[-1], flush=True)
    for _ in range(repeat):
        for entry in (job.rival, *job.ours):
            if title(entry) in pythons:
                take = once(pythons[title(entry)], entry)
                print(f"  {job.name}: {title(entry)} {take.seconds:.3f} s", file=sys.stderr, flush=True)
                takes.setdefault(title(entry), []).append(take)
    best = {name: best_of(found) for name, found in takes.items()}
    return Outcome(job, best, _compare(job, best), left_out)


def title(entry: Entry) -> str:
    """The title of an entry in a table."""
    return entry.title or entry.peer.title


def once(python: str, entry: Entry) -> Timing:
    """Run an entry once, in a fresh process of its interpreter."""
    command = [python, "-P", str(CHILD), entry.peer.name, json.dumps(dict(entry.asked))]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    process = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{title(entry)} failed:\n{done.stderr.strip()}")
    found = json.loads(done.stdout)
    versions = {"Python": found["python"], **found["versions"]}
    return Timing(
        seconds=found["seconds"],
        cpu=found["cpu"],
        process=process,
        own_mb=found["own_mb"],
        child_mb=found["child_mb"],
        numbers=found["numbers"],
        versions=versions,
    )


def best_of(takes: Sequence[Timing]) -> Timing:
    """The smallest value of each figure, because noise only adds to it."""
    lightest = min(takes, key=lambda take: take.megabytes)
    return replace(
        lightest,
        seconds=min(take.seconds for take in takes),
        cpu=min(take.cpu for take in takes),
        process=min(take.process for take in takes),
    )


def _compare(job: Job, best: Mapping[str, Timing]) -> int:
    """The number of our numbers that equal the rival's; ValueError for the first that differs."""
    rival = best.get(title(job.rival))
    compared = 0
    for entry in job.ours:
        mine = best.get(title(entry))
        if rival is None or mine is None:
            continue
        for name in rival.numbers.keys() & mine.numbers.keys():
            if not math.isclose(rival.numbers[name], mine.numbers[name], rel_tol=SAME, abs_tol=1e-12):
                both = f"{title(entry)} {mine.numbers[name]!r}, {title(job.rival)} {rival.numbers[name]!r}"
                raise ValueError(f"{job.name}: {name} differs: {both}")
            compared += 1
    return compared


def hold_cores(count: int) -> int:
    """Limit this process and its children to ``count`` cores; returns the number of cores."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    cores = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, cores)
    return len(cores)
