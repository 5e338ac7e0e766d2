"""The long page of a comparison, and its verdicts for JUnit and GitHub."""

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
    Pair,
    Ranks,
    Run,
)
from calipers.analyses.compare.page import (
    LOSSES,
    MANY,
    common_count,
    hints,
    question_of,
    short_page,
    survives,
    unless,
    ways,
)
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
from calipers.reports.doubts import doubt_blocks
from calipers.reports.figures import NONE, POLICY, counted, figure, letters, percent
from calipers.reports.github import Level, annotation
from calipers.reports.junit import Case, Kind, TestSuite
from calipers.reports.plain_words import plain_method, plain_why
from calipers.reports.remark_texts import note_of
from calipers.reports.untrusted_text import clean, note_line

NAME = 40  # characters of a run's name
ANSWER = 120  # characters of an answer in a Markdown cell
_NAMED = 5  # tasks of one run that are listed
_NO_BREAK = "\N{NO-BREAK SPACE}"
_ARROWS = {True: " ↑", False: " ↓", None: ""}
_EXACT = 1e-9  # relative to the size of a number: a smaller standard error is only rounding and adds no decimals
KINDS: Mapping[str, Kind] = {"worse": "failure", "undecided": "skipped"}
LEVELS: Mapping[str, Level] = {"worse": "error", "undecided": "notice"}


