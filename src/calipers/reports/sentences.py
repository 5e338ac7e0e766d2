"""The sentences of reports: the answer, its uncertainty, and numbers with their units.

Terminal, notebook, Markdown and the HTML report all take their sentences from here, so that they always agree. Shares
and rewards have three decimals; times, money and tokens have units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from typing import Final, Literal

from calipers.names import OF_RANGE
from calipers.reports.figures import MOST_DECIMALS, NONE, POLICY, a_or_an, counted, figure, is_or_are
from calipers.reports.plain_words import plain_why
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import FIRST_GAP, OUTCOMES, SCORED, STOPPED_EARLY
from calipers.stats.estimate import NO_SUM, Estimate
from calipers.stats.missing import MOST_MISSING
from calipers.stats.variance import TWICE, Split

MINUS = "\N{MINUS SIGN}"
_SPACE = "\N{NO-BREAK SPACE}"
NARROW = 0.01  # an interval narrower than this is shown with four decimals
CHEAP = 0.001  # a price per unit below this many dollars is shown per thousand or per million units
TRIFLE = 0.0001  # dollars: the digits of a smaller total do not matter
WORTH_SAYING = 0.005  # share of the width of an interval: a smaller one rounds to 0 %
ONE_SAMPLE = ("mean_reward", "pass_rate", "pass@{k}")  # metrics that are a share of passes if rewards are 0 or 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A sentence with the answer, and ``detail``: the text below it with its uncertainty, which may be empty.

    On a single line, the sentence ends with ``brackets``, and ``rest`` is the text below it.
    """

    sentence: str
    detail: str = ""
    brackets: str = ""
    rest: str = ""

    @property
    def line(self) -> str:
        """The sentence with its uncertainty in brackets: ``m passes 44 % of the tasks (95 % interval: 34 to 55 %)``."""
        return f"{self.sentence.removesuffix('.')} ({self.brackets})." if self.brackets else self.sentence

    @property
    def below(self) -> str:
        """The text below `line`; it may be empty."""
        text = begun(self.rest if self.brackets else self.detail)
        return f"{text}." if text and not text.endswith(".") else text

    def __str__(self) -> str:
        return " ".join(part if part.endswith(".") else f"{part}." for part in (self.sentence, self.detail) if part)


def places(*intervals: tuple[float, float] | None) -> int:
    """The number of decimals of all numbers in one table: three, or four if an interval is narrow."""
    widths = [high - low for low, high in filter(None, intervals) if high > low]
    return 4 if widths and min(widths) < NARROW else 3


DECIMALS: Final = 3  # of numbers without an interval


def shared(*intervals: tuple[float, float] | None) -> int:
    """The decimals of a column of one metric: as many as the narrowest interval in it needs, two to four.

    ``1 - floor(log10 h)`` for the smallest positive half width h, so that h has two digits; three without an interval.

    >>> shared((0.44, 0.62), (0.1, 0.9)), shared((0.4, 0.404)), shared((12.0, 74.0)), shared(None)
    (3, 4, 2, 3)
    """
    return min(max(_two_digits(intervals), 2), 4)


def needed(*intervals: tuple[float, float] | None) -> int:
    """The decimals of a row: as many as its narrowest interval needs for two digits of its half width.

    >>> needed((-0.95, -0.65)), needed((7.1, 10.7)), needed((1200.0, 1300.0)), needed(None)
    (2, 1, 0, 3)
    """
    return min(max(_two_digits(intervals), 0), MOST_DECIMALS)


def _two_digits(intervals: Iterable[tuple[float, float] | None]) -> int:
    halves = [(high - low) / 2 for low, high in filter(None, intervals) if 0 < high - low < math.inf]
    # rounded, because 0.05 is less than a twentieth if it is a difference of two numbers
    return 1 - math.floor(math.log10(float(f"{min(halves):.9g}"))) if halves else DECIMALS


USUAL_SIZE: Final = (0.01, 100.0)  # the largest value of a column with two to four decimals


def column_decimals(values: Iterable[float | None], intervals: Iterable[tuple[float, float] | None]) -> int:
    """The decimals of a column of one metric: `shared`, or those that it needs if its values are tiny or large."""
    known = list(intervals)
    size = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    is_usual = size == 0 or USUAL_SIZE[0] <= size < USUAL_SIZE[1]
    if is_usual or any(known):
        return shared(*known) if is_usual else needed(*known)
    return min(max(DECIMALS - 1 - math.floor(math.log10(size)), 0), MOST_DECIMALS)


