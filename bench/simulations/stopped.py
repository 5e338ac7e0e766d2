"""Runs that stop on what they show: what their intervals cover, how far their values are off, and what a test claims.

A run has N planned tasks whose values come from one law, in a random order. After every task the rule looks at the
confidence sequence of tasks like these, as ``--until`` does, and ends the run when it is reached. Whatever a run
reports is then measured where the run stopped.
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
APART = (0.05, 0.1)  # how far the bound of a rule lies from the true mean
WIDTHS = (0.15, 0.2)
NEARLY_ALL = 0.9  # stopped runs, from which on the sequence must cover 95 % of the stopped ones, too
OFTEN = 0.25  # stopped runs, from which on a row enters the sentences under the table
SLIGHT = 0.02  # what a value may be off by after a stop on the width
AT_ONCE = 1_000  # runs in one go
HALVINGS = 24  # of a bisection: a width is known to 1e-7


@dataclass(frozen=True, slots=True)
class Rule:
    """``lower(m) > bound``, ``upper(m) < bound`` or ``width(m) < bound``."""

    side: str
    bound: float

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.side} {'>' if self.side == 'lower' else '<'} {self.bound:g}"

    def reached(self, seen: Seen) -> Bools:
        """Whether the run may stop after every task, [R, N]."""
        mean = seen.spreads.mean
        if self.side == "width":
            high, low = (end(seen) for end in (upper_ends, lower_ends))
            return np.asarray(high - low < self.bound)
        outside = population_misses(seen, np.full((len(mean), 1), self.bound))
        return outside & ((mean > self.bound) if self.side == "lower" else (mean < self.bound))


@dataclass(frozen=True, slots=True)
class Stopped:
    """What the runs that a rule stopped report, in one world; shares of the stopped runs but for ``ever``."""

    kind: str
    mean: float
    rule: Rule
    share: float  # of all runs that stopped before their end
    tasks: float  # the mean number at the stop
    bias: float  # of the value
    fixed: float  # covered by the default interval
    sequence: float  # covered by the beta mixture
    ever: float  # of all runs: stopped, and missed by the beta mixture
    claims: float  # a paired t test against an equally good run sees a difference


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """Whether a stopped run reports what holds."""
    runs = RUNS // fewer
    cells = list(stopped_cells(runs, np.random.default_rng([seed, 23])))
    return stopped_text(cells, runs, seed), unkept(cells, runs)


def rules(mean: float) -> list[Rule]:
    """The rules that runs of a mean are stopped by."""
    beside = [Rule("lower", round(mean - by, 9)) for by in APART] + [Rule("upper", round(mean + by, 9)) for by in APART]
    return [rule for rule in beside if 0 < rule.bound < 1] + [Rule("width", width) for width in WIDTHS]


def stopped_cells(runs: int, rng: np.random.Generator) -> Iterator[Stopped]:
    """Every kind of values, mean and rule; the rules of one world see the same runs."""
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
    """What each run that stops early reports, [stopped, 5]: tasks, value, covered twice, a difference claimed."""
    reached = rule.reached(seen)[:, :-1]  # at the last task the run is done anyway
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
    """Whether a paired t test at 5 % sees a difference after the task at each place, [R]."""
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
    """The upper end, likewise."""
    return _ends(seen, np.ones_like(seen.totals))


def _ends(seen: Seen, edge: Floats) -> Floats:
    inside, outside = seen.spreads.mean.copy(), edge.copy()
    kept = ~population_misses(seen, edge)  # the edge itself may not be ruled out
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        held = ~population_misses(seen, middle)
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return np.where(kept, edge, outside)


def unkept(cells: Sequence[Stopped], runs: int) -> list[str]:
    """Where the sequence did not hold, to one Monte Carlo standard error."""
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
    """All of it, as Markdown."""
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
