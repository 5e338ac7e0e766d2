"""The viewer on a million rollouts: the time of its index and of its pages, and its memory; ``make bench-view``.

Everything is measured from outside: the command is started, and a client sends HTTP requests like a browser. The memory
is the sum over the server and its children (Linux' proportional set size, which counts a shared page once).
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
FOLDER = ROOT / ".bench" / "view"
PAGE = ROOT / "docs" / "viewing.md"
MARKS = ("<!-- view -->", "<!-- /view -->")
ROWS, BYTES, SAMPLES = 1_000_000, 4_000, 8
LARGE = 50_000_000  # bytes of one rollout
TIMES = 2  # runs of each; the faster one counts, because other work only makes a run slower
EVERY = 0.05  # seconds between two reads of the memory


@dataclass
class Row:
    """One line of the table."""

    what: str
    found: float
    unit: str
    target: float | None = None

    @property
    def line(self) -> str:
        """The line as Markdown."""
        digits = 0 if self.unit == "MB" else 2
        bound = "" if self.target is None else f"at most {self.target:g}{' ' + self.unit if self.unit else ''}"
        verdict = "" if self.target is None else "met" if self.found <= self.target else "**missed**"
        return f"| {self.what} | {self.found:.{digits}f}{' ' + self.unit if self.unit else ''} | {bound} | {verdict} |"


def rollouts(path: Path, rows: int) -> Path:
    """Write a log of rollouts of four thousand bytes each, if it does not exist."""
    if path.exists():
        return path
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5_000)]
    texts = [" ".join(rng.choices(words, k=700)) for _ in range(997)]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with open(unfinished, "w") as file:
        for number in range(rows):
            task, sample = divmod(number, SAMPLES)
            row: dict[str, Any] = {
                "task": f"task-{task:06}", "sample": sample, "dataset": "million", "model": "m",
                "metadata": {"difficulty": ("easy", "medium", "hard")[task % 3]},
                "prompt": texts[task % 997][:300],
                "usage": {"input_tokens": 80 + task % 9, "output_tokens": 700 + number % 91, "latency_s": 1.5 + sample},
            }  # fmt: skip
            chance = rng.random()
            if chance < 0.03:
                row |= {"outcome": "client_failed", "error": {"kind": "timeout", "message": "no answer after 60 s"}}
            else:
                row |= {"reward": int(chance < 0.5), "answer": str(number)}
            left = BYTES - len(json.dumps(row)) - len(', "completion": ""') - 1
            row["completion"] = texts[number * 7 % 997][:left]
            file.write(json.dumps(row) + "\n")
    unfinished.rename(path)
    return path


def large(path: Path) -> Path:
    """Write a log with one rollout of fifty million bytes."""
    line = 'a line of a long completion, with ümlauts and "quotes"\n'
    rows = [{"task": "small", "reward": 1, "completion": "x"}, {"task": "large", "reward": 0, "completion": line}]
    rows[1]["completion"] = line * (LARGE // len(json.dumps(line)))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@dataclass
class Server:
    """A running viewer, and a client of it."""

    process: subprocess.Popen[str]
    host: str
    cookie: str
    peak: float = 0.0  # megabytes of the server and its children
    own: float = 0.0  # of the server alone, at the last look
    done: threading.Event = field(default_factory=threading.Event)

    def get(self, path: str) -> tuple[Any, float]:
        """The response, and the seconds it took."""
        started = time.perf_counter()
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status == 503:  # the index is being built
            return self.get(path)[0], time.perf_counter() - started
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
        return (json.loads(body) if body[:1] == b"{" else body), time.perf_counter() - started

    def watch(self) -> None:
        """Record the memory until the server has ended."""
        while not self.done.wait(EVERY):
            sizes = [pss(pid) for pid in family(self.process.pid)]
            self.own = sizes[0] if sizes else 0.0
            self.peak = max(self.peak, sum(sizes))


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    for one in pids:
        try:
            for thread in os.listdir(f"/proc/{one}/task"):
                pids += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
        except OSError:  # it has ended
            continue
    return list(dict.fromkeys(pids))


def pss(pid: int) -> float:
    """The memory of a process in megabytes; a shared page counts in parts."""
    try:
        words = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    match = re.search(r"^Pss:\s+(\d+)", words, re.MULTILINE)
    return int(match[1]) * 1.024 / 1e3 if match else 0.0


@contextmanager
def viewing(path: Path) -> Iterator[Server]:
    """A context with a server of one log."""
    command = [sys.executable, "-m", "calipers", "view", "--no-browser", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    if process.stderr is None:
        raise SystemExit("no output")
    line = process.stderr.readline()
    match = re.search(r"http://([\d.:]+)/\?token=(\S+)", line)
    if match is None:
        raise SystemExit(line + process.stderr.read())
    connection = http.client.HTTPConnection(match[1])
    connection.request("GET", f"/?token={match[2]}")
    cookie = (connection.getresponse().getheader("Set-Cookie") or "").partition(";")[0]
    connection.close()
    server = Server(process, match[1], cookie)
    watching = threading.Thread(target=server.watch)
    watching.start()
    try:
        yield server
    finally:
        server.done.set()
        watching.join()
        process.terminate()
        process.wait()
        process.stderr.close()


def run_id(path: Path) -> str:
    """The id of a run in URLs."""
    return hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:12]


def scored(path: Path) -> float:
    """The seconds of `calipers score`."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "calipers", "score", str(path)], check=True, capture_output=True)
    return time.perf_counter() - started


