"""Plan a comparison: tasks, samples and price for a difference, the difference that available tasks show, and its page.

The variances come from one pilot run, from two, or from given numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from calipers.analyses.compare.align import by_id, units
from calipers.analyses.compare.source import check_sources
from calipers.errors import InputError, UnknownName
from calipers.formats import Named, options_of
from calipers.metrics import passed, task_mean
from calipers.pipeline import Source, read
from calipers.reports.document import (
    Blank,
    Block,
    Document,
    Glance,
    Instead,
    Name,
    Row,
    Sentence,
    SentenceList,
    Table,
    TableColumn,
    Title,
)
from calipers.reports.figures import counted, figure, percent
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import money
from calipers.reports.untrusted_text import clean
from calipers.request import either, integer
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.labels import clusters
from calipers.rollouts.ledger import contributed
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import ValueEnds
from calipers.stats.intervals import ONE_CLUSTER
from calipers.stats.power import (
    APART,
    MOST_TASKS,
    Clusters,
    PairVariance,
    Pilot,
    assumed_pair,
    best_split,
    pair_variance,
    pilot_of_pair,
    pilot_of_run,
    power_of,
    samples_at_price,
    samples_worth,
    smallest_difference,
    spread_of,
    tasks_needed,
)
from calipers.stats.variance import NO_REPEATS, Split, Unsplit, split
from calipers.tally import quietly

SCHEMA = "calipers.plan/1"
RANGE, POWER = "95 % range", "power to show"  # heads of columns
LARGEST = 1e70
"""The largest reward of a pilot, because the interval of a variance needs sums of fourth powers of rewards."""


@dataclass(frozen=True, slots=True)
class Design:
    """A number of tasks with a number of samples each, in both runs."""

    tasks: int
    samples: int
    rollouts: int  # of both runs together
    price: float | None  # of both runs together; None if no price is known
    smallest: float | None  # the smallest difference that it shows with the requested power
    power: float | None  # to show the requested difference
    clusters: int | None = None  # None if tasks are not in clusters
    # 95 % range of `smallest`, from the pilot; upper end None: larger than any possible difference
    smallest_range: tuple[float, float | None] | None = None
    # tasks that the requested difference may need; upper end None: unlimited
    tasks_range: tuple[int, int | None] | None = None
    cannot_tell: bool | None = None  # whether that range is too wide to plan by


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of one task's difference; ``between`` and ``within`` tasks for a single run, if known."""

    difference: float  # of the true differences, over tasks: more samples do not reduce it
    first: float  # of one sample of the first run
    second: float  # of one sample of the second run
    divided: bool  # False: without repeats, `difference` contains all of the variance
    between: float | None = None
    within: float | None = None
    correlation: float | None = None  # of the true task means of both runs
    difference_range: tuple[float, float] | None = None  # 95 % range of `difference`, from the pilot


@dataclass(frozen=True, slots=True)
class StudyClusters:
    """The clusters of the pilot's tasks; every design has clusters of the same size."""

    key: str
    count: int  # in the pilot
    tasks_per_cluster: float  # the mean
    # factor on the variance of the mean, compared with independent tasks; None without variance
    design_effect: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Study(Page):
    """The plan of a comparison: tasks, samples, the difference it shows, and the price."""

    source: str  # the source of the variances, in words
    metric: str
    detect: float | None
    power: float
    alpha: float
    paired: bool
    variance: Variance
    have: Design | None  # the available tasks and samples
    endless: float | None  # the smallest difference on those tasks with unlimited samples
    samples_needed: int | None  # per task, to show the requested difference on those tasks; None: no number is enough
    designs: Sequence[Design]  # that show the requested difference, by samples per task
    samples_worth: int | None  # more samples per task add little; None: every sample counts in full
    budget: float | None
    best: Design | None  # for the budget, with at most --tasks tasks
    best_here: Design | None  # for the budget, with the available tasks; None if the request gives the tasks
    price_per_sample: float | None
    price_per_task: float
    advice: Sequence[str]
    notes: Sequence[str] = ()
    clusters: StudyClusters | None = None

    def page(self) -> Document:
        """The variances, the designs in tables, and advice."""
        return Document(partial(_blocks, self), self.to_dict, escaped="")

    def glance(self) -> Glance:
        """The first advice, the designs, and the test, for a notebook."""
        table = next((block for block in _blocks(self) if isinstance(block, Table)), None)
        sentence = f"{self.advice[0]}." if self.advice else self.headline()
        return Glance(sentence[0].upper() + sentence[1:], table, "; ".join(_facts(self)))

    def headline(self) -> str:
        """The plan in one line."""
        wanted = f"a difference of {self.detect:g} in " if self.detect is not None else ""
        return f"{wanted}{self.metric}, {counted(len(self.designs), 'design')}, power {self.power:g}"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {"schema": SCHEMA, "calipers": __version__, **asdict(self)}


