"""Rank models, each on its own tasks, and find which of them are tied.

::

    sources ──► runs by dataset ──► BoardValues: every model on its tasks ──► rank sets, ties, the best model
            └─► finished results, stopped runs: listed without a rank
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, combinations
from typing import Any, Final, NoReturn, cast

import numpy as np

from calipers.analyses.compare import Question, make_question
from calipers.analyses.compare.align import Identity, ReadRun, chosen_pairs, names_of, no_common, runs_of
from calipers.analyses.compare.board import BoardValues, RankedRuns, board_values, ranked_runs
from calipers.analyses.compare.evidence import ALL_SAMPLES
from calipers.analyses.compare.measure import metrics_of
from calipers.analyses.compare.page import MARKS
from calipers.analyses.compare.remarks import of_counts
from calipers.analyses.compare.source import (
    COST,
    FinishedResult,
    ReadSource,
    check_gaps,
    check_sources,
    cost_of,
    doubts_of,
    estimate_of,
    finished_results,
    read_sources,
    source_notes,
)
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import Input
from calipers.metrics import Metric
from calipers.pipeline import Progress, Source
from calipers.remarks import Remark
from calipers.reports.axes import Axis, axis_from
from calipers.reports.document import (
    Blank,
    Block,
    Cell,
    Document,
    Glance,
    Glyphs,
    Name,
    Picture,
    Row,
    Sentence,
    Styled,
    Table,
    TableColumn,
    Title,
)
from calipers.reports.doubts import Doubts, doubt_blocks, doubts_document
from calipers.reports.figures import NONE, counted, figure, percent
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import documents_of, note_of, text_of
from calipers.reports.result import Group, canonical, finite
from calipers.reports.sentences import (
    DECIMALS,
    column_decimals,
    minus,
    money,
    of_leaderboard,
    of_pick,
    outward,
    signed,
    signed_ends,
)
from calipers.reports.untrusted_text import clean, note_line, without_middle
from calipers.request import Plan, RequestedMetric, either, make_plan, mean_metric
from calipers.rollouts.filling import missing as missing_rollouts
from calipers.rollouts.ledger import RANDOM, Assumed, Ledger, Missing, contributed
from calipers.rollouts.record import SCORED
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate, ValueEnds
from calipers.stats.missing import MOST_MISSING
from calipers.stats.ranks import RankSets, Winner, tie_bars
from calipers.tally import quietly

FINISHED: Final = "a finished result without its rollouts: ranks compare models task by task"
STOPPED: Final = "its results stopped the run, so a rank over a fixed number of tasks is not valid"
ALONE: Final = "no other run on this dataset has rollouts"


def leaderboard(
    *sources: Source,
    metrics: str | Mapping[str, Any] | None = None,
    metric: str | Mapping[str, Any] | None = None,
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | Assumed | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    baseline: str | None = None,
    threshold: float | None = None,
    range: tuple[float, float] | None = None,
    progress: Progress | None = None,
    trust_reader: bool = False,
) -> Leaderboard:
    """Rank models by their values on their own tasks, and list which of them the tasks cannot tell apart.

    A source is anything that `score` reads, with ``columns`` and ``truth`` as there, a folder of runs, or a finished
    result, which is listed without a rank. ``metrics`` is one metric, a mean over tasks; by default it is the first
    such metric of the dialect; ``metric`` is another name of it. The rank sets of all models hold at once with the
    given confidence. ``baseline`` names a model and adds the difference of each other model from it. A run has no
    rank if a number that its own system reports differs from ours, unless ``trust_reader`` trusts the reader.

    >>> rows = [{"task": t, "model": m, "reward": float(t % k > 0)} for t in range(60) for m, k in [("a", 9), ("b", 2)]]
    >>> [(place.name, place.rank_set) for place in leaderboard(rows).boards[0].places]
    [('a', (1, 1)), ('b', (2, 2))]
    """
    requested = cast("str | Mapping[str, Any] | None", either(metrics, metric))
    plan = make_plan(
        None if requested is None else [requested],
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        threshold=threshold,
        range=range,
        compares=True,
    )
    plan = replace(plan, requests=[mean_metric(plan, named=requested is not None)])
    question = make_question(plan, baseline=baseline, trust_reader=trust_reader)
    check_sources(sources)
    finished, with_rollouts = finished_results(sources)
    names = Named(columns or {}, truth, input_format or "")
    read = read_sources(with_rollouts, names, plan, progress)
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
        doubts=doubts_of(read, finished),
    )


def _inputs(read: Sequence[ReadSource], finished: Sequence[FinishedResult]) -> list[list[Input]]:
    """The files of each source, in an order that does not depend on the order of the sources."""
    inputs = [*(source.hashed() for source in read), *(list(result.result.inputs) for result in finished)]
    return sorted(inputs, key=lambda files: [(file.path, file.sha256) for file in files])


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
        documents_here = [pair for pair in documents if pair[1].dataset == dataset or len(contests) == 1]
        boards_here, notes_here = _boards_of_dataset(dataset, contest, documents_here, baselines[dataset], question)
        for board in boards_here:
            seen = _ends_seen(contest, board.metric, question.plan)
            boards.append(replace(board, ends_seen=seen, range=question.plan.range))
        notes += notes_here
    return boards, list(dict.fromkeys(notes))


def _ends_seen(contest: Sequence[ReadRun], metric: str, plan: Plan) -> tuple[float, float] | None:
    """The lowest and the highest finite reward that a metric reads in any run; None for a metric of passes."""
    ends = ValueEnds()
    for run in contest:
        pairs, _ = metrics_of(plan.requests, (run.rollouts, run.rollouts), (run.name, run.name), plan.reward)
        for request, _ in pairs:
            if request.text == metric and "reward" in request.metric.reads and not request.counts_passes:
                ends = ends.and_those(ValueEnds.of(contributed(run.rollouts, request.params["reward"]).kept()))
    return (ends.low, ends.high) if math.isfinite(ends.low + ends.high) else None


Contests = dict[str | None, list[ReadRun]]


def _by_dataset(runs: Sequence[ReadRun], finished: set[str | None]) -> tuple[Contests, list[str]]:
    """The runs on each dataset with unique names, sorted by them, and notes on runs that are left out."""
    by_dataset: Contests = {}
    for run in runs:
        (dataset,) = run.parts
        by_dataset.setdefault(dataset, []).append(run)
    notes = []
    if len(by_dataset) > 1 and not finished and all(len(contest) == 1 for contest in by_dataset.values()):
        listed = ", ".join("(unnamed)" if name is None else repr(name) for name in sorted(by_dataset, key=_none_first))
        notes.append(f"the datasets have different names: {listed}")
        by_dataset = {None: list(runs)}
    contests: Contests = {}
    for dataset in sorted(by_dataset, key=_none_first):
        contest = by_dataset[dataset]
        if len(contest) < 2 and dataset not in finished and len(by_dataset) > 1:
            notes.append(f"only one run is on {dataset or '(unnamed)'}: it has no leaderboard")
            continue
        named = [replace(run, name=name) for run, name in zip(contest, names_of(contest), strict=True)]
        contests[dataset] = sorted(named, key=lambda run: run.name)
    for dataset in sorted(finished - set(contests), key=_none_first):
        if not (len(contests) == 1 and len(finished) == 1):
            contests[dataset] = []
        elif None not in (dataset, *contests):  # the same benchmark may have two names
            notes.append(f"the datasets have different names: {', '.join(map(repr, (*contests, dataset)))}")
    return contests or {None: []}, notes


def _none_first(name: str | None) -> tuple[bool, str]:
    """A sort key of names that puts None first."""
    return name is not None, name or ""


def _baseline(contest: Sequence[ReadRun], baseline: str | None) -> str | None:
    """The name of the baseline's run in a contest; None if the baseline is not in it."""
    if baseline is None or len(contest) < 2:
        return None
    try:
        pairs = chosen_pairs(contest, baseline)
    except UnknownName:
        return None
    return contest[pairs[0][0]].name


