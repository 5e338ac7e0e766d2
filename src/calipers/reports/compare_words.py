"""A comparison in words and figures, the same ones for a terminal, a file and a page."""

from __future__ import annotations

import math

from calipers.reports.compare import Comparison, Finding, OneSide, Pair, Ranks, Run
from calipers.reports.figures import NONE, counted, figure, percent
from calipers.reports.safe import clean

NAME = 40  # characters of a run's name
ANSWER = 200  # characters of an answer at most
_NAMED = 5  # tasks of one side that are named


def sentences(pair: Pair, first: Run, second: Run) -> list[tuple[str, str]]:
    """The verdicts over all tasks, (word, sentence); metrics of which the same is true share one."""
    found: dict[str, list[Finding]] = {}
    for finding in pair.findings:
        if finding.by is None:
            found.setdefault(finding.sentence, []).append(finding)
    return [
        (those[0].verdict, sentence(those[0], first, second, ", ".join(clean(one.metric) for one in those)))
        for those in found.values()
    ]


def sentence(finding: Finding, first: Run, second: Run, of: str) -> str:
    """A finding for somebody who has to act on it.

    The word of the verdict stands first in its own sentence, and so says what to put before it.
    """
    one, two = clean(first.name, NAME), clean(second.name, NAME)
    said = finding.sentence
    if finding.verdict == "undecided":
        which = "higher" if finding.higher_is_better is None else "better"
        return f"{of}: undecided whether {two} or {one} is {which}{said.removeprefix('undecided')}"
    if finding.verdict == "equivalent":
        return f"{of}: {two} and {one} are {said}"
    return f"{of}: {two} is {finding.verdict} than {one}{said.removeprefix(finding.verdict)}"


def common(pair: Pair, first: Run, second: Run) -> str:
    """Which tasks the runs share, and which only one of them has."""
    aligned = pair.alignment
    how = "" if aligned.by == "id" else ", paired by the same content under other ids"
    said = [f"{counted(aligned.common, 'common task')}{how}"]
    for side, run in ((aligned.only_first, first), (aligned.only_second, second)):
        if side.count:
            said.append(f"{side.count:,} only in {clean(run.name, NAME)} ({_named(side)})")
    return "; ".join(said)


def settings(found: Comparison) -> str:
    """How it was made, and the digest that proves it the same."""
    parts = [f"test {found.test}"]
    if found.test in _OF_P_ONLY:
        parts.append("intervals floored_t")
    parts += [f"confidence {percent(found.confidence)}", f"dialect {found.dialect}"]
    parts += [f"missing {found.missing}", f"seed {found.seed}"]
    if found.cluster:
        parts.append(f"clusters {clean(found.cluster)}")
    if found.margin is not None:
        parts.append(f"margin {found.margin:g}")
    if found.tests > 1:
        parts.append(f"p adjusted over {found.tests} tests, verdicts by {_ADJUSTED[found.adjust]}")
    return f"{', '.join(parts)}, digest {found.digest[:23]}…"


_OF_P_ONLY = ("sign_flip", "mcnemar", "mid_p")  # tests that have no interval of their own
_ADJUSTED = {"holm": "Holm's", "bh": "Benjamini and Hochberg's", "none": "the plain p"}


def detail(finding: Finding) -> list[str]:
    """What must be said beside the figures of a finding."""
    said = [f"in {counted(finding.units, 'cluster')}"] if finding.units not in (0, finding.tasks) else []
    if finding.undefined_tasks:
        said.append(f"{counted(finding.undefined_tasks, 'common task')} without a value in both")
    if finding.mcnemar:
        test = finding.mcnemar
        said.append(
            f"McNemar: {test.first_only:,} fixed, {test.second_only:,} broken, "
            f"exact p {chance(test.exact)}, mid-p {chance(test.mid_p)}"
        )
    if finding.p_equivalent is not None:
        said.append(f"equivalent within the margin: p {chance(finding.p_equivalent)}")
    if finding.p_not_worse is not None:
        said.append(f"not worse by more than the margin: p {chance(finding.p_not_worse)}")
    if finding.why:
        said.append(finding.why)
    return said


def chance(p: float | None) -> str:
    """A p value in a few characters.

    >>> chance(0.0321), chance(0.00001), chance(1.0), chance(None)
    ('0.032', '<0.0001', '1', '–')
    """
    if p is None:
        return NONE
    return "<0.0001" if p < 0.0001 else f"{p:.2g}"


def figures(finding: Finding) -> tuple[str, str, str, str]:
    """Both values, the difference and its interval, with as many decimals as it deserves."""
    ends = finding.interval or ()
    size = max((abs(x) for x in (finding.first, finding.second, *ends) if x is not None), default=0.0)
    places = 4 if size == 0 or 0.01 <= size < 10 else min(max(3 - math.floor(math.log10(size)), 0), 12)
    if finding.stderr and math.isfinite(finding.stderr):
        places = min(max(places, 1 - math.floor(math.log10(finding.stderr))), 8)
    low_high = f"[{_signed(ends[0], places)}, {_signed(ends[1], places)}]" if ends else NONE
    return figure(finding.first, places), figure(finding.second, places), _signed(finding.delta, places), low_high


def _signed(value: float | None, places: int) -> str:
    text = figure(value, places)
    return f"+{text}" if value is not None and value > 0 else text


def tally(pair: Pair) -> str:
    """How many tasks went which way."""
    flips = pair.flips
    return "" if flips is None else f"{flips.worse:,} worse, {flips.better:,} better, {flips.same:,} the same"


def answer(text: str | None, longest: int = ANSWER) -> str:
    """An answer on one line, harmless: of a long one the end, where answers stand."""
    if text is None:
        return NONE
    text = " ".join(text.split())
    return clean(text if len(text) <= longest else "…" + text[1 - longest :], None)


def optimism(ranks: Ranks) -> str:
    """What being picked as the best of many is worth."""
    if ranks.optimism is None or not ranks.places:
        return ""
    return (
        f"picked as the best of {len(ranks.places)}: were all of them alike, the best would look "
        f"{figure(abs(ranks.optimism))} too good; less that, its {figure(ranks.places[0].value)} "
        f"is {figure(ranks.corrected)}"
    )


def _named(side: OneSide) -> str:
    return ", ".join(clean(task, 30) for task in side.ids[:_NAMED]) + (", …" if side.count > _NAMED else "")