def rounded_out(pair: tuple[float, float], digits: int) -> tuple[float, float]:
    """The ends of an interval with so many decimals, the lower rounded down and the upper rounded up.

    So the printed interval contains the printed value, and all that the interval contains. Twelve digits count, because
    0.7 may be a little more or less in binary.

    >>> rounded_out((0.7349, 0.8951), 2), rounded_out((0.1 + 0.2, 0.3), 2)
    ((0.73, 0.9), (0.3, 0.3))
    """
    low, high = pair
    if not (math.isfinite(low) and math.isfinite(high)):
        return pair
    unit = Decimal(1).scaleb(-digits)
    return (
        float(Decimal(f"{low:.12g}").quantize(unit, ROUND_FLOOR)),
        float(Decimal(f"{high:.12g}").quantize(unit, ROUND_CEILING)),
    )


def outward(pair: tuple[float, float], digits: int = 3) -> str:
    """An interval in words, rounded outward.

    >>> outward((0.3391, 0.5465), 2)
    '0.33 to 0.55'
    """
    return to(rounded_out(pair, digits), digits)


def signed_outward(pair: tuple[float, float], digits: int = 3) -> str:
    """The interval of a difference in words, rounded outward; see `signed_ends`.

    >>> signed_outward((0.0524, 0.1681), 3), signed_outward((0.0003, 0.1), 2)
    ('+0.052 to +0.169', '+0.0003 to +0.1000')
    """
    return " to ".join(signed_ends(pair, digits))