def _boards_of_dataset(
    dataset: str | None,
    contest: Sequence[ReadRun],
    documents: Sequence[tuple[FinishedResult, Group]],
    baseline: str | None,
    question: Question,
) -> tuple[list[Board], list[str]]:
    """The leaderboards of one dataset, one for each reward."""
    ranked = [run for run in contest if run.rollouts.stop is None]
    stopped = [run for run in contest if run.rollouts.stop is not None]
    plan = question.plan

    def without_rank(request: RequestedMetric) -> list[Standing]:
        return [
            *(_unranked(run, request, plan, STOPPED) for run in stopped),
            *(_finished_standing(source, group, request.text, plan) for source, group in documents),
        ]

    if len(ranked) < 2:
        request = plan.requests[0]
        unranked = [*(_unranked(run, request, plan, ALONE) for run in ranked), *without_rank(request)]
        why = next((standing.why for standing in unranked if standing.why), ALONE)
        better = not isinstance(request.metric, Metric) or request.metric.higher_is_better is not False
        return [Board(dataset, request.text, better, 0, 0, _best_first(unranked, better), why=why)], []
    values_by_metric = board_values(ranked, question)
    if not values_by_metric:
        for run in ranked[1:]:  # raises an error that names the rewards of two runs, if they share none
            metrics_of(plan.requests, (ranked[0].rollouts, run.rollouts), (ranked[0].name, run.name), plan.reward)
        raise InputError(f"the models have no {plan.requests[0].text!r} in common; pick a reward with --reward KEY")
    _check_shared(ranked)
    boards, notes = [], []
    for values in values_by_metric:
        standings, cost_notes = _standings(ranked, values, plan)
        unranked = without_rank(values.columns[0].request)
        boards.append(_ranked_board(dataset, values, ranked, standings, unranked, baseline, question))
        notes += cost_notes
    return boards, notes


