"""The whole system on one page: read rollouts, count outcomes, reduce, aggregate, compute intervals.

::

    files ──► Rollouts ──► groups ──► ledger
                              └─────► slices ──► metrics: [R] → [T] → number ± how sure ──► Result

Everything from `score_rollouts` on is a pure function of the rollouts and the plan. `tally_group` reduces some whole
tasks of a group, and `slice_of` turns tallies into numbers. A table that fits in memory is tallied at once; packed
rollouts are tallied a block of tasks at a time.
"""

from __future__ import annotations

import builtins
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, cast

import numpy as np

from calipers.cards import DEFAULT
from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.lines import NotPackable
from calipers.formats.read import Input, check_keys, check_named, in_order, read_packed, worth_packing
from calipers.formats.read import begin as begin_reading
from calipers.formats.rewards import from_rewards
from calipers.metrics import Metric
from calipers.names import METRIC_SCRIPTS, OF_RANGE, PART_ENGINES, engine_of, load
from calipers.remarks import Remark, Value
from calipers.reports.figures import ONE_TRY, heavy
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Group, Result, Slice
from calipers.request import (
    ECONOMICS,
    NATIVE,
    SLACK,
    THRESHOLD,
    Afterwards,
    Plan,
    Ranges,
    RequestedMetric,
    Wanted,
    check_ranges,
    demand_threshold,
    make_plan,
    no_reward,
    per_column,
    per_reward,
    resolve,
    unrewarded,
)
from calipers.rollouts.checks import disagreements
from calipers.rollouts.column import total_of
from calipers.rollouts.labels import PAIR, SPLIT, STEP, has, steps_of, without
from calipers.rollouts.ledger import Missing
from calipers.rollouts.packed import PackedRollouts, Repeated, merge, table_of
from calipers.rollouts.record import ASKED_AGAIN, SEQUENCE, USAGE, without_sentences
from calipers.rollouts.table import Part, Rollouts, assemble
from calipers.stats.estimate import LONG_TAIL, Estimate, ValueEnds, coverage_with_long_tail
from calipers.stats.missing import MOST_MISSING
from calipers.stats.suite import Member, suites, without_means
from calipers.tally import (
    Block,
    GroupTally,
    counts_follow,
    demand_all,
    filled_alike,
    fills_all,
    in_threads_if,
    quietly,
    seen_by,
    slice_names,
    slice_of,
    tally_group,
    uneven_warnings,
    variance_parts,
)

Path = str | os.PathLike[str]
Source = Path | Sequence[Path] | Sequence[Sequence[float]] | Rollouts | Any
"""Paths, rewards by task and sample, or a table of rows in memory: of polars, pandas or Arrow, columns, records."""

Progress = Callable[[int, int], None]  # bytes read, bytes in all

MANY_MISSING = "many_missing"
"""The code of the warning that many rollouts of a group are missing."""