def signed_ends(pair: tuple[float, float], digits: int) -> tuple[str, str]:
    """The ends of the interval of a difference, rounded outward; with more decimals if it would reach 0 by rounding."""
    if pair[0] > 0 or pair[1] < 0:
        nearest = min(map(abs, pair))
        digits = next((more for more in range(digits, MOST_DECIMALS) if nearest >= 10.0**-more), digits)
    low, high = rounded_out(pair, digits)
    return signed(low, digits), signed(high, digits)


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign; the minus is U+2212.

    >>> signed(0.11), signed(-0.0134), signed(0.0)
    ('+0.110', '−0.013', '0.000')
    """
    text = figure(abs(value), digits)
    if not any(digit in text for digit in "123456789"):
        return text
    return f"{'+' if value > 0 else MINUS}{text}"


def to(pair: tuple[float, float], digits: int = 3) -> str:
    """An interval in words.

    >>> to((0.3391, 0.5465))
    '0.339 to 0.546'
    """
    return f"{minus(figure(pair[0], digits))} to {minus(figure(pair[1], digits))}"


def signed_to(pair: tuple[float, float], digits: int = 3) -> str:
    """The interval of a difference in words.

    It has more decimals if it excludes zero and an end would be shown as 0.

    >>> signed_to((0.0524, 0.1681)), signed_to((0.0003, 0.1)), signed_to((-0.0003, 0.1))
    ('+0.052 to +0.168', '+0.0003 to +0.1000', '0.000 to +0.100')
    """
    if pair[0] > 0 or pair[1] < 0:
        nearest = min(map(abs, pair))
        digits = next((more for more in range(digits, MOST_DECIMALS) if float(f"{nearest:.{more}f}")), digits)
    return f"{signed(pair[0], digits)} to {signed(pair[1], digits)}"


def percent(share: float) -> str:
    """A share in whole per cent; with decimals if it would otherwise round to 0 or 100 without being 0 or 1.

    >>> percent(0.4402), percent(0.9968), percent(1.0)
    ('44\\xa0%', '99.7\\xa0%', '100\\xa0%')
    """
    return f"{_hundredths(share)}{_SPACE}%"


def p_value(p: float) -> str:
    """``p = 0.0005``, ``p = 0.12``, ``p < 0.0001``: one or two digits."""
    if p < 0.0001:
        return "p < 0.0001"
    return f"p = {p:.1g}" if p < 0.01 else f"p = {p:.2f}"


def level(confidence: float) -> str:
    """``95 % interval``."""
    return f"{100 * confidence:.6g}{_SPACE}% interval"


def of_run(
    who: str,
    dataset: str,
    name: str,
    estimate: Estimate,
    ledger: Ledger,
    *,
    confidence: float,
    solved: bool,
    first_tries: Mapping[str, Estimate] | None = None,
) -> Answer:
    """The answer of one run, by its first metric.

    ``who`` is the model or the agent, ``dataset`` the benchmark; either may be empty. ``solved``: every reward is 0
    or 1, so the value of a metric of one sample is a share of passes. ``first_tries`` are the shares of tasks that pass
    at the first try, and within all tries, of a run whose numbers of samples follow its results.
    """
    value, ends = estimate.value, estimate.interval
    who = who or "The run"
    of = f" of {dataset}" if dataset else ""
    if value is None or not math.isfinite(value):
        return Answer(
            f"{who} has no {name}{f' on {dataset}' if dataset else ''}.", begun(plain_why(estimate.why or ""))
        )
    share = solved and estimate.made.metric in ONE_SAMPLE
    if first_tries and share and (estimate.made.k or 1) == 1:
        return _of_first_tries(who, of, first_tries, confidence)
    if estimate.tasks == 1 and ends is None:
        return Answer(f"{who} scored {minus(figure(value, 3))} on one task{of}.", "One task gives no interval")
    digits = places(ends)
    what = _passes(value, dataset, estimate, ledger) if share else _scores(name, value, digits, dataset, estimate)
    about = _of_samples(estimate, ledger) if share else ""
    if missing := _with_missing(estimate, ledger, share, digits):
        sure = f"{level(confidence)} without them: {_to(ends, share, digits)}" if ends else ""
        return Answer(f"{who} {what}; {missing}.", _joined(sure, about))
    planned = ledger.planned - ledger.stopped_early
    lacking = ""
    if ledger.gaps > MOST_MISSING * planned:
        lacking = f"{ledger.gaps:,} of {counted(planned, 'rollout')} {is_or_are(ledger.gaps)} missing"
    if ends is None:
        detail = f"No interval: {plain_why(estimate.why)}" if estimate.why else "No interval"
        return Answer(f"{who} {what}.", _joined(detail, about, lacking))
    sure = f"{level(confidence)}: {_to(ends, share, digits)}"
    rest = _joined(about, lacking)
    return Answer(f"{who} {what}.", _joined(sure, rest), sure, rest)


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _to(ends: tuple[float, float], share: bool, digits: int) -> str:
    """An interval in per cent, or as numbers."""
    return f"{_hundredths(ends[0])} to {percent(ends[1])}" if share else to(ends, digits)


def _of_first_tries(who: str, of: str, tries: Mapping[str, Estimate], confidence: float) -> Answer:
    """The answer of a run whose numbers of samples follow its results: only first tries estimate a single try."""
    first, *more = tries.values()
    whose = "" if who == "The run" else f" of {who}"
    ends = f" ({_to(first.interval, True, 3)})" if first.interval else ""
    shown = f"First tries{whose} pass {percent(first.value or 0.0)}{ends}"
    for within in more:
        shown = f"{shown}; {percent(within.value or 0.0)} of the tasks{of} are passed within {within.made.k or 1} tries"
    why = "The numbers of samples follow the results, so the mean of all samples is not that of a single try"
    return Answer(f"{shown}.", f"{why}. In brackets: {level(confidence)}" if ends else why)


def _passes(value: float, dataset: str, estimate: Estimate, ledger: Ledger) -> str:
    """``passes 69 % of the tasks``, ``of its samples``, or ``of the tasks within 4 samples``."""
    of = f" of {dataset}" if dataset else ""
    k = estimate.made.k or 1
    if k > 1:
        return f"passes {percent(value)} of the tasks{of} within {k} samples"
    if _several(ledger):
        return f"passes {percent(value)} of its samples{f' on {dataset}' if dataset else ''}"
    return f"passes {percent(value)} of the tasks{of}"


def _several(ledger: Ledger) -> bool:
    """Whether a task has several samples."""
    return ledger.samples_per_task is not None and ledger.samples_per_task[1] > 1


def _of_samples(estimate: Estimate, ledger: Ledger) -> str:
    """``mean over 100 tasks, 4 each; 99 % of the tasks are passed at least once, 28 % always``; "" for one sample."""
    if ledger.samples_per_task is None or not _several(ledger) or (estimate.made.k or 1) > 1:
        return ""
    fewest, most = ledger.samples_per_task
    each = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    tasks = counted(estimate.tasks, "task")
    mean = f"mean over {tasks}, {each} {'each' if estimate.tasks > 1 else 'samples'}"
    if estimate.made.metric == "pass_rate":
        mean = f"of all {counted(estimate.samples, 'sample')} of {tasks}"
    if ledger.tasks_passed is None:
        return mean
    once, always = (percent(number / estimate.tasks) for number in ledger.tasks_passed)
    return f"{mean}; {once} of the tasks are passed at least once, {always} always"


def _with_missing(estimate: Estimate, ledger: Ledger, share: bool, digits: int) -> str:
    """``with the 55 missing rollouts, anything from 40 to 80 %``; "" if few are missing, or the ends are unknown.

    Also with few, if they matter more than chance: if the value itself could lie outside its interval.
    """
    worst, bounds, ends = estimate.worst_interval, estimate.bounds, estimate.interval
    if worst is None or bounds is None:
        return ""
    beyond = ends is not None and (bounds[0] < ends[0] or bounds[1] > ends[1])
    if not beyond and ledger.filled <= MOST_MISSING * ledger.planned:
        return ""
    number = f"{ledger.filled:,} " if ledger.filled > 1 else ""
    what = (
        "missing samples" if estimate.undefined_tasks else f"{number}missing rollout{'' if ledger.filled == 1 else 's'}"
    )
    return f"with the {what}, anything from {_to(worst, share, digits)}"


def of_running(
    who: str,
    dataset: str,
    *,
    finished: int,
    planned: int,
    value: float | None,
    interval: tuple[float, float] | None,
    confidence: float,
) -> Answer:
    """The answer of a run that is still in progress; it says that it is not final.

    The interval is valid at any time, however often it is looked at.

    >>> of_running("m", "arith", finished=212, planned=320, value=0.43, interval=(0.21, 0.66), confidence=0.95).detail
    'Not final: so far 0.430; 0.210 to 0.660 with 95\xa0% confidence however often you look'
    """
    of = f" of {dataset}" if dataset else ""
    sentence = f"{who or 'The run'} has finished {finished:,} of {planned:,} rollouts{of}."
    if value is None:
        return Answer(sentence, "Not final: no task is complete yet")
    digits = places(interval)
    ends = "" if interval is None else f"; {to(interval, digits)} with {100 * confidence:.6g}{_SPACE}% confidence"
    often = f"{ends} however often you look" if ends else ""
    return Answer(sentence, f"Not final: so far {minus(figure(value, digits))}{often}")


def of_quantity(who: str, dataset: str, name: str, value: str, interval: str, per: str, confidence: float) -> Answer:
    """The answer of one run, by a time, a price or a number of tokens with its unit."""
    what = " ".join(filter(None, (f"has {a_or_an(name)} of {value}", per)))
    sure = f"{level(confidence)}: {interval}" if interval else ""
    return Answer(f"{who or 'The run'} {what}{f' on {dataset}' if dataset else ''}.", sure, sure)


def begun(text: str) -> str:
    """The text with a capital first letter, as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def of_suite(who: str, datasets: int, name: str, estimate: Estimate, *, confidence: float) -> Answer:
    """The answer of one model on several datasets: the mean over datasets, each with the same weight."""
    over = f"over {counted(datasets, 'dataset')}"
    who = who or "The run"
    if estimate.value is None:
        return Answer(f"{who} has no mean {name} {over}.", begun(plain_why(estimate.why or "")))
    digits = decimals_of(estimate, places(estimate.interval))
    of_range = " of the range" if f"mean:{OF_RANGE}" in estimate.made.over else ""
    what = f"scores {minus(figure(estimate.value, digits))}{of_range} {over}"
    if estimate.made.metric != "mean_reward":
        what = f"has a mean {name} of {minus(figure(estimate.value, digits))}{of_range} {over}"
    if estimate.interval is None:
        return Answer(f"{who} {what}.", f"No interval: {plain_why(estimate.why)}" if estimate.why else "")
    sure = f"{level(confidence)}: {outward(estimate.interval, digits)}"
    return Answer(f"{who} {what}.", sure, sure)