def _check_shared(runs: Sequence[ReadRun]) -> None:
    """InputError if two runs have no task in common."""
    for first, second in combinations(runs, 2):
        if set(first.rollouts.tasks).isdisjoint(second.rollouts.tasks):
            raise InputError(f"{no_common(first, second)}; expected models on the same tasks")


def _standings(runs: Sequence[ReadRun], known: BoardValues, plan: Plan) -> tuple[list[Standing], list[str]]:
    """The standing of every run on its own tasks, with the value that `score` computes, and notes on costs."""
    standings, notes = [], []
    for run, column in zip(runs, known.columns, strict=True):
        part = run.rollouts
        cost = part.columns.get(COST)
        unpriced = 0 if cost is None else int(((part.outcome == SCORED) & ~cost.given).sum())
        if cost is not None and cost.given.any() and unpriced:
            have = f"{counted(unpriced, 'scored rollout')} {'has' if unpriced == 1 else 'have'} no {COST}"
            notes.append(f"the cost of {run.name} is incomplete: {have}")
        if cost is not None and finite(cost_of(part)) is None and cost.given.any():
            notes.append(f"the cost of {run.name} is not a finite number, so it is not shown")
        standings.append(_standing(run, part, estimate_of(column.rollouts, column.request, plan)))
    return standings, notes


def _standing(run: ReadRun, part: Rollouts, estimate: Estimate | None, why: str | None = None) -> Standing:
    why = why if why is not None or estimate is None else estimate.why
    return _standing_of(run.name, run.path, run.identity, estimate, Ledger.of(run.rollouts), cost_of(part), why)


def _standing_of(
    name: str,
    source: str,
    identity: Identity,
    estimate: Estimate | None,
    ledger: Ledger,
    cost: float | None,
    why: str | None,
) -> Standing:
    value, interval = (None, None) if estimate is None else (estimate.value, estimate.interval)
    return Standing(name, source, *identity, value, interval, ledger.gaps, ledger.planned, finite(cost), why=why)


def _unranked(run: ReadRun, request: RequestedMetric, plan: Plan, why: str) -> Standing:
    """The standing of a run without a rank, with the value on its own tasks."""
    pairs = metrics_of(plan.requests, (run.rollouts, run.rollouts), (run.name, run.name), plan.reward)[0]
    own_request = next((first for first, _ in pairs if first.text == request.text), pairs[0][0])
    return _standing(run, run.rollouts, estimate_of(run.rollouts, own_request, plan), why)


def _finished_standing(source: FinishedResult, group: Group, metric: str, plan: Plan) -> Standing:
    """The standing of a finished result, without its interval if that has another confidence."""
    name, identity = group.model or group.agent or source.path or "(unnamed)", (group.agent, group.model)
    estimate, cost = source.estimate(group, metric, plan), group.totals.get(COST)
    why = FINISHED if estimate is not None else f"{FINISHED}; it has no {metric}"
    return _standing_of(name, source.path, identity, estimate, group.ledger, cost, why)


def _best_first(standings: Sequence[Standing], higher_is_better: bool) -> list[Standing]:
    """The standings with the best value first, those without a value last, and equal values by name."""

    def key(standing: Standing) -> tuple[bool, float, str, str]:
        value = standing.value or 0.0
        return standing.value is None, -value if higher_is_better else value, standing.name, standing.source

    return sorted(standings, key=key)


def _ranked_board(
    dataset: str | None,
    known: BoardValues,
    runs: Sequence[ReadRun],
    standings: Sequence[Standing],
    unranked: Sequence[Standing],
    baseline: str | None,
    question: Question,
) -> Board:
    """The leaderboard of the ranked and the unranked models; if the runs cannot be ranked, values and the reason."""
    better = known.higher_is_better
    last = _best_first(unranked, better)
    tasks, alone = len(known.tasks), int((known.known.sum(axis=0) < 2).sum())
    remarks = _remarks(known, runs)
    if known.why:
        without_rank = [replace(standing, why=None) for standing in _best_first(standings, better)]
        places = [*without_rank, *last]
        return Board(dataset, known.metric, better, tasks, alone, places, why=known.why, remarks=remarks)
    ranked = ranked_runs(known, runs, question)
    in_order, sets = [standings[run] for run in ranked.order], ranked.sets
    base = next((place for place, standing in enumerate(in_order) if standing.name == baseline), None)
    tiers = _tiers(sets)
    places = [
        replace(
            standing,
            place=place + 1,
            rank_set=(int(sets.low[place]), int(sets.high[place])),
            tier=tiers[place],
            tied_with=[in_order[other].name for other in np.flatnonzero(sets.tied[place]).tolist() if other != place],
            **({} if base is None else _baseline_fields(place, base, in_order, ranked)),
        )
        for place, standing in enumerate(in_order)
    ]
    return Board(
        dataset,
        known.metric,
        better,
        tasks,
        alone,
        [*places, *last],
        bars=tie_bars(sets.tied),
        pairs=_rival_pairs(in_order, ranked),
        winner=None if ranked.best is None else replace(ranked.best, run=0),  # the first place, also with equal values
        optimism=None if ranked.bootstrap is None else ranked.bootstrap.optimism,
        baseline=baseline,
        compared_on=known.compared_on,
        remarks=[*remarks, *_undecided_first(in_order, ranked)],
    )


