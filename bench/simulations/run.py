"""``make bench-statistics``: simulate how well intervals, tests and verdicts keep their promises.

``--write`` writes the results into docs/statistics.md; ``--only margins,ranks`` runs these parts only.

A part is a function in its own file, ``part(fewer, seed)``. It divides its replicates by ``fewer``, and returns the
text between its markers on the page and a sentence for each promise that was not kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.data import ROOT
from bench.simulations.clusters import cluster_cells
from bench.simulations.grid import TASKS, binary_cells, real_cells
from bench.simulations.limits import following_cells, unbounded_coverage
from bench.simulations.looking import looked
from bench.simulations.looking_report import looking_text, missed_too_often
from bench.simulations.paired import compared
from bench.simulations.paired_report import broken, comparison_text
from bench.simulations.report import Found, replaced, text

PAGE = ROOT / "docs" / "statistics.md"
REPLICATES = {"binary": 40_000, "real": 10_000, "clusters": 10_000}
RUNS = 10_000  # runs that are looked at in progress, in each world
LAWS = ("exponential", "log-normal")
QUICK = 10  # --quick divides the replicates by it


Part = Callable[[int, int], tuple[str, list[str]]]
PARTS = {
    "coverage": "bench.simulations.run:coverage",
    "comparison": "bench.simulations.run:comparison",
    "looking": "bench.simulations.run:looking",
    "fresh": "bench.simulations.fresh:part",
    "few": "bench.simulations.few:part",
    "margins": "bench.simulations.margins:part",
    "families": "bench.simulations.families:part",
    "matrix": "bench.simulations.matrix:part",
    "missing_level": "bench.simulations.missing:level",
    "missing_power": "bench.simulations.missing:power",
    "score_missing": "bench.simulations.score_missing:part",
    "anytime": "bench.simulations.anytime:part",
    "ranks": "bench.simulations.ranks:part",
    "ranks_missing": "bench.simulations.ranks_verdicts:missing",
    "ranks_steady": "bench.simulations.ranks_verdicts:steady",
    "stopped": "bench.simulations.stopped:part",
    "uneven": "bench.simulations.uneven:part",
    "counts": "bench.simulations.counts:part",
    "unseen": "bench.simulations.unseen:part",
    "heavy_tails": "bench.simulations.heavy_tails:part",
    "extrapolation": "bench.simulations.extrapolation:part",
    "free_bounds": "bench.simulations.free_bounds:part",
    "pilots": "bench.simulations.pilots:part",
    "watch": "bench.simulations.watch:part",
    "recovery": "bench.simulations.recovery:part",
}  # mark on the page -> the function that makes the text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested parts and print their results."""
    asked = _parse(arguments)
    names = asked.only.split(",") if asked.only else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        print(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    _written(dict.fromkeys(names, ""))  # before the long simulation, check that the page has the marks
    found: dict[str, str] = {}
    unkept: list[str] = []
    for name in names:
        start = time.perf_counter()
        found[name], broken_promises = _part(name)(QUICK if asked.quick else 1, asked.seed)
        print(found[name])
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        unkept += broken_promises
        if asked.write:
            PAGE.write_text(_written({name: found[name]}), encoding="utf-8")
    for said in unkept:
        print(f"not kept: {said}", file=sys.stderr)
    # with a tenth of the replicates, results vary by more than the promises allow
    return 1 if unkept and not asked.quick else 0


def _part(name: str) -> Part:
    module, _, function = PARTS[name].partition(":")
    part: Part = globals()[function] if module == "bench.simulations.run" else getattr(import_module(module), function)
    return part


def coverage(fewer: int, seed: int) -> tuple[str, list[str]]:
    """Whether the default interval covers the true value."""
    found = simulated({name: count // fewer for name, count in REPLICATES.items()}, seed)
    faults = sum(cell.zero_width + cell.outside for cell in found.cells)
    return text(found), [f"{faults:,} intervals have no width, or miss their own value"] if faults else []


def comparison(fewer: int, seed: int) -> tuple[str, list[str]]:
    """Whether the default test keeps its level, and a plan its power."""
    pairs = compared(REPLICATES["binary"] // fewer, seed)
    return comparison_text(pairs), broken(pairs)


def looking(fewer: int, seed: int) -> tuple[str, list[str]]:
    """Whether the live interval contains the truth at every look."""
    looks = looked(RUNS // fewer, seed)
    return looking_text(looks), missed_too_often(looks)


def _written(parts: Mapping[str, str]) -> str:
    """The page with these parts at their marks."""
    page = PAGE.read_text(encoding="utf-8")
    for mark, part in parts.items():
        page = replaced(page, mark, part)
    return page


def simulated(replicates: dict[str, int], seed: int) -> Found:
    """Simulate the grid and its limits; each part has its own stream of random numbers."""
    binary, real, clusters, following, unbounded = (
        np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(5)
    )
    start, cells = time.perf_counter(), []
    for part in (
        binary_cells(replicates["binary"], binary),
        real_cells(replicates["real"], real),
        cluster_cells(replicates["clusters"], clusters),
    ):
        cells += list(part)
        print(f"{len(cells):,} cells after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return Found(
        cells,
        list(following_cells(replicates["binary"], following)),
        {law: [unbounded_coverage(law, units, replicates["real"], unbounded) for units in TASKS] for law in LAWS},
        replicates,
        seed,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/simulations/run.py", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the replicates")
    parser.add_argument(
        "--only", metavar="PARTS", help=f"run only these parts, separated by commas: {', '.join(PARTS)}"
    )
    parser.add_argument("--seed", type=int, default=20, help="random seed (default: %(default)s)")
    asked = parser.parse_args(arguments)
    if asked.write and asked.quick:
        parser.error("--write needs a full run: remove --quick")
    return asked


if __name__ == "__main__":
    sys.exit(main())
