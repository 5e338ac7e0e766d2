"""The results of the simulation as Markdown: on the terminal and in docs/statistics.md."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.simulations.clusters import CLUSTERS, ICCS, LARGEST, MEAN_SIZE
from bench.simulations.grid import CHANCES, FINE, MEANS, SAMPLES, TASKS, UNEVEN, Cell, metrics_of
from bench.simulations.rule import known_default, known_exact, lower_end

MANY_TASKS = 30
MANY_CLUSTERS = 20
PROMISED = 0.9
ROWS: dict[str, Callable[[Cell], bool]] = {
    "mean_reward, rewards of 0 and 1": lambda cell: _is(cell, "binary", "mean_reward"),
    "pass_rate, 1 to 8 samples": lambda cell: _is(cell, "binary", "pass_rate"),
    "pass@2, pass^2": lambda cell: _is(cell, "binary", "pass@2", "pass^2"),
    "pass@4, pass^4": lambda cell: _is(cell, "binary", "pass@4", "pass^4"),
    "mean_reward, real rewards": lambda cell: _is(cell, "real", "mean_reward"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the grid and its limits."""

    cells: Sequence[Cell]  # the grid
    following: Sequence[Cell]  # pass_rate with more samples of easy tasks
    unbounded: Mapping[str, Sequence[float]]  # coverage of t per T, by law
    replicates: Mapping[str, int]
    seed: int


def text(found: Found) -> str:
    """The whole section."""
    parts = (_totals, _by_tasks, _by_clusters, _below, _limits)
    return "\n".join([_grid(), _head(found), *(part(found) for part in parts)])


def replaced(page: str, mark: str, part: str) -> str:
    """The page with ``part`` between the two comments with this mark."""
    head, opening, rest = page.partition(f"<!-- {mark} -->\n")
    _, closing, tail = rest.partition(f"<!-- /{mark} -->")
    if not (opening and closing):
        raise SystemExit(f"docs/statistics.md: no place for its part; expected <!-- {mark} --> ... <!-- /{mark} -->")
    return f"{head}{opening}{part}{closing}{tail}"


def _grid() -> str:
    chances = " or ".join(f"{chance:g}" for chance in CHANCES if chance)
    return filled(
        f"The simulated scenarios combine T = {listed(TASKS)} tasks, a mean of {listed(MEANS)}, and {listed(SAMPLES)} "
        "samples per task. The pass probability is the same for every task, or follows a beta distribution with a + b "
        f"= {chances}. The metrics are {listed(metrics_of(UNEVEN))} for rewards of 0 and 1, and mean_reward for real "
        f"rewards (a beta distribution with a + b = {listed(FINE)}; 1, 4, 16 samples). Other scenarios have G = "
        f"{listed(CLUSTERS)} clusters with an intraclass correlation (ICC) of {listed(ICCS)} and 1 or 4 samples.\n"
    )


def _head(found: Found) -> str:
    intervals = sum(cell.replicates for cell in found.cells)
    empty, outside = sum(cell.zero_width for cell in found.cells), sum(cell.outside for cell in found.cells)
    replicates = found.replicates
    return filled(
        f"Written by `make bench-statistics`: {len(found.cells):,} cells (a cell is one combination), seed "
        f"{found.seed}, {replicates['binary']:,} replicates per cell for rewards of 0 and 1, {replicates['real']:,} "
        f"for real rewards and {replicates['clusters']:,} for clusters. Of {intervals:,} intervals, {empty:,} have "
        f"zero width, and {outside:,} leave the range or exclude their own value. An evaluation with fewer than two "
        "defined tasks has no interval and is not counted. Coverage in per cent; the target is 95:\n"
    )