def _remarks(known: BoardValues, runs: Sequence[ReadRun]) -> list[Remark]:
    """Models with other tasks than the rest, and models whose number of samples follows their results."""
    remarks = list(of_counts([run.name for run in runs], known.follows))
    for run, column in zip(runs, known.columns, strict=True):
        lost = float(missing_rollouts(run.rollouts, None).mean()) if len(run.rollouts) else 0.0
        if lost > MOST_MISSING:
            remarks.append(Remark("missing_many", {"run": run.name, "share": lost}, "warning"))
        own = len(column.rollouts.tasks)
        if own < len(known.tasks):
            remarks.append(Remark("own_tasks", {"run": run.name, "own": own, "tasks": len(known.tasks)}, "warning"))
    return remarks


def _undecided_first(standings: Sequence[Standing], ranked: RankedRuns) -> list[Remark]:
    """Whose missing rollouts decide whether the first model is first; empty if they do not."""
    deciding: dict[str, None] = {}
    for other in range(1, len(standings)):
        if ranked.undecided_by(0, other) == "missing":
            filling = ranked.backgrounds[0, other].filling
            counts = (0, 0) if filling is None else filling.counts
            for count, place in zip(counts, (other, 0), strict=True):
                if count:
                    deciding[standings[place].name] = None
    return [Remark("missing_decide_first", {"runs": list(deciding)}, "no_answer")] if deciding else []


def _rival_pairs(standings: Sequence[Standing], ranked: RankedRuns) -> list[Rivals]:
    """All pairs of ranked models, with intervals and verdicts that hold at once."""
    rivals = []
    for first, second in combinations(range(len(standings)), 2):
        difference = ranked.difference(first, second)
        rivals.append(
            Rivals(
                standings[first].name,
                standings[second].name,
                difference,
                ranked.sets.interval(first, second, difference),
                ranked.word(first, second),
                ranked.undecided_by(first, second),
            )
        )
    return rivals


def _baseline_fields(place: int, base: int, standings: Sequence[Standing], ranked: RankedRuns) -> dict[str, Any]:
    """The fields of a standing on its difference from the baseline, which hold at once with all other pairs."""
    if place == base:
        return {"verdict": "baseline"}
    difference = ranked.difference(place, base)
    return {
        "difference": difference,
        "difference_interval": ranked.sets.interval(place, base, difference),
        "verdict": ranked.word(place, base),
    }


def _tiers(sets: RankSets) -> list[int]:
    """The tier of each model in order. A model that is worse than the first one of the last tier starts a new tier."""
    tiers: list[int] = []
    first = 0
    for place in range(len(sets.low)):
        if not sets.tied[first, place]:
            first = place
        tiers.append(1 if not tiers else tiers[-1] + (first == place))
    return tiers


SCHEMA: Final = "calipers.leaderboard/1"
FIELDS: Final = (
    *("dataset", "metric", "place", "model", "value", "low", "high", "rank_set", "rank_low", "rank_high"),
    *("ties", "tied_with", "tier", "cost_usd", "missing", "planned", "tasks", "excluded_tasks"),
    *("difference", "difference_low", "difference_high", "verdict", "agent", "source", "why"),
)
ROWS = 17  # models that are shown by default
FEWEST = 3  # minimum rows of a leaderboard if there are several
BOARDS = 2  # leaderboards that are shown by default
LANES = 4  # columns of bars that join tied models; if more are needed, the number of ties is shown instead
NAME = 40  # width of a name in columns
NAME_IN_SENTENCE = 34
PICTURE = 32  # width of the axis in columns
WIDE = 110  # minimum width of a terminal that shows it
JOINED: Final = 'Models joined under "tied" cannot be told apart.'
COUNTED: Final = 'Models that are "tied" cannot be told apart.'
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Standing:
    """One model of a leaderboard. A model that is not ranked has no place."""

    name: str  # unique among the ranked models of the leaderboard
    source: str  # the path of the source; "" for a table
    agent: str | None
    model: str | None
    value: float | None  # on its own tasks
    interval: tuple[float, float] | None
    missing: int  # rollouts of its run without a number
    planned: int  # planned rollouts of its run
    cost_usd: float | None = None  # of its rollouts
    place: int | None = None  # 1 for the best value; the order of tied models is no evidence
    rank_set: tuple[int, int] | None = None  # ranks that are not ruled out; the sets of all models hold at once
    tier: int | None = None  # a model that is worse than the first one of the last tier starts a new tier
    tied_with: Sequence[str] = ()  # the models that the tasks cannot tell apart from it
    difference: float | None = None  # its value less the baseline's value
    difference_interval: tuple[float, float] | None = None
    verdict: str | None = None  # better or worse than the baseline, undecided, or baseline
    why: str | None = None  # why it has no rank or no interval


