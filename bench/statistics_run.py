"""``make bench-statistics``: whether the default interval, the default test and the live interval keep their promise.

``--write`` puts what was found into docs/statistics.md.

The file is not called statistics.py: a script's folder comes first when Python looks for a module, and the bench
would find it in place of the standard library's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench.data import ROOT
from bench.statistics_clusters import cluster_cells
from bench.statistics_grid import TASKS, binary_cells, real_cells
from bench.statistics_limits import following_cells, unbounded_coverage
from bench.statistics_looking import looked
from bench.statistics_looking_report import looking_text, missed_too_often
from bench.statistics_paired import compared
from bench.statistics_paired_report import broken, comparison_text
from bench.statistics_report import Found, replaced, text

PAGE = ROOT / "docs" / "statistics.md"
REPLICATES = {"binary": 40_000, "real": 10_000, "clusters": 10_000}
RUNS = 3_000  # that are looked at while they go, in each world
LAWS = ("exponential", "log-normal")
QUICK = 10  # --quick divides the replicates by it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole grid and print what it found."""
    asked = _parse(arguments)
    _written(dict.fromkeys(("coverage", "comparison", "looking"), ""))  # before the long wait: is there a place?
    fewer = QUICK if asked.quick else 1
    found = simulated({name: count // fewer for name, count in REPLICATES.items()}, asked.seed)
    pairs = compared(REPLICATES["binary"] // fewer, asked.seed)
    looks = looked(RUNS // fewer, asked.seed)
    parts = {"coverage": text(found), "comparison": comparison_text(pairs), "looking": looking_text(looks)}
    print("\n".join(parts.values()))
    if asked.write:
        PAGE.write_text(_written(parts), encoding="utf-8")
    faults = sum(cell.zero_width + cell.outside for cell in found.cells)
    # a tenth of the replicates scatters by more than is promised
    unkept = [] if asked.quick else [*broken(pairs), *missed_too_often(looks)]
    for said in unkept:
        print(f"not kept: {said}", file=sys.stderr)
    return 1 if faults or unkept else 0


def _written(parts: Mapping[str, str]) -> str:
    """The page with these parts at their marks."""
    page = PAGE.read_text(encoding="utf-8")
    for mark, part in parts.items():
        page = replaced(page, mark, part)
    return page


def simulated(replicates: dict[str, int], seed: int) -> Found:
    """The grid and its limits; each part draws from a stream of its own."""
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
    parser = argparse.ArgumentParser(prog="bench/statistics_run.py", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the replicates")
    parser.add_argument("--seed", type=int, default=20, help="of all draws (default: %(default)s)")
    asked = parser.parse_args(arguments)
    if asked.write and asked.quick:
        parser.error("--write needs a whole run: leave --quick away")
    return asked


if __name__ == "__main__":
    sys.exit(main())
