"""The results of looks at runs in progress as Markdown: on the terminal and in docs/statistics.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench.simulations.looking import (
    FIRST_FIXED,
    KINDS,
    MEANS,
    PLANNED,
    SEQUENCES,
    SHOWN_AT,
    SHOWN_KINDS,
    SHOWN_OF,
    Looking,
)
from bench.simulations.report import filled, listed, percent
from bench.simulations.rule import CONFIDENCE

NAMES = {
    "finite": "**finite beta mixture** (the run's own number)",
    "population": "**beta mixture** (tasks like these)",
    "robbins": "Robbins' normal mixture, sd 1/2, tuned to N/2",
    "learnt": f"the same with the running sd, from task {FIRST_FIXED}",
    "fixed": f"the default interval after every task, from task {FIRST_FIXED}",
}
TRUTHS = {"own": "the run's number", "law": "tasks like these"}
PROVEN = (("finite", "own"), ("population", "law"), ("robbins", "law"))


def looking_text(found: Looking) -> str:
    """The whole section."""
    return "\n".join([_head(found), _table(found), _said(found)])


def missed_too_often(found: Looking) -> list[str]:
    """A sentence for each sequence that missed more than its proven 5 %."""
    return [
        f"{cell.kind}, mean {cell.mean:g}, N = {cell.planned}: {name} misses {TRUTHS[truth]} in {percent(share)} % of "
        "runs"
        for cell in found.cells
        for name, truth in PROVEN
        if (share := getattr(cell, truth)[name]) > 1 - CONFIDENCE
    ]


def _head(found: Looking) -> str:
    return filled(
        f"Written by `make bench-statistics`: {len(found.cells)} scenarios, seed {found.seed}, {found.runs:,} runs "
        f"each, with N = {listed(PLANNED)} planned tasks, means of {listed(MEANS)}, values of 0 and 1, means of 4 "
        "samples (equal tasks, or pass probabilities from a beta distribution with a + b = 4 or 0.5) and real rewards. "
        "The interval is evaluated after every task. The first two columns are the share of runs in which the interval "
        "ever excludes the final number of the run, and the mean over tasks like these: mean / worst over scenarios, "
        f"in per cent. The last two are the mean width after {_shares()} of {SHOWN_OF} tasks with a mean of 0.5:\n"
    )


def _table(found: Looking) -> str:
    kinds = [{KINDS[0]: "0 and 1", KINDS[2]: "4 samples, a + b = 4"}[kind] for kind in SHOWN_KINDS]
    lines = [
        f"| | run's number | tasks like these | {' | '.join(f'width, {kind}' for kind in kinds)} |",
        "|---" * (len(kinds) + 3) + "|",
    ]
    for name in SEQUENCES:
        own = [cell.own[name] for cell in found.cells]
        law = [cell.law[name] for cell in found.cells if name in cell.law]
        widths = [" ".join(f"{width:.3f}"[1:] for width in found.widths[name][kind]) for kind in SHOWN_KINDS]
        lines.append(f"| {NAMES[name]} | {_mean_worst(own)} | {_mean_worst(law)} | {' | '.join(widths)} |")
    return "\n".join(lines) + "\n"


def _said(found: Looking) -> str:
    ends = [found.widths[name][SHOWN_KINDS[0]] for name in ("finite", "robbins")]
    narrower = [1 - first / second for first, second in zip(*ends, strict=True)]
    return filled(
        "Robbins' mixture is for values without a range if another source bounds their deviation. On [0, 1] the finite "
        f"mixture is narrower by {percent(narrower[0])} % after a tenth of the run and by {percent(narrower[-1])} % "
        "near its end, because it uses the fact that the run is finite.\n"
    )


def _shares() -> str:
    *most, last = (f"{100 * share:g}" for share in SHOWN_AT)
    return f"{', '.join(most)} and {last} %"


def _mean_worst(shares: Sequence[float]) -> str:
    return f"{percent(fmean(shares))} / {percent(max(shares))}" if shares else "-"