@dataclass(frozen=True, slots=True)
class Rivals:
    """A pair of models of a leaderboard, the one with the better value first."""

    first: str
    second: str
    difference: float  # first less second
    interval: tuple[float, float] | None  # the intervals of all pairs hold at once
    verdict: str  # of the first: better, or undecided for a tie
    undecided_by: str | None = None  # why they are tied; None if they are not


@dataclass(frozen=True, slots=True)
class Board:
    """The leaderboard of one dataset by one metric."""

    dataset: str | None
    metric: str
    higher_is_better: bool
    tasks: int  # tasks that a ranked model has
    excluded_tasks: int  # tasks among them that only one ranked model has a value on, so that nothing is compared there
    places: Sequence[Standing]  # the ranked models by value, then the others
    bars: Sequence[tuple[int, int]] = ()  # the longest ranges (first, last) of indices in which all pairs are tied
    pairs: Sequence[Rivals] = ()
    winner: Winner | None = None  # the best value, corrected for selection
    optimism: float | None = None  # how much too good the best model would look if all were equal
    baseline: str | None = None
    why: str | None = None  # why no model is ranked
    # the lowest and the highest reward of its runs; None for a metric of passes, or without rollouts
    ends_seen: tuple[float, float] | None = None
    range: tuple[float, float] | None = None  # of rewards, if it was given
    compared_on: str = ALL_SAMPLES  # or first_samples, for all models, if the counts of one follow its results
    remarks: Sequence[Remark] = ()

    @property
    def ranked(self) -> list[Standing]:
        """The models that have a place."""
        return [standing for standing in self.places if standing.place is not None]

    @property
    def ties(self) -> int:
        """The number of pairs that the tasks do not tell apart."""
        return sum(pair.verdict == "undecided" for pair in self.pairs)

    def __getitem__(self, name: str) -> Standing:
        for standing in self.places:
            if standing.name == name:
                return standing
        raise InputError(f"no model named {name!r} in this leaderboard")


