"""Live runs against a local server: compared with a bare HTTP client and with other tools, and their memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.live.server import serving
from bench.live.tasks import benchmark, pairs
from bench.measure import SAME, Entry, Timing, best_of, once, title
from bench.peer import MissingPeerError, clean_environment, interpreter
from bench.peers import bare_aiohttp, calipers_run, inspect_ai, lm_eval

PARTS: Final = ("live-pairs", "live-whole", "live-memory")
WORKERS: Final = 64
SEGMENT: Final = 1_500  # requests
SEGMENTS: Final = 8  # 12,000 tasks in all
TASKS: Final = 12_000
THEIRS: Final = {"lm_eval": 2_000, "inspect_ai": 1_000}  # samples of other tools: enough for ten seconds or more
FEW, MANY = 10_000, 100_000  # rollouts
FEW_TASKS: Final = 1_000
QUICK: Final = 10  # --quick divides all sizes by this number

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Pairs:
    """Adjacent segments of the bare client and of the whole loop."""

    requests: int  # per segment
    bare: Sequence[tuple[float, float]]  # wall-clock and CPU seconds of each segment
    calipers: Sequence[tuple[float, float]]

    def rate(self, taken: Sequence[tuple[float, float]]) -> float:
        """Requests per second of wall-clock time, over all segments."""
        return self.requests * len(taken) / sum(clock for clock, _ in taken)

    def ratio(self, which: int) -> float:
        """The median ratio of our rate to the bare client's, over pairs: in wall-clock time (0) or in CPU time (1)."""
        return statistics.median(b[which] / c[which] for b, c in zip(self.bare, self.calipers, strict=True))


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole evaluation by one tool, the best of several turns."""

    title: str
    samples: int
    best: Timing
    note: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory in MB of two runs, one with ten times the rollouts: before the first call, after the last, scored."""

    title: str
    few: Mapping[str, float]
    many: Mapping[str, float]

    def growth(self, when: str) -> float:
        """The additional MB of the run with ten times the rollouts."""
        return self.many[when] - self.few[when]


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements of live runs; a part that was not requested is empty."""

    pairs: Pairs | None
    wholes: Sequence[Whole]
    memory: Sequence[Memory]
    left_out: Sequence[str]


def measure_live(parts: Collection[str], repeat: int, *, quick: bool) -> Found:
    """Measure the requested `PARTS` against one server, which is stopped afterwards."""
    scale = QUICK if quick else 1
    left_out: list[str] = []
    with serving() as url:
        return Found(
            _pairs(url, SEGMENT // scale, repeat) if "live-pairs" in parts else None,
            list(_wholes(url, scale, repeat, left_out)) if "live-whole" in parts else [],
            list(_memory(url, scale)) if "live-memory" in parts else [],
            left_out,
        )


def _pairs(url: str, requests: int, repeat: int) -> Pairs:
    """The pairs of several processes, because a single process only sees one minute of the machine."""
    asked = {"url": url, "segments": SEGMENTS, "requests": requests, "workers": WORKERS}
    turns = [_child("pairs.py", **asked) for _ in range(repeat)]
    return Pairs(requests, *([pair for turn in turns for pair in turn[name]] for name in ("bare", "calipers")))


def _wholes(url: str, scale: int, repeat: int, left_out: list[str]) -> Sequence[Whole]:
    """Run all available tools, alternating; ValueError if they find different shares of correct answers."""
    entries = {entry.peer.name: (entry, samples) for entry, samples in _entries(url, scale)}
    pythons: dict[str, str] = {}
    for name, (entry, _) in entries.items():
        try:
            pythons[name] = interpreter(entry.peer)
        except MissingPeerError as why:
            left_out.append(f"{title(entry)} was skipped: {why}.")
            print(left_out[-1], flush=True)
    takes: dict[str, list[Timing]] = {name: [] for name in pythons}
    for _ in range(repeat):
        for name, python in pythons.items():
            takes[name].append(once(python, entries[name][0]))
            _say(f"live-whole: {title(entries[name][0])} {takes[name][-1].seconds:.3f} s")
    found = {take.numbers["mean_reward"] for some in takes.values() for take in some if take.numbers}
    if found and max(found) - min(found) > SAME:
        raise ValueError(f"live-whole: the share of right answers differs: {sorted(found)}")
    return [
        Whole(title(entries[n][0]), entries[n][1], best_of(some), entries[n][0].peer.note) for n, some in takes.items()
    ]


def _entries(url: str, scale: int) -> list[tuple[Entry, int]]:
    tasks = TASKS // scale
    found = [
        (Entry(bare_aiohttp.PEER, {"url": url, "requests": tasks, "workers": WORKERS}), tasks),
        (Entry(calipers_run.PEER, {"url": url, "benchmark": str(benchmark(tasks)), "workers": WORKERS}), tasks),
    ]
    for peer in (lm_eval.PEER, inspect_ai.PEER):
        samples = THEIRS[peer.name] // scale
        found.append((Entry(peer, {"url": url, "questions": str(pairs(samples)), "workers": WORKERS}), samples))
    return found


def _memory(url: str, scale: int) -> Sequence[Memory]:
    few, many, tasks = FEW // scale, MANY // scale, FEW_TASKS // scale
    return [
        Memory(
            f"{tasks:,} tasks, {few // tasks} and {many // tasks} samples of each",
            _run(url, tasks, few // tasks),
            _run(url, tasks, many // tasks),
        ),
        Memory(f"{few:,} and {many:,} tasks, one sample of each", _run(url, few, 1), _run(url, many, 1)),
    ]


def _run(url: str, tasks: int, samples: int) -> Mapping[str, float]:
    found = _child("memory.py", url=url, benchmark=str(benchmark(tasks)), samples=samples, workers=WORKERS)
    _say(f"live-memory: {tasks:,} tasks x {samples}: {found['run']:.1f} MB")
    return {name: float(megabytes) for name, megabytes in found.items()}


def _child(script: str, **asked: Any) -> dict[str, Any]:
    """Run one of our scripts in its own process, and return its JSON output."""
    command = [sys.executable, "-P", str(HERE / script), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