def of_difference(
    first: str,
    second: str,
    verdict: str,
    delta: float | None,
    interval: tuple[float, float] | None,
    *,
    confidence: float,
    margin: float | None = None,
    why: str | None = None,
    over: str = "",
    but: str = "",
    digits: int | None = None,
    unit: str = "",
    even_if: str = "",
    reasons: Sequence[str] = (),
) -> Answer:
    """The answer of a comparison of ``second`` with ``first``; ``delta`` is second minus first.

    ``verdict`` is better, worse, equivalent or undecided; higher or lower for a metric without a better direction.
    ``over`` names what the difference is a mean over, such as "five benchmarks", and ``but`` the parts of it that are
    decided the other way. With ``digits`` the interval has that many decimals and is rounded outward. ``unit`` follows
    the size of the difference. ``even_if`` is the worst case that a verdict survives, and ``reasons`` say why there is
    none: the first one ends the answer, the others follow it.
    """
    signed_to = partial(_signed_to, outward=digits is not None)
    digits = places(interval) if digits is None else digits
    across = f" over {over}" if over else ""
    if delta is None:
        return Answer(f"Not decided: {second} against {first}{across}.", begun(why or ""))
    size = f"{figure(abs(delta), digits)}{unit}"
    ends = f"{level(confidence)} {signed_to(interval, digits)}" if interval else f"no interval: {why}" if why else ""
    if verdict in ("better", "worse", "higher", "lower"):
        on_average = " on average" if but else ""
        what = f"is {verdict} than {first}{on_average} by {size}"
        across += f"; {but}" if but else ""
        of = (
            f"{level(confidence)} of the {'mean ' if over else ''}difference: {signed_to(interval, digits)}"
            if interval
            else ends
        )
        brackets = f"{level(confidence)}: {signed_to(interval, digits)}" if interval else ends
        if even_if:
            return Answer(f"{second} {what}{across} ({brackets}), {even_if}.", "", "", "")
        return Answer(f"{second} {what}{across}.", of, brackets)
    seen = ", ".join(filter(None, [f"Difference {signed(delta, digits)}", ends]))
    brackets = seen[0].lower() + seen[1:]
    if verdict == "equivalent":
        return Answer(f"{second} and {first} are equivalent within {margin:g}{across}.", seen, brackets)
    if reasons:
        reason, *more = reasons
        detail = ". ".join([*map(begun, more), seen])
        return Answer(f"Not decided{across}: {reason}.", detail)
    return Answer(f"Not decided: {second} against {first}{across}.", seen, brackets)