METRICS = ("mean_reward", "pass_rate")
PASS = 1.0
MOST_PILOTS = 2
SAMPLES = (1, 2, 4, 8, 16)  # samples per task of the designs that are shown
MOST_SAMPLES = 1 << 20
NEAR = 1e-12  # a power this near to 1 is beyond the rounding of its computation, and so is a level this near to 0
FAR = 10  # a range of tasks whose ends differ by more than this factor is too wide to plan by
IF_SO = "if the variance between tasks is as estimated, "
GAIN = 0.05  # if more samples reduce the smallest difference by less than this share, the advice says so


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice of a pilot's rollouts, and of their metric."""

    metric: str = METRICS[0]
    reward: str | None = None
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    missing: str = "gap"
    cluster: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudyInputs:
    """The inputs of a plan."""

    source: str
    pair: PairVariance
    parts: Split | None = None  # the variance of a single run
    correlation: float | None = None
    tasks: int | None = None
    samples: int | None = None
    cost: float | None = None  # of one rollout
    width: float | None = 1.0  # of the range of the rewards; None: unbounded
    binary: bool = False  # every reward is an end of that range
    notes: Sequence[str] = ()
    clustered: StudyClusters | None = None  # the variance between tasks in ``pair`` includes its effect
    clusters: Clusters = APART
    pilot: Pilot | None = None  # for the interval of the variance; None without a pilot


@dataclass(frozen=True, slots=True)
class _Run:
    """A pilot run."""

    rollouts: Rollouts
    column: Column  # [R]
    path: str


def from_pilots(pilots: Sequence[Source], chosen: Chosen, correlation: float | None, *, paired: bool) -> StudyInputs:
    """The inputs from one pilot, for a similar second run, or from two pilots."""
    runs = [_run(pilot, chosen, number) for number, pilot in enumerate(pilots, 1)]
    if len(runs) == 1:
        return _from_one(runs[0], chosen.cluster, correlation if paired else 0.0)
    if correlation is not None:
        raise InputError.at(
            "--correlation", "two pilots already determine it", "expected it with one pilot or no pilot"
        )
    return _from_two(runs[0], runs[1], chosen, paired=paired)


def from_numbers(
    between: float | None, within: float | None, rate: float | None, correlation: float | None
) -> StudyInputs:
    """The inputs from variances, or from a pass rate, whose variance is ``p (1 - p)``; one part of it may be given."""
    variance = None if rate is None else rate * (1 - rate)
    if variance is not None and between is not None and within is not None:
        raise InputError.at(
            "--baseline-rate", "both variances are given as well", "expected at most one of them with a rate"
        )
    if variance is not None and (between is not None or within is not None):
        given, name = (between, "--variance-between") if between is not None else (within, "--variance-within")
        if given is not None and given > variance:
            problem = f"is {given:g}, more than the total variance of a rate of {rate:g} ({variance:.4g})"
            raise InputError.at(name, problem, "expected at most that")
        between = variance - within if within is not None else between
        within = variance - between if between is not None else within
    r, notes = 0.0 if correlation is None else correlation, _assumption(correlation)
    if variance is not None and between is None:
        pair = PairVariance(2 * (1 - r) * variance, 0.0, 0.0, divided=False)
        return StudyInputs(f"a pass rate of {rate:g}", pair, None, r, samples=1, binary=True, notes=notes)
    if between is None or within is None:
        missing = "--variance-between" if between is None else "--variance-within"
        raise InputError(f"{missing} is missing; expected it, a --baseline-rate, or a PILOT run")
    parts = Split(between, within, 1.0)
    width = 1.0 if between + within <= 0.25 else None  # the largest variance on [0, 1]
    source = f"variances of {between:g} between tasks and {within:g} within"
    return StudyInputs(source, assumed_pair(parts, r), parts, r, width=width, binary=rate is not None, notes=notes)


def _run(source: Source, chosen: Chosen, number: int) -> _Run:
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else f"pilot {number}"
    rollouts = read(source, columns=chosen.columns, labels=[chosen.cluster] if chosen.cluster else [])
    groups = list(rollouts.groups())
    for index, key in enumerate(("agent", "model", "dataset")):
        name = getattr(chosen, key)
        if name is not None:
            known = [value for group in groups if (value := group.keys[0][index]) is not None]
            groups = [group for group in groups if group.keys[0][index] == name]
            if not groups:
                raise UnknownName.of(f"{key} in {path}", name, known)
    if len(groups) > 1:
        titles = ", ".join(" · ".join(filter(None, reversed(group.keys[0]))) or "(unnamed)" for group in groups)
        raise InputError.at(path, f"has {len(groups)} groups ({titles})", "choose one with --model, --dataset, --agent")
    return _with_values(groups[0], chosen, path)


def _with_values(part: Rollouts, chosen: Chosen, path: str) -> _Run:
    """A run with the value of each of its rollouts; a gap for a rollout that does not count."""
    column = contributed(part, one_reward(part, chosen.reward, path))
    column = column.filled(0.0) if chosen.missing == "zero" else column
    if not np.isfinite(column.kept()).all():
        raise InputError.at(path, "a reward is not a finite number", "expected finite rewards")
    if ValueEnds.of(column.kept()).largest > LARGEST:
        problem = "the variance of these rewards is too large a number for its own interval"
        raise InputError.at(path, problem, f"expected rewards of at most {LARGEST:g}")
    if chosen.metric == "pass_rate":
        column = Column(passed(column, PASS).astype(float), column.given)
    if not column.given.any():
        raise InputError.at(path, "no rollout has a reward", "expected a pilot with rewards")
    return _Run(part, column, path)


