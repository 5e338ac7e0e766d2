"""Numbers formatted for people, with the same decimals for a value and its interval, and the remarks beside them.

A warning explains why a number that is correct for its rollouts may mislead about the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import Stop
from calipers.stats.counts import Follows
from calipers.stats.estimate import Estimate
from calipers.stats.suite import SuiteMeans
from calipers.stats.variance import Split, Unsplit

NONE = "–"
_NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_KINDS = 20  # exception types that are named
MOST_DECIMALS = 12
EACH_BY_ITSELF = "each slice has its own interval, not adjusted for the number of slices"
_OUTCOMES = {"stopped_early": "not run (stopped early)"}
POLICY = {"gap": "excluded", "zero": "counted as 0", "fail": "not allowed", "random": "assumed to be like the others"}


def decimals(estimate: Estimate) -> int:
    """The number of decimals of an estimate: four for values around 1, fewer above, more below.

    The standard error always has two digits, because it shows which digits of the value matter.
    """
    ends = estimate.interval or ()
    size = max((abs(x) for x in (estimate.value, *ends) if x is not None and math.isfinite(x)), default=0.0)
    if estimate.stderr is None or not 0 < estimate.stderr < math.inf:
        return _decimals(size)
    return min(max(_decimals(size), 1 - math.floor(math.log10(estimate.stderr))), MOST_DECIMALS)


def _decimals(size: float) -> int:
    if size == 0 or 0.01 <= size < 10:
        return 4
    return min(max(3 - math.floor(math.log10(size)), 0 if size >= 1e6 else 1), MOST_DECIMALS)


def figure(value: float | None, places: int | None = None) -> str:
    """A number with ``places`` decimals and thousands separators; a dash for None.

    >>> figure(0.71875), figure(12345.678), figure(0.0001234), figure(None)
    ('0.7188', '12,345.7', '0.0001234', '–')
    """
    if value is None:
        return NONE
    if not math.isfinite(value):
        return str(value)
    places = _decimals(abs(value)) if places is None else places
    tiny = places == MOST_DECIMALS and 0 < abs(value) < 1e-9  # fixed decimals would show hardly a digit
    return f"{value:.4g}" if abs(value) >= 1e15 or tiny else f"{value:,.{places}f}"


def ends(pair: tuple[float, float] | None, places: int) -> str:
    """An interval in brackets; "" for None."""
    return "" if pair is None else f"[{figure(pair[0], places)}, {figure(pair[1], places)}]"


def counted(number: int, word: str) -> str:
    """A number with its noun: ``1 task``, ``12 tasks``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def is_or_are(number: int) -> str:
    """The verb for a number of things: ``1 of 40 rollouts is missing``, ``2 of 40 rollouts are missing``."""
    return "is" if number == 1 else "are"


def a_or_an(name: str) -> str:
    """A name with its article, by its first letter: ``a pass_rate``, ``an any_of_first_1``, ``a unit``.

    >>> a_or_an("any_of_first_1"), a_or_an("pass@2"), a_or_an("unique_rate"), a_or_an("8-shot")
    ('an any_of_first_1', 'a pass@2', 'a unique_rate', 'an 8-shot')
    """
    first = name[:1].lower()
    sounded = first in "aeio8" if first else False
    return f"{'an' if sounded or name.lower().startswith('up') else 'a'} {name}"


def megabytes(size: int) -> str:
    """A size for people: ``1.1 MB``, ``21 KB``, ``840 bytes``."""
    if size >= 1_000_000:
        return f"{size / 1e6:.1f} MB"
    return f"{size // 1000} KB" if size >= 1000 else f"{size} bytes"


def size(estimate: Estimate) -> str:
    """The size of an estimate: ``40 tasks, 312 samples``."""
    return f"{counted(estimate.tasks, 'task')}, {counted(estimate.samples, 'sample')}"


