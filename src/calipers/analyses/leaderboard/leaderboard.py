"""Who is ahead of whom: read runs, take the tasks that all of them have, rank them, and say which are tied.

::

    sources ──► runs by dataset ──► CommonValues: every model on the same tasks ──► rank sets, ties, the picked best
            └─► finished results, stopped runs: listed without a rank
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, cast

import numpy as np

from calipers.analyses.compare.align import ReadRun, chosen_pairs, names_of, no_common, runs_of
from calipers.analyses.compare.compare import CommonValues, common_values, ranked_runs
from calipers.analyses.compare.measure import metrics_of
from calipers.analyses.compare.question import Question, make_question
from calipers.analyses.compare.source import (
    COST,
    FinishedResult,
    ReadSource,
    check_gaps,
    check_sources,
    cost_of,
    estimate_of,
    finished_results,
    on_tasks,
    read_source,
    source_notes,
)
from calipers.analyses.leaderboard.document import Board, Leaderboard, Rivals, Standing
from calipers.errors import InputError, UnknownName
from calipers.formats.format import Named
from calipers.formats.read import Input
from calipers.metrics.metric import Metric
from calipers.pipeline import Progress, Source, quietly
from calipers.reports.result import Group
from calipers.request import Plan, RequestedMetric, either, make_plan, mean_metric
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import SCORED
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate
from calipers.stats.ranks import RankSets, tie_bars

FINISHED: Final = "a finished result without its rollouts: ranks compare models task by task"
STOPPED: Final = "its results stopped the run, so a rank over a fixed number of tasks is not valid"
ALONE: Final = "no other run on this dataset has rollouts"


def leaderboard(
    *sources: Source,
    metrics: str | Mapping[str, Any] | None = None,
    metric: str | Mapping[str, Any] | None = None,
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    baseline: str | None = None,
    progress: Progress | None = None,
) -> Leaderboard:
    """Rank models on the tasks that all of them have, and say which of them the tasks cannot tell apart.

    A source is anything that `score` reads, with ``columns`` and ``truth`` as there, a folder of runs, or a finished
    result, which is listed without a rank. ``metrics`` is one metric, a mean over tasks; by default it is the first
    such metric of the dialect; ``metric`` is another name of it. The rank sets of all models hold at once with the
    given confidence. ``baseline`` adds each model's difference from one of them.

    >>> rows = [{"task": t, "model": m, "reward": float(t % k > 0)} for t in range(60) for m, k in [("a", 9), ("b", 2)]]
    >>> [(place.name, place.rank_set) for place in leaderboard(rows).boards[0].places]
    [('a', (1, 1)), ('b', (2, 2))]
    """
    wanted = cast("str | Mapping[str, Any] | None", either(metrics, metric))
    plan = make_plan(
        None if wanted is None else [wanted],
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
    )
    plan = replace(plan, asked=[mean_metric(plan, named=wanted is not None)])
    question = make_question(plan, baseline=baseline)
    check_sources(sources)
    finished, others = finished_results(sources)
    read = [
        read_source(source, Named(columns or {}, truth, input_format or ""), plan.labels, progress) for source in others
    ]
    with quietly():
        boards, notes = _boards(read, finished, question)
    return Leaderboard(
        dialect=plan.dialect.name,
        missing=plan.missing,
        confidence=plan.confidence,
        seed=plan.seed,
        cluster=plan.cluster,
        baseline=baseline,
        inputs=_inputs(read, finished),
        boards=boards,
        notes=[*source_notes(read), *notes],
    )


def _inputs(read: Sequence[ReadSource], finished: Sequence[FinishedResult]) -> list[list[Input]]:
    """The files of each source, in an order that does not depend on theirs."""
    every = [*(source.hashed() for source in read), *(list(result.result.inputs) for result in finished)]
    return sorted(every, key=lambda files: [(file.path, file.sha256) for file in files])


def _boards(
    sources: Sequence[ReadSource], finished: Sequence[FinishedResult], question: Question
) -> tuple[list[Board], list[str]]:
    runs = [
        replace(run, parts={dataset: part})
        for index, source in enumerate(sources)
        for run in runs_of(index, source.path, source.rollouts)
        for dataset, part in run.parts.items()
    ]
    documents = [(result, group) for result in finished for group in result.result.groups]
    contests, notes = _by_dataset(runs, {group.dataset for _, group in documents})
    if len(runs) + len(documents) < 2:
        name = names_of(runs)[0] if runs else documents[0][1].model if documents else None
        raise InputError(f"{name or 'this'} is the only model; expected two or more (calipers score reports one)")
    names = [run.name for contest in contests.values() for run in contest]
    baselines = {dataset: _baseline(contest, question.baseline) for dataset, contest in contests.items()}
    if question.baseline is not None and all(place is None for place in baselines.values()):
        raise UnknownName.of("model", question.baseline, dict.fromkeys(names))
    boards: list[Board] = []
    for dataset, contest in contests.items():
        check_gaps(contest, question)
        more = [pair for pair in documents if pair[1].dataset == dataset or len(contests) == 1]
        some, its_notes = _of_contest(dataset, contest, more, baselines[dataset], question)
        boards += some
        notes += its_notes
    return boards, list(dict.fromkeys(notes))


Contests = dict[str | None, list[ReadRun]]


def _by_dataset(runs: Sequence[ReadRun], finished: set[str | None]) -> tuple[Contests, list[str]]:
    """The runs on each dataset, under names of their own and in the order of these, and what is left out."""
    by_dataset: Contests = {}
    for run in runs:
        (dataset,) = run.parts
        by_dataset.setdefault(dataset, []).append(run)
    notes = []
    if len(by_dataset) > 1 and not finished and all(len(some) == 1 for some in by_dataset.values()):
        listed = ", ".join("(unnamed)" if name is None else repr(name) for name in sorted(by_dataset, key=_first_none))
        notes.append(f"the datasets have different names: {listed}")
        by_dataset = {None: list(runs)}
    contests: Contests = {}
    for dataset in sorted(by_dataset, key=_first_none):
        some = by_dataset[dataset]
        if len(some) < 2 and dataset not in finished and len(by_dataset) > 1:
            notes.append(f"only one run is on {dataset or '(unnamed)'}: it has no leaderboard")
            continue
        named = [replace(run, name=name) for run, name in zip(some, names_of(some), strict=True)]
        contests[dataset] = sorted(named, key=lambda run: run.name)
    for dataset in sorted(finished - set(contests), key=_first_none):
        if not (len(contests) == 1 and len(finished) == 1):
            contests[dataset] = []
    return contests or {None: []}, notes


def _first_none(name: str | None) -> tuple[bool, str]:
    """The order of names: none at all comes first."""
    return name is not None, name or ""


def _baseline(contest: Sequence[ReadRun], wanted: str | None) -> str | None:
    """The name of the baseline among these runs; None where it is not among them."""
    if wanted is None or len(contest) < 2:
        return None
    try:
        pairs = chosen_pairs(contest, wanted)
    except UnknownName:
        return None
    return contest[pairs[0][0]].name


def _of_contest(
    dataset: str | None,
    contest: Sequence[ReadRun],
    documents: Sequence[tuple[FinishedResult, Group]],
    baseline: str | None,
    question: Question,
) -> tuple[list[Board], list[str]]:
    """The leaderboards of one dataset: one, or one for each reward where there are several."""
    ranked = [run for run in contest if run.rollouts.stop is None]
    stopped = [run for run in contest if run.rollouts.stop is not None]
    plan = question.plan
    if len(ranked) < 2:
        request = plan.asked[0]
        rest = [_unranked(run, request, plan, ALONE) for run in ranked]
        rest += [_unranked(run, request, plan, STOPPED) for run in stopped]
        rest += [_of_result(some, group, request.text, plan) for some, group in documents]
        why = next((standing.why for standing in rest if standing.why), ALONE)
        better = not isinstance(request.metric, Metric) or request.metric.higher_is_better is not False
        return [Board(dataset, request.text, better, 0, 0, _in_order(rest, better), why=why)], []
    every = common_values(ranked, question)
    if not every:
        for run in ranked[1:]:  # says what they do not share
            metrics_of(plan.asked, (ranked[0].rollouts, run.rollouts), (ranked[0].name, run.name), plan.reward)
        raise InputError(f"the models have no {plan.asked[0].text!r} in common; pick a reward with --reward KEY")
    if not _shared(ranked):
        raise InputError(_no_common(ranked))
    tasks = set[str]().union(*(run.rollouts.tasks for run in ranked))
    boards, notes = [], []
    for known in every:
        standings, its_notes = _scored(ranked, known, plan)
        rest = [_unranked(run, known.requests[0], plan, STOPPED) for run in stopped]
        rest += [_of_result(some, group, known.metric, plan) for some, group in documents]
        boards.append(_ranked(dataset, known, standings, rest, len(tasks), baseline, question))
        notes += its_notes
    return boards, notes


def _shared(runs: Sequence[ReadRun]) -> set[str]:
    return set.intersection(*(set(run.rollouts.tasks) for run in runs))


def _no_common(runs: Sequence[ReadRun]) -> str:
    """Which two runs share nothing, or that no task is in all of them."""
    for first, second in combinations(runs, 2):
        if not _shared([first, second]):
            return f"{no_common(first, second)}; expected models on the same tasks"
    return f"no task is in all {len(runs)} runs; expected models on the same tasks"


def _scored(runs: Sequence[ReadRun], known: CommonValues, plan: Plan) -> tuple[list[Standing], list[str]]:
    """Every run on the tasks that are ranked on: its value as `score` has it."""
    wanted = set(known.ids)
    standings, notes = [], []
    for run, request in zip(runs, known.requests, strict=True):
        if wanted.isdisjoint(run.rollouts.tasks):
            standings.append(_standing(run, run.rollouts, None))
            continue
        part = on_tasks(run.rollouts, wanted)
        cost = part.columns.get(COST)
        unpriced = 0 if cost is None else int(((part.outcome == SCORED) & ~cost.given).sum())
        if cost is not None and cost.given.any() and unpriced:
            notes.append(f"the cost of {run.name} is incomplete: {unpriced:,} scored rollouts have no {COST}")
        standings.append(_standing(run, part, estimate_of(part, request, plan)))
    return standings, notes


def _standing(run: ReadRun, part: Rollouts, estimate: Estimate | None, why: str | None = None) -> Standing:
    return Standing(
        name=run.name,
        source=run.path,
        agent=run.who[0],
        model=run.who[1],
        value=None if estimate is None else estimate.value,
        interval=None if estimate is None else estimate.interval,
        missing=Ledger.of(run.rollouts).gaps,
        planned=Ledger.of(run.rollouts).planned,
        cost_usd=cost_of(part),
        why=why if why is not None or estimate is None else estimate.why,
    )


def _unranked(run: ReadRun, request: RequestedMetric, plan: Plan, why: str) -> Standing:
    """A run that has no rank, with its value on its own tasks."""
    (asked,) = plan.asked
    pairs = metrics_of([asked], (run.rollouts, run.rollouts), (run.name, run.name), plan.reward)[0]
    own_request = next((first for first, _ in pairs if first.text == request.text), pairs[0][0])
    return _standing(run, run.rollouts, estimate_of(run.rollouts, own_request, plan), why)


def _of_result(source: FinishedResult, group: Group, metric: str, plan: Plan) -> Standing:
    estimate = group.metrics.get(metric)
    known = estimate is not None and source.result.confidence == plan.confidence
    return Standing(
        name=group.model or group.agent or source.path or "(unnamed)",
        source=source.path,
        agent=group.agent,
        model=group.model,
        value=None if estimate is None else estimate.value,
        interval=estimate.interval if estimate is not None and known else None,
        missing=group.ledger.gaps,
        planned=group.ledger.planned,
        cost_usd=group.totals.get(COST),
        why=FINISHED if estimate is not None else f"{FINISHED}; it has no {metric}",
    )


def _in_order(standings: Sequence[Standing], higher_is_better: bool) -> list[Standing]:
    """The best first, those without a value last; equal ones by their names."""

    def place(standing: Standing) -> tuple[bool, float, str, str]:
        value = standing.value or 0.0
        return standing.value is None, -value if higher_is_better else value, standing.name, standing.source

    return sorted(standings, key=place)


def _ranked(
    dataset: str | None,
    known: CommonValues,
    standings: Sequence[Standing],
    rest: Sequence[Standing],
    every_task: int,
    baseline: str | None,
    question: Question,
) -> Board:
    """A leaderboard; where the tasks cannot rank anybody, the values alone and the reason."""
    better, plan = known.higher_is_better, question.plan
    excluded = every_task - known.tasks
    last = _in_order(rest, better)
    if known.why:
        alone = [replace(standing, why=None) for standing in _in_order(standings, better)]
        return Board(dataset, known.metric, better, known.tasks, excluded, [*alone, *last], why=known.why)
    ranked = ranked_runs(known, [standing.name for standing in standings], plan)
    in_order, sets = [standings[place] for place in ranked.order], ranked.sets
    rivals = _rivals(in_order, sets)
    base = next((place for place, standing in enumerate(in_order) if standing.name == baseline), None)
    tiers = _tiers(sets)
    places = [
        replace(
            standing,
            place=place + 1,
            rank_set=(int(sets.low[place]), int(sets.high[place])),
            tier=tiers[place],
            tied_with=[in_order[other].name for other in np.flatnonzero(sets.tied[place]).tolist() if other != place],
            **({} if base is None else _against(place, base, in_order, sets)),
        )
        for place, standing in enumerate(in_order)
    ]
    return Board(
        dataset,
        known.metric,
        better,
        known.tasks,
        excluded,
        [*places, *last],
        bars=tie_bars(sets.tied),
        pairs=rivals,
        # of the best values the first that stands on the page: equal ones are worth the same
        winner=replace(ranked.best, run=0),
        optimism=ranked.drawn.optimism,
        baseline=baseline,
    )


def _difference(place: int, other: int, standings: Sequence[Standing]) -> float:
    first, second = standings[place].value, standings[other].value
    return (0.0 if first is None else first) - (0.0 if second is None else second)


def _verdict(place: int, other: int, sets: RankSets) -> str:
    if sets.tied[place, other]:
        return "undecided"
    return "better" if sets.t[place, other] > 0 else "worse"


def _rivals(standings: Sequence[Standing], sets: RankSets) -> list[Rivals]:
    rivals = []
    for first, second in combinations(range(len(standings)), 2):
        difference = _difference(first, second, standings)
        ends = sets.interval(first, second, difference)
        rivals.append(
            Rivals(standings[first].name, standings[second].name, difference, ends, _verdict(first, second, sets))
        )
    return rivals


def _against(place: int, base: int, standings: Sequence[Standing], sets: RankSets) -> dict[str, Any]:
    """A model's difference from the baseline, as it stands among all pairs."""
    if place == base:
        return {"verdict": "baseline"}
    difference = _difference(place, base, standings)
    return {
        "difference": difference,
        "difference_interval": sets.interval(place, base, difference),
        "verdict": _verdict(place, base, sets),
    }


def _tiers(sets: RankSets) -> list[int]:
    """A tier for each model in order: a new one begins with the first model that is worse than the tier's first."""
    tiers: list[int] = []
    first = 0
    for place in range(len(sets.low)):
        if not sets.tied[first, place]:
            first = place
        tiers.append(1 if not tiers else tiers[-1] + (first == place))
    return tiers