def one_reward(part: Rollouts, wanted: str | None, path: str) -> str:
    """The reward to read: the wanted one, else the usual one (`reward`), else the only one; InputError for several."""
    keys = sorted(part.rewards)
    if wanted is not None:
        if wanted not in keys:
            raise UnknownName.of(f"reward in {path}", wanted, keys)
        return wanted
    if part.usual_reward or not keys:
        return part.usual_reward or "reward"
    if len(keys) > 1:
        raise InputError.at(path, f"has several rewards ({', '.join(keys)})", "choose one with --reward KEY")
    return keys[0]


def _from_one(run: _Run, cluster: str | None, correlation: float | None) -> StudyInputs:
    """The inputs from one pilot."""
    by = run.rollouts.by_task
    r = 0.0 if correlation is None else correlation
    of_task = clusters(run.rollouts, cluster) if cluster else None
    divided = split(run.column, by, of_task)
    means = task_mean(run.column, by)
    codes = None if of_task is None else of_task[means.given]
    if isinstance(divided, Split):
        pair, parts = assumed_pair(divided, r), divided
    elif divided.why == NO_REPEATS and (codes is None or len(np.unique(codes)) > 1):
        pair, parts = PairVariance(2 * (1 - r) * spread_of(means.kept(), codes), 0.0, 0.0, divided=False), None
    else:
        why = plain_why(ONE_CLUSTER if divided.why == NO_REPEATS else divided.why)
        units = "two tasks or more" if cluster is None else "two clusters or more"
        raise InputError.at(run.path, why, f"expected a pilot of {units}")
    clustered = _clustered(cluster, means.kept(), codes)
    notes = [*_stopped([run]), *_assumption(correlation)]
    source = f"a pilot, {_description([run], clustered[0])}"
    pilot = pilot_of_run(run.column, by, r, of_task)
    return StudyInputs(source, pair, parts, r, *_size([run]), *_range([run]), notes, *clustered, pilot)


def _from_two(first: _Run, second: _Run, chosen: Chosen, *, paired: bool) -> StudyInputs:
    """The inputs from two pilots, on their common tasks."""
    common = by_id(first.rollouts, second.rollouts)
    if not common.alignment.common:
        raise InputError.at(second.path, f"no task in common with {first.path}", "expected pilots on the same tasks")
    run_one = _with_values(common.first, chosen, first.path)
    run_two = _with_values(common.second, chosen, second.path)
    runs = [run_one, run_two]
    of_task, note = (None, None) if chosen.cluster is None else units(common, chosen.cluster)
    columns = run_two.column, run_one.column, run_two.rollouts.by_task, run_one.rollouts.by_task
    pair = pair_variance(*columns, of_task)
    if isinstance(pair, Unsplit):
        expected = "two tasks in common or more" if of_task is None else "two clusters in common or more"
        raise InputError(f"{first.path} and {second.path}: {plain_why(pair.why)}; expected {expected}")
    parts = [split(run.column, run.rollouts.by_task, of_task) for run in runs]
    between = [part.tasks for part in parts if isinstance(part, Split)]
    between_sum = sum(between) if len(between) == 2 else None
    means = [task_mean(run.column, run.rollouts.by_task) for run in runs]
    if not paired:
        codes = [None if of_task is None else of_task[side.given] for side in means]
        spreads = [spread_of(side.kept(), code) for side, code in zip(means, codes, strict=True)]
        variance = sum(spreads) if between_sum is None else between_sum
        pair = PairVariance(variance, pair.first, pair.second, pair.divided)
    scale = math.sqrt(math.prod(between)) if between_sum is not None else 0.0
    r = None if between_sum is None or not scale or not paired else (between_sum - pair.tasks) / (2 * scale)
    given = means[0].given & means[1].given
    differences = (means[1].values - means[0].values)[given]
    clustered = _clustered(chosen.cluster, differences, None if of_task is None else of_task[given])
    source = f"two pilots, {_description(runs, clustered[0])}"
    notes = [*_stopped(runs), *([note] if note else [])]
    pilot = pilot_of_pair(*columns, of_task, paired=paired)
    return StudyInputs(source, pair, None, r, *_size(runs), *_range(runs), notes, *clustered, pilot)


def _clustered(key: str | None, values: Floats, of_task: Ints | None) -> tuple[StudyClusters | None, Clusters]:
    """The clusters of the pilots' tasks, and the distribution of their sizes, from one value per task, [T]."""
    if key is None or of_task is None:
        return None, APART
    plain, sizes = spread_of(values), Clusters.of(of_task)
    effect = spread_of(values, of_task) / plain if plain else None
    return StudyClusters(key, len(np.unique(of_task)), sizes.size, effect), sizes