def score(
    source: Source,
    metrics: Wanted | Sequence[Wanted] | None = None,
    *,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: Missing | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    range: Ranges | None = None,
    metric_scripts: Path | Sequence[Path] = (),
    trust: bool = False,
    afterwards: Afterwards | None = None,
    progress: Progress | None = None,
    parts: list[Part] | None = None,
    exclude: str | Sequence[str] = (),
    threshold: float | None = None,
    engine: str | None = None,
    mean: Literal["of-range"] | None = None,
) -> Result:
    """Score rollouts: files, tables in memory, lists of rewards, or a table from `read`.

    A table is a polars or pandas DataFrame, an Arrow table, a dict of columns or a list of records, with a row for
    each rollout. ``columns`` names the columns: ``{"task": "id", "reward": "score"}``; ``"sample": "#"`` numbers the
    samples of a task in order of appearance. ``truth`` maps words to rewards: ``{"yes": 1, "no": 0}``.
    ``input_format`` is the name of the files' format, where their content should not decide.
    A metric is a name, a `Metric`, a function ``rewards -> float`` (a list of rewards for each task), or a class with
    ``compute``. ``range`` is the lowest and the highest possible reward, if that is not 0 and 1, or a mapping from
    benchmarks to their ranges. Benchmarks with different ranges have no mean, unless ``mean`` is ``"of-range"``: then
    each value is a share of the range of its benchmark. ``threshold`` is the reward from which a sample passes, if
    that is not 1.
    ``metric_scripts`` are scripts like Harbor's ``metric.py``, run in the sandbox; they need ``trust``.
    ``afterwards`` is your own last step over the result and the rollouts, instead of metric scripts.
    ``parts`` receives the parts that were read from each file, if you need more than rollouts.
    ``exclude`` leaves out the rollouts of a slice: ``"difficulty=hard"``, or several of them.
    ``engine`` is ``"ray"`` or ``"ray=ADDRESS"`` for files that the machines of a Ray cluster read.

    >>> score([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], "pass@3")["pass@3"].value
    0.75
    """
    settings: dict[str, Any] = {
        "by": by,
        "cluster": cluster,
        "dialect": dialect,
        "missing": missing,
        "reward": reward,
        "confidence": confidence,
        "seed": seed,
        "interval": interval,
        "range": range,
        "exclude": exclude,
        "mean": mean,
        "threshold": threshold,
    }
    if (remote := engine_of("engine", engine)) is not None:
        name, address = remote
        settings |= {"columns": columns, "truth": truth, "input_format": input_format}
        remotely: Result = load(PART_ENGINES[name])(address, source, metrics, **settings)
        return remotely
    afterwards = afterwards or scripts_of(source, metric_scripts, trust=trust, reward=reward)
    plan = make_plan(metrics, source=source, afterwards=afterwards, **settings)
    names = Named(columns or {}, truth, input_format or "")
    rollouts, inputs = (None if parts is not None else _read_many(source, names, plan, progress)) or _read(
        source, names, plan.labels, progress, parts
    )
    plan, note = by_step(plan, rollouts, source)
    result = score_rollouts(rollouts, plan)
    return replace(steps_only(result, note) if note else result, inputs=inputs())


def by_step(plan: Plan, rollouts: Rollouts | PackedRollouts, source: Source) -> tuple[Plan, str]:
    """The plan for a table, and a note if it has several training steps, each of which is scored on its own.

    ``source`` is the name of the table in errors.
    """
    table = rollouts.kinds if isinstance(rollouts, PackedRollouts) else rollouts
    if table.unread and any("reward" in request.metric.reads for request in plan.requests):
        raise no_reward(source, table.unread)
    steps = steps_of(table)
    if STEP in plan.by and SPLIT not in plan.by:  # training and evaluation of one step are never one number
        plan = replace(plan, by=tuple(steps if key == STEP and steps else key for key in plan.by))
    if steps and (not plan.by or {steps, STEP} & {*plan.by}) and plan.cluster not in (STEP, SPLIT):
        other = "there is none over all steps" if plan.by else "--by chooses another breakdown"
        note = f"rollouts of several training steps, so the numbers are by {steps}; {other}"
        return replace(plan, by=plan.by or (steps,)), note
    return plan, ""


def steps_only(result: Result, note: str) -> Result:
    """A result without the numbers over all steps of a training run: they would be the score of no policy."""
    groups = [replace(group, metrics={}, variance={}, warnings=[]) for group in result.groups]
    return replace(result, groups=groups, suites=[], notes=[*result.notes, note])