def _totals(found: Found) -> str:
    lines = ["| | cells | mean | worst | cells below 90 |", "|---|---|---|---|---|"]
    kinds = {
        "rewards of 0 and 1": ("T", MANY_TASKS, [cell for cell in found.cells if cell.world.kind == "binary"]),
        "real rewards": ("T", MANY_TASKS, [cell for cell in found.cells if cell.world.kind == "real"]),
        "clusters": ("G", MANY_CLUSTERS, [cell for cell in found.cells if "clusters" in cell.world.kind]),
    }
    for name, (letter, many, cells) in kinds.items():
        few = [cell for cell in cells if cell.world.units < many]
        enough = [cell for cell in cells if cell.world.units >= many]
        for sign, chosen in ((">=", enough), ("<", few)):
            covered = [cell.coverage for cell in chosen]
            below = sum(coverage < PROMISED for coverage in covered)
            size = f"{len(chosen):,} | {percent(fmean(covered))} | {percent(min(covered))}"
            lines.append(f"| {name}, {letter} {sign} {many} | {size} | {below} |")
    return "\n".join(lines) + "\n"


def _by_tasks(found: Found) -> str:
    lines = [
        filled(
            "Mean / worst coverage by the number of tasks. The width is the median over cells, relative to an oracle "
            "that knows the true standard error:\n"
        )
    ]
    lines.append(f"| | {' | '.join(f'T = {units}' for units in TASKS)} |")
    lines.append("|---" * (len(TASKS) + 1) + "|")
    for name, belongs in ROWS.items():
        chosen = [[cell.coverage for cell in found.cells if belongs(cell) and cell.world.units == t] for t in TASKS]
        lines.append(_line(name, (f"{percent(fmean(some))} / {percent(min(some))}" for some in chosen)))
    for kind, name in (("binary", "width, rewards of 0 and 1"), ("real", "width, real rewards")):
        widths = [[c.width for c in found.cells if c.world.kind == kind and c.world.units == t] for t in TASKS]
        lines.append(_line(name, (f"{median(some):.2f}" for some in widths)))
    return "\n".join(lines) + "\n"


def _by_clusters(found: Found) -> str:
    lines = [
        f"The same by the number of clusters. Each cluster has {MEAN_SIZE} tasks; in brackets, 1 to {LARGEST} tasks:",
        "",
    ]
    lines += [f"| | {' | '.join(f'G = {units}' for units in CLUSTERS)} |", "|---" * (len(CLUSTERS) + 1) + "|"]
    for icc in ICCS:
        shown = []
        for units in CLUSTERS:
            even, uneven = (
                [
                    cell.coverage
                    for cell in found.cells
                    if cell.world.kind == kind and cell.world.units == units and cell.world.chance == icc
                ]
                for kind in ("even clusters", "uneven clusters")
            )
            shown.append(
                f"{percent(fmean(even))} / {percent(min(even))} ({percent(fmean(uneven))} / {percent(min(uneven))})"
            )
        lines.append(_line(f"ICC {icc:g}", shown))
    return "\n".join(lines) + "\n"


def _below(found: Found) -> str:
    plain = [cell for cell in found.cells if cell.world.kind in ("binary", "real") and cell.world.units >= MANY_TASKS]
    below = [cell for cell in plain if cell.coverage < PROMISED]
    lines = [f"With 30 tasks or more, {len(below)} of {len(plain):,} cells have a coverage below 90:", ""]
    lines += ["| cell | true value | measured | computed | Clopper-Pearson |", "|---|---|---|---|---|"]
    for cell in below:
        world = cell.world
        spread = "all tasks alike" if world.chance is None else f"a + b = {world.chance:g}"
        name = f"{world.metric}, {world.kind}, n = {world.samples}, mean {world.mean:g}, {spread}, T = {world.units}"
        known = ["-", "-"]
        if world.kind == "binary" and world.samples in ("1", world.metric[-1]):
            rules = (known_default, known_exact)
            known = [percent(rule(world.units, cell.truth).coverage) for rule in rules]
        lines.append(_line(name, [f"{cell.truth:.5f}", percent(cell.coverage), *known]))
    return "\n".join(lines) + f"\n\n{_why_below()}\n"


def _why_below() -> str:
    one, two = (lower_end(passes, tasks) for passes, tasks in ((1, 30), (2, 100)))
    return filled(
        "With four samples, the task values of pass^4 and its mirror image pass@4 are 0 and 1, so the interval is "
        f"Wilson's. Its lower end is {one:.5f} after one pass in 30 tasks and {two:.5f} after two in 100, both just "
        "above the true value of pass^4. Any interval that equals Wilson's for such values has exactly this coverage. "
        "Clopper and Pearson's interval has no such dip, and is wider."
    )