def remarks(estimate: Estimate, ledger: Ledger | None = None) -> list[str]:
    """The remarks beside an estimate: undefined tasks, the effect of missing rollouts, why something is absent."""
    places = decimals(estimate)
    bounds = bounds_words(estimate, ledger, lambda end: figure(end, places))
    worst = estimate.worst_interval
    ends = f"{figure(worst[0], places)} to {figure(worst[1], places)} with the error of sampling" if worst else ""
    return [*too_few(estimate), *filter(None, (bounds, ends)), *reason(estimate)]


def too_few(estimate: Estimate) -> list[str]:
    """``12 tasks have fewer than 4 samples``; empty if every task has a value."""
    tasks, k = estimate.undefined_tasks, estimate.made.k
    if not tasks:
        return []
    lack = f"fewer than {counted(k, 'sample')}" if k and k > 1 else "no value"
    return [f"{counted(tasks, 'task')} {'has' if tasks == 1 else 'have'} {lack}"]


def bounds_words(
    estimate: Estimate, ledger: Ledger | None, shown: Callable[[float], str], *, short: bool = False
) -> str:
    """The value if all missing rollouts failed, and if all passed; "" without bounds.

    ``short`` is for a line below the ledger, which counts the missing rollouts. If the metric is undefined for some
    tasks, its bounds also assume values for the missing samples of these tasks, which the ledger does not count.
    """
    if not estimate.bounds:
        return ""
    low, high = map(shown, estimate.bounds)
    missing, every = "missing rollouts", "all missing rollouts"
    if estimate.undefined_tasks:
        missing, every = "missing samples", "all missing samples"
    elif ledger is not None and not ledger.lacking and ledger.filled:
        missing = counted(ledger.filled, "missing rollout")
        every = f"all {missing}" if ledger.filled > 1 else f"the {missing}"
        if short:
            every = f"all {ledger.filled:,}" if ledger.filled > 1 else "it"
    if estimate.made.metric.startswith("maj@"):  # a missing vote may also be for a new answer
        return f"{low if low == high else f'{low} to {high}'} for every possible outcome of the {missing}"
    worst, best = ("failed", "passed") if fails_or_passes(estimate) else ("had the lowest", "the highest reward")
    if low == high and not short:
        return f"{low} whether the {missing} {worst} or {best}"
    return f"{low} to {high} if {every} {worst} / {best}"


def fails_or_passes(estimate: Estimate) -> bool:
    """Whether the lowest and the highest reward of a missing rollout are a failure and a pass, not another range."""
    if estimate.threshold is not None:
        return True
    ends = estimate.bounds or (0.0, 1.0)
    return estimate.limits is None and ends[0] >= 0 and ends[1] <= 1


def reason(estimate: Estimate) -> list[str]:
    """Why there is no value or no interval: a list of one remark, or an empty list."""
    if not estimate.why:
        return []
    why = plain_why(estimate.why)
    if why.lower().startswith("no "):
        return [why]
    no_value = estimate.value is None or not math.isfinite(estimate.value)
    return [f"{'no value' if no_value else 'no interval'}: {why}"]


def account(ledger: Ledger, missing: str) -> str:
    """The ledger on one line: ``320 planned = 300 scored + 12 refused + 8 client_failed; 8 missing (excluded)``."""
    words = {outcome: _OUTCOMES.get(outcome, outcome) for outcome in ledger.outcomes}
    parts = " + ".join(f"{n:,}{_NO_BREAK}{words[outcome]}" for outcome, n in ledger.outcomes.items()) or "0"
    origin = "" if ledger.planned_from in ("rows", "plan") else f" (from {ledger.planned_from})"
    policy = f"({POLICY.get(missing, missing)})".replace(" ", _NO_BREAK)
    gaps = f"{ledger.gaps:,}{_NO_BREAK}missing{_NO_BREAK}{policy}" if ledger.gaps else "none missing"
    return f"{ledger.planned:,} planned{origin} = {parts}; {gaps}"


def asked_again(number: int) -> str:
    """The number of rollouts that were repeated after their worker was lost, in words."""
    return f"{counted(number, 'rollout')} asked again after a worker was lost"