def scripts_of(source: Source, scripts: Path | Sequence[Path], *, trust: bool, reward: str | None) -> Afterwards | None:
    """The given metric scripts, or those of a job, as the last step of a score; None without any."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    if not scripts and not any(isinstance(path, (str, os.PathLike)) and os.path.isdir(path) for path in paths):
        return None
    steps: Afterwards | None = load(METRIC_SCRIPTS)(source, scripts, trust=trust, reward=reward)
    return steps


def score_plan(source: Source, plan: Plan) -> Result:
    """Like `score`, with a plan from `make_plan`."""
    rollouts, inputs = _read(source, {}, plan.labels)
    return replace(score_rollouts(rollouts, plan), inputs=inputs())


def read(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    labels: Collection[str] = (),
) -> Rollouts:
    """Read rollouts once, to score them several times.

    ``labels`` are the keys for ``by``, ``cluster`` and ``exclude`` of these scores: the table has no other.

    >>> table = read([{"task": "a", "reward": 1, "level": "easy"}], labels=["level"])
    >>> list(score(table, by="level").groups[0].breakdowns["level"])
    ['easy']
    """
    return _read(source, Named(columns or {}, truth, input_format or ""), labels)[0]


def score_rollouts(rollouts: Rollouts | PackedRollouts, plan: Plan) -> Result:
    """Score a table as planned."""
    if isinstance(rollouts, PackedRollouts) and (rollouts.stopped or _needs_all_rows(plan)):
        rollouts = rollouts.whole()
    if isinstance(rollouts, Rollouts):
        rollouts = plan.dialect.seen(rollouts) if plan.dialect.seen else rollouts
        if plan.exclude:
            (rollouts,) = without([rollouts], plan.exclude, plan.dialect.label)
        table = rollouts
        parts = list(rollouts.groups())
        blocks: list[list[Block]] = [[part] for part in parts]
    else:
        table = rollouts.kinds
        parts = [replace(table, keys=[key]) for key in table.keys]
        blocks = [[*rollouts.blocks(group)] for group in builtins.range(len(table.keys))]
    columns = chain.from_iterable(per_column(request, table) for request in plan.requests)
    requests = [
        variant for request in columns for variant in per_reward(request, table, plan.reward, plan.dialect.every_reward)
    ]
    datasets = [part.keys[0][2] for part in parts]
    check_ranges(plan, datasets)
    with quietly():
        groups = [
            _score_group(table, blocks_of_group, plan.on(dataset), requests)
            for dataset, blocks_of_group in zip(datasets, blocks, strict=True)
        ]
    means = [request.text for request in requests if isinstance(request.metric, Metric) and request.metric.is_mean]
    members = [Member(group.agent, group.model, group.dataset, group.metrics) for group in groups]
    stopped_runs = [(group.agent, group.model) for group in groups if group.stop]
    over = []
    if plan.dialect.over_datasets and len(members) > 1:
        over = suites(members, means, plan.confidence, of_range=plan.mean == OF_RANGE, text_of=text_of)
    over = without_means(over, stopped_runs) if stopped_runs else over
    ways: dict[str, None] = {}
    if len(over) > 1:
        for mean in chain.from_iterable(suite.metrics.values() for suite in over):
            ways |= dict.fromkeys(text_of(remark) for remark in mean.remarks[1:])
    absent = [f"no rollout has {key!r}: all rollouts are in the slice __missing__" for key in _absent(plan.by, parts)]
    notes = [*table.notes, *(unrewarded(table) if plan.requests else []), *absent, *_other_rewards(table, plan), *ways]
    notes += group_notes(groups)
    stopped, notes = _stopped(plan, groups, notes)
    notes += [f"warning: {text_of(remark)}" for remark in disagreements(table.checks)]
    result = Result(
        plan.dialect.name,
        plan.missing,
        plan.confidence,
        plan.seed,
        [],
        groups,
        notes,
        over,
        stopped,
        checks=list(table.checks),
    )
    return plan.afterwards(result, table) if plan.afterwards else result


def _score_group(table: Rollouts, blocks: Sequence[Block], plan: Plan, requests: Sequence[RequestedMetric]) -> Group:
    """Score one group, given as blocks of whole tasks; ``table`` has the columns and labels of all groups."""
    reported = [name for name in USAGE if name in table.columns and table.columns[name].given.any()]
    economics = [replace(resolve(name, NATIVE), asked=False) for name in ECONOMICS] if reported else []
    of_reported = [request for request in economics if not {*reported}.isdisjoint(request.metric.reads)]
    costs: list[RequestedMetric] = []
    for request in of_reported:
        variants = per_reward(request, table, plan.reward)
        costs += [variant.passing_from(plan.threshold) for variant in variants]
    with in_threads_if(len(blocks) > 1) as each:
        tallied = partial(tally_group, plan=plan, requests=requests, economics=costs)
        tallies = list(each(tallied, blocks))
        if not filled_alike(tallies, plan):  # the range that fills missing rewards is known only now
            tallies = list(each(partial(tallied, seen=seen_by(tallies)), blocks))
    fill_all = fills_all(tallies, plan)
    seen = seen_by(tallies)

    def highest(request: RequestedMetric) -> float:
        return seen[request.params["reward"]].high

    shown = demand_threshold(requests, highest)
    whole = _shown(slice_of([tally.whole for tally in tallies], plan, requests, fill_all=fill_all), shown)
    if plan.missing == "fail":
        demand_all(whole.ledger, tallies)
    breakdowns = {}
    for key in plan.by:
        by_name = {
            name: [tally.slices[key][name] for tally in tallies if name in tally.slices[key]]
            for name in slice_names(table, key, plan, tallies)
        }
        breakdowns[key] = {
            name: _shown(slice_of(pieces, plan, requests, fill_all=fill_all), shown)
            for name, pieces in by_name.items()
            if pieces
        }
    first = tallies[0]
    agent, model, dataset = first.key
    names = [request.text for request in plan.requests]
    terms = {name: [term for tally in tallies for term in tally.usage[name]] for name in first.usage}
    totals = {name: total_of(numbers) for name, numbers in terms.items() if numbers}
    spent = slice_of([tally.economics for tally in tallies], replace(plan, interval=DEFAULT), costs)
    costs_shown = demand_threshold(costs, highest) if plan.dialect.name == NATIVE.name else costs
    reported_here = {request.text for request in costs_shown if not totals.keys().isdisjoint(request.metric.reads)}
    remarks = list(_remarks(whole, shown, seen, plan, left_out=len(shown) < len(requests)))
    warned = [text_of(remark) for remark in remarks if remark.severity == "warning"]
    return Group(
        whole.ledger,
        whole.metrics,
        agent,
        model,
        dataset,
        breakdowns,
        economics={name: number for name, number in spent.metrics.items() if name in reported_here},
        totals=totals,
        variance=variance_parts(tallies),
        own=plan.dialect.own(first.part, names) if plan.dialect.own and first.part is not None else {},
        warnings=[*warned, *uneven_warnings(tallies, shown), *heavy(whole.metrics, plan.cluster is not None)],
        remarks=remarks,
        ends_seen={key: (ends.low, ends.high) for key, ends in seen.items() if math.isfinite(ends.low + ends.high)},
        first_tries=_first_tries(blocks, tallies, shown, plan),
        stop=next((tally.stop for tally in tallies if tally.stop), None),
    )


OF_ALL_SAMPLES = (*ONE_TRY, "pass@{k}")
"""Metrics of all samples of a task, which say something else if the number of samples follows the results."""


def _first_tries(
    blocks: Sequence[Block], tallies: Sequence[GroupTally], requests: Sequence[RequestedMetric], plan: Plan
) -> dict[str, Estimate]:
    """The shares of tasks that pass at the first try, and within all tries, if sample counts follow the results.

    Empty if they do not, or if the first metric is not one of all samples.
    """
    first = next(iter(requests), None)
    if first is None or first.user_code or first.metric.name not in OF_ALL_SAMPLES or plan.dialect.name != NATIVE.name:
        return {}
    follows = counts_follow(tallies, first)
    if follows is None or tallies[0].stop is not None:
        return {}
    chosen = {"reward": first.params["reward"]}
    # only a run that stops at its first pass knows for every task whether one of the most tries passes
    known = (1, follows.most) if follows.rule == "stops_at_pass" else (1,)
    tries = []
    for k in known:
        within_k = resolve(f"any_of_first_{k}", NATIVE)
        of_reward = replace(within_k, params={**within_k.params, **chosen})
        tries.append(of_reward.passing_from(plan.threshold))
    again = [tally_group(block, replace(plan, by=()), tries, ()) for block in blocks]
    part = slice_of([tally.whole for tally in again], replace(plan, interval=DEFAULT), tries, fill_all=True)
    return dict(part.metrics)


def _shown(part: Slice, requests: Sequence[RequestedMetric]) -> Slice:
    """A slice with these metrics only."""
    names = {request.text for request in requests}
    return replace(part, metrics={name: number for name, number in part.metrics.items() if name in names})


MEASURED_AT: Final = 0.95
"""The confidence at which the coverage of intervals with a long tail was simulated."""


def _remarks(
    whole: Slice, requests: Sequence[RequestedMetric], seen: Mapping[str, ValueEnds], plan: Plan, *, left_out: bool
) -> Iterator[Remark]:
    """What the reader of a group's numbers must know: its missing rollouts, and what counts as a pass."""
    ledger = whole.ledger
    if plan.missing != "zero" and ledger.gaps > MOST_MISSING * ledger.planned:
        share = ledger.gaps / ledger.planned
        yield Remark("many_missing", {"share": share, "missing": ledger.gaps, "planned": ledger.planned}, "warning")
    for name, number in whole.metrics.items():
        if plan.confidence == MEASURED_AT and number.skewness is not None and number.skewness > LONG_TAIL:
            low, high = coverage_with_long_tail(number.tasks)
            values: dict[str, Value] = {"metric": name, "tasks": number.tasks, "low": low, "high": high}
            yield Remark("long_tail", values, "warning")
    counting = [request for request in requests if request.counts_passes]
    native = plan.dialect.name == NATIVE.name
    for key, ends in seen.items():
        known = math.isfinite(ends.low + ends.high)
        in_unit = ends.in_unit or plan.range is not None
        if known and not in_unit and not native and ends.high > 1 + SLACK:
            for threshold in dict.fromkeys(float(request.params[THRESHOLD]) for request in counting):
                yield Remark("pass_rule", {"threshold": threshold})
        if known and left_out and ends.high > 1 + SLACK:
            yield Remark("passes_left_out", {"highest": ends.high})
        unsettled = any(not request.settled and request.params["reward"] == key for request in counting)
        if known and unsettled and ends.low < ends.high < 1 - SLACK:
            yield Remark("no_reward_reaches_one", {"highest": ends.high})
        if known and not in_unit and ledger.filled and any(number.bounds for number in whole.metrics.values()):
            yield Remark("filled_with_ends_seen", {"low": ends.low, "high": ends.high})


