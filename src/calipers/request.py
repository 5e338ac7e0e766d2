"""The user's request, resolved and checked before any file is opened: dialect, metrics, plan.

A dialect is data: the metric names of a system, its default metrics, and its rule for missing rollouts.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

from calipers.cards import DEFAULT, canonical
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, nearest
from calipers.metrics import Metric, MetricSpec, Opaque, own_name, settle
from calipers.names import DIALECTS, METRICS, OF_RANGE, is_code, load_code, match
from calipers.rollouts.column import Column
from calipers.rollouts.labels import PAIR, answers
from calipers.rollouts.ledger import Assumed, Missing, contributed
from calipers.rollouts.record import MISSING, USAGE, label
from calipers.rollouts.table import Rollouts

if TYPE_CHECKING:
    from calipers.reports.result import Result

Given = TypeVar("Given")
Range = tuple[float, float]
"""The lowest and the highest possible reward."""
Ranges = Range | Mapping[str | None, Range]
"""A range of rewards, or one for each benchmark by its name; the name None is for all other benchmarks."""
MEANS: Final = (OF_RANGE,)
"""The means over benchmarks that can be requested by name."""
Afterwards = Callable[["Result", Rollouts], "Result"]
"""A step after the metrics that takes the result and the rollouts, such as the metric scripts of other systems."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The metric names of one system, and its rule for missing rollouts."""

    name: str
    metrics: Mapping[str, str] | None = None  # its names -> ours; None: all of ours
    default: tuple[str, ...] = ("mean_reward", "pass_rate")
    missing: Missing = "gap"
    undefined: float | None = None  # the value of a metric over no tasks
    label: Callable[[Any], str] = label  # makes the name of a slice from its value
    lenient: bool = False  # a task that its verifier rejects is verified anyway, with a note
    skips: bool = False  # leave out a metric that is unknown or fails, with a warning
    labels: tuple[str, ...] = ()  # the text columns that it needs
    over_datasets: bool = True  # the mean over datasets is meaningful, as all have the same reward
    every_reward: bool = False  # report each of several rewards, even if one is called reward
    seen: Callable[[Rollouts], Rollouts] | None = None  # makes the rollouts as the system counts them
    # (rollouts of a group, names of the metrics) -> further keys of the result, in the system's own format
    own: Callable[[Rollouts, Sequence[str]], Mapping[str, Any]] | None = None
    asks: Callable[[Any], Sequence[str] | None] | None = None  # the source's own metrics; used instead of `default`


NATIVE = Dialect("native")


@dataclass(frozen=True, slots=True)
class RequestedMetric:
    """A requested metric, resolved and checked, ready to compute."""

    text: str  # as the user wrote it; the key in the result
    metric: Metric | Opaque
    params: Mapping[str, Any]
    user_code: bool = False  # user code, whose exceptions become notes or errors
    asked: bool = True  # by the user; False for a default metric
    settled: bool = False  # the reward from which a sample passes was given, or is another system's rule

    @property
    def counts_passes(self) -> bool:
        """Whether it is a metric of ours that counts passes, so that it depends on the reward from which one passes."""
        return not self.user_code and isinstance(self.metric, Metric) and THRESHOLD in self.metric.params

    def passing_from(self, threshold: float | None) -> RequestedMetric:
        """The metric with the threshold of ``--threshold``, unless it has its own or counts no passes."""
        if threshold is None or self.settled or not self.counts_passes:
            return self
        return replace(self, params={**self.params, THRESHOLD: threshold}, settled=True)


THRESHOLD: Final = "threshold"
"""The parameter of the metrics that count passes."""

SLACK: Final = 1e-9
"""A reward may exceed 1 by so much and still be a rounded 1."""


def demand_threshold(
    requests: Sequence[RequestedMetric], reach: Callable[[RequestedMetric], float]
) -> list[RequestedMetric]:
    """The requested metrics that have a meaning for the rewards.

    ``reach`` is the highest reward that a metric reads. Where it exceeds 1, only the user knows which rewards pass: a
    default metric that counts passes is left out unless there is a threshold, and one that the user asked for is an
    InputError.
    """
    kept = []
    for request in requests:
        highest = reach(request) if request.counts_passes and not request.settled else 0.0
        if not 1 + SLACK < highest < math.inf:
            kept.append(request)
        elif request.asked:
            raise no_threshold(request.text, highest)
    return kept


