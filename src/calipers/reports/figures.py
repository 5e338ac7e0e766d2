"""Numbers as people read them: the same decimals for a value and its interval; and the remarks beside them.

A caution says why a number that is right for its rollouts may mislead about the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import Stop
from calipers.stats.estimate import Estimate
from calipers.stats.suite import SuiteMeans
from calipers.stats.variance import Dependence, Retries, Split, Unsplit

NONE = "–"
_NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_KINDS = 20  # of exceptions that are named
MOST_DECIMALS = 12
EACH_BY_ITSELF = "each slice has its own interval, not adjusted for the number of slices"
_OUTCOMES = {"stopped_early": "not run (stopped early)"}
POLICY = {"gap": "excluded", "zero": "counted as 0", "fail": "not allowed"}


def decimals(estimate: Estimate) -> int:
    """The number of decimals of an estimate: four for values around 1, fewer above, more below.

    The standard error always has two digits, because it shows which digits of the value matter.
    """
    ends = estimate.interval or ()
    size = max((abs(x) for x in (estimate.value, *ends) if x is not None and math.isfinite(x)), default=0.0)
    if not estimate.stderr or not math.isfinite(estimate.stderr):
        return _decimals(size)
    return min(max(_decimals(size), 1 - math.floor(math.log10(estimate.stderr))), MOST_DECIMALS)


def _decimals(size: float) -> int:
    if size == 0 or 0.01 <= size < 10:
        return 4
    return min(max(3 - math.floor(math.log10(size)), 0 if size >= 1e6 else 1), MOST_DECIMALS)


def figure(value: float | None, places: int | None = None) -> str:
    """A number with this many decimals and with thousands separators; a dash for None.

    >>> figure(0.71875), figure(12345.678), figure(0.0001234), figure(None)
    ('0.7188', '12,345.7', '0.0001234', '–')
    """
    if value is None:
        return NONE
    if not math.isfinite(value):
        return str(value)
    places = _decimals(abs(value)) if places is None else places
    lost = places == MOST_DECIMALS and 0 < abs(value) < 1e-9  # of so small a number hardly a digit would be left
    return f"{value:.4g}" if abs(value) >= 1e15 or lost else f"{value:,.{places}f}"


def ends(pair: tuple[float, float] | None, places: int) -> str:
    """An interval in brackets."""
    return "" if pair is None else f"[{figure(pair[0], places)}, {figure(pair[1], places)}]"


def counted(number: int, word: str) -> str:
    """``1 task``, ``12 tasks``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size(estimate: Estimate) -> str:
    """``40 tasks, 312 samples``."""
    return f"{counted(estimate.tasks, 'task')}, {counted(estimate.samples, 'sample')}"


def remarks(estimate: Estimate, ledger: Ledger | None = None) -> list[str]:
    """The remarks beside an estimate: undefined tasks, the effect of missing rollouts, why something is absent."""
    bounds = bounds_words(estimate, ledger, lambda end: figure(end, decimals(estimate)))
    return [*too_few(estimate), *([bounds] if bounds else []), *reason(estimate)]


def too_few(estimate: Estimate) -> list[str]:
    """``12 tasks have fewer than 4 samples``; nothing where every task has a value."""
    tasks, k = estimate.undefined_tasks, estimate.made.k
    if not tasks:
        return []
    lack = f"fewer than {counted(k, 'sample')}" if k and k > 1 else "no value"
    return [f"{counted(tasks, 'task')} {'has' if tasks == 1 else 'have'} {lack}"]


def bounds_words(
    estimate: Estimate, ledger: Ledger | None, shown: Callable[[float], str], *, short: bool = False
) -> str:
    """The value if all missing rollouts failed, and if all passed; "" without bounds.

    ``short`` is for a line below the ledger, which counts the missing rollouts. Of a metric that is undefined for some
    tasks the bounds fill up these tasks, too: the ledger does not count that.
    """
    if not estimate.bounds:
        return ""
    low, high = map(shown, estimate.bounds)
    missing, every = "missing rollouts", "all missing rollouts"
    if estimate.undefined_tasks:
        missing, every = "missing samples", "all missing samples"
    elif ledger is not None and not ledger.lacking and ledger.gaps:
        missing = counted(ledger.gaps, "missing rollout")
        every = f"all {missing}" if ledger.gaps > 1 else f"the {missing}"
        if short:
            every = f"all {ledger.gaps:,}" if ledger.gaps > 1 else "it"
    if estimate.made.metric.startswith("maj@"):  # a missing vote may also bring a new answer
        return f"{low if low == high else f'{low} to {high}'} for every possible outcome of the {missing}"
    ranged = any(setting.startswith("range:") for setting in estimate.made.settings)
    worst, best = ("had the lowest", "the highest reward") if ranged else ("failed", "passed")
    if low == high and not short:
        return f"{low} whether the {missing} {worst} or {best}"
    return f"{low} to {high} if {every} {worst} / {best}"