def _size(runs: Sequence[_Run]) -> tuple[int, int, float | None]:
    """The number of tasks, the samples per task of the run with fewer samples, and the cost of a rollout."""
    counts = [run.rollouts.by_task.count(run.column.given) for run in runs]
    tasks = int(np.all([count > 0 for count in counts], axis=0).sum())
    samples = min(round(float(count[count > 0].mean())) for count in counts)
    spent = [run.rollouts.columns["cost_usd"].kept() for run in runs if "cost_usd" in run.rollouts.columns]
    with quietly():  # the mean of huge costs overflows, and is no price
        known = [mean for cost in spent if len(cost) and math.isfinite(mean := float(cost.mean()))]
    cost = sum(known) / len(known) if known else None
    return tasks, max(samples, 1), cost if cost and cost > 0 else None


def _range(runs: Sequence[_Run]) -> tuple[float | None, bool]:
    """The width of the range of the values, if it is [0, 1], and whether all values are 0 or 1."""
    kept = np.concatenate([run.column.kept() for run in runs])
    unit = ValueEnds.of(kept).in_unit
    return (1.0 if unit else None), unit and bool(((kept == 0) | (kept == 1)).all())


def _description(runs: Sequence[_Run], clustered: StudyClusters | None) -> str:
    """The paths, tasks, clusters and samples of the pilots, in words."""
    tasks, samples, _ = _size(runs)
    names = " and ".join(run.path for run in runs)
    shared = " in common" if len(runs) > 1 else ""
    within = "" if clustered is None else f" in {counted(clustered.count, 'cluster')} by {clustered.key}"
    return f"{names}: {counted(tasks, 'task')}{shared}{within} with about {counted(samples, 'sample')} each"


def _stopped(runs: Sequence[_Run]) -> list[str]:
    """Notes on pilots that a stopping rule ended, because their values are biased."""
    return [
        f"{run.path}: {stop.fact}: its rate and variances are from those tasks only, and {stop.bias}"
        for run in runs
        if (stop := run.rollouts.stop)
    ]


def _assumption(correlation: float | None) -> list[str]:
    """The note on an assumed correlation."""
    if correlation is not None:
        return []
    return [
        "the correlation of the runs over tasks is not known: it is assumed to be 0, which needs the most tasks; "
        "give two pilots, or --correlation R. Ranges assume that this correlation is right"
    ]


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """The request for a plan."""

    metric: str = "mean_reward"
    detect: float | None = None
    power: float = 0.8
    alpha: float = 0.05
    paired: bool = True
    tasks: int | None = None  # available
    samples: int | None = None
    price_per_sample: float | None = None
    price_per_task: float = 0.0
    budget: float | None = None


def plan(
    *pilots: Source,
    detect: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    metrics: Literal["mean_reward", "pass_rate"] | None = None,
    metric: Literal["mean_reward", "pass_rate"] | None = None,
    unpaired: bool = False,
    variance_between: float | None = None,
    variance_within: float | None = None,
    baseline_rate: float | None = None,
    correlation: float | None = None,
    tasks: int | None = None,
    samples: int | None = None,
    price_per_sample: float | None = None,
    price_per_task: float = 0.0,
    budget: float | None = None,
    agent: str | None = None,
    model: str | None = None,
    dataset: str | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    missing: Literal["gap", "zero"] = "gap",
    cluster: str | None = None,
) -> Study:
    """Plan a comparison of two runs: the tasks and samples that detect a difference, and their price.

    A pilot is anything that `score` reads; two pilots on the same tasks give the correlation of both runs. Without a
    pilot, give ``variance_between`` and ``variance_within``, or a ``baseline_rate``. ``detect`` is the difference to
    detect; without it the answer is the smallest difference that ``tasks`` and ``samples`` detect. The runs are
    compared by ``metrics``, which is mean_reward or pass_rate; ``metric`` is another name for it.

    >>> plan(baseline_rate=0.5, detect=0.1).designs[0].tasks
    395
    """
    chosen_metric = either(metrics, metric) or METRICS[0]
    if chosen_metric not in METRICS:
        raise UnknownName.of("metric of a plan", str(chosen_metric), METRICS)
    tasks = None if tasks is None else integer("--tasks", tasks)
    samples = None if samples is None else integer("--samples", samples)
    request = StudyRequest(
        chosen_metric, detect, power, alpha, not unpaired, tasks, samples, price_per_sample, price_per_task, budget
    )
    numbers = {"variance_between": variance_between, "variance_within": variance_within, "baseline_rate": baseline_rate}
    _check_ranges(request, {**numbers, "correlation": correlation})
    chosen = Chosen(
        chosen_metric, reward, agent, model, dataset, missing, cluster, Named(columns or {}, truth, input_format or "")
    )
    return study(_inputs(pilots, chosen, numbers, correlation, paired=not unpaired), request)