def document(comparison: Comparison, *, pairs: bool = False, details: bool = False, losses: int = LOSSES) -> Document:
    """The page of a comparison: the verdict, its numbers, and the ``losses`` tasks with the largest losses and gains.

    With ``details`` it has the verdicts, figures and changed tasks of each pair of runs, then the ranks. With more than
    `MANY` runs the ranks come first, and every pair is shown only with ``pairs``.
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
    yield from doubt_blocks(comparison.doubts)
    for note in comparison.notes:  # on a terminal the command prints them to stderr
        yield SentenceList([Sentence("", markdown=note)])
    yield Sentence(settings(comparison), "note")


def _contest(contest: Contest, comparison: Comparison, pairs: bool) -> Iterator[Block]:
    if contest.dataset:
        yield Title(Name(contest.dataset, None))
    names, labels = shown_names(contest.runs), letters(len(contest.runs))
    many = len(contest.runs) > MANY and any(ranks.places for ranks in contest.ranks)
    show_pairs = pairs or not many or len(contest.pairs) < len(contest.runs)  # a baseline asks for its pairs
    pair_blocks: list[Block] = []
    if show_pairs:
        yield from _legend(contest, names, labels)
        for pair in contest.pairs:
            pair_blocks += [Blank(), *_pair(pair, names, labels, comparison)]
    else:
        pair_blocks = [Blank(), Sentence(f"{counted(len(contest.pairs), 'pair')}: --pairs shows each")]
    rank_tables = _merge_equal_ranks(contest.ranks) if many else [(ranks, [ranks.metric]) for ranks in contest.ranks]
    rank_blocks: list[Block] = []
    for ranks, metrics in rank_tables:
        rank_blocks += [Blank(), *_ranks(ranks, metrics, names, comparison)]
    yield from (*rank_blocks, *pair_blocks) if many else (*pair_blocks, *rank_blocks)
    yield Blank()


def _legend(contest: Contest, names: Sequence[str], labels: Sequence[str]) -> Iterator[Block]:
    """The run that each letter stands for."""
    for label, run, name in zip(labels, contest.runs, names, strict=True):
        parts = [part for part in (run.model, run.agent, run.source) if part and part not in run.name]
        parts.append(f"({counted(run.tasks, 'task')}, {counted(run.samples, 'sample')})")
        details = "".join(f"  {clean(part, None)}" for part in parts)
        letter = Styled(f"{label:{len(labels[-1])}}  ", "note")
        yield Sentence((letter, Styled(name), details), "note", whole=True, markdown="")


def _merge_equal_ranks(all_ranks: Sequence[Ranks]) -> list[tuple[Ranks, list[str]]]:
    """Each different table of ranks with all its metrics: pass_rate and mean_reward agree if rewards are 0 or 1."""
    tables: dict[object, tuple[Ranks, list[str]]] = {}
    for ranks in all_ranks:
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
    all_notes = [hints(pair), *map(note_of, pair.remarks), *pair.notes]
    notes = [Sentence(note_line(note), markdown=note) for note in all_notes if note]
    yield SentenceList([Sentence(common_tasks(pair, names)), *notes])
    yield Blank()
    yield _findings(pair, names, labels, comparison)
    if pair.flips and (pair.flips.worse or pair.flips.better):
        flips = pair.flips
        yield Blank()
        yield Sentence((Name(flips.metric), f" by task: {tally(pair)}"), "strong", whole=True)
        counts, lists = (flips.worse, flips.better), (flips.regressions, flips.fixes)
        for title, count, changes in zip(ways(pair), counts, lists, strict=True):
            if changes:
                shown = f"{len(changes)} of {count:,}" if count > len(changes) else f"{count:,}"
                yield Sentence(f"{title}, {shown}", "note", whole=True, markdown="")
                yield _changed_tasks(title, changes, labels)


def _findings(pair: Pair, names: tuple[str, str], labels: tuple[str, str], comparison: Comparison) -> Table:
    """All findings of a pair: first those over all tasks, then the slices, which a terminal groups by metric."""
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


def _changed_tasks(title: str, changes: Sequence[Changed], labels: tuple[str, str]) -> Table:
    """A row for each changed task, with both answers cut to the available width."""
    has_answers = any(text is not None for change in changes for text in change.answers)
    columns = [
        TableColumn("", style="strong", markdown=title),
        TableColumn(" → ".join(labels), only="terminal"),
        *(TableColumn(side, only="markdown") for side in ("first", "second")),
        *(TableColumn(f"{label} answered", style="note", only="terminal", cut=True) for label in labels if has_answers),
        *(TableColumn(f"{side} answered", only="markdown") for side in ("first", "second")),
    ]
    rows = []
    for change in changes:
        name = Name(change.task, plain=f"  {clean(change.task, 30)}")
        values = f"{change.first:.4g}", f"{change.second:.4g}"
        full = [answer(text) for text in change.answers if has_answers]
        short = ["" if text is None else Name(answer(text, ANSWER), None) for text in change.answers]
        rows.append(Row([name, " → ".join(values), *values, *full, *short]))
    return Table(columns, rows, ruled=False)


def answer(text: str | None, longest: int | None = None) -> str:
    """An answer on one line; a long answer loses its start, because the final answer is usually at the end."""
    if text is None:
        return NONE
    text = " ".join(text.split())
    return text if longest is None or len(text) <= longest else "…" + text[1 - longest :]


def _ranks(ranks: Ranks, metrics: Sequence[str], names: Sequence[str], comparison: Comparison) -> Iterator[Block]:
    heading: tuple[Piece, ...] = (
        "ranks by ",
        Name(", ".join(metrics)),
        f" over {counted(ranks.tasks, 'task')} that all runs have",
    )
    yield Sentence(heading, "strong", whole=True, markdown="")
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
        draws = NONE if standing.chance_best is None else f"{share_of_draws(standing.chance_best)} of draws"
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
    """The names of runs on the page: long names lose their middle, unless two names would then be equal.

    They are not cut at the end, because names of models of one family differ at the end.
    """
    short = [clean(_shortened(run.name), None) for run in runs]
    return [name if short.count(name) == 1 else clean(run.name, None) for name, run in zip(short, runs, strict=True)]


def _shortened(name: str) -> str:
    half = NAME // 2
    return name if len(name) <= NAME else f"{name[: half - 1]}…{name[-half:]}"


def sentences(pair: Pair, names: tuple[str, str]) -> list[tuple[str, str]]:
    """The verdicts, (word, sentence), of the primary question and over all tasks; equal sentences share a line.

    ``names`` are the names of the first and the second run from `shown_names`.
    """
    return [
        (findings[0].verdict, sentence(findings[0], names, ", ".join(map(question_of, findings))))
        for findings in _by_sentence(pair)
    ]


def _by_sentence(pair: Pair) -> list[list[Finding]]:
    """The findings with a sentence on the page, grouped by sentence; the primary question comes first."""
    by_sentence: dict[str, list[Finding]] = {}
    for finding in sorted(pair.findings, key=lambda each: each.role != "primary"):
        if finding.by is None or finding.role == "primary":
            by_sentence.setdefault(finding.sentence, []).append(finding)
    return list(by_sentence.values())


def sentence(finding: Finding, names: tuple[str, str], question: str) -> str:
    """A finding as a sentence with the question and the names of both runs.

    ``finding.sentence`` starts with the word of the verdict, and the names are put before it.
    """
    first, second = names
    text = plain_why(finding.sentence)
    if finding.verdict == "undecided" and finding.hint is None:
        which = "higher" if finding.higher_is_better is None else "better"
        return f"{question}: undecided whether {second} or {first} is {which}{text.removeprefix('undecided')}"
    if finding.hint is not None:
        return f"{question}: {text}"
    if finding.verdict == "equivalent":
        return f"{question}: {second} and {first} are {text}"
    return f"{question}: {second} is {finding.verdict} than {first}{text.removeprefix(finding.verdict)}"


def under_verdicts(pair: Pair, names: tuple[str, str]) -> list[list[str]]:
    """For each verdict of `sentences`, the lines on how missing rollouts could change it; [] if none is missing.

    If metrics share a sentence but not its line, each line starts with its metrics.
    """
    all_lines = []
    for findings in _by_sentence(pair):
        questions_of: dict[str, list[str]] = {}
        for finding in findings:
            questions_of.setdefault(of_missing(finding, names), []).append(question_of(finding))
        lines = [(line, ", ".join(questions)) for line, questions in questions_of.items() if line]
        all_lines.append([line if len(questions_of) == 1 else f"{questions}: {line}" for line, questions in lines])
    return all_lines


def of_missing(finding: Finding, names: tuple[str, str]) -> str:
    """How the verdict and the difference depend on the missing rollouts; "" if none is missing.

    ``names`` are the names of the first and the second run.
    """
    if not any(finding.missing) or finding.delta is None:
        return ""
    if finding.bounds is None:
        return f"no bounds are known for {clean(finding.metric)} with {_missing(finding, names)}"
    low, high = (_signed(end, 4) for end in finding.bounds)
    if words := survives(finding, names) or unless(finding, names):
        return f"{finding.as_observed} {words}; the difference is {low} to {high}, depending on the missing rollouts"
    return f"the difference is {low} to {high}, depending on the {_missing(finding, names)}"


def _missing(finding: Finding, names: tuple[str, str]) -> str:
    """``59 missing rollouts of B and 12 of A``."""
    parts: list[str] = []
    for count, name in zip(finding.missing[::-1], names[::-1], strict=True):
        if count:
            parts.append(f"{count:,} of {name}" if parts else f"{counted(count, 'missing rollout')} of {name}")
    return " and ".join(parts)


def common_tasks(pair: Pair, names: tuple[str, str]) -> str:
    """The number of common tasks, and the tasks that only one of the runs has."""
    parts = [common_count(pair)]
    for side, name in zip((pair.alignment.only_first, pair.alignment.only_second), names, strict=True):
        if side.count:
            ids = ", ".join(clean(task, 30) for task in side.ids[:_NAMED]) + (", …" if side.count > _NAMED else "")
            parts.append(f"{side.count:,} only in {name} ({ids})")
    return "; ".join(parts)


def settings(comparison: Comparison) -> str:
    """The settings and the digest of a comparison in one line."""
    parts = [plain_method(comparison.test)]
    metrics_of = _metrics_by_test(comparison)
    if set(metrics_of) == {_BOOTSTRAP}:
        parts = [plain_method(_BOOTSTRAP)]
    elif comparison.test != _BOOTSTRAP and _BOOTSTRAP in metrics_of:
        parts.append(f"{plain_method(_BOOTSTRAP)} for {', '.join(map(clean, metrics_of[_BOOTSTRAP]))}")
    if set(metrics_of) & set(_WITHOUT_INTERVAL):
        parts.append("intervals from the paired t test (floored_t)")
    parts += [f"confidence level {percent(comparison.confidence)}", f"{comparison.dialect} definitions"]
    parts += [f"missing rollouts {POLICY.get(comparison.missing, comparison.missing)}", f"seed {comparison.seed}"]
    if comparison.cluster:
        parts.append(f"clusters by {clean(comparison.cluster)}")
    if comparison.margin is not None:
        how = sorted({each.margin_method for each in comparison.findings if each.margin_method in _MARGIN_TESTS})
        parts.append(f"margin {comparison.margin:g}" + (f" ({' and '.join(how)})" if how else ""))
    if comparison.order is not None:
        parts.append(f"tasks in the order of the {plain_why(comparison.order)}")
    if comparison.tests > 1:
        parts.append(_adjustment(comparison))
    return f"{'; '.join(parts)}; digest {comparison.digest[:23]}…"


def _adjustment(comparison: Comparison) -> str:
    """How the p values of several tests were adjusted."""
    if comparison.adjust == HOLM and all(finding.by is not None for finding in comparison.findings):
        others = "all others adjusted together (Holm), intervals not adjusted"
        return f"primary question {clean(comparison.primary or '', None)}, {others}"
    if comparison.adjust != SIDAK:
        return f"{comparison.tests} tests, {_ADJUSTED[comparison.adjust]}"
    among = f", one of {len(comparison.pairs)} pairs" if len(comparison.pairs) > 1 else ""
    levels = {f"{100 * each.confidence:.4g} %" for each in comparison.findings if each.role == "secondary"}
    at = f", intervals at {levels.pop()}" if len(levels) == 1 else ""
    return f"primary question {clean(comparison.primary or '', None)}{among}, all others adjusted together (sidak{at})"


def _metrics_by_test(comparison: Comparison) -> dict[str, list[str]]:
    """The tests that were used, each with its metrics; a metric that is not a mean always uses the bootstrap."""
    used: dict[str, dict[str, None]] = {}
    for finding in comparison.findings:
        if finding.p is not None:
            used.setdefault(finding.method, {})[finding.metric] = None
    return {method: list(metrics) for method, metrics in used.items()}


_BOOTSTRAP = "paired_bootstrap"
_WITHOUT_INTERVAL = ("sign_flip", "mcnemar", "mid_p")  # tests without an interval
_ADJUSTED = {
    "holm": "verdicts from p adjusted by Holm, intervals not adjusted",
    "bh": "verdicts from p adjusted by Benjamini and Hochberg, intervals not adjusted",
    "none": "not adjusted",
}


def detail(finding: Finding, names: tuple[str, str]) -> list[str]:
    """The remarks on a finding. Missing rollouts are only remarked on for slices: the verdict covers all tasks."""
    remarks = [f"in {counted(finding.units, 'cluster')}"] if finding.units not in (0, finding.tasks) else []
    if finding.undefined_tasks:
        remarks.append(f"not defined in both runs for {counted(finding.undefined_tasks, 'common task')}")
    if finding.mcnemar:
        test = finding.mcnemar
        moved = _moves(test.second_only, test.first_only, finding.higher_is_better)
        remarks.append(f"McNemar: {moved}, exact p {chance(test.exact)}, mid-p {chance(test.mid_p)}")
    if finding.p_equivalent is not None:
        remarks.append(f"equivalent within the margin: p {chance(finding.p_equivalent)}")
    if finding.p_not_worse is not None:
        remarks.append(f"not worse by more than the margin: p {chance(finding.p_not_worse)}")
    if finding.p_equivalent is not None and finding.margin_method not in (None, *_MARGIN_TESTS):
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


_MARGIN_TESTS = ("tango", "margin_score")


def word(finding: Finding) -> str:
    """The verdict in a cell of a table; a hint is marked as one."""
    return finding.verdict if finding.hint is None else f"hint: {finding.hint}"


def _moves(up: int, down: int, higher_is_better: bool | None) -> str:
    """How many tasks were fixed and broken; if no direction is better, how many went from 0 to 1 and from 1 to 0."""
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


def share_of_draws(share: float | None) -> str:
    """A share of draws in per cent, never shown as 0 % or 100 %, because the draws are a sample.

    >>> share_of_draws(0.5871), share_of_draws(0.0002), share_of_draws(1.0)
    ('58.7 %', '<0.1 %', '>99.9 %')
    """
    if share is None:
        return NONE
    if share < 0.001:
        return "<0.1 %"
    return ">99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


def figures(finding: Finding) -> tuple[str, str, str, str]:
    """Both values, the difference and its interval, with decimals that fit the size and the standard error."""
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
    """How many tasks became worse or better, or stayed the same; "" without changed tasks."""
    flips = pair.flips
    worse, better = ways(pair)
    return "" if flips is None else f"{flips.worse:,} {worse}, {flips.better:,} {better}, {flips.same:,} the same"


def about_ranks(ranks: Ranks, names: Sequence[str], confidence: float) -> Iterator[str]:
    """Notes on the table of ranks, and the corrected value of the best run; ``names`` are the names of all runs."""
    if not ranks.places:
        return
    count, first = len(ranks.places), ranks.places[0]
    yield (
        f"{percent(confidence)} rank set: the ranks that are not ruled out; the sets of all {count} runs are valid "
        "together (rank_sets: sign-flip test, step-down)"
    )
    if first.chance_best is not None:
        yield (
            f"{names[first.run]} is best in {share_of_draws(first.chance_best)} of bootstrap draws of the tasks: "
            "this is not its probability of being the best"
        )
    winner = ranks.winner
    if winner is not None:
        interval = "no interval"
        if winner.interval is not None:
            low, high = map(figure, winner.interval)
            interval = f"{percent(confidence)} interval {low} to {high}"
        why = f": {plain_why(winner.why)}" if winner.why else ""
        yield (
            f"{names[winner.run]} is the best of {winner.candidates} candidates, with {figure(winner.observed)}. "
            f"Less the selection bias of {figure(abs(winner.bias))}, its value is {figure(winner.value)} "
            f"({interval}{why}; {plain_method(winner.method)}). This is valid if no other candidates were considered"
        )
    if ranks.optimism is not None:
        yield (
            f"optimism: if all {count} runs were equal, the best would look {figure(abs(ranks.optimism))} too good; "
            f"less that, its value is {figure(ranks.corrected)}"
        )


@dataclass(frozen=True, slots=True)
class CiVerdict:
    """A verdict for CI systems."""

    pair: str  # the names of both runs
    name: str
    verdict: str
    numbers: Mapping[str, float | None]

    @property
    def message(self) -> str:
        """The numbers on one line."""
        return ", ".join(f"{key} {value:.4g}" for key, value in self.numbers.items() if value is not None)


def suites_of(verdicts: Iterable[CiVerdict]) -> list[TestSuite]:
    """JUnit suites, one for each pair of runs, with a case for each verdict.

    `worse` is a failure. An undecided verdict is a skipped case, which is visible but fails nothing.
    """
    cases: dict[str, list[Case]] = {}
    for each in verdicts:
        kind = KINDS.get(each.verdict)
        case = Case(each.name, each.pair, kind, each.message if kind else "", each.verdict)
        cases.setdefault(each.pair, []).append(case)
    return [TestSuite(pair, cases_of_pair) for pair, cases_of_pair in cases.items()]


def annotations_of(verdicts: Iterable[CiVerdict]) -> Iterator[str]:
    """GitHub annotations: an error for each verdict that is worse, a notice for each that is undecided."""
    for each in verdicts:
        if level := LEVELS.get(each.verdict):
            yield annotation(level, f"{each.verdict}: {each.name}", f"{each.pair}: {each.message}")


def suites(comparison: Comparison) -> list[TestSuite]:
    """JUnit suites, one for each pair of runs, with a case for each finding."""
    return suites_of(_judged_rows(comparison))


def annotated(comparison: Comparison) -> Iterator[str]:
    """GitHub annotations, one for each finding that is worse or undecided."""
    return annotations_of(_judged_rows(comparison))


def _judged_rows(comparison: Comparison) -> Iterator[CiVerdict]:
    for row in comparison.rows():
        pair = " · ".join(filter(None, (row["dataset"], f"{row['second_run']} against {row['first_run']}")))
        cut = f"[{row['by']}={row['slice']}]" if row["by"] else ""
        numbers = {key: row[key] for key in ("delta", "low", "high", "p")}
        yield CiVerdict(pair, row["metric"] + cut, row["verdict"], numbers)
