"""``make parity-lm-eval``: compare lm-evaluation-harness and Calipers on lm-evaluation-harness' own tasks.

Each task gets made-up documents, and one mock model answers both systems. Every request, sample metric, value, standard
error and group value is compared. Without arguments a sample of tasks runs; ``all`` runs as many tasks as fit in the
time, and names run these tasks. ``--write`` writes the table into docs/benchmarks-lm-eval.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench.parity.one import DIFFERENT, LATE, REFUSED, UNMADE, Outcome, one
from bench.parity.quirks import settled
from bench.parity.report import END, HEADINGS, block, told
from bench.parity.sample import LEAVES, SAMPLE, SHOTS, Wanted, wanted

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks-lm-eval.md"
SECONDS = {"sample": 220, "all": 3_480}  # what a run may take, with time left to end and report
EACH = 60  # maximum seconds for one task on both sides
_TICK = 0.02


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare, print; returns 0 if the only differences are known quirks, else 1."""
    asked = _parse(arguments)
    began = time.monotonic()
    scope = "all" if asked.tasks == ["all"] else "names" if asked.tasks else "sample"
    with tempfile.TemporaryDirectory(prefix="calipers-parity-") as scratch:
        home = Path(scratch)
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home / "hf"), "TQDM_DISABLE": "1"}
        offline["DISABLE_MULTIPROC"] = "1"  # so that the draws are the same, in one process
        os.environ |= {**offline, "CALIPERS_STORE": str(home / "store")}
        os.chdir(home)  # so that no file of the caller's folder is read or written
        names = [] if scope == "all" else SAMPLE if scope == "sample" else list(map(wanted, asked.tasks))
        known, ours = _indexed(names)
        names = names or _every(ours)
        end = began + (asked.seconds or SECONDS.get(scope, SECONDS["all"]))
        found = sorted(_run(known, ours, names, home, asked.jobs, end), key=lambda one: (one.family, one.name))
    if asked.details:
        Path(asked.details).write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    settled(found)
    text = told(found, len(names), time.monotonic() - began)
    print(text)
    if asked.write:
        _write(block(found, scope, len(names), time.monotonic() - began), scope)
    return int(any(one.status in (DIFFERENT, REFUSED) for one in found))


def _indexed(names: Sequence[Wanted]) -> tuple[Any, Any]:
    """The indexes of both sides; imports everything before the processes fork. Without names, all tasks are indexed."""
    logging.disable(logging.CRITICAL)
    from bench.parity.sides import manager
    from calipers.systems.lm_eval.benchmarks import _tasks

    ours = _tasks((), os.getcwd())
    known = [name for name, _ in names if name in ours.heads]
    return manager(sorted({str(_root(ours.heads[name].path) / _family(ours, name)) for name in known})), ours


def _root(path: Path) -> Path:
    return next(one for one in path.parents if one.name == "tasks" and one.parent.name == "lm_eval")


def _every(ours: Any) -> list[Wanted]:
    """Every task, by families in turn, so that few tasks cover many families; some have few-shot examples."""
    lot, families = Random(0), dict[str, list[Wanted]]()
    for name in sorted(ours.heads):
        families.setdefault(_family(ours, name), []).append((name, lot.choice(SHOTS)))
    for several in families.values():
        lot.shuffle(several)
    longest = max(map(len, families.values()))
    return [several[place] for place in range(longest) for several in families.values() if place < len(several)]


def _family(ours: Any, name: str) -> str:
    """The folder of a task below lm-evaluation-harness' tasks."""
    path = ours.heads[name].path if name in ours.heads else None
    return str(path.relative_to(_root(path)).parts[0]) if path is not None else name


def _run(known: Any, ours: Any, names: Sequence[Wanted], home: Path, jobs: int, end: float) -> Iterator[Outcome]:
    """The outcomes of all tasks that began in time, with as many concurrent processes as ``jobs``."""
    columns = home / "columns"
    columns.mkdir()
    rest, running = list(enumerate(names))[::-1], dict[int, tuple[Path, Wanted]]()
    while rest or running:
        while rest and len(running) < jobs and time.monotonic() < end:
            number, one = rest.pop()
            path = home / f"{number}.json"
            child = os.fork()
            if not child:
                _one(known, ours, one, path, columns, min(EACH, max(1.0, end - time.monotonic() + 5)))
            running[child] = path, one
        if not running:
            return
        child, _ = os.waitpid(-1, os.WNOHANG)
        if not child:
            time.sleep(_TICK)
            continue
        path, (name, shots) = running.pop(child)
        lost = {"name": name, "family": _family(ours, name), "shots": shots, "status": LATE, "said": "no answer"}
        yield Outcome(**(json.loads(path.read_text()) if path.exists() else lost))
        path.unlink(missing_ok=True)


def _one(known: Any, ours: Any, asked: Wanted, path: Path, columns: Path, limit: float) -> None:
    """Run one task in a child process, which ends here."""
    from calipers.systems.lm_eval.tasks.groups import leaves

    name, shots = asked
    family = _family(ours, name)
    try:
        try:
            below = leaves(ours.find(name))
        except Exception as error:  # lm-evaluation-harness has this task, so Calipers must find it
            found = Outcome(name, family, shots, REFUSED, f"{type(error).__name__}: {error}")
        else:
            if len(below) > LEAVES:
                found = Outcome(
                    name, family, shots, UNMADE, f"a group of {len(below)} tasks, which are run by themselves"
                )
            else:
                found = one(known, name, family, below, shots, limit, columns)
        path.write_text(json.dumps(dataclasses.asdict(found)))
    finally:
        os._exit(0)


def _write(text: str, scope: str) -> None:
    """Write the table of a scope into the page, in place of the earlier one or at the end."""
    PAGE.write_text(placed(text, scope, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def placed(text: str, scope: str, page: str) -> str:
    """The page with a new table; the rest is unchanged."""
    before, heading, rest = page.partition(f"{HEADINGS[scope]}\n")
    after = rest.partition(END)[2] if heading else "\n"
    return f"{before if heading else page.rstrip() + chr(10) * 2}{text}{after}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/parity_run.py", description=__doc__)
    parser.add_argument(
        "tasks", nargs="*", metavar="all | TASK[:SHOTS]", help="the tasks to run (default: a fixed sample)"
    )
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--seconds", type=float, help="start no task after this many seconds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of concurrent tasks (default: %(default)s)"
    )
    parser.add_argument("--details", metavar="FILE", help="write every outcome to this file, as JSON")
    asked = parser.parse_args(arguments)
    if asked.details:
        asked.details = str(Path(asked.details).absolute())
    return asked


if __name__ == "__main__":
    sys.exit(main())
