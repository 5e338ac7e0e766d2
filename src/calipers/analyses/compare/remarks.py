"""The remarks on a comparison: why it is undecided, and what its runs lack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from calipers.analyses.compare.evidence import Background, doubts_about_pair
from calipers.analyses.compare.measure import Measured
from calipers.errors import InputError
from calipers.remarks import Remark, Value
from calipers.reports.figures import POLICY
from calipers.rollouts.filling import missing
from calipers.rollouts.ledger import RANDOM, Ledger
from calipers.rollouts.table import Rollouts
from calipers.stats.claims import Decision
from calipers.stats.counts import Follows
from calipers.stats.missing import MOST_MISSING

Values = dict[str, Value]


def of_decision(decision: Decision, measured: Measured, background: Background) -> list[Remark]:
    """Why a difference is undecided although the tasks may show it; empty if it is decided, or they do not."""
    if decision.undecided_by == "reader":
        return [Remark("reader_decides", doubts_about_pair(background.pair)[0].remark.values, "no_answer")]
    if decision.undecided_by == "missing":
        return [_missing_decide(measured, background)]
    if decision.undecided_by == "counts":
        if measured.difference.p is None:
            return [Remark("counts_without_first", {"metric": measured.metric_pair.text}, "no_answer")]
        observed = background.evidence.observed.value or 0.0
        return [Remark("counts_decide", {"word": decision.as_observed, "size": abs(observed)}, "no_answer")]
    if decision.undecided_by == "unseen_loss":
        return [_unseen_losses(measured, background)]
    return []


def _missing_decide(measured: Measured, background: Background) -> Remark:
    filling = background.filling
    if filling is None or filling.ends is None:
        count = 0 if filling is None else sum(filling.counts)
        return Remark("missing_unknown", {"missing": count, "metric": measured.metric_pair.text}, "no_answer")
    first, second = filling.counts
    planned = [len(side) for side in background.pair.sides]
    values: Values = {
        "first_missing": first,
        "second_missing": second,
        "first_planned": planned[0],
        "second_planned": planned[1],
    }
    return Remark("missing_decide", values, "no_answer")


def _unseen_losses(measured: Measured, background: Background) -> Remark:
    unseen = background.evidence.unseen
    if unseen is not None and unseen.new is None and math.isfinite(unseen.score):
        return Remark("unseen_tail", {}, "no_answer")
    if unseen is None or unseen.new is None or measured.values is None:
        return Remark("unseen_unbounded", {}, "no_answer")
    old, new = (values[measured.compared] for values in measured.values)
    outright, graded = (new, old) if unseen.new else (old, new)
    wins = float(np.mean(outright)) > float(np.mean(graded))
    end = outright.max() if wins else outright.min()
    values: Values = {
        "passes": int(np.count_nonzero(np.isclose(outright, end))),
        "tasks": len(outright),
        "graded_mean": float(np.mean(graded)),
    }
    if unseen.new:
        return Remark("unseen_losses", values, "no_answer")
    return Remark("unseen_losses_of_first", values, "no_answer")


def of_runs(names: tuple[str, str], sides: tuple[Rollouts, Rollouts], policy: str) -> Iterator[Remark]:
    """What is missing of each run, and warnings if much is, or much more of one run than of the other."""
    for name, side in zip(names, sides, strict=True):
        gaps = Ledger.of(side).gaps
        if gaps:
            values: Values = {"run": name, "missing": gaps, "planned": len(side), "policy": POLICY[policy]}
            yield Remark("run_missing", values)
    if policy == RANDOM:
        yield Remark("missing_random", {})
    shares = [float(missing(side, None).mean()) if len(side) else 0.0 for side in sides]
    (low, low_name), (high, high_name) = sorted(zip(shares, names, strict=True))
    if high - low > MOST_MISSING:
        values = {"run": high_name, "high": high, "other": low_name, "low": low}
        yield Remark("missing_differs", values, "warning")
        return
    for share, name in zip(shares, names, strict=True):
        if share > MOST_MISSING:
            yield Remark("missing_many", {"run": name, "share": share}, "warning")


def check_random(names: tuple[str, str], sides: tuple[Rollouts, Rollouts]) -> None:
    """InputError if rollouts are declared to be missing at random, and much more of one run are missing."""
    shares = [float(missing(side, None).mean()) if len(side) else 0.0 for side in sides]
    if abs(shares[0] - shares[1]) > MOST_MISSING:
        lost = " and ".join(f"{100 * share:.3g} % of {name}" for name, share in zip(names, shares, strict=True))
        problem = f"random, but {lost} are missing"
        raise InputError.at("--missing", problem, "expected shares that differ by at most 5 points; retry the rollouts")


def of_counts(names: Sequence[str], sides: Sequence[Follows | None]) -> Iterator[Remark]:
    """A warning for each run whose number of samples follows its results."""
    for name, follows in zip(names, sides, strict=True):
        if follows is not None:
            values: Values = {"run": name, "stopped": follows.stopped, "tasks": follows.tasks}
            yield Remark(follows.rule, values, "warning")


def of_ends(backgrounds: Iterator[Background]) -> Iterator[Remark]:
    """A note on the numbers that stand for missing rollouts, if they are only the ends that were seen."""
    ends = {background.filling.ends for background in backgrounds if background.filling and background.filling.seen}
    for low, high in sorted(each for each in ends if each is not None):
        yield Remark("ends_seen", {"low": low, "high": high})