def _signed_to(pair: tuple[float, float], digits: int, *, outward: bool) -> str:
    return signed_outward(pair, digits) if outward else signed_to(pair, digits)


def of_leaderboard(
    best: str, models: int, *, tied: int, ties: int, pairs: int, group: tuple[int, int] | None = None, why: str = ""
) -> Answer:
    """The answer of a leaderboard: the first model, and how many pairs are ties.

    ``why`` is the reason why no model is first, if it is not that the tasks cannot tell.

    ``tied`` is the number of models tied with the first. ``group`` is the longest range of ranks in which all pairs
    are ties; it is mentioned if it joins at least three models, but not all.
    """
    if pairs == 1:
        alone = "The only pair is a tie" if ties else ""
    else:
        alone = f"{ties:,} of {pairs:,} pairs {'is a tie' if ties == 1 else 'are ties'}"
    if group and group[1] - group[0] > 1 and group[1] - group[0] < models - 1:
        alone += f"; ranks {group[0]:,} to {group[1]:,} are one group"
    if not tied:
        return Answer(f"{best} is first of {models:,}.", " ".join(filter(None, ["Its lead is decided.", alone])))
    if why:
        return Answer(f"No model is first: {why}.", alone)
    whom = "the other" if models == 2 else "all others" if tied == models - 1 else f"{tied:,} of them"
    return Answer(f"{best} leads {models:,} models, tied with {whom}.", alone)


def of_pick(models: int, bias: float, *, higher_is_better: bool = True, digits: int = 3) -> str:
    """A sentence with the selection bias of the best of several models."""
    least = 10**-digits
    size = f"about {figure(bias, digits)}" if bias >= least / 2 else f"less than {figure(least, digits)}"
    return f"As the pick of {models:,} it is {size} too {'good' if higher_is_better else 'low'}."


