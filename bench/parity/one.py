"""One task or group on both sides, with each step in its own process that starts from the same state."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.parity.columns import Column
from bench.parity.compare import compared
from bench.parity.make import Unmade, made
from bench.parity.sides import Data, calipers, evaluate, serve

SAME, DIFFERENT, REFUSED, QUIRK = "same", "different", "refused by Calipers", "a documented difference"
UNMADE, LATE = "no documents made", "out of time"
_TICK = 0.005


@dataclass
class Outcome:
    """The outcome of a task or group."""

    name: str
    family: str
    shots: int | None
    status: str
    said: str = ""
    kinds: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


def one(
    known: Any, name: str, family: str, leaves: list[Any], shots: int | None, limit: float, columns: Path
) -> Outcome:
    """Make up documents, run both sides, and compare. ``columns`` caches the columns of similar tasks."""
    began = time.monotonic()
    found = Outcome(name, family, shots, UNMADE, kinds=sorted({leaf.config.output_type for leaf in leaves}))
    folder = Path(tempfile.mkdtemp(prefix="calipers-parity-"))
    try:
        _steps(found, known, leaves, folder, columns, began + limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found.seconds = time.monotonic() - began
    return found


def _steps(found: Outcome, known: Any, leaves: list[Any], folder: Path, columns: Path, end: float) -> None:
    rows, targets = folder / "rows.pickle", folder / "targets.json"
    for side in ("ours", "theirs"):
        (folder / side).mkdir()

    def make() -> None:
        data: dict[str, dict[str, Any]] = {}
        for leaf in leaves:
            held, kept = made(known, leaf, found.shots, _kept(columns, leaf))
            _keep(columns, leaf, kept)
            _merge(data, held)
        rows.write_bytes(pickle.dumps(data))

    def theirs() -> None:
        serve(pickle.loads(rows.read_bytes()), folder / "disk")
        right = evaluate(known, found.name, found.shots, folder / "theirs")
        targets.write_text(json.dumps(right), encoding="utf-8")

    def ours() -> None:
        serve(pickle.loads(rows.read_bytes()))
        code = calipers(found.name, found.shots, folder / "ours", targets)
        (folder / "code").write_text(str(code))

    for title, step in (("made", make), ("theirs", theirs), ("ours", ours)):
        why = apart(step, folder / title, end)
        if why == LATE:
            found.status, found.said = LATE, title
            return
        if why:
            found.status, found.said = (REFUSED if title == "ours" else UNMADE), why
            return
    if not list((folder / "ours").rglob("results_*.json")):
        found.status, found.said = REFUSED, _last(folder / "ours.err")
        return
    pair = compared(folder / "ours" / "files", folder / "theirs")
    found.counts, found.differences = dict(pair.counts), pair.differences
    found.status = DIFFERENT if pair.differences else SAME


def _merge(data: dict[str, dict[str, Any]], held: Data) -> None:
    """The columns of all tasks in a group with the same dataset, whose rows must have them all."""
    for key, splits in held.items():
        mine = data.setdefault(key, {})
        for split, several in splits.items():
            before = mine.get(split, [])
            longest = max(len(before), len(several))
            mine[split] = [
                {**(dict(several[n % len(several)])), **(before[n % len(before)] if before else {})}
                for n in range(longest)
            ]


def apart(work: Callable[[], None], path: Path, end: float) -> str:
    """Do the work in a child process; returns its error in one line, or ""."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _alone(work, path)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return LATE
        time.sleep(_TICK)
    if status == 0:
        return ""
    return path.with_suffix(".why").read_text() if path.with_suffix(".why").exists() else f"ended with {status}"


def _alone(work: Callable[[], None], path: Path) -> None:
    """In the child: redirect all output to a file, and end without the parent's cleanup."""
    code = 1
    try:
        out = os.open(path.with_suffix(".err"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        work()
        code = 0
    except Unmade as error:
        path.with_suffix(".why").write_text(str(error))
    except BaseException as error:
        traceback.print_exc()
        path.with_suffix(".why").write_text(f"{type(error).__name__}: {error}".partition("\n")[0])
    finally:
        os._exit(code)


def _last(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.exists() else []
    wrong = [line for line in lines if line.startswith(("Error", "error", "calipers:"))]
    return (wrong or lines or [""])[-1][:400]


def _signature(leaf: Any) -> str:
    config = leaf.config
    texts = [
        config.doc_to_text,
        config.doc_to_target,
        config.doc_to_choice,
        config.process_docs,
        config.process_results,
    ]
    return str(abs(hash((str(leaf.file.path.parent), *map(str, texts), config.output_type))))


def _kept(columns: Path, leaf: Any) -> dict[str, Column] | None:
    path = columns / _signature(leaf)
    try:
        found: dict[str, Column] = pickle.loads(path.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return found


def _keep(columns: Path, leaf: Any, found: dict[str, Column]) -> None:
    path = columns / _signature(leaf)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_bytes(pickle.dumps(found))
    scratch.rename(path)
