"""Contestants timed side by side: every call in a fresh process, taking turns, the best of several."""

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
SAME = 1e-9  # numbers that mean the same differ by less than this, relatively


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant in a job: who, and what it is asked."""

    peer: Peer
    asked: Mapping[str, Any]
    title: str = ""  # where the peer's own does not say enough


@dataclass(frozen=True, slots=True)
class Target:
    """What our own entry should reach; None where nothing was promised."""

    ratio: float | None = None  # of our time to the rival's
    seconds: float | None = None
    megabytes: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Our entries, and the rival each is measured against."""

    name: str
    title: str
    rival: Entry
    ours: Sequence[Entry]
    target: Target = field(default_factory=Target)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """One call: its own seconds, those of the whole process, peak memory, and what it came to."""

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
    """A job measured: the best of each entry; ``left_out`` says who did not take part and why."""

    job: Job
    best: Mapping[str, Timing]  # by the entry's title
    compared: int  # numbers of ours and the rival's that were found equal
    left_out: Sequence[str]


def measure(job: Job, repeat: int) -> Outcome:
    """Let the entries take turns, ``repeat`` times each.

    ValueError when two entries disagree about a number that means the same.
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
    """What an entry is called in a table."""
    return entry.title or entry.peer.title


def once(python: str, entry: Entry) -> Timing:
    """One call of an entry, in a fresh process of that interpreter."""
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
    """The least of each figure: noise only ever adds."""
    lightest = min(takes, key=lambda take: take.megabytes)
    return replace(
        lightest,
        seconds=min(take.seconds for take in takes),
        cpu=min(take.cpu for take in takes),
        process=min(take.process for take in takes),
    )


def _compare(job: Job, best: Mapping[str, Timing]) -> int:
    """How many numbers of the rival ours agree with; ValueError for the first that differs."""
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
    """Keep this process and all it starts on ``count`` cores; how many there really are."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    cores = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, cores)
    return len(cores)