def _needs_all_rows(plan: Plan) -> bool:
    """Whether a step of the plan needs the whole table at once."""
    across = any(isinstance(request.metric, Metric) and request.metric.across_tasks for request in plan.requests)
    of_dialect = plan.dialect.seen or plan.dialect.own
    # pairs with a task or sample number: the order of such slices is not known beforehand
    unordered = any(PAIR in key and {"task", "sample"} & set(key.split(PAIR)) for key in plan.by)
    return bool(across or of_dialect or plan.afterwards or plan.exclude or unordered)


def group_notes(groups: Sequence[Group]) -> list[str]:
    """The remarks of groups as notes, with the name of the group if there are several."""
    notes = []
    for group in groups:
        of = f"{group.title}: " if len(groups) > 1 and group.title else ""
        for remark in group.remarks:
            warning = "warning: " if remark.severity == "warning" else ""
            notes.append(f"{warning}{of}{text_of(remark)}")
    return list(dict.fromkeys(notes))


def _absent(by: Sequence[str], parts: Sequence[Rollouts]) -> list[str]:
    """The keys that no rollout has; of a pair of keys, those of the two."""

    def is_absent(key: str) -> bool:
        return not any(has(part, key) for part in parts)

    return [key for keys in filter(is_absent, by) for key in keys.split(PAIR) if is_absent(key)]


