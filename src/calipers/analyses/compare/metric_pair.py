"""One metric in each of two runs: what it reads there, as the two need not call it the same, and what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.analyses.compare.align import Common
from calipers.analyses.compare.question import Question
from calipers.errors import InputError, UnknownName
from calipers.metrics.metric import Metric
from calipers.request import RequestedMetric, column_of, is_reward, per_column
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.table import Rollouts
from calipers.stats.paired import Difference, McNemar
from calipers.stats.power import PairVariance


@dataclass(frozen=True, slots=True)
class OldAndNew:
    """A metric as it is asked of the first run and of the second."""

    text: str
    first: RequestedMetric
    second: RequestedMetric


def of_both(
    asked: Sequence[RequestedMetric], runs: tuple[Rollouts, Rollouts], names: tuple[str, str], reward: str | None
) -> tuple[list[OldAndNew], list[str]]:
    """What can be compared of all that is asked, and what must be said about the rest.

    A reward that both runs have is compared under its name. Where one run has a single reward, that is
    the one meant, whatever it is called. InputError for a metric that only one run can answer.
    """
    found: list[OldAndNew] = []
    notes: dict[str, None] = {}
    for one in asked:
        wanted = one.params.get("reward") or reward
        if wanted and "reward" in one.metric.reads and not any(wanted in run.rewards for run in runs):
            raise UnknownName.of("reward", wanted, sorted({key for run in runs for key in run.rewards}))
        first, second = (_variants(one, run, reward, name) for run, name in zip(runs, names, strict=True))
        if len(first) == len(second) == 1:
            (a,), (b,) = first.values(), second.values()
            keys = a.params.get("reward"), b.params.get("reward")
            if keys[0] != keys[1]:
                notes[f"the reward is {keys[0]!r} in {names[0]} and {keys[1]!r} in {names[1]}"] = None
            found.append(OldAndNew(next(iter(first)) if keys[0] == keys[1] else one.text, a, b))
            continue
        first, second = _under_one_name(first, second)
        shared = [text for text in first if text in second]
        if not shared:
            held = "; ".join(f"{name} has {_listed(run)}" for run, name in zip(runs, names, strict=True))
            raise InputError(f"metric {one.text!r}: no reward that both runs have ({held}); pick one with --reward KEY")
        found += [OldAndNew(text, first[text], second[text]) for text in shared]
        for alone, name in ((first.keys() - second.keys(), names[0]), (second.keys() - first.keys(), names[1])):
            notes |= {f"only {name} has {text}: left out": None for text in sorted(alone)}
    return found, list(notes)


def _under_one_name(
    first: dict[str, RequestedMetric], second: dict[str, RequestedMetric]
) -> tuple[dict[str, RequestedMetric], dict[str, RequestedMetric]]:
    """The only reward of one run, called as the other run calls it among several."""
    sides = [first, second]
    for place, (own, others) in enumerate(((first, second), (second, first))):
        if len(own) == 1:
            (asked,) = own.values()
            for text, other in others.items():
                if asked.params.get("reward") is not None and asked.params["reward"] == other.params.get("reward"):
                    sides[place] = {text: replace(asked, text=text)}
    return sides[0], sides[1]


def columns_of(asked: RequestedMetric, run: Rollouts, name: str, *, zero: bool) -> list[Column]:
    """The columns a metric reads of a run, in their order; gaps in rewards are 0 where ``zero`` says so."""
    found = []
    for what in asked.metric.reads:
        try:
            column = column_of(run, what, asked.params)
        except InputError as error:
            raise InputError(f"metric {asked.text!r}: {name} cannot answer it: {error}") from None
        found.append(column.filled(0.0) if zero and (what == "reward" or is_reward(run, asked)) else column)
    return found


def _variants(asked: RequestedMetric, run: Rollouts, chosen: str | None, name: str) -> dict[str, RequestedMetric]:
    """The metric once for each reward or column that it may be asked of, by what it is called then."""
    if "reward" not in asked.metric.reads:
        return {each.text: each for each in per_column(asked, run)}
    keys = _keys(run)
    wanted = asked.params.get("reward") or chosen
    if wanted and wanted not in keys and len(keys) > 1:
        raise UnknownName.of(f"reward in {name}", wanted, keys)
    if wanted in keys:
        return {asked.text: _with(asked, wanted)}
    if "reward" in keys or len(keys) < 2:
        return {asked.text: _with(asked, keys[0] if len(keys) == 1 else "reward")}
    head, opened, rest = asked.text.partition("(")
    inner = f"{rest.removesuffix(')')}, " if opened else ""
    return {text: _with(asked, key, text) for key in keys for text in [f"{head}({inner}reward={key})"]}


def _with(asked: RequestedMetric, key: str | None, text: str | None = None) -> RequestedMetric:
    return replace(asked, text=text or asked.text, params={**asked.params, "reward": key})


def _keys(run: Rollouts) -> list[str]:
    """The rewards that some rollout of a run has: others may stand there for another dataset's sake."""
    return sorted(key for key, column in run.rewards.items() if column.given.any()) or sorted(run.rewards)


def _listed(run: Rollouts) -> str:
    return ", ".join(map(repr, _keys(run))) or "none"


@dataclass(frozen=True, slots=True)
class MetricPair:
    """One metric of two runs: the columns it reads of them, gaps and all."""

    both: OldAndNew
    common: Common
    columns: tuple[list[Column], list[Column]]
    clusters: Ints | None  # [T]
    question: Question

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """Both runs."""
        return self.common.first, self.common.second

    @property
    def confidence(self) -> float:
        """Of intervals, and 1 less the level of tests."""
        return self.question.plan.confidence

    @property
    def seed(self) -> int:
        """Of resampling."""
        return self.question.plan.seed

    @property
    def higher_is_better(self) -> bool | None:
        """Which way is better; None where neither is known to be."""
        metric = self.both.first.metric
        return metric.higher_is_better if isinstance(metric, Metric) else None

    @property
    def counted(self) -> Bools:
        """The tasks that are looked at, [T]: all, or where the verdict is asked for on the way, the settled ones."""
        if self.question.anytime:
            return self.common.settled
        return np.ones(len(self.common.own_ids), dtype=bool)

    def samples(self, there: Bools) -> tuple[int, int]:
        """How many samples of the marked tasks each run has, [T] given."""
        entered = [
            int(side.by_task.count(columns[0].given)[there].sum())
            for side, columns in zip(self.sides, self.columns, strict=True)
        ]
        return entered[0], entered[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """A difference, second run less first, and what it is made of."""

    both: OldAndNew
    higher_is_better: bool | None  # None where neither way is known to be better
    difference: Difference
    first: float | None
    second: float | None
    there: Bools  # [T] common tasks with a value in both
    samples: tuple[int, int]
    values: tuple[Floats, Floats] | None = None  # [T] each, where a task has a value of its own
    weights: tuple[Floats, Floats] | None = None  # [T] each, by which a pooled rate counts them
    mcnemar: McNemar | None = None
    pair: PairVariance | None = None
    repeats: float | None = None  # samples per task, of the run that has fewer