def of_gate(passed: int, rules: int, first_failure: str = "", *, word: str = "", failed: int | None = None) -> Answer:
    """The answer of a gate: how many rules passed, and the first rule that did not, in words.

    ``word`` is the answer if the counts do not determine it: a gate may pass with allowed failures, and it is undefined
    if a rule has no answer. ``failed`` is the number of failed rules, by default all that did not pass; the remaining
    rules have no answer.
    """
    word = word or ("passed" if passed == rules else "failed")
    lost = rules - passed if failed is None else failed
    counts = {
        "passed": ("Passed", passed),
        "failed": ("Failed", lost),
        "undefined": ("No answer", rules - passed - lost),
    }
    name, number = counts[word]
    return Answer(f"{name}: {number:,} of {counted(rules, 'rule')}.", first_failure)


def planned(ledger: Ledger, missing: str) -> str:
    """The account of all planned rollouts: ``320 planned = 281 scored + 22 counted as 0 + 17 missing (excluded)``."""
    kept = sum(ledger.rewarded.values())
    zeros = ledger.planned - ledger.scored - ledger.gaps - ledger.stopped_early - kept
    words = ", ".join(f"{number:,} {outcome}" for outcome, number in ledger.rewarded.items())
    parts = [
        (ledger.scored, "scored"),
        (kept, f"with a reward ({words})"),
        (zeros, "counted as 0"),
        (ledger.gaps, f"missing ({POLICY.get(missing, missing)})"),
        (ledger.stopped_early, "not run (stopped early)"),
    ]
    origin = "" if ledger.planned_from in ("rows", "plan") else f" (from {ledger.planned_from})"
    sums = " + ".join(f"{number:,} {what}".replace(" ", _SPACE) for number, what in parts if number) or "0"
    return f"{ledger.planned:,} planned{origin} = {sums}{'' if ledger.gaps else ', none missing'}"


def outcomes(ledger: Ledger, kind: Literal["counted as 0", "missing"]) -> str:
    """The outcomes of the rollouts that count as 0, or that are missing: ``8 refused, 7 truncated, 7 unparsed``."""
    zeros, gaps = OUTCOMES[SCORED + 1 : FIRST_GAP], OUTCOMES[FIRST_GAP:STOPPED_EARLY]
    counts = {word: ledger.outcomes.get(word, 0) for word in (zeros if kind == "counted as 0" else gaps)}
    if kind == "counted as 0":
        counts = {word: number - ledger.rewarded.get(word, 0) for word, number in counts.items()}
    return ", ".join(f"{number:,}{_SPACE}{word}" for word, number in counts.items() if number)


def samples_each(ledger: Ledger) -> str:
    """``40 tasks, 8 samples each``; ``5 to 8 samples each`` if the numbers of samples differ."""
    tasks = counted(ledger.tasks, "task")
    if ledger.samples_per_task is None:
        return f"{tasks}, {counted(ledger.planned, 'rollout')}"
    fewest, most = ledger.samples_per_task
    each = counted(most, "sample") if fewest == most else f"{fewest:,} to {counted(most, 'sample')}"
    return f"{tasks}, {each}{' each' if ledger.tasks > 1 else ''}"


def spent(totals: Mapping[str, float], economics: Mapping[str, Estimate]) -> str:
    """The cost of a run: ``33,813 tokens, $0.055, 14 min 16 s; per solved task $0.0018, 27.6 s``; "" if unknown."""
    tokens = [totals[name] for name in ("input_tokens", "output_tokens") if name in totals]
    parts = [f"{sum(tokens):,.0f}{_SPACE}tokens"] if tokens else []
    parts += [_total_price(totals["cost_usd"])] if "cost_usd" in totals else []
    parts += [duration(totals["latency_s"]).replace(" ", _SPACE)] if "latency_s" in totals else []
    price, time = (_first_of(economics, name) for name in ("cost_per_solved", "time_per_solved"))
    known = [estimate for estimate in (price, time) if estimate is not None and estimate.why != NO_SUM]
    if not known:
        return ", ".join(parts)
    if all(estimate.value is None for estimate in known):
        return f"{', '.join(parts)}; no task was solved"
    seconds = [duration(time.value).replace(" ", _SPACE)] if time is not None and time.value is not None else []
    if price is not None and price.value is not None and 0 < price.value < CHEAP:
        each = ", ".join([money_per(price.value, "solved task"), *(f"{text} per solved task" for text in seconds)])
        return f"{', '.join(parts)}; {each}"
    dollars = [money(price.value)] if price is not None and price.value is not None else []
    return f"{', '.join(parts)}; per solved task {', '.join([*dollars, *seconds])}"