def indexed(path: Path) -> tuple[float, float]:
    """The seconds until the first page of a log without an index, and the peak memory meanwhile."""
    Path(f"{path}.calipers-index").unlink(missing_ok=True)
    with viewing(path) as server:
        started = time.perf_counter()
        run = run_id(path)
        server.get(f"/api/run/{run}/rollouts?count=50")
        return time.perf_counter() - started, server.peak


def measured(rows: int) -> list[Row]:
    """All lines of the table."""
    path = rollouts(FOLDER / f"view-{rows}.jsonl", rows)
    scores, indexes = [], []
    for _ in range(TIMES):
        scores.append(scored(path))
        indexes.append(indexed(path))
    score, (index, building) = min(scores), min(indexes)
    found = [
        Row(f"`calipers score` of {path.stat().st_size / 1e9:.1f} GB", score, "s"),
        Row("index and first page, log without an index", index, "s"),
        Row("index, in times of `calipers score`", index / score, "", 1.5),
        Row("memory while the index is built, all processes", building, "MB", 300),
    ]
    with viewing(path) as server:
        started = time.perf_counter()
        run = run_id(path)
        server.get(f"/run/{run}")
        server.get(f"/api/run/{run}?summary=no")
        server.get(f"/api/run/{run}/rollouts?count=50")
        found.append(Row("first page, index kept", time.perf_counter() - started, "s", 1))
        pages = [server.get(f"/api/run/{run}/rollouts?count=50&from={at}")[1] for at in range(0, rows - 50, rows // 40)]
        found.append(Row("a page of 50 rollouts anywhere, slowest of 40", max(pages), "s"))
        for what, query in (
            ("filter by outcome and slice", "state=missing&slice=difficulty=hard"),
            ("sort by reward", "sort=reward"),
            ("next failure", "fail=500"),
        ):
            found.append(Row(what, server.get(f"/api/run/{run}/rollouts?count=50&{query}")[1], "s"))
        found.append(Row("one rollout", server.get(f"/api/run/{run}/rollout/{rows // 2}")[1], "s"))
        found.append(Row("a word in all texts", server.get(f"/api/run/{run}/rollouts?q=task-000123")[1], "s"))
        found.append(Row("sentence, number and ledger", server.get(f"/api/run/{run}")[1], "s"))
        found.append(Row("memory after all of this, at most", server.peak, "MB", 300))
    heavy = large(FOLDER / "view-large.jsonl")
    with viewing(heavy) as server:
        run = run_id(heavy)
        server.get(f"/api/run/{run}/rollouts?count=50")
        found.append(Row("first screen of a rollout of 50 MB", server.get(f"/api/run/{run}/rollout/1")[1], "s", 1))
    return found


def table(found: Sequence[Row], rows: int) -> str:
    """The measurements as Markdown."""
    cores = len(os.sched_getaffinity(0))
    lines = ["| what | measured | target | |", "|---|---:|---|---|", *(row.line for row in found)]
    about = f"{rows:,} rollouts of 4 KB, {rows // SAMPLES:,} tasks, {cores} cores; the faster of {TIMES} runs."
    return "\n".join([about, "", *lines])


def main() -> None:
    """Measure, print, and update the page with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--write", action="store_true", help="renew docs/viewing.md")
    asked = parser.parse_args()
    found = measured(asked.rows)
    content = table(found, asked.rows)
    print(content)
    if asked.write:
        page = PAGE.read_text()
        first, last = (page.index(mark) for mark in MARKS)
        PAGE.write_text(f"{page[: first + len(MARKS[0])]}\n{content}\n{page[last:]}")
    if missed := [row.what for row in found if row.target is not None and row.found > row.target]:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