def _other_rewards(rollouts: Rollouts, plan: Plan) -> list[str]:
    """A note on rewards that are not shown, if a dataset lacks the usual one or the files' system chose it."""
    usual = rollouts.usual_reward
    others = [name for name in rollouts.rewards if name != usual]
    if not others or not usual or plan.reward:
        return []
    if absent := rollouts.elsewhere.get(usual, frozenset()):
        names = sorted(name or "(unnamed)" for name in absent)
        datasets = ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
        return [f"no rollout of {datasets} has the reward {usual!r}; --reward picks another: {', '.join(others)}"]
    if usual != rollouts.headline:
        return []
    return [f"the reward is {usual!r}; --reward picks another: {', '.join(others)}"]


def _stopped(plan: Plan, groups: Sequence[Group], notes: Sequence[str]) -> tuple[str | None, list[str]]:
    """The sentence on stopped runs, and the notes without those on bias, which the report shows beside the numbers."""
    stops = [(group.title, group.stop) for group in groups if group.stop]
    if not stops:
        return None, list(notes)
    kept = without_sentences(notes, [stop.bias for _, stop in stops])
    if plan.interval not in (DEFAULT, SEQUENCE):
        kept.append(f"--interval {plan.interval} is for a fixed number of tasks; a stopped run has {SEQUENCE} instead")
    several = len(groups) > 1
    return "; ".join(f"{title}: {stop.sentence}" if several else stop.sentence for title, stop in stops), kept