def _total_price(amount: float) -> str:
    """A total in dollars; a negligible one as ``less than $0.0001``."""
    return f"less than ${TRIFLE}" if 0 < amount < TRIFLE else money(amount)


def _first_of(economics: Mapping[str, Estimate], metric: str) -> Estimate | None:
    return next((each for each in economics.values() if each.made.metric == metric), None)


def to_narrow(split: Split) -> str:
    """How far twice the tasks, or more samples, would narrow the interval of a mean; "" if it has no variance."""
    if not split.tasks and not split.sampling:
        return ""
    half, most = f"interval {percent(TWICE)} narrower", split.narrowing
    if most is None:
        return f"twice the tasks, or twice the samples: {half}"
    samples = f"at most {percent(most)}" if most >= WORTH_SAYING else "hardly"
    return f"twice the tasks: {half}; more samples: {samples}"


def money(amount: float) -> str:
    """US dollars: two digits below one dollar, cents above it.

    >>> money(0.0546), money(3.153), money(12345.6), money(0.0)
    ('$0.055', '$3.15', '$12,346', '$0')
    """
    size = abs(amount)
    if size == 0:
        return "$0"
    sign = MINUS if amount < 0 else ""
    if size >= 1000 or math.isnan(size):  # a table may have NaN
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:.2f}"
    return f"{sign}${size:.{1 - math.floor(math.log10(size))}f}"


def money_per(amount: float, unit: str) -> str:
    """A price per unit; below a tenth of a cent, per thousand or per million units.

    >>> money_per(0.0018, "task"), money_per(0.000173, "sample"), money_per(0.000003153, "sample")
    ('$0.0018 per task', '$0.17 per 1,000 samples', '$3.15 per million samples')
    """
    times, units = _priced_for(amount, unit)
    return f"{money(amount * times)} per {units}"


def _priced_for(amount: float, unit: str) -> tuple[float, str]:
    """The number of units for which a price per unit is shown, and these units in words."""
    if not 0 < abs(amount) < CHEAP:
        return 1.0, unit
    return (1e3, f"1,000 {unit}s") if abs(amount) >= 1e-5 else (1e6, f"million {unit}s")


def duration(seconds: float) -> str:
    """A time in the units that people use; a negative one is shown as zero.

    >>> duration(2.39), duration(856), duration(27.6), duration(0.0042), duration(7300)
    ('2.4 s', '14 min 16 s', '27.6 s', '4.2 ms', '2 h 2 min')
    """
    seconds = max(seconds, 0.0)
    if seconds == 0 or not math.isfinite(seconds):  # a sum of times may overflow, and a table may have NaN
        return f"{seconds:.0f} s"
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def _scores(name: str, value: float, digits: int, dataset: str, estimate: Estimate) -> str:
    on = f" on {dataset}" if dataset else ""
    if estimate.made.metric == "mean_reward":
        return f"scores {minus(figure(value, digits))}{on}"
    return f"has {a_or_an(name)} of {minus(figure(value, digits))}{on}"


def _hundredths(share: float) -> str:
    """A share in per cent without the sign; only exactly 0 and 1 give "0" and "100"."""
    for decimals in range(4):
        text = f"{100 * share:.{decimals}f}"
        if float(text) not in (0.0, 100.0) or share in (0.0, 1.0):
            break
    return text


def short_number(value: float, *, signed: bool = False) -> str:
    """The number at a tick of an axis, in a short form, with U+2212 as its minus.

    >>> short_number(-7500.0), short_number(20_000.0), short_number(2_500_000.0)
    ('−7,500', '20k', '2.5M')
    """
    size, unit_word = abs(value), ""
    if 1e4 <= size < 1e9:
        size, unit_word = (size / 1e6, "M") if size >= 1e6 else (size / 1e3, "k")
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    return f"{sign}{size:,.6g}{unit_word}"


def minus(text: str) -> str:
    """The text of a number with U+2212 as its minus."""
    return text.replace("-", MINUS)


