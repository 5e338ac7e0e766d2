"""What --engine ray costs and brings, measured side by side with one process on the same machine.

    make bench-ray                                  everything, in a few minutes; writes its table into docs/scale.md
    make bench-ray ARGS='--only run --rounds 3'     prints a part; with --write, the other lines are those of before

- run: requests to a server that answers after 50 ms, 64 in flight: one process, then 4 nodes of a local cluster.
- verify: python_tests as the bottleneck: a node with one processor, then 4 of them.
- score: parts of 10,000 rows: one process, then tasks of Ray.

Each pair is measured in turn, several times; a figure is the median of the ratios. With a target that is missed the
exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.data import ROOT
from bench.live.server import serving
from bench.simulations.report import filled, replaced

PAGE: Final = ROOT / "docs" / "scale.md"
KEPT: Final = ROOT / ".bench" / "ray.json"
NODES: Final = 4
ROWS: Final = 10_000  # of a part
SETTLED: Final = 3.0  # seconds until the cluster has ended the workers of a command
GLANCE: Final = 0.05  # seconds between two reads of the processes
IN_FLIGHT: Final = 64
DELAY: Final = 0.05  # seconds until the server answers
LONGEST: Final = 300.0  # seconds of one command


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of a cluster of so many node processes, each with one processor, on the loopback."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 means 127.0.0.1
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    here: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
    started = Cluster(initialize_head=True, head_node_args={**here, "num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            started.add_node(num_cpus=1, wait=False, **here)
        started.wait_for_nodes()
        yield started.address
    finally:
        started.shutdown()


def calipers(*arguments: object) -> None:
    """Run the command; an error ends the bench."""
    command = [sys.executable, "-m", "calipers", *map(str, arguments)]
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"calipers {arguments[0]} ended with {done.returncode}: {done.stderr}")


def rate(folder: Path) -> float:
    """Rollouts a second of a run, from its log: all but the first tenth and the last, in which it starts and ends."""
    times = sorted(
        time_of(json.loads(line)["finished_at"]) for line in (folder / "rollouts.jsonl").read_bytes().splitlines()
    )
    start, end = len(times) // 10, len(times) - len(times) // 10 - 1
    return (end - start) / (times[end] - times[start])


def time_of(text: str) -> float:
    """A time in a log as seconds."""
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def run(folder: Path, address: str, url: str, rollouts: int) -> tuple[float, float]:
    """Rollouts per second of one process, and of the cluster."""
    questions = folder / "questions.jsonl"
    if not questions.exists():
        rows = ({"id": str(n), "question": f"{n}?", "answer": "42"} for n in range(rollouts))
        questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--model", "openai/fixed", "--base-url", url, "--prompt", "question", "--target", "answer", "--id", "id"]
    rates = []
    for engine in ("local", f"ray={address}"):
        out = Path(tempfile.mkdtemp(dir=folder)) / "run"
        calipers("run", questions, *asked, "--concurrency", IN_FLIGHT, "--engine", engine, "--out", out)
        rates.append(rate(out))
    return rates[0], rates[1]


CODER = '''
def answer(prompt):
    return """def add(a, b):
    total = 0
    for number in range(1_500_000):
        total += number % 7
    return a + b