def reason(estimate: Estimate) -> list[str]:
    """Why there is no value, or no interval: one remark, or none."""
    if not estimate.why:
        return []
    why = plain_why(estimate.why)
    if why.startswith("no "):
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
    """Rollouts whose worker was lost, in words."""
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
    """How a stopping rule biases the numbers under it; empty where no rule stopped the run."""
    if stop is None:
        return ""
    rule = f" by --until {clean(stop.rule, None)!r}" if stop.rule else ""
    return f"stopped early{rule}: {clean(stop.bias, None)}"


def exceptions(ledger: Ledger) -> str:
    """Exceptions by type: ``exceptions in 2 of 18 planned rollouts: KeyError 1, OSError 1``; empty without any."""
    if not ledger.exceptions:
        return ""
    kinds = [f"{clean(kind)}{_NO_BREAK}{number:,}" for kind, number in ledger.exceptions.items()]
    if len(kinds) > MOST_KINDS:
        kinds[MOST_KINDS:] = [f"and {counted(len(kinds) - MOST_KINDS, 'kind')} more"]
    return (
        f"exceptions in {sum(ledger.exceptions.values()):,} of {ledger.planned:,} planned rollouts: {', '.join(kinds)}"
    )


def advice_of(metrics: Mapping[str, Estimate], variance: Mapping[str, Split | Unsplit]) -> list[tuple[str, Split]]:
    """The parts of the variance of a mean reward that is shown, with the reward's key if there are several."""
    if not any(estimate.made.metric == "mean_reward" for estimate in metrics.values()):
        return []
    return [(key if len(variance) > 1 else "", split) for key, split in variance.items() if isinstance(split, Split)]


def over(suite: SuiteMeans) -> str:
    """What a suite is called: ``2 datasets · model · agent``."""
    return " · ".join([counted(len(suite.datasets), "dataset"), *filter(None, (suite.model, suite.agent))])


def letters(count: int) -> list[str]:
    """Short names of runs in a table: ``A``, ``B``; numbers, where there are more runs than letters."""
    return [chr(ord("A") + number) if count <= 26 else str(number + 1) for number in range(count)]


def percent(share: float) -> str:
    """A share in per cent: ``95 %``, ``99.9 %``."""
    return f"{100 * share:.6g} %"


def on_the_point(texts: Sequence[str]) -> list[str]:
    """Texts padded on the right so that their decimal points align when they are right-aligned.

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
"""Metrics of one sample; after retries that is the first sample."""


@dataclass(frozen=True, slots=True)
class RewardMetric:
    """A requested metric of rewards that may mislead."""

    text: str  # as requested
    metric: str  # the entry in `names.METRICS`
    k: int = 0  # the k in its name, if any


def depends(evidence: Retries | Dependence, metrics: Sequence[RewardMetric], outright: bool) -> str:
    """Which metrics are biased because sample counts depend on rewards, and why; empty where none is.

    ``outright``: every reward is a pass or a failure, so that a mean reward is a pass rate.
    """
    if isinstance(evidence, Dependence):
        way = "higher" if evidence.z > 0 else "lower"
        return (
            f"sample counts depend on results: tasks with more samples have {way} rewards "
            f"(score test over {counted(evidence.tasks, 'task')}: z = {evidence.z:.2f}, p = {evidence.p:.1g}), "
            f"so {listed([clean(metric.text) for metric in metrics])} may be biased"
        )
    wrong = [metric for metric in metrics if not _answered(metric, evidence.most)]
    if not wrong:
        return ""
    instead = dict.fromkeys(k for metric in wrong if (k := _tries(metric, outright)) and k <= evidence.most)
    names = listed([f"any_of_first_{k}" for k in sorted(instead)])
    right = f"{names} {'is' if len(instead) == 1 else 'are'} not, because a stopped task is known to have passed"
    if not instead:
        right = f"any_of_first_k, for k up to {evidence.most}, is not, because a stopped task is known to have passed"
    return (
        f"{evidence.stopped:,} of {counted(evidence.tasks, 'task')} stop at their first pass: sample counts "
        f"depend on results, so {_are(wrong)} biased; {right}"
    )


def heavy(metrics: Mapping[str, Estimate], clustered: bool) -> Iterator[str]:
    """For each metric, the task that has more than half of the variance of the mean, if any."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, estimate in metrics.items():
        if estimate.heaviest:
            task, part = estimate.heaviest
            named.setdefault((task, f"{100 * part:.0f} %"), []).append(clean(name))
    for (task, share), names in named.items():
        unit = f"{'the cluster of ' if clustered else ''}task {clean(task)}"
        yield f"{unit} has {share} of the variance of {listed(names)}: the interval depends mostly on it"


def _answered(metric: RewardMetric, most: int) -> bool:
    return metric.metric == "any_of_first_{k}" and metric.k <= most


def _tries(metric: RewardMetric, outright: bool) -> int | None:
    """The number of tries in which the metric expects a pass; None for other metrics."""
    if metric.metric in ONE_TRY:
        return 1 if metric.metric != "mean_reward" or outright else None
    if metric.metric == "pass@{k}" or (metric.metric in ("pass^{k}", "all_of_first_{k}") and metric.k == 1):
        return metric.k
    return metric.k if metric.metric == "max@{k}" and outright else None


def _are(metrics: Sequence[RewardMetric]) -> str:
    names = [clean(metric.text) for metric in metrics]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
