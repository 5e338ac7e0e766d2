"""A comparison as a Document: first the verdict in a sentence, then the numbers behind it; and for CI."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from calipers.analyses.compare import (
    FIELDS,
    HOLM,
    SIDAK,
    Changed,
    Comparison,
    Contest,
    Finding,
    OneSide,
    Pair,
    Ranks,
    Run,
)
from calipers.analyses.compare.page import LOSSES, MANY, hints, short_page, survives, ways
from calipers.reports.document import (
    Blank,
    Block,
    Cell,
    Document,
    Name,
    Piece,
    Row,
    Sentence,
    SentenceList,
    Styled,
    Table,
    TableColumn,
    Title,
)
from calipers.reports.figures import NONE, POLICY, counted, figure, letters, percent
from calipers.reports.github import Level, annotation
from calipers.reports.junit import Case, Kind, TestSuite
from calipers.reports.plain_words import plain_method, plain_why
from calipers.reports.untrusted_text import clean, note_line

NAME = 40  # characters of a run's name
ANSWER = 120  # characters of an answer in a cell of Markdown
_NAMED = 5  # tasks of one side that are named
_NO_BREAK = "\N{NO-BREAK SPACE}"
_ARROWS = {True: " ↑", False: " ↓", None: ""}
_EXACT = 1e-9  # of the size of a number: a spread below is the rounding of sums, and deserves no decimals
KINDS: Mapping[str, Kind] = {"worse": "failure", "undecided": "skipped"}
LEVELS: Mapping[str, Level] = {"worse": "error", "undecided": "notice"}


def document(comparison: Comparison, *, pairs: bool = False, details: bool = False, losses: int = LOSSES) -> Document:
    """A comparison as a page: the verdict, the numbers behind it, and the tasks with the largest ``losses`` and gains.

    ``details`` has the verdicts, figures and changed tasks of each pair of runs, then the ranks. With more than `MANY`
    runs the ranks come first, and every pair is shown only with ``pairs``.
    """
    long = details or pairs
    return Document(
        partial(_blocks, comparison, pairs) if long else partial(short_page, comparison, losses),
        comparison.to_dict,
        FIELDS,
        comparison.rows,
        escaped="\\`*_[]|#!~<@",
        flush_right=not long,
        paged=not long,
    )


def _blocks(comparison: Comparison, pairs: bool) -> Iterator[Block]:
    for contest in comparison.contests:
        yield from _contest(contest, comparison, pairs)
    for note in comparison.notes:  # a terminal has them beside the output
        yield SentenceList([Sentence("", markdown=note)])
    yield Sentence(settings(comparison), "note")


def _contest(contest: Contest, comparison: Comparison, pairs: bool) -> Iterator[Block]:
    if contest.dataset:
        yield Title(Name(contest.dataset, None))
    names, labels = shown_names(contest.runs), letters(len(contest.runs))
    many = len(contest.runs) > MANY and any(ranks.places for ranks in contest.ranks)
    shown = pairs or not many or len(contest.pairs) < len(contest.runs)  # each with a baseline is what was asked for
    each: list[Block] = []
    if shown:
        yield from _legend(contest, names, labels)
        for pair in contest.pairs:
            each += [Blank(), *_pair(pair, names, labels, comparison)]
    else:
        each = [Blank(), Sentence(f"{counted(len(contest.pairs), 'pair')}: --pairs shows each")]
    ranked: list[Block] = []
    for ranks, metrics in _same_ranks(contest.ranks) if many else [(ranks, [ranks.metric]) for ranks in contest.ranks]:
        ranked += [Blank(), *_ranks(ranks, metrics, names, comparison)]
    yield from (*ranked, *each) if many else (*each, *ranked)
    yield Blank()


def _legend(contest: Contest, names: Sequence[str], labels: Sequence[str]) -> Iterator[Block]:
    """Which letter is which run."""
    for label, run, name in zip(labels, contest.runs, names, strict=True):
        known = [part for part in (run.model, run.agent, run.source) if part and part not in run.name]
        account = f"({counted(run.tasks, 'task')}, {counted(run.samples, 'sample')})"
        rest = "".join(f"  {clean(part, None)}" for part in (*known, account))
        first = Styled(f"{label:{len(labels[-1])}}  ", "note")
        yield Sentence((first, Styled(name), rest), "note", whole=True, markdown="")


def _same_ranks(every: Sequence[Ranks]) -> list[tuple[Ranks, list[str]]]:
    """Each table of ranks once, with all metrics that have it: a rate of passes is the mean of rewards of 0 and 1."""
    tables: dict[object, tuple[Ranks, list[str]]] = {}
    for ranks in every:
        rows = [(standing.run, figure(standing.value), standing.rank_set) for standing in ranks.places]
        tables.setdefault((ranks.tasks, ranks.why, tuple(rows)), (ranks, []))[1].append(ranks.metric)
    return list(tables.values())


def _pair(pair: Pair, all_names: Sequence[str], all_labels: Sequence[str], comparison: Comparison) -> Iterator[Block]:
    names = all_names[pair.first], all_names[pair.second]
    labels = all_labels[pair.first], all_labels[pair.second]
    yield Title("", markdown=(Name(names[1], None), " compared with ", Name(names[0], None)), level=4)
    verdicts = []
    for (verdict, text), below in zip(sentences(pair, names), under_verdicts(pair, names), strict=True):
        verdicts.append(Sentence(text.replace(" %", f"{_NO_BREAK}%"), "strong", (Styled(verdict), f": {text}")))
        verdicts += [Sentence(line, "strong", indent=1) for line in below]
    yield SentenceList(verdicts)
    notes = [Sentence(note_line(note), markdown=note) for note in (hints(pair), *pair.notes) if note]
    yield SentenceList([Sentence(common_tasks(pair, names)), *notes])
    yield Blank()
    yield _findings(pair, names, labels, comparison)
    if pair.flips and (pair.flips.worse or pair.flips.better):
        flips = pair.flips
        yield Blank()
        yield Sentence((Name(flips.metric), f" by task: {tally(pair)}"), "strong", whole=True)
        counts, lists = (flips.worse, flips.better), (flips.regressions, flips.fixes)
        for what, count, those in zip(ways(pair), counts, lists, strict=True):
            if those:
                many = f"{len(those)} of {count:,}" if count > len(those) else f"{count:,}"
                yield Sentence(f"{what}, {many}", "note", whole=True, markdown="")
                yield _changed(what, those, labels)


def _findings(pair: Pair, names: tuple[str, str], labels: tuple[str, str], comparison: Comparison) -> Table:
    """All findings of a pair: first those over all tasks, then the slices, by metric on a terminal."""
    first, second = labels
    several = comparison.tests > 1 and comparison.adjust != "none"
    adjusted = {"bh": "p (BH)", "holm": "p (Holm)"}.get(comparison.adjust, "p adjusted")
    columns = [
        TableColumn("metric", style="strong"),
        TableColumn(only="terminal", heading=True),
        TableColumn(first, "point", markdown="first"),
        TableColumn(second, "point", markdown="second"),
        TableColumn(f"{second} - {first}", "point", "value", markdown="difference"),
        TableColumn(f"{percent(comparison.confidence)} interval", yields=2, verbatim=True),
        TableColumn("p", "right", yields=1 if several else 0),
        TableColumn(adjusted, "right", markdown="p adjusted", only=None if several else "markdown"),
        TableColumn("verdict", style="value"),
    ]
    rows = []
    for finding in pair.findings:
        shown = clean(finding.metric) + _ARROWS[finding.higher_is_better]
        name, heading = Name(finding.metric, 80, plain=shown), ""
        if finding.by is not None:
            name = Name(f"{finding.metric} | {finding.by}={finding.slice}", 80, plain=clean(finding.slice or ""))
            heading = f"{shown} by {clean(finding.by)}"
        cells: list[Cell] = [
            name,
            heading,
            *figures(finding),
            chance(finding.p),
            chance(finding.p_adjusted),
            word(finding),
        ]
        rows.append(Row(cells, detail(finding, labels), "; ".join(detail(finding, names))))
    return Table(columns, rows, notes_head="")


def _changed(what: str, those: Sequence[Changed], labels: tuple[str, str]) -> Table:
    """Changed tasks, one a row, with both answers as far as there is room."""
    given = any(text is not None for task in those for text in task.answers)
    columns = [
        TableColumn("", style="strong", markdown=what),
        TableColumn(" → ".join(labels), only="terminal"),
        *(TableColumn(word, only="markdown") for word in ("first", "second")),
        *(TableColumn(f"{label} answered", style="note", only="terminal", cut=True) for label in labels if given),
        *(TableColumn(f"{word} answered", only="markdown") for word in ("first", "second")),
    ]
    rows = []
    for task in those:
        values = f"{task.first:.4g}", f"{task.second:.4g}"
        full = [answer(text) for text in task.answers if given]
        ends = ["" if text is None else Name(answer(text, ANSWER), None) for text in task.answers]
        rows.append(
            Row([Name(task.task, plain=f"  {clean(task.task, 30)}"), " → ".join(values), *values, *full, *ends])
        )
    return Table(columns, rows, ruled=False)


def answer(text: str | None, longest: int | None = None) -> str:
    """An answer on one line; of a long answer the end, where the final answer usually is."""
    if text is None:
        return NONE
    text = " ".join(text.split())
    return text if longest is None or len(text) <= longest else "…" + text[1 - longest :]


def _ranks(ranks: Ranks, metrics: Sequence[str], names: Sequence[str], comparison: Comparison) -> Iterator[Block]:
    by: tuple[Piece, ...] = (
        "ranks by ",
        Name(", ".join(metrics)),
        f" over {counted(ranks.tasks, 'task')} that all runs have",
    )
    yield Sentence(by, "strong", whole=True, markdown="")
    if ranks.why:
        why = plain_why(ranks.why)
        yield Sentence(f"no ranks: {why}", "note", f"no ranks by {', '.join(metrics)}: {why}", indent=1)
        return
    columns = [
        TableColumn("rank", "right"),
        TableColumn("run", style="strong", markdown=("by ", Name(", ".join(metrics)))),
        TableColumn("value", "point", "value"),
        TableColumn(f"{percent(comparison.confidence)} rank set"),
        TableColumn("best in", "right"),
    ]
    rows = []
    for standing in ranks.places:
        low, high = standing.rank_set
        draws = f"{likely(standing.chance_best)} of draws"
        cells: list[Cell] = [
            f"{standing.rank:g}",
            Name(names[standing.run], None),
            figure(standing.value),
            f"{low} to {high}",
            draws,
        ]
        rows.append(Row(cells))
    yield Table(columns, rows)
    yield SentenceList([Sentence(text, "note") for text in about_ranks(ranks, names, comparison.confidence)])


def shown_names(runs: Sequence[Run]) -> list[str]:
    """The names of runs on the page: long names are cut in the middle, unless two would then be the same.

    Models of one family differ at the end of their names, so that a cut at the end would make them the same.
    """
    short = [clean(_shortened(run.name), None) for run in runs]
    return [name if short.count(name) == 1 else clean(run.name, None) for name, run in zip(short, runs, strict=True)]


def _shortened(name: str) -> str:
    half = NAME // 2
    return name if len(name) <= NAME else f"{name[: half - 1]}…{name[-half:]}"


def sentences(pair: Pair, names: tuple[str, str]) -> list[tuple[str, str]]:
    """The verdicts of the primary question and over all tasks, (word, sentence); equal sentences share a line.

    ``names`` are those of the first and the second run, as `shown_names` makes them.
    """
    return [
        (those[0].verdict, sentence(those[0], names, ", ".join(map(_question, those)))) for those in _by_sentence(pair)
    ]


def _by_sentence(pair: Pair) -> list[list[Finding]]:
    """The findings that have a sentence on the page, grouped by it."""
    by_sentence: dict[str, list[Finding]] = {}
    for finding in sorted(pair.findings, key=lambda each: each.role != "primary"):  # stable: the rest in their order
        if finding.by is None or finding.role == "primary":
            by_sentence.setdefault(finding.sentence, []).append(finding)
    return list(by_sentence.values())


def _question(finding: Finding) -> str:
    cut = "" if finding.by is None else f"[{clean(finding.by)}={clean(finding.slice or '')}]"
    return clean(finding.metric) + cut


def sentence(finding: Finding, names: tuple[str, str], of: str) -> str:
    """A finding as a sentence with the names of both runs.

    ``finding.sentence`` begins with the word of the verdict; the names go before it.
    """
    first, second = names
    text = plain_why(finding.sentence)
    if finding.verdict == "undecided" and finding.hint is None:
        which = "higher" if finding.higher_is_better is None else "better"
        return f"{of}: undecided whether {second} or {first} is {which}{text.removeprefix('undecided')}"
    if finding.hint is not None:
        return f"{of}: {text}"
    if finding.verdict == "equivalent":
        return f"{of}: {second} and {first} are {text}"
    return f"{of}: {second} is {finding.verdict} than {first}{text.removeprefix(finding.verdict)}"


def under_verdicts(pair: Pair, names: tuple[str, str]) -> list[list[str]]:
    """How missing rollouts could change each verdict of `sentences`, in their order; [] where none is missing.

    Where metrics share a sentence but not this line, each line begins with its metrics.
    """
    lines = []
    for those in _by_sentence(pair):
        by_sentence: dict[str, list[str]] = {}
        for finding in those:
            by_sentence.setdefault(of_missing(finding, names), []).append(_question(finding))
        lines.append(
            [
                text if len(by_sentence) == 1 else f"{', '.join(metrics)}: {text}"
                for text, metrics in by_sentence.items()
                if text
            ]
        )
    return lines


def of_missing(finding: Finding, names: tuple[str, str]) -> str:
    """Whether the verdict depends on the missing rollouts, and the range of the difference; "" without any.

    ``names`` are those of the first and the second run.
    """
    if not any(finding.missing) or finding.delta is None:
        return ""
    if finding.bounds is None:
        return f"no bounds are known for {clean(finding.metric)} with {_missing(finding, names)}"
    low, high = (_signed(end, 4) for end in finding.bounds)
    if words := survives(finding, names):
        return f"{words}; the difference is {low} to {high}, depending on the missing rollouts"
    return f"the difference is {low} to {high}, depending on the {_missing(finding, names)}"


def _missing(finding: Finding, names: tuple[str, str]) -> str:
    """``59 missing rollouts of B and 12 of A``."""
    parts: list[str] = []
    for count, name in zip(finding.missing[::-1], names[::-1], strict=True):
        if count:
            parts.append(f"{count:,} of {name}" if parts else f"{counted(count, 'missing rollout')} of {name}")
    return " and ".join(parts)


def common_tasks(pair: Pair, names: tuple[str, str]) -> str:
    """Which tasks the runs share, and which only one of them has."""
    aligned = pair.alignment
    how = "" if aligned.by == "id" else ", paired by content, because their ids differ"
    parts = [f"{counted(aligned.common, 'common task')}{how}"]
    sides = aligned.only_first, aligned.only_second
    for side, name in zip(sides, names, strict=True):
        if side.count:
            parts.append(f"{side.count:,} only in {name} ({_named(side)})")
    return "; ".join(parts)


def settings(comparison: Comparison) -> str:
    """The settings and the digest: equal digests mean equal numbers."""
    parts = [plain_method(comparison.test)]
    used = _tests(comparison)
    if set(used) == {_DRAWN}:
        parts = [plain_method(_DRAWN)]
    elif comparison.test != _DRAWN and _DRAWN in used:
        parts.append(f"{plain_method(_DRAWN)} for {', '.join(map(clean, used[_DRAWN]))}")
    if set(used) & set(_OF_P_ONLY):
        parts.append("intervals from the paired t test (floored_t)")
    parts += [f"confidence level {percent(comparison.confidence)}", f"{comparison.dialect} definitions"]
    parts += [f"missing rollouts {POLICY.get(comparison.missing, comparison.missing)}", f"seed {comparison.seed}"]
    if comparison.cluster:
        parts.append(f"clusters by {clean(comparison.cluster)}")
    if comparison.margin is not None:
        how = sorted({finding.margin_method for finding in _all(comparison) if finding.margin_method in _OF_MARGINS})
        parts.append(f"margin {comparison.margin:g}" + (f" ({' and '.join(how)})" if how else ""))
    if comparison.order is not None:
        parts.append(f"tasks in the order of the {plain_why(comparison.order)}")
    if comparison.tests > 1:
        parts.append(_family(comparison))
    return f"{'; '.join(parts)}; digest {comparison.digest[:23]}…"


def _family(comparison: Comparison) -> str:
    """How several tests were adjusted."""
    if comparison.adjust == HOLM and all(finding.by is not None for finding in _all(comparison)):
        others = "all others adjusted together (Holm), intervals not adjusted"
        return f"primary question {clean(comparison.primary or '', None)}, {others}"
    if comparison.adjust != SIDAK:
        return f"{comparison.tests} tests, {_ADJUSTED[comparison.adjust]}"
    pairs = sum(len(contest.pairs) for contest in comparison.contests)
    among = f", one of {pairs} pairs" if pairs > 1 else ""
    rest = {f"{100 * finding.confidence:.4g} %" for finding in _all(comparison) if finding.role == "secondary"}
    at = f", intervals at {rest.pop()}" if len(rest) == 1 else ""
    return f"primary question {clean(comparison.primary or '', None)}{among}, all others adjusted together (sidak{at})"


def _all(comparison: Comparison) -> Iterator[Finding]:
    for contest in comparison.contests:
        for pair in contest.pairs:
            yield from pair.findings


def _tests(comparison: Comparison) -> dict[str, list[str]]:
    """The tests that were used, each with its metrics: a metric that is not a mean always uses the bootstrap."""
    used: dict[str, dict[str, None]] = {}
    for finding in _all(comparison):
        if finding.p is not None:
            used.setdefault(finding.method, {})[finding.metric] = None
    return {method: list(metrics) for method, metrics in used.items()}


_DRAWN = "paired_bootstrap"
_OF_P_ONLY = ("sign_flip", "mcnemar", "mid_p")  # tests without an interval
_ADJUSTED = {
    "holm": "verdicts from p adjusted by Holm, intervals not adjusted",
    "bh": "verdicts from p adjusted by Benjamini and Hochberg, intervals not adjusted",
    "none": "not adjusted",
}


def detail(finding: Finding, names: tuple[str, str]) -> list[str]:
    """The remarks on a finding; missing rollouts only for a slice, as the verdict above covers all tasks."""
    remarks = [f"in {counted(finding.units, 'cluster')}"] if finding.units not in (0, finding.tasks) else []
    if finding.undefined_tasks:
        remarks.append(f"not defined in both runs for {counted(finding.undefined_tasks, 'common task')}")
    if finding.mcnemar:
        test = finding.mcnemar
        moved = _moved(test.second_only, test.first_only, finding.higher_is_better)
        remarks.append(f"McNemar: {moved}, exact p {chance(test.exact)}, mid-p {chance(test.mid_p)}")
    if finding.p_equivalent is not None:
        remarks.append(f"equivalent within the margin: p {chance(finding.p_equivalent)}")
    if finding.p_not_worse is not None:
        remarks.append(f"not worse by more than the margin: p {chance(finding.p_not_worse)}")
    if finding.margin_method not in (None, *_OF_MARGINS):
        remarks.append("the margin test cannot allow for unseen losses, because the range of rewards is not known")
    if finding.tasks_for_margin is not None and finding.verdict == "undecided":
        unit = "task" if finding.units == finding.tasks else "cluster"
        remarks.append(
            f"even {counted(finding.units, unit)} without any difference would not rule out the margin: "
            f"at least {finding.tasks_for_margin:,} are needed"
        )
    if finding.why:
        remarks.append(plain_why(finding.why))
    if finding.by is not None and (lost := of_missing(finding, names)):
        remarks.append(lost)
    return remarks


_OF_MARGINS = ("tango", "margin_score")


def word(finding: Finding) -> str:
    """The verdict in a cell of a table; a hint is marked as one."""
    return finding.verdict if finding.hint is None else f"hint: {finding.hint}"


def _moved(up: int, down: int, higher_is_better: bool | None) -> str:
    """How many tasks were fixed and broken; where no direction is better, how many went from 0 to 1 and back."""
    if higher_is_better is None:
        return f"{up:,} from 0 to 1, {down:,} from 1 to 0"
    fixed, broken = (up, down) if higher_is_better else (down, up)
    return f"{fixed:,} fixed, {broken:,} broken"


def chance(p: float | None) -> str:
    """A p value in a few characters.

    >>> chance(0.0321), chance(0.00001), chance(1.0), chance(None)
    ('0.032', '<0.0001', '1', '–')
    """
    if p is None:
        return NONE
    return "<0.0001" if p < 0.0001 else f"{p:.2g}"


def likely(share: float) -> str:
    """A share of draws in per cent: never 0 and never 100 %, because draws are a sample.

    >>> likely(0.5871), likely(0.0002), likely(1.0)
    ('58.7 %', '<0.1 %', '>99.9 %')
    """
    if share < 0.001:
        return "<0.1 %"
    return ">99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


def figures(finding: Finding) -> tuple[str, str, str, str]:
    """Both values, the difference and its interval, with as many decimals as it deserves."""
    ends = finding.interval or ()
    size = max((abs(x) for x in (finding.first, finding.second, *ends) if x is not None), default=0.0)
    places = 4 if size == 0 or 0.01 <= size < 10 else min(max(3 - math.floor(math.log10(size)), 0), 12)
    if finding.stderr and math.isfinite(finding.stderr) and finding.stderr > _EXACT * size:
        places = min(max(places, 1 - math.floor(math.log10(finding.stderr))), 8)
    low_high = f"[{_signed(ends[0], places)}, {_signed(ends[1], places)}]" if ends else NONE
    return figure(finding.first, places), figure(finding.second, places), _signed(finding.delta, places), low_high


def _signed(value: float | None, places: int) -> str:
    text = figure(value, places)
    return f"+{text}" if value is not None and value > 0 else text


def tally(pair: Pair) -> str:
    """How many tasks became worse, became better, or stayed the same."""
    flips = pair.flips
    worse, better = ways(pair)
    return "" if flips is None else f"{flips.worse:,} {worse}, {flips.better:,} {better}, {flips.same:,} the same"


def about_ranks(ranks: Ranks, names: Sequence[str], confidence: float) -> Iterator[str]:
    """Notes on the table of ranks, and the corrected value of the best run; ``names`` of all runs."""
    if not ranks.places:
        return
    count, first = len(ranks.places), ranks.places[0]
    yield (
        f"{percent(confidence)} rank set: the ranks that are not ruled out; the sets of all {count} runs are valid "
        "together (rank_sets: sign-flip test, step-down)"
    )
    yield (
        f"{names[first.run]} is best in {likely(first.chance_best)} of bootstrap draws of the tasks: this is not its "
        "probability of being the best"
    )
    winner = ranks.winner
    if winner is not None:
        ends = "no interval" if winner.interval is None else _ends(winner.interval, confidence)
        why = f": {plain_why(winner.why)}" if winner.why else ""
        yield (
            f"{names[winner.run]} is the best of {winner.candidates} candidates, with {figure(winner.observed)}. "
            f"Less the selection bias of {figure(abs(winner.bias))}, its value is {figure(winner.value)} "
            f"({ends}{why}; {plain_method(winner.method)}). This is valid if no other candidates were considered"
        )
    if ranks.optimism is not None:
        yield (
            f"optimism: if all {count} runs were equal, the best would look {figure(abs(ranks.optimism))} too good; "
            f"less that, its value is {figure(ranks.corrected)}"
        )


def _ends(interval: tuple[float, float], confidence: float) -> str:
    return f"{percent(confidence)} interval {figure(interval[0])} to {figure(interval[1])}"


def _named(side: OneSide) -> str:
    return ", ".join(clean(task, 30) for task in side.ids[:_NAMED]) + (", …" if side.count > _NAMED else "")


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict as CI shows it."""

    pair: str  # the runs that it is about
    name: str
    verdict: str
    numbers: Mapping[str, float | None]

    @property
    def message(self) -> str:
        """The numbers on one line."""
        return ", ".join(f"{key} {value:.4g}" for key, value in self.numbers.items() if value is not None)