"""
'''


def verify(folder: Path, one: str, four: str, rollouts: int) -> tuple[float, float]:
    """Rollouts per second with programs that are tested in the sandbox, on one node and on four."""
    benchmark = folder / "code"
    if not benchmark.exists():
        benchmark.mkdir()
        (benchmark / "metadata.yaml").write_text("name: code\nversion: 1\n")
        verifier: dict[str, Any] = {"kind": "in_process", "fn_name": "python_tests", "params": {"entry_point": "add"}}
        verifier |= {"expected": [{"args": [1, 2], "expected": 3}]}
        rows = ({"task_id": str(n), "instruction": "Write add.", "verifier": verifier} for n in range(rollouts))
        (benchmark / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "coder.py").write_text(CODER)
    rates = []
    for address in (one, four):
        out = Path(tempfile.mkdtemp(dir=folder)) / "run"
        model = f"python/{folder / 'coder.py'}:answer"
        calipers("run", benchmark, "--model", model, "--concurrency", 8, "--engine", f"ray={address}", "--out", out)
        rates.append(rate(out))
    return rates[0], rates[1]


def score(folder: Path, address: str, parts: int) -> tuple[float, float]:
    """Processor seconds of one process that reads all parts, and of the cluster without its start-up."""
    paths = [folder / f"part-{number:04}.parquet" for number in range(parts)]
    if not paths[0].exists():
        import numpy as np
        import polars as pl

        dice = np.random.default_rng(0)
        for number, path in enumerate(paths):
            tasks = dice.permutation(ROWS)
            rewards = (dice.random(ROWS) < 0.4).astype(float)
            table = {"task": [f"task-{task}" for task in tasks], "sample": [number] * ROWS, "reward": rewards}
            pl.DataFrame(table).write_parquet(path)
    asked = ["--metric", "mean_reward", "--metric", "pass@4", "--format", "json"]
    engine = ["--engine", f"ray={address}"]
    alone = took("score", *paths, *asked)
    start = took("score", *paths[: 2 * NODES], *asked, *engine)  # every node has begun to work
    return alone, took("score", *paths, *asked, *engine) - start


def took(*arguments: object) -> float:
    """Processor seconds of a command and of all its workers, without other work on the machine.

    A node does not include the time of workers that have ended. So the times of all processes are read again and again;
    only what a process uses between the last read and its end is missing, at most GLANCE seconds for a few processes.
    """
    used, over = used_below(), threading.Event()
    before = sum(used.values())

    def look() -> None:
        while not over.wait(GLANCE):
            used.update(used_below())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        calipers(*arguments)
        time.sleep(SETTLED)  # until the cluster has ended the workers of the command
    finally:
        over.set()
        looking.join()
    used.update(used_below())
    return sum(used.values()) - before


def used_below() -> dict[tuple[int, int], float]:
    """Processor seconds of each descendant of this process, by its id and start; without this process itself."""
    times, above = dict[int, tuple[int, float]](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        above[int(path.parent.name)] = int(fields[1])
        times[int(path.parent.name)] = int(fields[19]), sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    found = {}
    for pid, (start, seconds) in times.items():
        ancestor = above[pid]
        while ancestor not in (os.getpid(), 0):
            ancestor = above.get(ancestor, 0)
        if ancestor:
            found[pid, start] = seconds
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """The description of a line of the table."""

    what: str
    unit: str
    target: str

    def kept(self, ratio: float) -> bool:
        """Whether a ratio meets the target."""
        word, _, bound = self.target.rpartition(" ")
        return ratio <= float(bound) if word == "at most" else ratio >= float(bound)


LINES: Final = {
    "run": Line(
        f"run: {IN_FLIGHT} requests in flight, a server that answers after {DELAY * 1000:.0f} ms; one process, then "
        f"{NODES} nodes",
        "rollouts/s",
        "at least 0.8",
    ),
    "verify": Line(
        f"run with `python_tests`: a node that lends one processor, then {NODES} of them", "rollouts/s", "at least 1.6"
    ),
    "score": Line(
        f"score: parts of {ROWS:,} rows, processor seconds without the start; one process, then {NODES} nodes",
        "s",
        "at most 1.5",
    ),
}


def told(name: str, measure: Callable[[], tuple[float, float]], rounds: int, size: str) -> None:
    """Measure a pair several times, print both medians and the median of the ratios, and save them."""
    began = os.getloadavg()[0]
    pairs = [measure() for _ in range(rounds)]
    first, second = (statistics.median(pair[index] for pair in pairs) for index in (0, 1))
    ratios = sorted(pair[1] / pair[0] for pair in pairs)
    found = {"size": size, "first": first, "second": second, "ratios": ratios, "cores": os.cpu_count(), "load": began}
    print(f"{name}: {row(name, found)}", flush=True)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({**kept, name: found}, indent=1) + "\n")


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    line, ratios = LINES[name], found["ratios"]
    shown = f"{statistics.median(ratios):.2f}"
    if len(ratios) > 1:
        shown += f" ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)"
    figures = (f"{found[place]:,.{0 if found[place] >= 100 else 1}f} {line.unit}" for place in ("first", "second"))
    cells = (f"{line.what}; {found['size']}", *figures, shown, line.target)
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The section of docs/scale.md about the latest measurements."""
    kept = json.loads(KEPT.read_text())
    loads = [kept[name]["load"] for name in LINES if name in kept]
    cores = max(kept[name]["cores"] for name in LINES if name in kept)
    head = (
        f"Measured on {cores} cores by `make bench-ray`, in turn with one process. Other work kept the machine busy, "
        f"with a load of {min(loads):.0f} to {max(loads):.0f} at the start, so the ratios count, and not the rates."
        if max(loads) > cores / 2
        else f"Measured on {cores} cores by `make bench-ray`, in turn with one process."
    )
    table = ["| | first | second | ratio | target |", "|---|---:|---:|---:|---:|"]
    return "\n".join([filled(head), "", *table, *(row(name, kept[name]) for name in LINES if name in kept)]) + "\n"


def main() -> int:
    """Measure what was asked for; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="bench/ray_run.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(LINES), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--parts", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="write the table into docs/scale.md")
    given = parser.parse_args()
    wanted = given.only or [*LINES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        with cluster(NODES) as four:
            print(f"a cluster of {NODES} nodes was up after {time.monotonic() - began:.1f} s", flush=True)
            if "run" in wanted:
                with serving(delay=DELAY) as url:
                    measure = lambda: run(folder, four, url, given.rollouts)  # noqa: E731
                    told("run", measure, given.rounds, f"{given.rollouts:,} rollouts")
            if "score" in wanted:
                measured = lambda: score(folder, four, given.parts)  # noqa: E731
                told("score", measured, given.rounds, f"{given.parts:,} parts")
            if "verify" in wanted:
                verified(folder, four, given.programs, given.rounds)
    if given.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), "ray", page()), encoding="utf-8")
    kept = json.loads(KEPT.read_text())
    missed = [name for name in wanted if not LINES[name].kept(statistics.median(kept[name]["ratios"]))]
    for name in missed:
        print(f"not kept: {name}, {LINES[name].target}", file=sys.stderr)
    return 1 if missed else 0


def verified(folder: Path, four: str, programs: int, rounds: int) -> None:
    """Measure verdicts, with a second cluster of one node in a process of its own."""
    command = [sys.executable, "-c", "import bench.ray_run as r\nwith r.cluster(1) as a: print(a, flush=True); input()"]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert other.stdout is not None
        one = next(line.strip() for line in other.stdout if line.startswith("127."))
        told("verify", lambda: verify(folder, one, four, programs), rounds, f"{programs} programs")
    finally:
        other.communicate("\n", timeout=LONGEST)


if __name__ == "__main__":
    raise SystemExit(main())
