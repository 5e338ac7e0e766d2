"""The results of the comparisons as Markdown: on the terminal and in docs/statistics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from bench.simulations.paired import CLUSTERS, MANY_DIFFER, TASKS, Compared, Test
from bench.simulations.report import filled, percent

# promises: the largest and the smallest level of the default test, and the largest error of a plan's power
MOST, LEAST, APART = 0.06, 0.03, 0.02
WORLDS = {"fair": "fair", "skewed": "skewed", "split": "0 or 1"}
COUNTS: tuple[Callable[[Test], float], ...] = (lambda test: test.differing, lambda test: test.weighed)
ROWS: dict[str, Callable[[Test], float | None]] = {
    "t": lambda test: test.t,
    "McNemar, exact": lambda test: test.exact,
    "McNemar, mid-p": lambda test: test.mid,
    "**floored t (default)**": lambda test: test.floored,
    "strict": lambda test: test.strict,
}


def comparison_text(found: Compared) -> str:
    """The whole section."""
    parts = (_head, _levels, _clusters, _timid, _plans)
    return "\n".join(part(found) for part in parts)


def broken(found: Compared) -> list[str]:
    """A sentence for each promise that was not kept."""
    said = [
        f"{_name(test)}: the default test rejects {percent(test.floored)} %"
        for test in found.tests
        if test.world in ("fair", "clusters") and test.floored > MOST
    ]
    said += [
        f"{_name(test)}: strict rejects {percent(test.strict)} %"
        for test in found.tests
        if test.world in ("fair", "skewed") and test.strict > MOST
    ]
    said += [
        f"{_name(test)}: the default test rejects {percent(test.floored)} %, which is timid"
        for test in found.tests
        if test.world == "fair" and test.weighed >= MANY_DIFFER and test.floored < LEAST
    ]
    said += [
        f"{promise.tasks} tasks: {percent(promise.found)} % in place of {percent(promise.promised)} %"
        for promise in found.promises
        if abs(promise.found - promise.promised) > APART
    ]
    return said


def _head(found: Compared) -> str:
    return filled(
        f"Written by `make bench-statistics`: {len(found.tests)} cells, seed {found.seed}, {found.replicates:,} "
        "replicates per cell for rewards of 0 and 1, a quarter of that for the others. The two runs have the same "
        "tasks, with 1 or 4 samples (pooled rates: 1 to 8), means of 0.1 to 0.98, and rewards of 0 and 1 or real "
        'rewards. In "fair" scenarios both runs have the same distribution. In "skewed" scenarios the means are '
        "equal, but all tasks of one run have the same pass probability, and those of the other follow a beta "
        'distribution with a + b = 0.5. In "0 or 1" scenarios the other run passes a task always or never. The table '
        "shows how often a test reports a difference that does not exist (nominally 5 %), mean / worst over cells, in "
        "per cent:\n"
    )


def _levels(found: Compared) -> str:
    lines = [f"| | {' | '.join(f'T = {tasks}' for tasks in TASKS)} |", "|---" * (len(TASKS) + 1) + "|"]
    for world, said in WORLDS.items():
        for name, row in ROWS.items():
            shown = []
            for tasks in TASKS:
                some = [test for test in found.tests if (test.world, test.tasks) == (world, tasks)]
                shown.append(_mean_worst([value for test in some if (value := row(test)) is not None]))
            lines.append(f"| {said}: {name} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _clusters(found: Compared) -> str:
    lines = [
        f"The same with {CLUSTERS} clusters whose tasks share half of the variance of a sample:",
        "",
        "| | naive t over tasks | t over clusters | **floored t over clusters** | strict over clusters |",
        "|---|---|---|---|---|",
    ]
    for name, start in (("10 tasks each", "even"), ("1 to 22 tasks", "uneven")):
        some = [test for test in found.tests if test.world == "clusters" and test.kind.startswith(start)]
        rows: Iterable[list[float]] = (
            [test.naive or 0.0 for test in some],
            [test.t for test in some],
            [test.floored for test in some],
            [test.strict for test in some],
        )
        lines.append(f"| {name} | {' | '.join(map(_mean_worst, rows))} |")
    return "\n".join(lines) + "\n"


def _timid(found: Compared) -> str:
    """The worlds in which the default test rejects much less often than its level."""
    fair = [test for test in found.tests if test.world == "fair"]
    plain, weighed = ([test for test in fair if count(test) >= MANY_DIFFER] for count in COUNTS)
    return filled(
        f"In {len(plain)} fair cells, {MANY_DIFFER} pairs or more differ on average. The default test rejects less "
        f"than {percent(LEAST)} % in {_below(plain)}. This count treats a pair that differs by almost nothing like a "
        "pair that differs by 1. The weighted number of differing pairs is `(sum |d|)² / sum d²`. It equals the plain "
        "count if all differences have the same size, as with one sample of 0 or 1, and is smaller if a few large "
        f"differences dominate. In {len(weighed)} cells the weighted number is {MANY_DIFFER} or more; the test rejects "
        f"less than {percent(LEAST)} % in {_below(weighed)}.\n"
    )


def _below(tests: Sequence[Test]) -> str:
    few = [test for test in tests if test.floored < LEAST]
    named = "; ".join(f"{_timid_name(test)} ({test.differing:.0f} pairs, weighted {test.weighed:.0f})" for test in few)
    return f"{len(few)} of them: {named}" if few else "none of them"


def _plans(found: Compared) -> str:
    lines = [
        "A plan promises a power; so often did the default test show the difference on as many tasks, in per cent:",
        "",
        "| tasks | samples | difference | promised | found |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.tasks:,} | {one.samples} | {one.difference:g} | {percent(one.promised)} | {percent(one.found)} |"
        for one in found.promises
    ]
    return "\n".join(lines) + "\n"


def _name(test: Test) -> str:
    return f"{test.world}, {test.kind}, T = {test.tasks}, mean {test.mean:g}, n = {test.samples}"


def _timid_name(test: Test) -> str:
    kind = {"binary": "rewards of 0 and 1", "real": "real rewards"}.get(test.kind, test.kind)
    return f"{percent(test.floored)} for {kind}, T = {test.tasks}, mean {test.mean:g}, n = {test.samples}"


def _mean_worst(values: Sequence[float]) -> str:
    return f"{percent(fmean(values))} / {percent(max(values))}" if values else "-"