def _inputs(
    pilots: Sequence[Source],
    chosen: Chosen,
    numbers: Mapping[str, float | None],
    correlation: float | None,
    *,
    paired: bool,
) -> StudyInputs:
    """The inputs of a plan, from pilots or from numbers; InputError for both or neither."""
    given = [name for name, value in numbers.items() if value is not None]
    if pilots and given:
        raise InputError.at(_option(given[0]), "cannot be combined with a pilot", "expected one of them")
    if len(pilots) > MOST_PILOTS:
        raise InputError(f"{len(pilots)} pilots; expected one or two")
    if not paired and correlation:
        raise InputError.at("--correlation", "cannot be combined with --unpaired", "expected one of them")
    if pilots:
        check_sources(pilots)
        return from_pilots(pilots, chosen, correlation, paired=paired)
    if chosen.cluster:
        raise InputError.at("--cluster", "needs a pilot that has the key", "add a PILOT run")
    of_files = dict.fromkeys(options_of(chosen.columns), True)
    of_rollouts = {_option(name): getattr(chosen, name) for name in ("reward", "agent", "model", "dataset")}
    for option, value in {**of_rollouts, "--missing": chosen.missing != "gap", **of_files}.items():
        if value:
            raise InputError.at(option, "there are no rollouts to choose from", "add a PILOT run")
    if not given:
        raise InputError("the variance is unknown; expected a PILOT run, or --variance-between and others")
    between, within, rate = (numbers[name] for name in ("variance_between", "variance_within", "baseline_rate"))
    return from_numbers(between, within, rate, correlation if paired else 0.0)


