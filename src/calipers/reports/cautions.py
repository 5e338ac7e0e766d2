"""Cautions: why a number that is right for its rollouts may mislead about the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calipers.reports.figures import counted
from calipers.reports.untrusted_text import clean
from calipers.stats.estimate import Estimate
from calipers.stats.variance import Dependence, Retries

ONE_TRY = ("pass_rate", "solved_rate", "mean_reward")
"""Metrics of one sample, which after retries is the first one."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A metric of rewards that was asked for."""

    text: str  # as it was asked for
    metric: str  # the entry in `names.METRICS`
    k: int = 0  # samples it looks at, where it says so


def depends(found: Retries | Dependence, asked: Sequence[Reader], outright: bool) -> str:
    """Why numbers of samples that depend on rewards make metrics of these rewards wrong; nothing where none is.

    ``outright`` says that rewards are passes and failures, so that a mean reward is a chance to pass.
    """
    if isinstance(found, Dependence):
        way = "higher" if found.z > 0 else "lower"
        return (
            f"sample counts depend on results: tasks with more samples have {way} rewards "
            f"(score test over {counted(found.tasks, 'task')}: z = {found.z:.2f}, p = {found.p:.1g}), "
            f"so {_listed([clean(one.text) for one in asked])} may be biased"
        )
    wrong = [one for one in asked if not _answered(one, found.most)]
    if not wrong:
        return ""
    instead = dict.fromkeys(k for one in wrong if (k := _tries(one, outright)) and k <= found.most)
    names = _listed([f"any_of_first_{k}" for k in sorted(instead)])
    right = f"{names} {'is' if len(instead) == 1 else 'are'} not, as a stopped task is known to have passed"
    if not instead:
        right = f"any_of_first_k, for k up to {found.most}, is not, as a stopped task is known to have passed"
    return (
        f"{found.stopped:,} of {counted(found.tasks, 'task')} stop at their first pass, so sample counts depend on "
        f"results and {_are(wrong)} biased; {right}"
    )


def heavy(metrics: Mapping[str, Estimate], clustered: bool) -> Iterator[str]:
    """Which task has more than half of the variance of a mean, for each metric of which one has."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, estimate in metrics.items():
        if estimate.heaviest:
            task, part = estimate.heaviest
            named.setdefault((task, f"{100 * part:.0f} %"), []).append(clean(name))
    for (task, share), names in named.items():
        unit = f"{'the cluster of ' if clustered else ''}task {clean(task)}"
        yield f"{unit} has {share} of the variance of {_listed(names)}: the interval rests on it"


def _answered(asked: Reader, most: int) -> bool:
    return asked.metric == "any_of_first_{k}" and asked.k <= most


def _tries(asked: Reader, outright: bool) -> int | None:
    """How many tries the metric is the chance of a pass in; None where it is none."""
    if asked.metric in ONE_TRY:
        return 1 if asked.metric != "mean_reward" or outright else None
    if asked.metric == "pass@{k}" or (asked.metric in ("pass^{k}", "all_of_first_{k}") and asked.k == 1):
        return asked.k
    return asked.k if asked.metric == "max@{k}" and outright else None


def _are(asked: Sequence[Reader]) -> str:
    names = [clean(one.text) for one in asked]
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'}"


def _listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
