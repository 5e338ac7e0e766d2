"""``make bench-lm-eval``: run one checkpoint and the same tasks in lm-evaluation-harness and in Calipers.

Every answer must agree. ``--write`` writes the figures into docs/benchmarks-lm-eval.md, above the sections that other
scripts write.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.harness.answers import compared
from bench.harness.commands import commands_section, measure_commands
from bench.harness.report import Measured, Side, page
from bench.harness.tasks import Made, write_tasks
from bench.measure import Entry, Timing, hold_cores, once
from bench.peer import Peer
from bench.peers import calipers_hf, lm_eval_hf

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks-lm-eval.md"
QUICK = 0.1  # share of the documents with --quick
THEIR_BATCHES = (1, 16)  # one is lm-eval's default; some tasks are faster with more
OURS_AT_ONCE = 32  # the default of a run


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both systems, alternating, compare every answer, and print the page."""
    asked = _parse(arguments)
    cores, load = hold_cores(asked.cores), os.getloadavg()[0]
    os.environ["OMP_NUM_THREADS"] = str(cores)
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as scratch:
        folder = Path(scratch)
        made = write_tasks(folder, QUICK if asked.quick else 1.0)
        checkpoint = str(folder / "checkpoint")
        maker = Path(__file__).with_name("checkpoint.py")
        subprocess.run([sys.executable, str(maker), checkpoint], check=True, capture_output=True)
        theirs = str(Path(asked.theirs).absolute())
        found = measure(folder, checkpoint, made, theirs, asked.repeat)
        batch = THEIR_BATCHES[found.faster([task.name for task in made])]
        turns = measure_commands(folder, checkpoint, made, theirs, batch, asked.repeat)
    text = page(found, made, cores, (load, os.getloadavg()[0]), asked.repeat, commands_section(turns, batch))
    print(text)
    if asked.write:
        PAGE.write_text(with_others(text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def with_others(text: str, before: str) -> str:
    """The new page, followed by those sections of the old one that other scripts write."""
    own = {line for line in text.splitlines() if line.startswith("## ")}
    _, *parts = before.split("\n## ")
    others = [f"\n## {part.rstrip()}\n" for part in parts if f"## {part.partition(chr(10))[0]}" not in own]
    return text.rstrip() + "\n" + "".join(others)


def measure(folder: Path, checkpoint: str, tasks: Sequence[Made], theirs: str, repeat: int) -> Measured:
    """Run the sides, alternating, so that all see the same machine; ValueError if an answer differs."""
    sides = [("Calipers", calipers_hf.PEER, sys.executable, OURS_AT_ONCE)]
    sides += [(f"lm-eval, batches of {size}", lm_eval_hf.PEER, theirs, size) for size in THEIR_BATCHES]
    takes: dict[str, list[Timing]] = {title: [] for title, *_ in sides}
    same: Mapping[str, tuple[int, float]] = {}
    for turn in range(repeat):
        answers = {}
        for title, peer, python, at_once in sides if turn % 2 else sides[::-1]:
            path = folder / "answers.json"
            takes[title].append(once(python, _entry(peer, folder, checkpoint, tasks, path, at_once)))
            answers[title] = json.loads(path.read_text(encoding="utf-8"))
            print(f"  {title}: {takes[title][-1].seconds:.1f} s", file=sys.stderr, flush=True)
        for title, *_ in sides[1:]:
            same = compared(answers["Calipers"], answers[title])
    ours, *others = [Side(title, takes[title]) for title, *_ in sides]
    return Measured(ours, others, same)


def _entry(peer: Peer, folder: Path, checkpoint: str, tasks: Sequence[Made], answers: Path, at_once: int) -> Entry:
    asked = {"checkpoint": checkpoint, "folder": str(folder), "tasks": [task.name for task in tasks]}
    return Entry(peer, {**asked, "answers": str(answers), "at_once": at_once})


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/harness/run.py", description=__doc__)
    parser.add_argument(
        "--theirs", required=True, metavar="PYTHON", help="a Python interpreter with lm_eval[hf] 0.4.13"
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the documents")
    parser.add_argument("--repeat", type=int, default=3, help="repeats of each system (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="number of cores to run on (default: %(default)s)")
    asked = parser.parse_args(arguments)
    if asked.write and asked.quick:
        parser.error("--write needs a whole run: leave --quick away")
    return asked


if __name__ == "__main__":
    sys.exit(main())