def no_threshold(where: str, highest: float) -> InputError:
    """The error for passes that are asked of rewards above 1 without the reward from which one passes."""
    expected = f"say what passes, such as --threshold {0.8 * highest:.2g}"
    return InputError.at(where, f"rewards reach {highest:g}", expected)


def checked_threshold(threshold: float | None) -> float | None:
    """The threshold of ``--threshold``; InputError unless it is a number that a reward can reach."""
    if threshold is None:
        return None
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not math.isfinite(threshold):
        expected = "expected a number that a reward can reach, such as 4"
        raise InputError.at("--threshold", f"is {threshold!r:.60}", expected)
    return float(threshold)


Wanted = str | Mapping[str, Any] | Metric | Callable[..., Any] | type
"""A request for a metric: a name, a name with parameters, or an object.

An object is a `Metric`, a plain function ``rewards -> float``, or a class with ``compute``.
"""


def resolve(wanted: Any, dialect: Dialect, *, trusted: bool = True) -> RequestedMetric:
    """Resolve a requested metric: a name is looked up in the dialect, then among plugins; an object is used directly.

    ``FILE.py:OBJECT`` runs a file of the user. Names that come from data are not ``trusted``: no code is run for them.
    """
    if not isinstance(wanted, (str, Mapping)):
        return _of_object(wanted)
    request = _request(wanted)
    if dialect.metrics is not None and request.name in dialect.metrics:
        if request.params:
            raise InputError(
                f"metric {request.text!r}: {dialect.name}'s metrics take no parameters; expected {request.name}"
            )
        inner = MetricSpec.of(dialect.metrics[request.name])
        return RequestedMetric(request.text, *_built_in(inner), settled=True)
    if dialect.metrics is None and METRICS.match(request.name):
        return RequestedMetric(request.text, *_built_in(request), settled=THRESHOLD in request.params)
    plugin = load_code(request.name) if trusted and is_code(request.name) else METRICS.plugin(request.name)
    if plugin is None:
        raise _unknown(request.name, dialect)
    metric = as_metric(request.name, plugin)
    entry, k = match(request.name, METRICS.added) or (request.name, None)
    if isinstance(metric, Metric):
        return RequestedMetric(request.text, metric, settle(request, metric, k), user_code=True)
    if request.params:
        raise InputError(f"metric {request.text!r} takes no parameters; expected {request.name}")
    if k is not None:
        problem = f"metric {request.name!r}: {entry!r} is a function of rewards, which is not told its number"
        raise PluginError(f"{problem}; expected a calipers.Metric with the parameter k")
    return RequestedMetric(request.text, metric, {}, user_code=True)


def names_code(wanted: str | Mapping[str, Any]) -> bool:
    """Whether a requested metric names a file of code, which `resolve` would run."""
    with suppress(InputError):  # `resolve` reports it
        return is_code(_request(wanted).name)
    return False


def _of_object(thing: Any) -> RequestedMetric:
    """A metric that was given as an object; it gets the object's own name."""
    name = thing.name if isinstance(thing, Metric) else own_name(thing)
    if not name:
        expected = (
            "expected a name such as 'pass@3', a calipers.Metric, a function of rewards, or a class with compute()"
        )
        raise InputError(f"a metric is requested as {thing!r:.80}; {expected}")
    metric = as_metric(name, thing)
    params = settle(MetricSpec(name, name), metric, None) if isinstance(metric, Metric) else {}
    return RequestedMetric(name, metric, params, user_code=True)


def _request(wanted: str | Mapping[str, Any]) -> MetricSpec:
    """Parse a requested metric; the name of a plugin's metric can be any string."""
    if not isinstance(wanted, str):
        return MetricSpec.of(wanted)
    if wanted in METRICS.added or is_code(wanted):
        return MetricSpec(wanted, wanted)
    try:
        return MetricSpec.of(wanted)
    except InputError:
        if METRICS.plugin(wanted) is None:
            raise
        return MetricSpec(wanted, wanted)