def _check_ranges(request: StudyRequest, numbers: Mapping[str, float | None]) -> None:
    """Raise InputError for a number out of range."""
    ranges = {
        "detect": (0.0, math.inf, "a difference above 0"),
        "power": (0.0, 1 - NEAR, "a share between 0 and 1, such as 0.8"),
        "alpha": (NEAR, 1.0, "a share between 0 and 1, such as 0.05"),
        "baseline_rate": (0.0, 1.0, "a share between 0 and 1"),
        "tasks": (1, math.inf, "two tasks or more"),
        "samples": (0, math.inf, "one sample or more"),
        "price_per_sample": (0.0, math.inf, "a price above 0"),
        "budget": (0.0, math.inf, "a budget above 0"),
        "variance_between": (-math.ulp(0.0), math.inf, "a variance of 0 or more"),
        "variance_within": (-math.ulp(0.0), math.inf, "a variance of 0 or more"),
        "price_per_task": (-math.ulp(0.0), math.inf, "a price of 0 or more"),
        "correlation": (math.nextafter(-1, -2), math.nextafter(1, 2), "a correlation from -1 to 1"),
    }
    for name, (low, high, expected) in ranges.items():
        value = numbers[name] if name in numbers else getattr(request, name)
        if value is not None and not low < value < high:
            raise InputError.at(_option(name), f"is {value:g}", f"expected {expected}")
    if request.power <= request.alpha:
        raise InputError.at("--power", f"is {request.power:g}, not above alpha", "expected more, such as 0.8")
    rate, detect = numbers["baseline_rate"], request.detect
    if rate is not None and detect is not None and detect > max(rate, 1 - rate):
        raise InputError.at(
            "--detect", f"is {detect:g}, and a rate cannot differ that much from {rate:g}", "expected a smaller one"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def study(inputs: StudyInputs, request: StudyRequest) -> Study:
    """Plan a comparison of two runs by the default test of `compare`."""
    return _Study(inputs, request).answer()


class _Study:
    """The computation of a plan."""

    def __init__(self, inputs: StudyInputs, request: StudyRequest) -> None:
        self._inputs, self._request = inputs, request
        self._pair = inputs.pair
        self._clusters = inputs.clusters
        self._units = "tasks" if inputs.clustered is None else "clusters"
        self._confidence = 1 - request.alpha
        self._price = request.price_per_sample if request.price_per_sample is not None else inputs.cost
        if not math.isfinite(self._pair.of(1)):
            raise InputError(f"{inputs.source}: the variance of these rewards is not finite; expected smaller rewards")
        if self._pair.of(1) == 0:
            problem = "the rewards have no variance, so nothing can be planned; expected rewards that differ"
            raise InputError(f"{inputs.source}: {problem}")
        if request.detect is not None and inputs.width is not None and request.detect > inputs.width:
            problem = f"is {request.detect:g}, but rewards of this range differ by at most {inputs.width:g}"
            raise InputError.at("--detect", problem, "expected a difference such as 0.03")
        if not (request.detect or request.budget or request.tasks or inputs.tasks):
            raise InputError("nothing to plan; expected --detect, --tasks or --budget")
        if request.budget is not None and self._price is None:
            raise InputError.at("--budget", "the price of a sample is not known", "expected --price-per-sample")
        if request.tasks is not None and self._clusters.count(request.tasks) < 2:
            problem = f"is {request.tasks:,}, less than two clusters of {self._clusters.size:.3g} tasks"
            raise InputError.at("--tasks", problem, f"expected {self._clusters.tasks(2):,} or more")
        self._tasks = request.tasks or inputs.tasks
        self._samples = request.samples or inputs.samples or 1
        if not self._pair.divided and request.samples not in (None, inputs.samples):
            problem = "the effect of samples is not known, because no task has two"
            raise InputError.at("--samples", problem, "expected a pilot with repeats, or both variances")

    def answer(self) -> Study:
        """The plan."""
        inputs, request, pair = self._inputs, self._request, self._pair
        have = None if self._tasks is None else self._design(self._tasks, self._samples)
        endless = needed = None
        if self._tasks is not None and pair.divided:
            endless = self._smallest(self._tasks, math.inf)
            needed = self._samples_needed(self._tasks)
        parts = inputs.parts
        planned = Study(
            source=inputs.source,
            metric=request.metric,
            detect=request.detect,
            power=request.power,
            alpha=request.alpha,
            paired=request.paired,
            variance=Variance(
                pair.tasks,
                pair.first,
                pair.second,
                pair.divided,
                parts.tasks if parts else None,
                parts.sampling if parts else None,
                inputs.correlation,
                self._between_range(),
            ),
            have=have,
            endless=endless,
            samples_needed=needed,
            designs=[*self._designs()] if request.detect is not None else [],
            samples_worth=samples_worth(pair) if pair.divided else None,
            budget=request.budget,
            best=self._best(request.tasks),
            best_here=self._best(self._tasks) if self._tasks and not request.tasks else None,
            price_per_sample=self._price,
            price_per_task=request.price_per_task,
            advice=(),
            notes=inputs.notes,
            clusters=inputs.clustered,
        )
        return replace(planned, advice=[*self._advice(planned)])

    def _between_range(self) -> tuple[float, float] | None:
        """The interval of the variance between tasks from the pilot; without repeats, of the whole variance."""
        ends = self._variances(math.inf if self._pair.divided else self._samples)
        return None if ends is None else (max(ends[0], 0.0), ends[1])

    def _variances(self, samples: float) -> tuple[float, float] | None:
        """The interval of the variance of a task's difference with ``samples`` samples; it contains the estimate."""
        if self._inputs.pilot is None:
            return None
        low, high = self._inputs.pilot.interval(samples)
        value = self._pair.of(samples)
        return min(low, value), max(high, value)

    def _largest(self, tasks: int, samples: float, variance: float) -> float:
        """The expected largest difference of a task or cluster, of which the default test adds a part to its error."""
        inputs, units = self._inputs, self._clusters.units(tasks)
        if inputs.binary and samples == 1 and units == tasks:
            return inputs.width or 0.0
        largest = math.sqrt(variance * units / tasks * 2 * math.log(max(units, 2)))
        return largest if inputs.width is None else min(largest, inputs.width)

    def _power(self, tasks: int, samples: float, difference: float) -> float:
        variance = self._pair.of(samples)
        largest = self._largest(tasks, samples, variance)
        return power_of(variance, difference, tasks, self._confidence, largest=largest, clusters=self._clusters)

    def _smallest(self, tasks: int, samples: float, variance: float | None = None) -> float | None:
        """The smallest difference that is shown; None if rewards cannot differ that much."""
        variance = self._pair.of(samples) if variance is None else variance
        largest, power = self._largest(tasks, samples, variance), self._request.power
        smallest = smallest_difference(
            variance, tasks, power, self._confidence, largest=largest, clusters=self._clusters
        )
        width = self._inputs.width
        return None if smallest is None or (width is not None and smallest > width) else smallest

    def _design(self, tasks: int, samples: int) -> Design:
        rollouts = 2 * tasks * samples
        price = None if self._price is None else rollouts * self._price + tasks * self._request.price_per_task
        detect = self._request.detect
        power = None if detect is None else self._power(tasks, samples, detect)
        clusters = None if self._inputs.clustered is None else self._clusters.count(tasks)
        smallest = self._smallest(tasks, samples)
        smallest_range = self._smallest_range(tasks, samples)
        return Design(tasks, samples, rollouts, price, smallest, power, clusters, smallest_range)

    def _smallest_range(self, tasks: int, samples: int) -> tuple[float, float | None] | None:
        """The smallest differences at the ends of the variance's interval from the pilot."""
        ends = self._variances(samples)
        if ends is None:
            return None
        low, high = ends
        least = self._smallest(tasks, samples, low) if low > 0 else 0.0
        return None if least is None else (least, self._smallest(tasks, samples, high))

    def _tasks_range(self, samples: int, difference: float, needed: int) -> tuple[int, int | None] | None:
        """The tasks that the difference needs at the ends of the variance's interval from the pilot."""
        ends = self._variances(samples)
        if ends is None:
            return None
        low, high = (self._needed(samples, difference, max(end, 0.0)) for end in ends)
        return min(low or needed, needed), None if high is None else max(high, needed)

    def _designs(self) -> Iterator[Design]:
        """Yield the design with the fewest tasks for each number of samples."""
        detect, worth = self._request.detect, samples_worth(self._pair)
        choices = {*SAMPLES, self._samples, *([worth] if worth and worth <= 64 else [])}
        for samples in sorted(choices) if self._pair.divided else [self._samples]:
            tasks = self._needed(samples, detect or 0.0)
            if tasks is not None:
                tasks_range = self._tasks_range(samples, detect or 0.0, tasks)
                too_wide = self._too_wide(samples, tasks_range)
                yield replace(self._design(tasks, samples), tasks_range=tasks_range, cannot_tell=too_wide)

    def _too_wide(self, samples: int, tasks_range: tuple[int, int | None] | None) -> bool | None:
        """Whether the pilot allows a variance of 0, or gives a range of tasks that is too wide to plan by."""
        ends = self._variances(samples)
        if tasks_range is None or ends is None:
            return None
        low, high = tasks_range
        return ends[0] <= 0 or high is None or high > FAR * low

    def _needed(self, samples: int, difference: float, variance: float | None = None) -> int | None:
        """The fewest tasks, by iteration, because the largest difference depends a little on the tasks."""
        variance = self._pair.of(samples) if variance is None else variance
        tasks: int | None = 100
        for _ in range(4):
            largest, before = self._largest(tasks or 100, samples, variance), tasks
            tasks = self._fewest(variance, difference, largest)
            if tasks is None or tasks == before:
                break
        return tasks

    def _fewest(self, variance: float, difference: float, largest: float = 0.0) -> int | None:
        power, clusters = self._request.power, self._clusters
        return tasks_needed(variance, difference, power, self._confidence, largest=largest, clusters=clusters)

    def _samples_needed(self, tasks: int) -> int | None:
        """The fewest samples per task that show the difference on ``tasks`` tasks; None if no number does."""
        detect, power = self._request.detect, self._request.power
        if detect is None or self._power(tasks, math.inf, detect) < power:
            return None
        high = 1
        while self._power(tasks, high, detect) < power:
            if high >= MOST_SAMPLES:
                return None
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._power(tasks, middle, detect) >= power else (middle, high)
        return high

    def _best(self, most_tasks: int | None) -> Design | None:
        """The best design for the budget, with at most ``most_tasks`` tasks; None: any number of tasks."""
        request = self._request
        if request.budget is None or self._price is None:
            return None
        best = best_split(
            self._pair,
            request.budget,
            per_sample=self._price,
            per_task=request.price_per_task,
            most_tasks=most_tasks,
            power=request.power,
            confidence=self._confidence,
            clusters=self._clusters,
        )
        if best is None:
            two = self._clusters.tasks(2) * (request.price_per_task + 2 * self._price)
            problem = f"{request.budget:g} does not pay for two {self._units} in both runs"
            raise InputError.at("--budget", problem, f"expected at least {two:g}")
        return self._design(*best)

    def _advice(self, planned: Study) -> Iterator[str]:
        request, have, endless = self._request, planned.have, planned.endless
        needed, worth, best = planned.samples_needed, planned.samples_worth, planned.best
        if request.detect is not None and not planned.designs:
            yield f"even {MOST_TASKS:,} tasks do not show a difference of {figure(request.detect)}"
        between = self._between_range()
        condition = IF_SO if between is not None and between[0] <= 0 and self._pair.divided else ""
        if have is not None:
            smallest = "no possible difference"
            if have.smallest is not None:
                smallest = f"a difference of {figure(have.smallest)} or more"
            size = tasks_and_samples(have.tasks, have.samples)
            yield f"{size} show {smallest} with a power of {percent(request.power)}"
        if have is not None and request.detect is not None and endless is not None:
            if needed is None:
                yield (
                    f"{condition}no number of samples shows {figure(request.detect)} on {counted(have.tasks, 'task')}: "
                    f"unlimited samples show {figure(endless)}; only more {self._units} help"
                )
            elif needed > have.samples:
                on_tasks = f"{condition}on {counted(have.tasks, 'task')}"
                yield f"{on_tasks}, {needed:,} samples per task show {figure(request.detect)}"
            else:
                yield f"that is enough to show {figure(request.detect)}"
        if self._pair.divided:
            sentence = self._expensive_tasks(worth) or _enough_samples(worth, have, endless, self._units)
            yield sentence if worth is None else condition + sentence
        if best is not None and request.budget is not None:
            yield f"a budget of {money(request.budget)} is best spent on {tasks_and_samples(best.tasks, best.samples)}"
            if (here := planned.best_here) is not None and here.tasks < best.tasks:
                yield f"with the available tasks it pays for {tasks_and_samples(here.tasks, here.samples)}"
        parts = self._inputs.parts
        if request.paired and request.detect is not None and parts and self._inputs.correlation:
            unpaired = self._fewest(2 * parts.variance(self._samples), request.detect)
            paired = self._needed(self._samples, request.detect)
            if unpaired and paired and unpaired > paired:
                yield f"without pairing (different tasks in each run) it takes {unpaired:,} tasks instead of {paired:,}"

    def _expensive_tasks(self, worth: int | None) -> str | None:
        """Advice on samples if a task costs so much that more samples pay off; else None."""
        per_task = self._request.price_per_task
        if not (per_task and self._price):
            return None
        best = samples_at_price(self._pair, self._price, per_task)
        if best is None or worth is None or best <= worth:
            return None
        return f"at these prices about {counted(best, 'sample')} per task are best, because each task has a price"


def _enough_samples(worth: int | None, have: Design | None, endless: float | None, units: str) -> str:
    """Advice on the number of samples per task."""
    if worth is None:
        return "the estimated variance between tasks is 0: if so, one more sample is worth as much as one more task"
    sentence = f"more than {counted(worth, 'sample')} per task add little: more {units} narrow the interval faster"
    if worth == 1:
        sentence = "more than one sample per task adds nothing: sampling adds nothing to the variance"
    if have is None or endless is None or not have.smallest:
        return sentence
    gain = 1 - endless / have.smallest
    if have.samples >= worth or gain < GAIN:
        return f"{sentence}; here unlimited samples would reduce the smallest difference by {percent(round(gain, 3))}"
    return sentence


def _blocks(study: Study) -> Iterator[Block]:
    yield Title("", markdown=("Plan for ", Name(study.metric)))
    yield Sentence(clean(f"{study.metric}: {study.source}", 400), markdown=Name(study.source, 400))
    yield SentenceList([Sentence(fact) for fact in _facts(study)])
    for title, rows in _tables(study):
        yield Blank()
        yield Sentence(title)
        yield _table(rows)
    yield Blank()
    yield SentenceList([Sentence(advice) for advice in study.advice])


def _table(rows: Sequence[Mapping[str, str]]) -> Table:
    """The rows; without room, the columns that follow from the others go below them."""
    turns = {head: 1 if RANGE in head else 2 for head in rows[0] if RANGE in head or head.startswith(POWER)}
    columns = [TableColumn(head, "right", yields=turns.get(head, 0)) for head in rows[0]]
    names = {RANGE: f"{RANGE} of the smallest difference"}
    below = [[Instead(f"{names.get(head, head)}: {row[head]}", turn) for head, turn in turns.items()] for row in rows]
    return Table(columns, [Row([*row.values()], notes) for row, notes in zip(rows, below, strict=True)])


def _facts(study: Study) -> Iterator[str]:
    variance = study.variance
    known = f" (95 % range {_range_text(variance.difference_range)})" if variance.difference_range else ""
    if variance.divided:
        within = variance.first if variance.first == variance.second else (variance.first + variance.second) / 2
        yield (
            f"variance of a task's difference: {figure(variance.difference)} between tasks{known}, "
            f"{figure(within)} within tasks (per sample and run)"
        )
    else:
        unknown = "between and within tasks together: the part of sampling is not known"
        yield f"variance of a task's difference: {figure(variance.difference)}{known}, {unknown}"
    if study.clusters is not None:
        yield _clustered_sentence(study.clusters)
    kind = "paired: both runs on the same tasks" if study.paired else "unpaired: different tasks in each run"
    yield f"{kind}; two-sided test at {percent(study.alpha)}, power {percent(study.power)}"


def _clustered_sentence(clusters: StudyClusters) -> str:
    sentence = f"tasks in clusters by {clean(clusters.key, 80)}, about {clusters.tasks_per_cluster:.3g} tasks each"
    if clusters.design_effect is None:
        return sentence
    return f"{sentence}: the variance is {clusters.design_effect:.3g} times that of independent tasks (design effect)"


def _tables(study: Study) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the title of each table, and its rows, as cells by column."""
    if study.have is not None:
        have = study.have
        range_cell = {RANGE: _range_text(have.smallest_range)} if have.smallest_range else {}
        row = {**_size_cells(study, have), "smallest difference": figure(have.smallest), **range_cell}
        yield "with the available tasks and samples:", [row | _power_cell(study, have)]
    if study.designs:
        rows = []
        for design in study.designs:
            cells = _size_cells(study, design)
            range_cell = {f"tasks, {RANGE}": _tasks_range(design)} if study.designs[0].tasks_range else {}
            rows.append({"samples": cells.pop("samples"), **cells, **range_cell})
        of_clusters = ", in clusters of the same size" if study.clusters is not None else ""
        yield f"to show a difference of {figure(study.detect)}{of_clusters}:", rows
    if study.best is not None:
        rows = [
            {**_size_cells(study, design), "smallest difference": figure(design.smallest), **_power_cell(study, design)}
            for design in dict.fromkeys(filter(None, (study.best, study.best_here)))
        ]
        yield f"the best use of a budget of {money(study.budget or 0.0)}:", rows


def _size_cells(study: Study, design: Design) -> dict[str, str]:
    """The cells of a design's size, and of its price if one is known."""
    cells = {"tasks": f"{design.tasks:,}"}
    if design.clusters is not None:
        cells["clusters"] = f"{design.clusters:,}"
    cells |= {"samples": f"{design.samples:,}", "rollouts": f"{design.rollouts:,}"}
    if study.price_per_sample is not None:
        cells["price"] = "–" if design.price is None else money(design.price)
    return cells


def _power_cell(study: Study, design: Design) -> dict[str, str]:
    if not study.detect:
        return {}
    power = "–" if design.power is None else f"{100 * design.power:.0f} %"
    return {f"{POWER} {figure(study.detect)}": power}


def _tasks_range(design: Design) -> str:
    if design.tasks_range is None:
        return "–"
    low, high = design.tasks_range
    text = f"{low:,} to {f'{high:,}' if high is not None else 'unlimited'}"
    return f"{text} (pilot too small)" if design.cannot_tell else text


def _range_text(ends: tuple[float, float | None]) -> str:
    low, high = ends
    return f"{figure(low)} to {figure(high) if high is not None else 'more than the range of rewards'}"


def tasks_and_samples(tasks: int, samples: int) -> str:
    """``40 tasks with 8 samples each``."""
    return f"{counted(tasks, 'task')} with {counted(samples, 'sample')} each"
