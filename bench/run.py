"""``make bench``: measure Calipers and its peers; ``--write`` writes the figures into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench import data, report
from bench.commands import commands_section, measure_commands
from bench.draws import draws_section, measure_comparison, measure_draws
from bench.harbor import measure_harbor
from bench.jobs import jobs
from bench.live.report import live_section
from bench.live.run import PARTS, measure_live
from bench.measure import Job, Outcome, hold_cores, measure
from bench.serve import measure_serving, serving_section
from bench.startup import measure_start_up

PAGE = data.ROOT / "docs" / "benchmarks.md"
QUICK = 0.1  # share of the rows with --quick
BUSY = 0.25  # load per core above which measured times are unreliable
START_UP = "startup"
START_UP_TURNS = 20


def _other_section() -> str:
    """The sections of the page that other benchmarks have written, which are kept at the end."""
    start = "<!-- scale: bench/scale_run.py -->"
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return f"\n{text[text.index(start) :]}" if start in text else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested jobs and print their tables."""
    asked = _parse(arguments)
    cores, load = hold_cores(asked.cores), os.getloadavg()[0]
    if load > BUSY * cores:
        print(
            f"other work is running on this machine (load {load:.1f}): the times will vary", file=sys.stderr, flush=True
        )
    chosen = [job for job in jobs(QUICK if asked.quick else 1.0) if job.name.startswith(asked.only)]
    outcomes: list[Outcome] = []
    for job in chosen:
        _make_files(job)
        outcomes.append(measure(job, asked.repeat))
        print(report.section(outcomes[-1]), flush=True)
    parts = [part for part in PARTS if part.startswith(asked.only)]
    live = measure_live(parts, asked.repeat, quick=asked.quick) if parts else None
    if live:
        print(live_section(live), flush=True)
    more = []
    if "commands".startswith(asked.only):
        with tempfile.TemporaryDirectory(prefix="calipers-bench-") as folder:
            compared = measure_comparison(Path(folder), asked.quick)
        more.append(commands_section([*measure_commands(asked.quick), *measure_harbor(asked.quick), compared]))
    if "draws".startswith(asked.only):
        more.append(draws_section(measure_draws(asked.quick)))
    if "serve".startswith(asked.only):
        more.append(serving_section(measure_serving(asked.quick)))
    print("\n".join(more), flush=True)
    start_up = measure_start_up(START_UP_TURNS) if START_UP.startswith(asked.only) else None
    if start_up:
        print(report.start_up_section(start_up))
    if asked.write:
        PAGE.parent.mkdir(exist_ok=True)
        page = report.page(outcomes, live, more, start_up, asked.repeat, cores, load)
        PAGE.write_text(page + _other_section(), encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(data.ROOT)}")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the data")
    parser.add_argument("--repeat", type=int, default=5, help="repeats of each contestant (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="number of cores to run on (default: %(default)s)")
    parser.add_argument(
        "--only",
        default="",
        metavar="PREFIX",
        help="run only this part: flat, nested, nemo_gym, live, commands, draws, serve or startup (default: all)",
    )
    asked = parser.parse_args(arguments)
    if asked.write and (asked.quick or asked.only):
        parser.error("--write needs a whole run: leave --quick and --only away")
    return asked


def _make_files(job: Job) -> None:
    """Write the files that a job reads, in another process to keep this one small, and warm the page cache."""
    for entry in (job.rival, *job.ours):
        layout, rows = Path(entry.asked["path"]).stem.rsplit("-", 1)
        subprocess.run([sys.executable, str(Path(data.__file__)), layout, rows], check=True, stdout=subprocess.DEVNULL)
        with open(entry.asked["path"], "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


if __name__ == "__main__":
    sys.exit(main())