def _built_in(request: MetricSpec) -> tuple[Metric, dict[str, Any]]:
    entry_and_k = METRICS.match(request.name)
    if entry_and_k is None:
        raise METRICS.unknown(request.name)
    entry, k = entry_and_k
    metric: Metric = METRICS.load(entry)
    return metric, settle(request, metric, k)


def as_metric(name: str, thing: Any) -> Metric | Opaque:
    """Wrap an object as a metric: a `Metric`, an object with EvSys' ``compute``, or a function ``rewards -> float``.

    A class is instantiated without arguments for every call, as in EvSys, so that no state passes from one bootstrap
    draw to the next.
    """
    if isinstance(thing, Metric):
        return thing
    if callable(thing) and not isinstance(thing, type) and not callable(getattr(thing, "compute", None)):
        return _of_function(name, thing)
    try:
        instance = thing() if isinstance(thing, type) else thing
    except (Exception, SystemExit) as error:
        raise PluginError(f"metric {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(getattr(instance, "compute", None)):
        expected = "expected a calipers.Metric, a function of rewards, or a class with compute()"
        raise PluginError(f"metric {name!r} is {thing!r}; {expected}")
    if isinstance(thing, type):
        return Opaque(name, lambda tasks: thing().compute(tasks))
    return Opaque(name, instance.compute)


def _of_function(name: str, fn: Callable[..., Any]) -> Opaque:
    """Wrap a plain function, which gets a list of rewards for each task that has any; NaN if no task has any."""
    if iscoroutinefunction(fn):
        raise PluginError(f"metric {name!r} is async; expected a plain function of rewards, which is not async")

    def compute(tasks: Sequence[Sequence[float]]) -> float:
        filled = [list(rewards) for rewards in tasks if len(rewards)]
        return float(fn(filled)) if filled else math.nan

    return Opaque(name, compute)


def _unknown(name: str, dialect: Dialect) -> InputError:
    if name.endswith(".py"):
        return InputError.at(name, "no metric is named", f"expected {name}:FUNCTION")
    if dialect.metrics is None:
        tables = {entry: DIALECTS.load(entry).metrics or {} for entry in DIALECTS.entries}
        dialects = [entry for entry, table in tables.items() if name in table]
        return METRICS.unknown(name, hint=f"it is a name of --dialect {dialects[0]}" if dialects else "")
    known = [*dialect.metrics, *METRICS.plugins()]
    hint = ""
    if METRICS.match(name):
        close = " or ".join(map(repr, nearest(name, known)))
        instead = f"did you mean {close}, or --dialect native?" if close else "use --dialect native"
        hint = f"it is a native name: {instead}"
    return METRICS.unknown(name, known, hint, of=dialect.name)


def column_of(part: Rollouts, name: str, params: Mapping[str, Any]) -> Column:
    """The column that a metric reads by this name: "reward" and "column" are those that ``params`` choose."""
    if name == "reward":
        return contributed(part, params.get("reward") or "reward")
    if name == "answer":
        return answers(part)
    wanted = params["column"] if name == "column" else name
    if wanted in part.columns:
        return part.columns[wanted]
    if wanted in part.rewards:
        return contributed(part, wanted)
    if name in USAGE:
        return Column.gaps(len(part))  # usage that was not reported is missing, not zero
    raise UnknownName.of("column of numbers", wanted, [*part.columns, *part.rewards])


def is_reward(part: Rollouts, requested: RequestedMetric) -> bool:
    """Whether the column of a statistic is a reward: a gap in a reward is a missing rollout."""
    wanted = requested.params.get("column")
    return "column" in requested.metric.reads and wanted in part.rewards and wanted not in part.columns


def per_column(requested: RequestedMetric, rollouts: Rollouts) -> list[RequestedMetric]:
    """The requested metric; for ``column=*``, one metric for each numeric column, rewards included."""
    if requested.params.get("column") != "*":
        return [requested]
    names = sorted({*rollouts.rewards, *rollouts.columns})
    return [
        replace(requested, text=requested.text.replace("*", name), params={**requested.params, "column": name})
        for name in names
    ]


def per_reward(
    requested: RequestedMetric, rollouts: Rollouts, chosen: str | None, every: bool = False
) -> list[RequestedMetric]:
    """The requested metric with the reward key that it reads; several metrics if there are several keys.

    The key is the chosen one, else the usual one (`reward`), else the only one; otherwise there is a metric for each
    key. With ``every``, a reward named `reward` is not special.
    """
    if "reward" not in requested.metric.reads:
        return [requested]
    keys = sorted(rollouts.rewards)
    wanted = requested.params.get("reward") or chosen
    if wanted:
        if wanted not in keys:
            raise UnknownName.of("reward", wanted, keys)
        return [replace(requested, params={**requested.params, "reward": wanted})]
    usual = rollouts.usual_reward
    if (usual and not every) or len(keys) < 2:
        key = keys[0] if len(keys) == 1 else usual or "reward"
        return [replace(requested, params={**requested.params, "reward": key})]
    head, parenthesis, params_text = requested.text.partition("(")
    inner = f"{params_text.removesuffix(')')}, " if parenthesis else ""
    return [
        replace(requested, text=f"{head}({inner}reward={key})", params={**requested.params, "reward": key})
        for key in keys
    ]


ECONOMICS: Final = (
    *("time_per_task", "tokens_per_task", "cost_per_task", "total_cost_per_task"),
    *("cost_per_solved", "time_per_solved", "latency_p50", "latency_p90", "latency_p99"),
)
"""The metrics of usage, each of which is reported if the rollouts have a column that it reads."""

REWARD_WORDS: Final = (
    *("reward", "score", "correct", "pass", "accuracy", "acc"),
    *("success", "solved", "resolved", "grade", "label"),
)
"""Words in common names of a reward, the most likely first."""

MOST_SHOWN = 12  # maximum number of keys in an error


def no_reward(source: Any, keys: Sequence[str]) -> InputError:
    """The error for rows without a reward; it lists their keys, and those that look like a reward."""
    if isinstance(source, (list, tuple)) and source and isinstance(source[0], (str, os.PathLike)):
        source = source[0]
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "table"
    likely = list(dict.fromkeys(key for word in REWARD_WORDS for key in keys if word in key.lower()))
    shown = ", ".join(keys[:MOST_SHOWN]) + (", ..." if len(keys) > MOST_SHOWN else "")
    expected = f"name it with --columns reward={likely[0] if likely else 'KEY'} (keys here: {shown}"
    if likely:
        expected += f"; {' and '.join(likely[:3])} look{'s' if len(likely) == 1 else ''} like a reward"
    return InputError.at(path, "no row has a reward", f"{expected})")


def unrewarded(rollouts: Rollouts) -> list[str]:
    """A note on rollouts of which none has a reward, with the numeric keys; no note if one has a reward or an outcome.

    An outcome other than missing is a reason for having no reward.
    """
    if rollouts.rewards or not len(rollouts) or bool((rollouts.outcome != MISSING).any()):
        return []
    keys = ", ".join([name for name in rollouts.columns if name not in USAGE][:8])
    return ["no rollout has a reward; --columns reward=KEY names it" + (f" (numbers here: {keys})" if keys else "")]


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a score, checked and complete."""

    requests: Sequence[RequestedMetric]  # the metrics
    dialect: Dialect
    missing: Missing | Assumed  # how missing rollouts are treated
    by: tuple[str, ...] = ()
    cluster: str | None = None
    reward: str | None = None
    confidence: float = 0.95
    seed: int = 0
    interval: str = DEFAULT
    range: Range | None = None  # of rewards, if it is not [0, 1]
    afterwards: Afterwards | None = None
    exclude: tuple[tuple[str, str], ...] = ()  # (key, value) of the excluded slices
    threshold: float | None = None  # the reward from which a sample passes, if it was given
    ranges: Mapping[str, Range] = field(default_factory=dict)  # benchmark -> its own range of rewards
    mean: str | None = None  # the mean over benchmarks: None for one of values, or OF_RANGE

    def on(self, benchmark: str | None) -> Plan:
        """The plan for the rollouts of one benchmark, with the range of its rewards."""
        if not self.ranges:
            return self
        return replace(self, range=self.ranges.get(benchmark or "", self.range), ranges={})

    @property
    def excluded(self) -> list[str]:
        """The excluded slices as they appear in a signature; ``|`` is escaped, as it separates a signature's parts."""
        return [f"exclude:{key}={value}".replace("|", "%7C") for key, value in self.exclude]

    @property
    def labels(self) -> tuple[str, ...]:
        """The paths of the labels that the readers must keep."""
        read = {"answer"} if any("answer" in requested.metric.reads for requested in self.requests) else set[str]()
        keys = {*self.by, *([self.cluster] if self.cluster else []), *(key for key, _ in self.exclude)}
        keys |= {part for key in keys for part in key.split(PAIR) if part}
        inner = {key.removeprefix("metadata.") for key in keys}  # a key of the metadata may be given by its full path
        return tuple(sorted({*keys, *inner, *read, *self.dialect.labels}))


def either(metrics: Given | None, metric: Given | None) -> Given | None:
    """The value of a parameter that has two names; InputError if both names are used.

    >>> either(None, "pass@3")
    'pass@3'
    """
    if metrics is not None and metric is not None:
        raise InputError.at("metric", "is given beside metrics", "expected one of them")
    return metric if metrics is None else metrics


def integer(name: str, value: Any) -> int:
    """The value of a setting as an int, also for numpy's integers; InputError if it is not an integer."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise InputError(f"{name} is {value!r:.60}; expected an integer") from None


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """The texts of a setting that takes one or several; InputError for anything else."""
    texts = [value] if isinstance(value, str) else [*value] if isinstance(value, Iterable) else [None]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(f"{name} is {value!r:.60}; expected a text, or a list of texts")
    return tuple(dict.fromkeys(texts))


CONFIDENCES: Final = (1e-6, 1 - 1e-12)  # quantiles at a confidence beyond these are lost in rounding


def make_plan(
    metrics: Wanted | Sequence[Wanted] | None = None,
    *,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    range: Ranges | None = None,
    afterwards: Afterwards | None = None,
    source: Any = None,
    exclude: str | Sequence[str] = (),
    mean: str | None = None,
    trusted: bool = True,
    threshold: float | None = None,
    compares: bool = False,
) -> Plan:
    """Resolve and check the settings of a score; InputError if one is invalid.

    Whoever ``compares`` runs may also declare that missing rollouts are like the others (``missing="random"``).

    ``source`` is the data that will be read: a dialect may choose its default metrics by it. Metrics whose names come
    from data are not ``trusted``, see `resolve`.
    """
    resolved_dialect = _dialect(dialect or "native")
    policies = (*get_args(Missing), *(get_args(Assumed) if compares else ()))
    if missing is not None and missing not in policies:
        raise UnknownName.of("policy for missing rollouts", missing, policies)
    for name, value in (("cluster", cluster), ("reward", reward)):
        if not (value is None or (isinstance(value, str) and value.strip())):
            raise InputError(f"{name} is {value!r:.60}; expected the name of a key")
    if not isinstance(confidence, Real):
        raise InputError(f"confidence is {confidence!r:.60}; expected a number between 0 and 1, such as 0.95")
    if not CONFIDENCES[0] <= confidence <= CONFIDENCES[1]:
        expected = "expected a number between 0 and 1" + (", not so near to them" if 0 < confidence < 1 else "")
        raise InputError(f"confidence is {confidence}; {expected}, such as 0.95")
    if (number := integer("seed", seed)) < 0:
        raise InputError(f"seed is {seed}; expected an integer >= 0")
    passing = checked_threshold(threshold)
    if passing is not None and resolved_dialect.name != NATIVE.name:
        problem = f"the dialect {resolved_dialect.name} has its own rule for passes"
        raise InputError.at("--threshold", problem, "leave it out, or use --dialect native")
    method = DEFAULT if interval in (None, DEFAULT) else canonical(interval)
    if mean is not None and mean not in MEANS:
        raise UnknownName.of("mean over benchmarks", mean, MEANS)
    every, ranges = _ranges(range)
    defaults = resolved_dialect.asks(source) if resolved_dialect.asks and not metrics else None
    defaults = defaults or resolved_dialect.default
    is_single = isinstance(metrics, (str, Mapping)) or bool(metrics and own_name(metrics))
    wanted: list[Any] = [metrics] if is_single else list(cast(Sequence[Any], metrics or defaults))
    requested: dict[str, RequestedMetric] = {}
    asked_as: dict[str, Any] = {}
    for metric, requested_metric in _resolved(wanted, resolved_dialect, trusted=trusted and bool(metrics)):
        if asked_as.setdefault(requested_metric.text, metric) != metric:
            raise InputError(f"two metrics are called {requested_metric.text!r}; give one of them another name")
        requested[requested_metric.text] = replace(requested_metric.passing_from(passing), asked=bool(metrics))
    return Plan(
        requests=list(requested.values()),
        dialect=resolved_dialect,
        missing=cast("Missing | Assumed", missing or resolved_dialect.missing),
        by=_texts("by", by),
        cluster=cluster,
        reward=reward,
        confidence=float(confidence),
        seed=number,
        interval=method,
        range=every,
        afterwards=afterwards,
        exclude=_excluded(_texts("exclude", exclude)),
        ranges=ranges,
        mean=mean,
        threshold=passing,
    )


def _excluded(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The slices of ``--exclude KEY=VALUE`` as (key, value).

    >>> _excluded(["difficulty=hard"])
    (('difficulty', 'hard'),)
    """
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            raise InputError.at("--exclude", f"{text!r} cannot be read", "expected KEY=VALUE, such as difficulty=hard")
        pairs.append((key.strip(), value))
    return tuple(pairs)


WIDEST: Final = 1e150  # the square of a wider range, or a sum of such squares, can overflow
NARROWEST: Final = 1e-150  # the square of a narrower range can be 0


def _ranges(given: Ranges | None) -> tuple[Range | None, dict[str, Range]]:
    """The range of all benchmarks, if one is given, and the ranges of single benchmarks by name.

    >>> _ranges({None: (0, 1), "chrf": (0, 100)})
    ((0.0, 1.0), {'chrf': (0.0, 100.0)})
    """
    if given is None:
        return None, {}
    if not isinstance(given, Mapping):
        return _range(given), {}
    every, ranges = None, {}
    for name, limits in given.items():
        if name is None:
            every = _range(limits)
        elif isinstance(name, str):
            ranges[name] = _range(limits, f"range of {name!r}")
        else:
            raise InputError(f"range has the key {name!r:.60}; expected the name of a benchmark")
    return every, ranges


def _range(limits: Range, name: str = "range") -> Range:
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {limits!r}; expected the lowest and the highest reward, such as (-1, 1)") from None
    if not (low < high and math.isfinite(high - low)):
        raise InputError(f"{name} is {low:g},{high:g}; expected two numbers, the lower one first, such as -1,1")
    if not NARROWEST <= high - low <= WIDEST:
        bound = f"at most {WIDEST:g}" if high - low > WIDEST else f"at least {NARROWEST:g}"
        raise InputError(f"{name} is {low:g},{high:g}; expected ends that are {bound} apart")
    return low, high


def check_ranges(plan: Plan, benchmarks: Iterable[str | None]) -> None:
    """UnknownName if the plan has the range of a benchmark that is not among these."""
    known = list(dict.fromkeys(name for name in benchmarks if name is not None))
    for name in plan.ranges:
        if name not in known:
            raise UnknownName.of("benchmark in these runs", name, known)


def _resolved(wanted: Sequence[Any], dialect: Dialect, *, trusted: bool) -> Iterator[tuple[Any, RequestedMetric]]:
    for metric in wanted:
        try:
            yield metric, resolve(metric, dialect, trusted=trusted)
        except CalipersError as error:
            if not dialect.skips:
                raise
            warnings.warn(f"metric {metric!r} is skipped: {error}", stacklevel=4)


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS.entries:
        raise DIALECTS.unknown(name)
    dialect: Dialect = DIALECTS.added.get(name) or DIALECTS.load(name)
    return dialect


def mean_metric(plan: Plan, *, named: bool) -> RequestedMetric:
    """The first metric of a plan that is a mean over tasks, and of which higher or lower is better.

    InputError if there is none; ``named`` says that the user, not the dialect, chose the metrics.
    """
    for request in plan.requests:
        metric = request.metric
        if isinstance(metric, Metric) and metric.is_mean and metric.higher_is_better is not None:
            return request
    name = plan.requests[0].text if named and plan.requests else plan.dialect.name
    problem = f"metric {name!r} is no mean over tasks"
    if not named:
        problem = f"dialect {name!r} has no mean over tasks by default"
    raise InputError(f"{problem}; expected one, such as --metric mean_reward or --metric pass@3")