def _paths(source: Source) -> list[str]:
    """The paths that a source consists of; none if it is anything else."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return []
    return [os.fspath(path) for path in paths]


def _read(
    source: Source,
    columns: Mapping[str, str],
    labels: Collection[str],
    progress: Progress | None = None,
    parts: list[Part] | None = None,
) -> tuple[Rollouts, Callable[[], list[Input]]]:
    """The rollouts of any source, and a function that returns its files with their hashes."""
    if isinstance(source, Rollouts):
        return source, list
    if paths := _paths(source):
        return begin_reading(paths, columns=columns, labels=labels, progress=progress, kept=parts)
    if isinstance(source, Result):
        raise InputError("a Result has numbers, and its rollouts are gone; expected the rollouts that were scored")
    if (rollouts := _in_memory(source, columns, labels)) is not None:
        return rollouts, list
    if not isinstance(source, (list, tuple, np.ndarray)):  # the columns of a frame would be taken for tasks
        kind = f"{type(source).__module__.partition('.')[0]}.{type(source).__qualname__}"
        expected = "expected paths, a table, records, a list of rewards for each task, or Rollouts"
        raise InputError(f"a {kind} cannot be scored; {expected}")
    return assemble([from_rewards(cast(Sequence[Sequence[float]], source))]), list  # from_rewards checks its input


def _read_many(
    source: Source, columns: Mapping[str, str], plan: Plan, progress: Progress | None
) -> tuple[PackedRollouts, Callable[[], list[Input]]] | None:
    """The packed rollouts of large files; None if the source is something else, or cannot be packed."""
    files = _paths(source)
    if not files or not worth_packing(files):
        return None
    try:
        packs, inputs = read_packed(
            files, columns=columns, labels=plan.labels, keep=columns_read(plan), progress=progress
        )
        return table_of(merge(packs)), inputs
    except (NotPackable, Repeated):
        return None


def columns_read(plan: Plan) -> set[str] | None:
    """The numeric columns other than rewards that a plan reads; None for all of them."""
    names = {*USAGE, ASKED_AGAIN, *(name for request in plan.requests for name in request.metric.reads)}
    names |= {str(request.params["column"]) for request in plan.requests if "column" in request.params}
    return None if "*" in names or plan.dialect.name != NATIVE.name else names


def _in_memory(source: Any, columns: Mapping[str, str], labels: Collection[str]) -> Rollouts | None:
    """The rollouts of a table in memory; None if the source is no table."""
    from calipers.formats.memory import from_memory  # loads the readers of tables, which few need

    check_keys(columns, labels)
    tables = from_memory(source, columns, labels)
    if tables is None:
        return None
    check_named(columns, ["table"], tables)
    numbered, notes = in_order(columns, tables)
    return assemble([replace(numbered[0], notes=[*numbered[0].notes, *notes])])