def whole_account(ledger: Ledger, missing: str) -> str:
    """The ledger of a group: its tasks, its outcomes, and the attempts that later attempts replaced."""
    sentences = [counted(ledger.tasks, "task"), account(ledger, missing)]
    if ledger.attempts > ledger.planned:
        sentences.append(f"{counted(ledger.attempts - ledger.planned, 'earlier attempt')} excluded")
    if ledger.asked_again:
        sentences.append(asked_again(ledger.asked_again))
    sentences += [f"{number:,} scored without reward {clean(key)!r}" for key, number in ledger.lacking.items()]
    return "; ".join(sentences)


def stopped(stop: Stop | None) -> str:
    """How the stopping rule biases the numbers of a run; "" if no rule stopped it."""
    if stop is None:
        return ""
    rule = f" by --until {clean(stop.rule, None)!r}" if stop.rule else ""
    return f"stopped early{rule}: {clean(stop.bias, None)}"


def exceptions(ledger: Ledger) -> str:
    """Exceptions by type: ``exceptions in 2 of 18 planned rollouts: KeyError 1, OSError 1``; "" without exceptions."""
    if not ledger.exceptions:
        return ""
    kinds = [f"{clean(kind)}{_NO_BREAK}{number:,}" for kind, number in ledger.exceptions.items()]
    if len(kinds) > MOST_KINDS:
        kinds[MOST_KINDS:] = [f"and {counted(len(kinds) - MOST_KINDS, 'kind')} more"]
    return (
        f"exceptions in {sum(ledger.exceptions.values()):,} of {ledger.planned:,} planned rollouts: {', '.join(kinds)}"
    )


def advice_of(metrics: Mapping[str, Estimate], variance: Mapping[str, Split | Unsplit]) -> list[tuple[str, Split]]:
    """The variance parts of each reward, with its key if there are several; empty if no mean reward is shown."""
    if not any(estimate.made.metric == "mean_reward" for estimate in metrics.values()):
        return []
    return [(key if len(variance) > 1 else "", split) for key, split in variance.items() if isinstance(split, Split)]


def over(suite: SuiteMeans) -> str:
    """The name of a suite: ``2 datasets · model · agent``."""
    return " · ".join([counted(len(suite.datasets), "dataset"), *filter(None, (suite.model, suite.agent))])


def letters(count: int) -> list[str]:
    """Short names for the runs in a table: ``A``, ``B``; numbers if there are more runs than letters."""
    return [chr(ord("A") + number) if count <= 26 else str(number + 1) for number in range(count)]


def percent(share: float) -> str:
    """A share in per cent: ``95 %``, ``99.9 %``."""
    return f"{100 * share:.6g} %"


def on_the_point(texts: Sequence[str]) -> list[str]:
    """The texts padded on the right, so that their decimal points align when the texts are right-aligned.

    >>> on_the_point(["0.5000", "12.5", "–"])
    ['0.5000', '12.5   ', '–']
    """
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    longest = max(tails, default=0)
    numbers = [text[-1:].isdigit() for text in texts]
    return [
        text + " " * ((longest - tail) * is_number) for text, tail, is_number in zip(texts, tails, numbers, strict=True)
    ]


ONE_TRY = ("pass_rate", "solved_rate", "mean_reward")
"""Metrics that expect one sample per task; if a task was retried, that is its first sample."""


@dataclass(frozen=True, slots=True)
class RewardMetric:
    """A requested metric of rewards, which may be biased."""

    text: str  # the name as requested
    metric: str  # the entry in `names.METRICS`
    k: int = 0  # the k in its name; 0 if it has none


STOP_WORDS = {
    "stops_at_pass": "pass",
    "stops_at_failure": "failure",
    "last_is_pass": "pass",
    "last_is_failure": "failure",
}
"""The result at which a run stops its tasks, by the rule that has found it."""
FIRST_OF = {"stops_at_pass": "any_of_first_{k}", "stops_at_failure": "all_of_first_{k}"}
"""The metric that is known for every k up to the most samples of a task, although the run stops its tasks."""