@dataclass(frozen=True, slots=True, repr=False)
class Leaderboard(Page):
    """Models ranked by value on each dataset, with the ranks and ties that the tasks support."""

    dialect: str
    missing: str
    confidence: float
    seed: int
    cluster: str | None
    baseline: str | None
    inputs: Sequence[Sequence[Input]]
    boards: Sequence[Board]
    notes: Sequence[str] = ()
    doubts: Doubts = field(default_factory=dict)  # not in the digest

    def __bool__(self) -> NoReturn:
        raise TypeError("a leaderboard is neither true nor false: use .boards[0].places")

    @property
    def remarks(self) -> list[Remark]:
        """The remarks on all leaderboards."""
        return list(chain.from_iterable(board.remarks for board in self.boards))

    @property
    def digest(self) -> str:
        """The hash of settings and numbers, without paths and names: equal digests mean equal numbers."""
        settings = {name: getattr(self, name) for name in ("dialect", "missing", "confidence", "seed", "cluster")}
        content = {**settings, "boards": list(map(_numbers, self.boards))}
        return "sha256:" + hashlib.sha256(canonical(content)).hexdigest()

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)

    def glance(self) -> Glance:
        """The answer, a row for each model, and the missing rollouts, for a notebook."""
        if not self.boards:
            return Glance("No leaderboard.")
        board = self.boards[0]
        answer, *others = sentences(board)
        names, shown = shown_names(board), range(len(board.places))
        more = [f"{counted(len(self.boards) - 1, 'more leaderboard')}."] if len(self.boards) > 1 else []
        missing = sum(standing.missing for standing in board.places)
        planned = counted(sum(standing.planned for standing in board.places), "rollout")
        gaps = [f"{missing:,} of {planned} missing."] if missing else []
        foot = " ".join([*others, *gaps, *more, f"{self.digest[:19]}…"])
        return Glance(f"{title_of(board)}: {answer}", _table(board, names, shown, self), foot)

    def headline(self) -> str:
        """The answer in one line."""
        if len(self.boards) != 1:
            return counted(len(self.boards), "leaderboard")
        board = self.boards[0]
        return f"{title_of(board)}: {sentences(board)[0]}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        names = ("dialect", "missing", "confidence", "seed", "cluster", "baseline")
        return {
            "schema": SCHEMA,
            "calipers": __version__,
            **{name: getattr(self, name) for name in names},
            "inputs": [[asdict(file) for file in files] for files in self.inputs],
            "assumed": RANDOM if self.missing == RANDOM else None,
            "boards": [
                {**asdict(board), "ties": board.ties, "remarks": documents_of(board.remarks)} for board in self.boards
            ],
            "notes": list(self.notes),
            "digest": self.digest,
            **({"checks": doubts_document(self.doubts)} if self.doubts else {}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per model."""
        return [
            _flat(standing, board, letters)
            for board in self.boards
            for standing, letters in zip(board.places, tie_letters(board), strict=True)
        ]


_UNHASHED = ("name", "source", "agent", "model", "tied_with", "cost_usd")


def _numbers(board: Board) -> dict[str, Any]:
    """The fields of a leaderboard that its digest includes: no names, paths and costs."""
    names = ("dataset", "metric", "tasks", "excluded_tasks", "bars", "optimism", "why", "compared_on")
    places = [
        {key: value for key, value in asdict(standing).items() if key not in _UNHASHED} for standing in board.places
    ]
    fields = {name: getattr(board, name) for name in names}
    return {**fields, "places": places, "winner": board.winner and asdict(board.winner)}


def _flat(standing: Standing, board: Board, letters: str) -> dict[str, Any]:
    low, high = standing.interval or (None, None)
    difference_low, difference_high = standing.difference_interval or (None, None)
    rank_low, rank_high = standing.rank_set or (None, None)
    return {
        "dataset": board.dataset,
        "metric": board.metric,
        "place": standing.place,
        "model": standing.name,
        "value": standing.value,
        "low": low,
        "high": high,
        "rank_set": None if standing.rank_set is None else ranks(standing),
        "rank_low": rank_low,
        "rank_high": rank_high,
        "ties": letters,
        "tied_with": "; ".join(standing.tied_with),
        "tier": standing.tier,
        "cost_usd": standing.cost_usd,
        "missing": standing.missing,
        "planned": standing.planned,
        "tasks": board.tasks,
        "excluded_tasks": board.excluded_tasks,
        "difference": standing.difference,
        "difference_low": difference_low,
        "difference_high": difference_high,
        "verdict": standing.verdict,
        "agent": standing.agent,
        "source": standing.source,
        "why": standing.why or (board.why if standing.place is None else None),
    }


def document(report: Leaderboard, *, every: bool = False, pairs: bool = False) -> Document:
    """The page of a leaderboard; ``every`` shows all models, and ``pairs`` adds a table of all pairs."""
    return Document(
        partial(_blocks, report, every, pairs), report.to_dict, FIELDS, report.rows, escaped="\\`*_[]|#!~<@", paged=True
    )


def _blocks(report: Leaderboard, every: bool, pairs: bool) -> Iterator[Block]:
    boards = report.boards if every else report.boards[:BOARDS]
    most = max(ROWS // max(len(boards), 1), FEWEST) if len(boards) < BOARDS else FEWEST
    for number, board in enumerate(boards):
        if number:
            yield Blank()
        yield from _board(board, report, None if every else most, pairs=pairs, last=number + 1 == len(boards))
    if left := len(report.boards) - len(boards):
        yield Sentence(f"… {counted(left, 'more benchmark')}: --all", "note")
    yield from doubt_blocks(report.doubts)
    for note in report.notes:  # on a terminal the command prints them to stderr
        yield Sentence("", markdown=note)


def _board(board: Board, report: Leaderboard, most: int | None, *, pairs: bool, last: bool) -> Iterator[Block]:
    first, *others = sentences(board)
    yield Title("", markdown=title_of(board))
    yield Sentence(title_of(board), right=caption(board, report), markdown=caption(board, report))
    yield Sentence(first, "strong", markdown=(Styled(first),))
    for text in others:
        yield Sentence(text)
    yield Blank()
    reasons = _reasons(board)
    names = shown_names(board)
    shown = _shown_rows(board, most, sum(len(text) // 78 + 1 for text in reasons))
    yield _table(board, [names[place] for place in shown], shown, report)
    left = len(board.places) - len(shown)
    if left:
        yield Sentence(f"… {left:,} more: --all", "note")
    elif last or reasons:
        yield Blank()
    for text in reasons:
        yield Sentence(text, "note")
    for remark in board.remarks:
        if remark.severity != "no_answer":  # that one is the answer
            yield Sentence(note_line(note_of(remark)), markdown=note_of(remark))
    if board.pairs and last:
        letters_note = (
            "Models that share a letter cannot be told apart, and their order is not evidence. May rank: the ranks "
            f"that are not ruled out, for all {len(board.ranked):,} models at once."
        )
        yield Sentence(_table_note(board, pairs), "note", markdown=letters_note)
    if range_unknown(board):
        yield Sentence(text_of(Remark("range_not_given")), "note")
    if pairs and board.pairs:
        yield Blank()
        yield from _pairs(board, names, report)


def title_of(board: Board) -> str:
    """``lcb, 17 models``."""
    named = f"{clean(board.dataset)}, " if board.dataset else ""
    return named + counted(len(board.ranked) or len(board.places), "model")


def caption(board: Board, report: Leaderboard) -> str:
    """``mean_reward, 713 tasks (2 excluded), 95 % confidence``; excluded tasks are those that not all models have."""
    way = "" if board.higher_is_better else " (lower is better)"
    excluded = f" ({board.excluded_tasks:,} excluded)" if board.excluded_tasks else ""
    tasks = [f"{counted(board.tasks, 'task')}{excluded}"] if board.tasks or board.ranked else []
    return ", ".join([clean(board.metric) + way, *tasks, f"{percent(report.confidence)} confidence"])


def sentences(board: Board) -> list[str]:
    """The leaderboard in sentences: the answer first, then how certain it is."""
    models = board.ranked
    if not models:
        return [f"No model is ranked: {plain_why(board.why or '')}."]
    first, count, digits = models[0], len(models), decimals(board)
    name = without_middle([clean(first.name, None)], NAME_IN_SENTENCE)[0]
    answer = of_leaderboard(
        name, count, tied=len(first.tied_with), ties=board.ties, pairs=len(board.pairs), why=why_undecided(board)
    )
    line, ties = answer.sentence, answer.detail.removeprefix("Its lead is decided.").strip()
    if not first.tied_with:
        interval = f" ({outward(first.interval, digits)})" if first.interval else ""
        line = f"{line.removesuffix('.')}: {minus(figure(first.value, digits))}{interval}."
    if board.winner is None:
        return [line, f"{ties}." if ties else ""]
    bias = abs(board.winner.bias)
    pick = of_pick(count, bias, higher_is_better=board.higher_is_better, digits=max(digits, DECIMALS))
    return [line, " ".join(filter(None, (f"{ties}." if ties else "", pick)))]


def why_undecided(board: Board) -> str:
    """Why no model is first, if it is not that the tasks cannot tell; "" otherwise."""
    return "; ".join(text_of(remark) for remark in board.remarks if remark.severity == "no_answer")


def _reasons(board: Board) -> list[str]:
    """Why models have no rank, in one line for each reason."""
    if not board.ranked:
        return []
    names_by_reason: dict[str, list[str]] = {}
    for standing, name in zip(board.places, shown_names(board), strict=True):
        if standing.place is None and standing.why:
            names_by_reason.setdefault(standing.why, []).append(name)
    return [f"Not ranked: {', '.join(names)}: {plain_why(why)}." for why, names in names_by_reason.items()]


def shown_names(board: Board) -> list[str]:
    """The names of the models; long names lose their middle."""
    return without_middle([clean(standing.name, None) for standing in board.places], NAME)


def _shown_rows(board: Board, most: int | None, lines: int) -> list[int]:
    """The indices of the models that have a row: the first ranked models, and the first unranked ones.

    ``most`` is the number of rows, None for all; ``lines`` below the table take the room of as many rows.
    """
    count = len(board.places)
    ranked = len(board.ranked) or count
    if most is None or count + lines <= most:
        return list(range(count))
    unranked_rows = min(count - ranked, max(most // 3, 1))
    ranked_rows = min(max(most - unranked_rows - lines, FEWEST), ranked)
    return [*range(ranked_rows), *range(ranked, ranked + unranked_rows)]


_DIFFERENCE: Final = (
    TableColumn("difference", "right", only="terminal"),
    TableColumn("difference", "right", only="markdown"),
    TableColumn("simultaneous", yields=2, verbatim=True),
    TableColumn("verdict", only="markdown"),
)


def _table(board: Board, names: Sequence[str], shown: Sequence[int], report: Leaderboard) -> Table:
    standings = [board.places[place] for place in shown]
    digits = decimals(board)
    priced = any(standing.cost_usd is not None for standing in board.places)
    lacking = any(standing.missing for standing in board.places)
    ranked, compared = bool(board.ranked), board.baseline is not None
    axis = axis_of(board)
    lanes, letters = tie_lanes(board), tie_letters(board)
    interval = f"{percent(report.confidence)} interval"
    columns = [
        *([TableColumn("tied", markdown="ties")] if ranked else []),
        *([TableColumn("#", "right")] if ranked else []),
        TableColumn("model", style="strong", middle=True),
        TableColumn("value", "point", "value"),
        TableColumn(interval, yields=1 if compared else 0),
        *([TableColumn(style="chart", only="terminal", least=WIDE, optional=True)] if axis else []),
        *([TableColumn("may rank")] if ranked else []),
        *(_DIFFERENCE if compared else []),
        *([TableColumn("cost", "right", yields=2)] if priced else []),
        *([TableColumn("missing", "right")] if lacking else []),
    ]
    rows = []
    for place, standing, name in zip(shown, standings, names, strict=True):
        number = f"{standing.place}" if standing.place else NONE
        cells: list[Cell] = [Glyphs(lanes[place], letters[place]), number] if ranked else []
        cells += [Name(standing.name, NAME, plain=name), figure(standing.value, digits)]
        cells.append(outward(standing.interval, digits) if standing.interval else NONE)
        cells += [_picture(standing, axis)] if axis else []
        cells += [ranks(standing)] if ranked else []
        cells += _difference_cells(standing, digits) if compared else []
        cells += [NONE if standing.cost_usd is None else money(standing.cost_usd)] if priced else []
        cells += [f"{standing.missing:,}"] if lacking else []
        rows.append(Row(cells))
    return Table(columns, rows)


def _difference_cells(standing: Standing, digits: int) -> list[Cell]:
    if standing.difference is None:
        return [NONE if standing.verdict is None else standing.verdict, "", "", standing.verdict or ""]
    verdict, interval = standing.verdict or "undecided", standing.difference_interval
    ends = f"[{', '.join(signed_ends(interval, digits))}]" if interval else NONE
    number = signed(standing.difference, digits)
    return [f"{number} {MARKS[verdict]}", number, ends, verdict]


def _table_note(board: Board, pairs: bool) -> str:
    """The line below the table that explains its signs."""
    if board.baseline is not None:
        return "Tied: cannot be told apart. ▲ better than the baseline, ▼ worse, ~ undecided"
    ties = COUNTED if len(lanes_of(board.bars)) > LANES else JOINED
    return ties if pairs else f"{ties} Every pair: --pairs"


def _pairs(board: Board, names: Sequence[str], report: Leaderboard) -> Iterator[Block]:
    """A table of all pairs, in the order of the leaderboard."""
    shown_name = {standing.name: name for standing, name in zip(board.places, names, strict=True)}
    digits = decimals(board)
    columns = [
        TableColumn("model", style="strong", middle=True),
        TableColumn("other model", style="strong", middle=True),
        TableColumn("difference", "point", "value"),
        TableColumn("simultaneous", verbatim=True),
        TableColumn("verdict"),
    ]
    rows = []
    for pair in board.pairs:
        ends = f"[{', '.join(signed_ends(pair.interval, digits))}]" if pair.interval else NONE
        cells: list[Cell] = [Name(model, NAME, plain=shown_name[model]) for model in (pair.first, pair.second)]
        rows.append(Row([*cells, signed(pair.difference, digits), ends, pair_word(pair)]))
    yield Table(columns, rows)
    if len(board.pairs) > 1:
        at_once = f"hold at once with {percent(report.confidence)} confidence."
        yield Sentence(f"The intervals and verdicts of all {len(board.pairs):,} pairs {at_once}", "note")


def pair_word(pair: Rivals) -> str:
    """The verdict on a pair, and why it is tied: ``tied (missing rollouts)``."""
    if pair.undecided_by is None:
        return pair.verdict
    return f"undecided ({WHY_TIED[pair.undecided_by]})" if pair.undecided_by in WHY_TIED else pair.verdict


WHY_TIED: Final = {
    "reader": "the reader disagrees",
    "missing": "missing rollouts",
    "counts": "sample counts",
    "unseen_loss": "unseen losses",
    "family": "among all pairs",
}


def decimals(board: Board) -> int:
    """The decimals of a board: as many as the narrowest interval needs."""
    intervals = [standing.interval for standing in board.places]
    intervals += [standing.difference_interval for standing in board.places]
    return column_decimals([standing.value for standing in board.places], intervals)


def ranks(standing: Standing) -> str:
    """The ranks that are not ruled out, ``2 to 4`` or ``2``; a dash for an unranked model."""
    if standing.rank_set is None:
        return NONE
    low, high = standing.rank_set
    return f"{low}" if low == high else f"{low} to {high}"


def lanes_of(bars: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Distribute the bars over as few lanes as possible, so that bars in one lane do not overlap."""
    lanes: list[list[tuple[int, int]]] = []
    for bar in bars:
        free = next((lane for lane in lanes if lane[-1][1] < bar[0]), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes


def tie_lanes(board: Board) -> list[str]:
    """For each model, the glyphs of the bars that join tied models, or its number of ties if there are many lanes."""
    lanes = lanes_of(board.bars)
    if len(lanes) > LANES:
        return [f"tied with {len(place.tied_with):,}" if place.tied_with else "" for place in board.places]
    return ["".join(_lane_glyph(lane, place) for lane in lanes).rstrip() for place in range(len(board.places))]


def _lane_glyph(lane: Sequence[tuple[int, int]], place: int) -> str:
    """The glyph of a lane in a model's row: the start, the middle or the end of a bar, or a space."""
    for first, last in lane:
        if first <= place <= last:
            return "┌" if place == first else "└" if place == last else "│"
    return " "


def tie_letters(board: Board) -> list[str]:
    """For each model, a letter for each of its bars: models that share a letter are tied. Many bars have numbers."""
    few = len(board.bars) <= len(_LETTERS)
    names = list(_LETTERS) if few else [f"{number + 1} " for number in range(len(board.bars))]
    return [
        "".join(name for name, (first, last) in zip(names, board.bars, strict=False) if first <= place <= last).strip()
        for place in range(len(board.places))
    ]


def axis_of(board: Board) -> Axis | None:
    """The axis of the intervals of a board; None without intervals."""
    ends: list[float | None] = []
    for standing in board.places:
        if standing.interval is not None:
            ends += [standing.value, *standing.interval]
    return axis_from(ends, declared=board.range if board.ends_seen else None, seen=board.ends_seen)


def range_unknown(board: Board) -> bool:
    """Whether the axis is drawn from the ends seen, as no range of rewards is known."""
    ends = board.ends_seen
    return board.range is None and ends is not None and (ends[0] < 0 or ends[1] > 1)


def _picture(standing: Standing, axis: Axis) -> Cell:
    if standing.value is None or standing.interval is None:
        return ""
    return Picture(standing.value, *standing.interval, axis, PICTURE)
