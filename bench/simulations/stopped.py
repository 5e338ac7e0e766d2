"""Runs that stop by their own results: the coverage of their intervals, the bias of their values, and claims of a test.

A run has N planned tasks whose values come from one law, in a random order. After every task the rule looks at the
confidence sequence of tasks like these, as ``--until`` does, and stops the run when it is reached. All reported numbers
are measured at the stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from bench.simulations.grid import Bools
from bench.simulations.looking import Seen, drawn, population_misses, seen_of
from bench.simulations.report import filled, listed, percent
from bench.simulations.rule import CONFIDENCE, Floats, Ints, Spreads, default_ends

RUNS = 10_000
PLANNED = 500
KINDS = ("0 and 1", "n = 4, a + b = 4")
MEANS = (0.3, 0.6, 0.9)
APART = (0.05, 0.1)  # distances of a rule's bound from the true mean
WIDTHS = (0.15, 0.2)
NEARLY_ALL = 0.9  # share of stopped runs from which on the sequence must also cover 95 % of the stopped runs
OFTEN = 0.25  # share of stopped runs from which on a row is used in the sentences below the table
SLIGHT = 0.02  # maximum bias of a value after a stop by the width
AT_ONCE = 1_000  # runs that are computed together
HALVINGS = 24  # steps of a bisection: a width is exact to 1e-7


@dataclass(frozen=True, slots=True)
class Rule:
    """``lower(m) > bound``, ``upper(m) < bound`` or ``width(m) < bound``."""

    side: str
    bound: float

    @property
    def text(self) -> str:
        """The rule as a user types it."""
        return f"{self.side} {'>' if self.side == 'lower' else '<'} {self.bound:g}"

    def reached(self, seen: Seen) -> Bools:
        """Whether the rule is reached after every task, [R, N]."""
        mean = seen.spreads.mean
        if self.side == "width":
            high, low = (end(seen) for end in (upper_ends, lower_ends))
            return np.asarray(high - low < self.bound)
        outside = population_misses(seen, np.full((len(mean), 1), self.bound))
        return outside & ((mean > self.bound) if self.side == "lower" else (mean < self.bound))


@dataclass(frozen=True, slots=True)
class Stopped:
    """The reports of the runs that a rule has stopped in a world; shares of the stopped runs, except for ``ever``."""

    kind: str
    mean: float
    rule: Rule
    share: float  # share of all runs that stopped before their end
    tasks: float  # mean number at the stop
    bias: float  # of the value
    fixed: float  # covered by the default interval
    sequence: float  # covered by the beta mixture
    ever: float  # share of all runs that stopped and were missed by the beta mixture
    claims: float  # a paired t test against an equally good run finds a difference


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    runs = RUNS // fewer
    cells = list(stopped_cells(runs, np.random.default_rng([seed, 23])))
    return stopped_text(cells, runs, seed), unkept(cells, runs)


def rules(mean: float) -> list[Rule]:
    """The rules for runs with this mean."""
    beside = [Rule("lower", round(mean - by, 9)) for by in APART] + [Rule("upper", round(mean + by, 9)) for by in APART]
    return [rule for rule in beside if 0 < rule.bound < 1] + [Rule("width", width) for width in WIDTHS]


def stopped_cells(runs: int, rng: np.random.Generator) -> Iterator[Stopped]:
    """A cell for every kind of values, mean and rule; all rules of a world use the same runs."""
    for kind in KINDS:
        for mean in MEANS:
            found: dict[Rule, list[Floats]] = {rule: [] for rule in rules(mean)}
            for first in range(0, runs, AT_ONCE):
                size = min(AT_ONCE, runs - first), PLANNED
                values, others = drawn(kind, size, mean, rng), drawn(kind, size, mean, rng)
                seen = seen_of(values)
                for rule, held in found.items():
                    held.append(at_stop(values, others, seen, rule, mean))
            for rule, held in found.items():
                yield _cell(kind, mean, rule, np.concatenate(held), runs)


def at_stop(values: Floats, others: Floats, seen: Seen, rule: Rule, mean: float) -> Floats:
    """The reports of each run that stops early, [stopped, 5]: tasks, value, covered (twice), a difference claimed."""
    reached = rule.reached(seen)[:, :-1]  # the last task is the end of the run anyway
    rows = np.flatnonzero(reached.any(axis=1))
    at = reached[rows].argmax(axis=1)
    tasks = (at + 1).astype(np.float64)
    spread = Spreads(seen.spreads.mean[rows, at], seen.spreads.variance[rows, at], tasks, 1.0)
    low, high = default_ends(spread)
    fixed = (low <= mean) & (mean <= high)
    kept = ~population_misses(seen, np.full((len(values), 1), mean))[rows, at]
    claims = _paired_claims((values - others)[rows], at)
    return np.stack([tasks, spread.mean, fixed, kept, claims], axis=1)


def _paired_claims(differences: Floats, at: Ints) -> Bools:
    """Whether a paired t test at 5 % finds a difference after the given number of tasks of each run, [R]."""
    n = at + 1.0
    rows = np.arange(len(at))
    total = np.cumsum(differences, axis=1)[rows, at]
    squares = np.cumsum(differences**2, axis=1)[rows, at]
    variance = np.maximum(squares - total**2 / n, 0.0) / np.maximum(n - 1, 1)
    errors = stdtrit(np.maximum(n - 1, 1), (1 + CONFIDENCE) / 2)
    return np.asarray(np.abs(total) > errors * np.sqrt(n * variance))


def _cell(kind: str, mean: float, rule: Rule, held: Floats, runs: int) -> Stopped:
    tasks, value, fixed, kept, claims = held.mean(axis=0).tolist() if len(held) else [float("nan")] * 5
    missed = float((held[:, 3] == 0).sum()) / runs
    return Stopped(kind, mean, rule, len(held) / runs, tasks, value - mean, fixed, kept, missed, claims)


def lower_ends(seen: Seen) -> Floats:
    """The lower end of the beta mixture after every task, [R, N], by bisection."""
    return _ends(seen, np.zeros_like(seen.totals))


def upper_ends(seen: Seen) -> Floats:
    """The upper end of the beta mixture, likewise."""
    return _ends(seen, np.ones_like(seen.totals))


def _ends(seen: Seen, edge: Floats) -> Floats:
    inside, outside = seen.spreads.mean.copy(), edge.copy()
    kept = ~population_misses(seen, edge)  # the edge itself must be inside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        held = ~population_misses(seen, middle)
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return np.where(kept, edge, outside)


def unkept(cells: Sequence[Stopped], runs: int) -> list[str]:
    """A sentence for each sequence whose coverage is too low by more than one Monte Carlo standard error."""
    slack = sqrt(CONFIDENCE * (1 - CONFIDENCE) / runs)
    said = [
        f"{_world(cell)}: {percent(cell.ever)} % of runs stop with a sequence that misses"
        for cell in cells
        if cell.ever > 1 - CONFIDENCE + slack
    ]
    said += [
        f"{_world(cell)}: the sequence covers {percent(cell.sequence)} % of the stopped runs"
        for cell in cells
        if cell.share >= NEARLY_ALL and cell.sequence < CONFIDENCE - slack / sqrt(cell.share)
    ]
    for cell in cells:
        wrong = {"lower": cell.bias <= 0, "upper": cell.bias >= 0, "width": abs(cell.bias) > SLIGHT}[cell.rule.side]
        if cell.share and wrong:
            said.append(f"{_world(cell)}: the value is off by {100 * cell.bias:+.1f} points")
    return said


def _world(cell: Stopped) -> str:
    return f"{cell.kind}, mean {cell.mean:g}, {cell.rule.text}"


def stopped_text(cells: Sequence[Stopped], runs: int, seed: int) -> str:
    """The whole section as Markdown."""
    kinds = {KINDS[0]: "0 and 1", KINDS[1]: "4 samples"}
    head = filled(
        f"Written by `make bench-statistics`: seed {seed}, {runs:,} runs per row, {PLANNED} planned tasks, values of 0 "
        "and 1 and means of 4 samples (pass probabilities from a beta distribution with a + b = 4), means of "
        f"{listed(MEANS)}. The rule is evaluated on the confidence sequence after every task, and a run that meets it "
        "stops. For the runs that stopped, the table shows the mean number of tasks, the bias of the value in points "
        "(hundredths), the coverage of the default interval and of the sequence, and how often a paired t test against "
        'an equally good run claims a difference. All columns except tasks and bias are in per cent. "Missed" is the '
        "share of all runs that stop with a sequence that excludes the true value: at most 5 %, by proof.\n"
    )
    lines = [
        "| values | mean | rule | stopped | tasks | bias | default covers | sequence covers | missed | claims |",
        "|---" * 10 + "|",
    ]
    for cell in cells:
        if not cell.share:
            lines.append(f"| {kinds[cell.kind]} | {cell.mean:g} | {cell.rule.text} | 0 | | | | | | |")
            continue
        shares = (percent(share) for share in (cell.fixed, cell.sequence, cell.ever, cell.claims))
        lines.append(
            f"| {kinds[cell.kind]} | {cell.mean:g} | {cell.rule.text} | {percent(cell.share)} | {cell.tasks:.0f} | "
            f"{100 * cell.bias:+.1f} | {' | '.join(shares)} |"
        )
    return "\n".join([head, "\n".join(lines) + "\n", _said(cells)])


def _said(cells: Sequence[Stopped]) -> str:
    often = [cell for cell in cells if cell.share >= OFTEN]
    by = {side: [cell for cell in often if cell.rule.side == side] for side in ("lower", "upper", "width")}
    ends = [*by["lower"], *by["upper"]]
    fixed, bias = [cell.fixed for cell in ends], [100 * abs(cell.bias) for cell in ends]
    least = min(cell.sequence for cell in often)
    wide = max(100 * abs(cell.bias) for cell in by["width"])
    claims = max(cell.claims for cell in ends)
    return filled(
        "In rows where a quarter of the runs or more stop, the default interval of a run stopped on `lower` or `upper` "
        f"covers {percent(min(fixed))} to {percent(max(fixed))} %, the sequence at least {percent(least)} %. The bias "
        f"of the value is {min(bias):.1f} to {max(bias):.1f} points, upwards after `lower` and downwards after "
        f"`upper`; after `width` it is at most {wide:.1f}. A paired t test on the tasks of a stopped run claims a "
        f"difference that does not exist in up to {percent(claims)} % of the stopped runs, so `compare` gives no such "
        "test.\n"
    )