def depends(evidence: Follows, metrics: Sequence[RewardMetric], outright: bool) -> str:
    """Which metrics are biased because sample counts depend on rewards, and why; "" if no metric is.

    ``outright``: every reward is a pass or a failure, so a mean reward is a pass rate.
    """
    if evidence.rule in ("more_is_higher", "more_is_lower"):
        way = evidence.rule.removeprefix("more_is_")
        return (
            f"sample counts depend on results: tasks with more samples have {way} rewards "
            f"(score test over {counted(evidence.tasks, 'task')}: p = {evidence.p:.1g}), "
            f"so {listed([clean(metric.text) for metric in metrics])} may be biased"
        )
    biased = [metric for metric in metrics if not _known(metric, evidence)]
    if not biased:
        return ""
    result = STOP_WORDS[evidence.rule]
    unbiased = _unbiased(biased, evidence, outright)
    if evidence.p is not None:
        return (
            f"the last sample is a {result} in {evidence.stopped:,} of {counted(evidence.tasks, 'task')} with both "
            f"results (p = {evidence.p:.1g}): sample counts depend on results, so {_are(biased)} biased; {unbiased} not"
        )
    known = "passed" if result == "pass" else "failed"
    return (
        f"{evidence.stopped:,} of {counted(evidence.tasks, 'task')} stop at their first {result}: sample counts "
        f"depend on results, so {_are(biased)} biased; {unbiased} not, because a stopped task is known to have {known}"
    )


def _known(metric: RewardMetric, evidence: Follows) -> bool:
    """Whether a metric is unbiased although sample counts depend on results."""
    first_alone = metric.metric in FIRST_OF.values() and metric.k == 1
    return first_alone or (metric.metric == FIRST_OF.get(evidence.rule) and metric.k <= evidence.most)


def _unbiased(biased: Sequence[RewardMetric], evidence: Follows, outright: bool) -> str:
    """The metrics to use in place of biased ones, with "is" or "are"."""
    if evidence.rule == "stops_at_failure":
        return f"all_of_first_k, for k up to {evidence.most}, is"
    if evidence.rule != "stops_at_pass":
        return "any_of_first_1 is"
    tries = sorted({k for metric in biased if (k := _tries(metric, outright)) and k <= evidence.most})
    if not tries:
        return f"any_of_first_k, for k up to {evidence.most}, is"
    return f"{listed([f'any_of_first_{k}' for k in tries])} {'is' if len(tries) == 1 else 'are'}"


def heavy(metrics: Mapping[str, Estimate], clustered: bool) -> Iterator[str]:
    """A remark for each task that has more than half of the variance of the mean, with the metrics it applies to."""
    metrics_of: dict[tuple[str, str], list[str]] = {}  # (task, its share of the variance) -> metrics
    for name, estimate in metrics.items():
        if estimate.heaviest:
            task, part = estimate.heaviest
            metrics_of.setdefault((task, f"{100 * part:.0f} %"), []).append(clean(name))
    for (task, share), names in metrics_of.items():
        unit = f"{'the cluster of ' if clustered else ''}task {clean(task)}"
        yield f"{unit} has {share} of the variance of {listed(names)}: the interval depends mostly on it"


def _tries(metric: RewardMetric, outright: bool) -> int | None:
    """The number of tries within which the metric expects a pass; None for other metrics."""
    if metric.metric in ONE_TRY:
        return 1 if metric.metric != "mean_reward" or outright else None
    if metric.metric == "pass@{k}" or (metric.metric in ("pass^{k}", "all_of_first_{k}") and metric.k == 1):
        return metric.k
    return metric.k if metric.metric == "max@{k}" and outright else None


def _are(metrics: Sequence[RewardMetric]) -> str:
    names = [clean(metric.text) for metric in metrics]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def listed(names: Sequence[str]) -> str:
    """The names joined by commas and "and".

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