UNITS = {"latency_s": "s", "cost_usd": "USD", "input_tokens": "tokens", "output_tokens": "tokens"}
PER = {
    "time_per_task": "sample",
    "tokens_per_task": "sample",
    "cost_per_task": "sample",
    "total_cost_per_task": "task",
    "cost_per_solved": "solved task",
    "time_per_solved": "solved task",
}
"""Metric -> the unit it is per. The released names of some metrics say "task" but mean one sample of a task."""
OF_METRIC = {
    "time_per_task": "s",
    "tokens_per_task": "tokens",
    "cost_per_task": "USD",
    "total_cost_per_task": "USD",
    "cost_per_solved": "USD",
    "time_per_solved": "s",
    "latency_p50": "s",
    "latency_p90": "s",
    "latency_p99": "s",
}
"""Metric -> its unit, as on its card; a copy, so that a page need not read all cards."""
_OF_A_SAMPLE = ("mean", "median", "min", "max", "percentile")  # statistics of a column over rollouts


@dataclass(frozen=True, slots=True)
class Quantity:
    """An estimate as texts: its value, its interval, its unit (such as ``per 1,000 samples``), its standard error."""

    value: str
    interval: str
    per: str = ""
    stderr: str = ""


def unit(estimate: Estimate) -> str:
    """The unit of an estimate: ``s``, ``USD``, ``tokens``; "" for a reward or a share."""
    column = next((part[7:] for part in estimate.made.settings if part.startswith("column:")), "")
    return UNITS.get(column) or OF_METRIC.get(estimate.made.metric, "")


def digits(estimates: Iterable[Estimate]) -> int:
    """The decimals of rewards and shares in one table: three, or four if an interval is narrow."""
    return places(*(estimate.interval for estimate in estimates if not unit(estimate) and _is_ordinary(estimate)))


def quantity(estimate: Estimate, decimals: int = 3) -> Quantity:
    """An estimate as texts; ``decimals`` are those of a reward or a share."""
    value, ends, per = estimate.value, estimate.interval, PER.get(estimate.made.metric, "")
    unit_name = unit(estimate)
    if value is None or not math.isfinite(value):
        return Quantity(NONE, "", f"per {per}" if per else "")
    if unit_name == "USD":
        per = "sample" if estimate.made.metric in _OF_A_SAMPLE else per
        return _price(value, ends, per, estimate.stderr)
    if unit_name == "s":
        low_high = "" if ends is None else _times(max(ends[0], 0.0), ends[1])
        error = "" if estimate.stderr is None else duration(estimate.stderr)
        return Quantity(duration(value), low_high, f"per {per}" if per else "", error)
    if unit_name == "tokens":
        token_decimals = 0 if abs(value) >= 10 else 1
        counts = "" if ends is None else to((max(ends[0], 0.0), ends[1]), token_decimals)
        error = "" if estimate.stderr is None else figure(estimate.stderr, 1)
        return Quantity(figure(value, token_decimals), counts, f"tokens per {per}" if per else "tokens", error)
    decimals = decimals_of(estimate, decimals)
    return Quantity(minus(figure(value, decimals)), "" if ends is None else to(ends, decimals))


def _price(value: float, ends: tuple[float, float] | None, per: str, stderr: float | None) -> Quantity:
    """A price in dollars; below a tenth of a cent, per thousand or per million units."""
    times, units = _priced_for(value, per) if per else (1.0, "")
    low_high = "" if ends is None else f"{money(max(ends[0], 0.0) * times)} to {money(ends[1] * times)}"
    error = "" if stderr is None else money(stderr * times)
    return Quantity(money(value * times), low_high, f"per {units}" if units else "", error)


def _times(low: float, high: float) -> str:
    """An interval of times; a unit that both ends share is shown once: ``2.4 to 3.0 s``."""
    first, second = duration(low), duration(high)
    number, _, name = first.partition(" ")
    same_unit = name == second.partition(" ")[2] and " " not in name
    return f"{number} to {second}" if same_unit else f"{first} to {second}"


def _size(estimate: Estimate) -> float:
    """The largest absolute value of an estimate and the ends of its interval."""
    numbers = (estimate.value or 0.0, *(estimate.interval or ()))
    return max(map(abs, filter(math.isfinite, numbers)), default=0.0)


def _is_ordinary(estimate: Estimate) -> bool:
    """Whether the usual number of decimals suits an estimate, because it is neither tiny nor large."""
    size = _size(estimate)
    return size == 0 or 0.01 <= size < 10


def decimals_of(estimate: Estimate, usual: int) -> int:
    """The number of decimals of an estimate in a table: the usual one, or four digits if it is tiny or large."""
    if _is_ordinary(estimate):
        return usual
    return min(max(3 - math.floor(math.log10(_size(estimate))), 0), MOST_DECIMALS)
