"""Numbers as people read them: enough digits, the same for a value and for how sure it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calipers.reports.untrusted_text import clean
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.stop import Stop
from calipers.stats.estimate import Estimate
from calipers.stats.suite import SuiteMeans
from calipers.stats.variance import Split, Unsplit

NONE = "–"
MOST_KINDS = 20  # of exceptions that are named
MOST_DECIMALS = 12
EACH_BY_ITSELF = "intervals of slices hold each by itself: they are not adjusted for the number of slices"
_SAID = {"stopped_early": "not run (stopped early)"}
_POLICY = {"gap": "left out", "zero": "counted as 0", "fail": "not allowed"}


def decimals(estimate: Estimate) -> int:
    """How many decimals an estimate is shown with: four for what lies around 1, fewer above, more below.

    The standard error always gets two digits, since it says which of the value's digits matter.
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
    """A number with so many decimals, thousands apart; a dash for none.

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


def remarks(estimate: Estimate) -> list[str]:
    """What must be said beside the figures: undefined tasks, what gaps could do, why something is absent."""
    said = []
    if estimate.undefined_tasks:
        said.append(f"{counted(estimate.undefined_tasks, 'task')} undefined")
    if estimate.bounds:
        low, high = (figure(end, decimals(estimate)) for end in estimate.bounds)
        missing = "missing samples" if estimate.undefined_tasks else "gaps"
        said.append(f"{low if low == high else f'{low} to {high}'} whatever the {missing} hold")
    return [*said, *reason(estimate)]


def reason(estimate: Estimate) -> list[str]:
    """Why there is no value, or no interval: one remark, or none."""
    if not estimate.why:
        return []
    if estimate.why.startswith("no "):
        return [estimate.why]
    no_value = estimate.value is None or not math.isfinite(estimate.value)
    return [f"{'no value' if no_value else 'no interval'}: {estimate.why}"]


def account(ledger: Ledger, missing: str) -> str:
    """The ledger on one line: ``320 planned = 300 scored + 12 refused + 8 missing; 8 gaps, left out``."""
    words = {outcome: _SAID.get(outcome, outcome) for outcome in ledger.outcomes}
    parts = " + ".join(f"{n:,}\N{NO-BREAK SPACE}{words[outcome]}" for outcome, n in ledger.outcomes.items()) or "0"
    origin = "" if ledger.planned_from == "rows" else f" (from {ledger.planned_from})"
    gaps = f"{counted(ledger.gaps, 'gap')}, {_POLICY.get(missing, missing)}" if ledger.gaps else "no gaps"
    return f"{ledger.planned:,} planned{origin} = {parts}; {gaps}"


def whole_account(ledger: Ledger, missing: str) -> str:
    """The ledger of a group: its tasks, its account, and the attempts that later ones replaced."""
    said = [counted(ledger.tasks, "task"), account(ledger, missing)]
    if ledger.attempts > ledger.planned:
        said.append(f"{counted(ledger.attempts - ledger.planned, 'earlier attempt')} not counted")
    return "; ".join(said)


def stopped(stop: Stop | None) -> str:
    """What a stopping rule does to the numbers under it; nothing where none ended the run."""
    if stop is None:
        return ""
    rule = f" by --until {clean(stop.rule, None)!r}" if stop.rule else ""
    return f"stopped early{rule}: {clean(stop.bias, None)}"


def exceptions(ledger: Ledger) -> str:
    """What was raised, by kind: ``exceptions in 2 of 18 planned: KeyError 1, OSError 1``; nothing when nothing was."""
    if not ledger.exceptions:
        return ""
    kinds = [f"{clean(kind)}\N{NO-BREAK SPACE}{number:,}" for kind, number in ledger.exceptions.items()]
    if len(kinds) > MOST_KINDS:
        kinds[MOST_KINDS:] = [f"and {counted(len(kinds) - MOST_KINDS, 'kind')} more"]
    return f"exceptions in {sum(ledger.exceptions.values()):,} of {ledger.planned:,} planned: {', '.join(kinds)}"


def advice(metrics: Mapping[str, Estimate], variance: Mapping[str, Split | Unsplit]) -> list[tuple[str, str]]:
    """What would narrow the interval of a mean reward that is shown, after the reward's key if there are several."""
    if not any(estimate.made.metric == "mean_reward" for estimate in metrics.values()):
        return []
    return [
        (key if len(variance) > 1 else "", split.advice) for key, split in variance.items() if isinstance(split, Split)
    ]


def over(suite: SuiteMeans) -> str:
    """What a suite is called: ``2 datasets · model · agent``."""
    return " · ".join([counted(len(suite.datasets), "dataset"), *filter(None, (suite.model, suite.agent))])


def letters(count: int) -> list[str]:
    """What so many runs are called in a table: ``A``, ``B``; numbers, where there are more than letters."""
    return [chr(ord("A") + place) if count <= 26 else str(place + 1) for place in range(count)]


def percent(share: float) -> str:
    """A share in per cent: ``95 %``, ``99.9 %``."""
    return f"{100 * share:.6g} %"


def on_the_point(texts: Sequence[str]) -> list[str]:
    """Texts padded on the right so that, set flush right, their decimal points stand in one line.

    >>> on_the_point(["0.5000", "12.5", "–"])
    ['0.5000', '12.5   ', '–']
    """
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    longest = max(tails, default=0)
    numbers = [text[-1:].isdigit() for text in texts]
    return [
        text + " " * ((longest - tail) * is_number) for text, tail, is_number in zip(texts, tails, numbers, strict=True)
    ]
