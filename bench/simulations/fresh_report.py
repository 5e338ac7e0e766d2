"""The results of the fresh grid as Markdown, compared with the page's results of the first grid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from bench.data import ROOT
from bench.simulations.grid import Cell
from bench.simulations.paired_report import MOST
from bench.simulations.report import MANY_CLUSTERS, MANY_TASKS, PROMISED, filled, percent
from bench.simulations.rule import known_default, known_exact

if TYPE_CHECKING:
    from bench.simulations.fresh import Fresh

PAGE = ROOT / "docs" / "statistics.md"
ROWS = {"rewards of 0 and 1": "binary", "real rewards": "real", "clusters": "clusters"}
LEVELS = {
    "fair: **floored t (default)**": ("fair", "floored"),
    "fair: strict": ("fair", "strict"),
    "skewed: **floored t (default)**": ("skewed", "floored"),
    "skewed: strict": ("skewed", "strict"),
}


def fresh_text(found: Fresh) -> str:
    """The whole section."""
    page = PAGE.read_text(encoding="utf-8")
    return "\n".join([_head(found), _coverage(found, page), _below(found), _levels(found, page), _clusters(found)])


def unkept(found: Fresh) -> list[str]:
    """Where the default or the strict test exceeds its promised level by more than one standard error."""
    slack = sqrt(MOST * (1 - MOST) / found.replicates["levels"])
    promised = (("floored", ("fair", "clusters")), ("strict", ("fair", "skewed")))
    return [
        f"fresh {test.world}, {test.kind}, T = {test.tasks}, mean {test.mean:g}, n = {test.samples}: {name} rejects "
        f"{percent(getattr(test, name))} %"
        for name, worlds in promised
        for test in found.tests
        if test.world in worlds and getattr(test, name) > MOST + slack
    ]


def _head(found: Fresh) -> str:
    from bench.simulations.fresh import CHANCES, CLUSTERS, FINE, ICCS, MEANS, REPEATS, TASKS, UNEVEN

    chances = " or ".join(f"{chance:g}" for chance in CHANCES if chance)
    replicates = found.replicates
    return filled(
        f"Written by `make bench-statistics`, seed {found.seed}. The scenarios of the second grid: T = "
        f"{_listed(TASKS)} tasks; means of {_listed(MEANS)}; {_listed(REPEATS)} or {UNEVEN} samples per task; the same "
        f"pass probability for every task, probabilities from a beta distribution with a + b = {chances}, or two kinds "
        "of tasks (two thirds with a quarter of the mean, the others with 2.5 times the mean; mirrored above 0.5); "
        "pass@k and pass^k with k = 2, 3 and 8. Real rewards come from a beta distribution with a + b = "
        f"{' or '.join(f'{fine:g}' for fine in FINE)}, are the share of five checks that passed, or are 0 in up to a "
        f"fifth of the samples and a grade in the others. There are G = {_listed(CLUSTERS)} clusters with an ICC of "
        f"{_listed(ICCS)}. The grid has {replicates['binary']:,} replicates per cell for rewards of 0 and 1 and for "
        f"levels, and {replicates['real']:,} for real rewards and clusters. The left half of the table is the first "
        "grid, copied from above. Coverage of the default interval in per cent; the target is 95:\n"
    )


def _coverage(found: Fresh, page: str) -> str:
    lines = [
        "| | first grid: cells | mean | worst | below 90 | second grid: cells | mean | worst | below 90 |",
        "|---" * 9 + "|",
    ]
    for name, kind in ROWS.items():
        letter, many = ("G", MANY_CLUSTERS) if kind == "clusters" else ("T", MANY_TASKS)
        cells = [cell for cell in found.cells if kind in cell.world.kind]
        for sign in (">=", "<"):
            chosen = [cell.coverage for cell in cells if (cell.world.units >= many) == (sign == ">=")]
            row = f"{name}, {letter} {sign} {many}"
            below = sum(coverage < PROMISED for coverage in chosen)
            fresh = f"{len(chosen):,} | {percent(fmean(chosen))} | {percent(min(chosen))} | {below}"
            lines.append(f"| {row} | {_row(page, row)} | {fresh} |")
    return "\n".join(lines) + "\n"


def _below(found: Fresh) -> str:
    """The cells with many tasks and a coverage below 90 %, with that of Wilson's and Clopper-Pearson's intervals."""
    plain = [c for c in found.cells if "clusters" not in c.world.kind and c.world.units >= MANY_TASKS]
    below = sorted((cell for cell in plain if cell.coverage < PROMISED), key=lambda cell: cell.coverage)
    if not below:
        return filled(
            f"With {MANY_TASKS} tasks or more, none of {len(plain):,} cells of the second grid is below 90.\n"
        )
    said = [
        f"With {MANY_TASKS} tasks or more, {len(below)} of {len(plain):,} cells of the second grid have a coverage "
        "below 90:",
        "",
    ]
    said += ["| cell | true value | measured | computed | Clopper-Pearson |", "|---|---|---|---|---|"]
    return "\n".join([*said, *map(_cell, below)]) + "\n"


def _cell(cell: Cell) -> str:
    world = cell.world
    name = f"{world.metric}, {world.kind}, n = {world.samples}, mean {world.mean:g}, T = {world.units}"
    known = ["-", "-"]
    if world.kind.startswith("binary") and world.samples in ("1", world.metric[-1]):  # task values of 0 and 1
        known = [percent(rule(world.units, cell.truth).coverage) for rule in (known_default, known_exact)]
    return f"| {name} | {cell.truth:.5f} | {percent(cell.coverage)} | {' | '.join(known)} |"


def _levels(found: Fresh, page: str) -> str:
    from bench.simulations.fresh import TASKS

    lines = [
        filled(
            "How often a test reports a difference that does not exist (nominally 5 %), mean / worst over cells, in "
            "per cent. In the skewed scenarios of this grid the pass probabilities of the other run come from a beta "
            "distribution with a + b = 1.5, or are of two kinds:\n"
        ),
        f"| | {' | '.join(f'T = {tasks}' for tasks in TASKS)} | second grid, all T | first grid, all T |",
        "|---" * (len(TASKS) + 3) + "|",
    ]
    for row, (world, name) in LEVELS.items():
        some = [[getattr(t, name) for t in found.tests if (t.world, t.tasks) == (world, tasks)] for tasks in TASKS]
        shown = [*map(_mean_worst, some), _mean_worst([level for levels in some for level in levels])]
        lines.append(f"| {row} | {' | '.join(shown)} | {_joined(_row(page, row))} |")
    return "\n".join(lines) + "\n"


def _clusters(found: Fresh) -> str:
    from bench.simulations.fresh import PAIRED_CLUSTERS

    tests = [test for test in found.tests if test.world == "clusters"]
    return filled(
        f"With {' or '.join(map(str, PAIRED_CLUSTERS))} clusters of 10 tasks, or of 1 to 22 ({len(tests)} cells): "
        f"floored t over clusters {_mean_worst([test.floored for test in tests])}, strict over clusters "
        f"{_mean_worst([test.strict for test in tests])}.\n"
    )


def _row(page: str, name: str) -> str:
    """The cells of the first row with this name on the page, without their outer bars."""
    found = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", page, re.MULTILINE)
    if found is None:
        raise SystemExit(f"docs/statistics.md has no row {name!r}: run the parts coverage and comparison first")
    return found[1]


def _joined(row: str) -> str:
    """The mean and the worst value over a row of "mean / worst" cells, each for the same number of cells."""
    parts = [[float(number) for number in part.split(" / ")] for part in row.split(" | ")]
    return f"{fmean(mean for mean, _ in parts):.1f} / {max(worst for _, worst in parts):.1f}"


def _mean_worst(values: Sequence[float]) -> str:
    return f"{percent(fmean(values))} / {percent(max(values))}"


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