def _limits(found: Found) -> str:
    points = [*_few_tasks(), _narrow(found), _follows(found), _for_nothing(found)]
    lines = [filled(f"- {point}", "  ") for point in points]
    return "\n".join(["### Limits of the default interval", "", *lines, _unbounded(found)])


def _few_tasks() -> list[str]:
    points = []
    for truth in (0.02, 0.033):
        default, exact = known_default(5, truth), known_exact(5, truth)
        points.append(
            f"**Five tasks and a true value of {truth:g}.** Coverage is {percent(default.coverage)} % at a mean width "
            f"of {default.width:.2f}. Clopper and Pearson's interval covers {percent(exact.coverage)} %, at a width of "
            f"{exact.width:.2f}."
        )
    return points


def _narrow(found: Found) -> str:
    many = [cell for cell in found.cells if cell.world.kind == "binary" and cell.world.units >= MANY_TASKS]
    spans = ((0, 1), (1, 3), (5, float("inf")))
    never, hardly, often = (median(cell.width for cell in many if low <= cell.rare < high) for low, high in spans)
    return (
        f"**True values close to 0 or 1.** With {MANY_TASKS} tasks or more, the median width is {often:.2f} times the "
        f"oracle's if at least 5 passes and 5 failures are expected, {hardly:.2f} times if 1 to 3 of the rarer kind "
        f"are expected, and {never:.1f} times if fewer than 1 is expected: data without a single one are common then "
        "and prove little."
    )


def _follows(found: Found) -> str:
    return (
        "**pass_rate when the number of samples depends on difficulty.** With 1 to 8 samples, more of them on easy "
        f"tasks (a + b = {found.following[0].world.chance:g}), the worst cell covers {_worst(found)}. The data do not "
        "show tasks with a large weight that were not sampled. `mean_reward` gives each task the same weight."
    )


def _for_nothing(found: Found) -> str:
    zero = [cell.coverage for cell in found.cells if "clusters" in cell.world.kind and cell.world.chance == 0]
    return (
        "**Clusters without shared variance.** If the tasks of a cluster share nothing (ICC 0), coverage is "
        f"{percent(fmean(zero))} % on average, which is higher than necessary: a few clusters cannot show that the "
        "tasks in them are independent."
    )


def _unbounded(found: Found) -> str:
    said = (
        "- **Rewards without a range.** No interval is correct for every distribution (Bahadur and Savage 1956). For "
        "rewards with a long tail the t interval has this coverage, in per cent:\n"
    )
    lines = [filled(said, "  "), f"| | {' | '.join(f'T = {units}' for units in TASKS)} |"]
    lines.append("|---" * (len(TASKS) + 1) + "|")
    lines += [_line(law, map(percent, covered)) for law, covered in found.unbounded.items()]
    return "\n".join(lines) + "\n"


def _worst(found: Found) -> str:
    said = []
    for units in TASKS[1:-1]:
        worst = min(cell.coverage for cell in found.following if cell.world.units == units)
        said.append(f"{percent(worst)} % at T = {units}")
    return ", ".join(said)


def _is(cell: Cell, kind: str, *metrics: str) -> bool:
    return cell.world.kind == kind and cell.world.metric in metrics


def listed(things: Iterable[object]) -> str:
    """The items, separated by commas."""
    return ", ".join(f"{thing:g}" if isinstance(thing, float) else str(thing) for thing in things)


def _line(name: str, shown: Iterable[str]) -> str:
    return f"| {name} | {' | '.join(shown)} |"


def percent(share: float) -> str:
    """A share in per cent, without the per cent sign."""
    return f"{100 * share:.1f}"


def filled(said: str, indent: str = "") -> str:
    """Prose in lines of 120 characters; a line break at the end is kept and leaves an empty line."""
    held = said.replace(" %", "\xa0%").replace(" = ", "\xa0=\xa0")  # these stay on one line
    lines = textwrap.fill(held, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\xa0", " ") + "\n" * said.endswith("\n")