def suites_of(verdicts: Iterable[Judged]) -> list[TestSuite]:
    """For JUnit: a suite for each pair of runs, a case for each verdict.

    `worse` is a failure; an undecided verdict is skipped, so that it is visible and stops nothing.
    """
    cases: dict[str, list[Case]] = {}
    for each in verdicts:
        kind = KINDS.get(each.verdict)
        case = Case(each.name, each.pair, kind, each.message if kind else "", each.verdict)
        cases.setdefault(each.pair, []).append(case)
    return [TestSuite(pair, some) for pair, some in cases.items()]


def annotations_of(verdicts: Iterable[Judged]) -> Iterator[str]:
    """For GitHub: an error for each verdict that is worse, a notice for each that is undecided."""
    for each in verdicts:
        if level := LEVELS.get(each.verdict):
            yield annotation(level, f"{each.verdict}: {each.name}", f"{each.pair}: {each.message}")


def suites(comparison: Comparison) -> list[TestSuite]:
    """For JUnit: a suite for each pair of runs, a case for each finding."""
    return suites_of(_judged(comparison))


def annotated(comparison: Comparison) -> Iterator[str]:
    """For GitHub: a line for each finding that is worse or undecided."""
    return annotations_of(_judged(comparison))


def _judged(comparison: Comparison) -> Iterator[Judged]:
    for row in comparison.rows():
        pair = " · ".join(filter(None, (row["dataset"], f"{row['second_run']} against {row['first_run']}")))
        cut = f"[{row['by']}={row['slice']}]" if row["by"] else ""
        numbers = {key: row[key] for key in ("delta", "low", "high", "p")}
        yield Judged(pair, row["metric"] + cut, row["verdict"], numbers)
