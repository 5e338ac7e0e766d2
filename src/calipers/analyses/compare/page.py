"""The short page of a comparison: the verdict in a sentence, the numbers behind it, what changed, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from calipers.analyses.compare import (
    STRICT_ALLOWS,
    Changed,
    Comparison,
    Contest,
    Finding,
    Pair,
    Place,
    Ranks,
    one_more,
    step_order,
)
from calipers.reports.document import Blank, Block, Cell, Glance, Name, Picture, Row, Sentence, Table, TableColumn
from calipers.reports.figures import NONE, POLICY, counted, figure, letters, percent
from calipers.reports.plain_words import plain_method, plain_why
from calipers.reports.result_page import PICTURE, Axis, answer_blocks, digest_line, fitted, head_blocks, round_axis
from calipers.reports.sentences import Answer, level, minus, of_difference, p_value, places, signed, signed_to
from calipers.reports.terminal import FROM
from calipers.reports.untrusted_text import clean, note_line, without_middle
from calipers.rollouts.labels import STEP
from calipers.stats.missing import FEW_TASKS

NAME: Final = 34  # columns of a name
MANY: Final = 4  # runs of which every pair is shown by default
LOSSES: Final = 3  # tasks that are named of each kind
NOTES: Final = 3  # that are shown
ROWS: Final = 14  # of all datasets, where there are several
FEWEST: Final = 2  # rows of a dataset among several
SPARE: Final = 0.2  # of the range of a difference, on each side of its picture
USUAL_TESTS: Final = ("floored_t", "default")
MARKS: Final = {"better": "▲", "worse": "▼", "equivalent": "=", "undecided": "~"}
RANK_COLUMNS: Final = (
    TableColumn("#", "right"),
    TableColumn("run", after=3, middle=True),
    TableColumn("value", "right", after=3),
    TableColumn("may rank", verbatim=True),
)
OTHER_VIEWS: Final = "Every pair: --pairs. Which models are tied: calipers leaderboard"
_LABEL = 17  # columns before the text of a line with a label
_NO_BREAK = "\N{NO-BREAK SPACE}"


def short_page(comparison: Comparison, losses: int = LOSSES) -> Iterator[Block]:
    """One pair of runs with what changed; of several pairs a row each; of more than `MANY` runs their ranks."""
    pairs = [(contest, pair) for contest in comparison.contests for pair in contest.pairs]
    if len(pairs) == 1:
        yield from _one(comparison, *pairs[0], losses)
    elif len(comparison.contests) == 1 and (ranks := _ranked(comparison.contests[0])) is not None:
        yield from _ranks(comparison, comparison.contests[0], ranks)
    elif any(map(_ranked, comparison.contests)):
        yield from _ranks_of_each(comparison)
    else:
        yield from _several(comparison, pairs)
    for note in comparison.notes:  # a terminal has them beside the output
        yield Sentence("", markdown=note)


def names_of(contest: Contest) -> list[str]:
    """The names of the runs, long ones without their middle."""
    return without_middle([clean(run.name, None) for run in contest.runs], NAME)


def primary(pair: Pair) -> Finding | None:
    """The finding that answers the primary question; else the first."""
    return next((finding for finding in pair.findings if finding.role == "primary"), next(iter(pair.findings), None))


def answer_of(comparison: Comparison, contest: Contest, pair: Pair) -> Answer:
    """The verdict on the primary question."""
    names, finding = names_of(contest), primary(pair)
    first, second = names[pair.first], names[pair.second]
    if finding is None:
        return Answer(f"{second} and {first} have no metric in common.")
    answer = of_difference(
        first,
        second,
        finding.verdict,
        finding.delta,
        finding.interval,
        confidence=finding.confidence,
        margin=comparison.margin,
        why=plain_why(finding.why) if finding.why else None,
        more_tasks=finding.more_tasks,
    )
    return at_step(answer, pair, finding)


def at_step(answer: Answer, pair: Pair, finding: Finding) -> Answer:
    """The answer, which says its training step where it is of one."""
    if not _at_step(pair, finding):
        return answer
    return replace(
        answer, sentence=f"{answer.sentence.removesuffix('.')} at {finding.by} {clean(finding.slice or '')}."
    )


def _one(comparison: Comparison, contest: Contest, pair: Pair, losses: int) -> Iterator[Block]:
    finding, labels = primary(pair), letters(len(contest.runs))
    ours = labels[pair.first], labels[pair.second]
    names = names_of(contest)
    about = clean(contest.dataset, NAME) if contest.dataset else f"{ours[1]} against {ours[0]}"
    head: list[Block] = [
        *head_blocks(about, _what(pair, finding)),
        *answer_blocks(answer_of(comparison, contest, pair)),
    ]
    if finding and (words := _at_step(pair, finding)):
        head.append(Sentence(words))
    if finding and finding.undone_by_one:
        unseen = one_more(finding.delta, comparison.cluster).capitalize()
        head.append(Sentence(f"{unseen} would undo this verdict; {STRICT_ALLOWS}."))
    head.append(Blank())
    first, second = (Name(contest.runs[number].name, None, names[number]) for number in (pair.first, pair.second))
    head += [Sentence((f"{ours[0]}  ", first, f"   {ours[1]}  ", second)), Blank()]
    tail: list[Block] = [Blank(), Sentence(_tally(pair))]
    tail += [*_changes(pair, losses), *_one_side(pair, ours)]
    if finding and any(finding.missing):
        tail.append(Sentence(_missing(finding, ours, comparison.missing), label="missing".ljust(_LABEL)))
        if words := survives(finding, ours):
            tail.append(Sentence(words, label=" " * _LABEL))
    notes = [note for note in (hints(pair), *pair.notes) if note and not _says_missing(note)]
    tail += [Sentence(note_line(note), markdown=note) for note in notes[:NOTES]]
    tail += [Sentence(f"… {counted(len(notes) - NOTES, 'note')} more: --details", "note")] if notes[NOTES:] else []
    yield from fitted(head, _findings(pair, ours, comparison), [*tail, Blank(), _foot(comparison)], "--details")


def _at_step(pair: Pair, finding: Finding) -> str:
    """Which training step the verdict is of; "" where the runs are compared over all tasks."""
    if finding.by is None or STEP not in finding.by or any(each.by is None for each in pair.findings):
        return ""
    steps = list(dict.fromkeys(each.slice or "" for each in pair.findings if each.by == finding.by))
    last = max(steps, key=step_order) == finding.slice
    which = ", the last that both runs have" if last else ""
    others = "; the other steps are adjusted for each other" if len(steps) > 1 else ""
    return f"This is {finding.by} {clean(finding.slice or '')}{which}{others}."


def _what(pair: Pair, finding: Finding | None) -> str:
    """``mean_reward, 40 common tasks``; ``mean_reward = pass_rate, ...`` where they are one row."""
    metric = "" if finding is None else clean(finding.metric) + _cut(finding)
    if finding is not None:
        metric += "".join(f" = {clean(other.metric)}" for other in pair.findings if _repeats(other, finding))
    way = " (lower is better)" if finding is not None and finding.higher_is_better is False else ""
    return ", ".join(filter(None, (f"{metric}{way}", counted(pair.alignment.common, "common task"))))


def _repeats(finding: Finding, other: Finding) -> bool:
    """Whether a finding says with another name what another says, as pass_rate does where rewards are 0 or 1."""
    return finding.metric != other.metric and _numbers(finding) == _numbers(other)


def _numbers(finding: Finding) -> tuple[object, ...]:
    numbers = finding.first, finding.second, finding.delta, *(finding.interval or ()), finding.p, finding.p_adjusted
    shown = tuple(None if number is None else round(number, 12) for number in numbers)
    return finding.by, finding.slice, *shown, verdict_of(finding), finding.higher_is_better


def _cut(finding: Finding) -> str:
    return "" if finding.by is None else f"[{clean(finding.by)}={clean(finding.slice or '')}]"


def _tally(pair: Pair) -> str:
    """``40 common tasks: 25 better, 6 same, 9 worse``."""
    how = "" if pair.alignment.by == "id" else ", paired by content, because their ids differ"
    common, flips = f"{counted(pair.alignment.common, 'common task')}{how}", pair.flips
    if flips is None:
        return common
    worse, better = ways(pair)
    at = f" ({clean(flips.metric)})" if flips.metric.endswith("]") else ""
    return f"{common}{at}: {flips.better:,} {better}, {flips.same:,} same, {flips.worse:,} {worse}"


def ways(pair: Pair) -> tuple[str, str]:
    """The titles of the two lists of changed tasks: worse and better, or lower and higher."""
    of = pair.flips.metric if pair.flips else None
    known = [finding.higher_is_better for finding in pair.findings if finding.by is None and finding.metric == of]
    return ("lower", "higher") if known == [None] else ("worse", "better")


def _one_side(pair: Pair, labels: tuple[str, str]) -> list[Block]:
    """How many tasks only one of the runs has."""
    sides = zip((pair.alignment.only_first, pair.alignment.only_second), labels, strict=True)
    parts = [f"{side.count:,} only in {label}" for side, label in sides if side.count]
    return [Sentence(f"{', '.join(parts)} (excluded)", label="other tasks".ljust(_LABEL))] if parts else []


def _changes(pair: Pair, losses: int) -> Iterator[Block]:
    """The largest losses and gains, by task."""
    if pair.flips is None:
        return
    usual = ways(pair) == ("worse", "better")
    names = ("largest losses", "largest gains") if usual else ("furthest down", "furthest up")
    for name, those in zip(names, (pair.flips.regressions, pair.flips.fixes), strict=True):
        if those[:losses]:
            yield Sentence(tuple(_moved(those[:losses])), label=f"  {name}".ljust(_LABEL + 2))


def _moved(those: Sequence[Changed]) -> Iterator[Name | str]:
    for number, task in enumerate(those):
        yield ", " if number else ""
        yield Name(task.task, plain=without_middle([clean(task.task, None)], 24)[0].replace(" ", _NO_BREAK))
        yield f"{_NO_BREAK}{signed(task.second - task.first)}"


def survives(finding: Finding, names: tuple[str, str]) -> str:
    """Whether the verdict is the same in the worst case, or how many adverse rollouts change it."""
    tipping = finding.tipping
    if tipping is None:
        return ""
    whose, other = names[::-1] if tipping.run == "second" else names
    others = finding.missing[0] if tipping.run == "second" else 0
    contrary = {"failed": "passed", "passed": "failed"}[tipping.outcome]
    fails = f"not {finding.verdict} if"
    rest = f" and {_every(others)} of {other} {contrary}" if others else ""
    every = f"{_every(tipping.missing, 'missing rollout')} of {whose}"
    if tipping.most >= tipping.missing:
        return f"{finding.verdict} even if {every} {tipping.outcome}{rest}"
    if tipping.most < 0:
        if not others:
            return f"not {finding.verdict} even if {every} {contrary}"
        against = f"{_every(others, 'missing rollout')} of {other}"
        return f"{fails} {against} {contrary}, even if {_every(tipping.missing)} of {whose} {contrary} too"
    if tipping.most == 0:
        any_of = every if tipping.missing == 1 else f"any of the {tipping.missing:,} missing rollouts of {whose}"
        return f"{fails} {any_of} {tipping.outcome}{rest}"
    about = "" if tipping.exact or tipping.tasks >= FEW_TASKS else "about "
    more = f"{about}{tipping.most:,} of the {tipping.missing:,} missing rollouts of {whose}"
    return f"{fails} more than {more} {tipping.outcome}{rest}"


def _every(count: int, what: str = "") -> str:
    """``all 59 missing rollouts``, ``the 1 missing rollout``."""
    noun = f" {what}{'' if count == 1 else 's'}" if what else ""
    return f"{'the' if count == 1 else 'all'} {count:,}{noun}"


def hints(pair: Pair) -> str:
    """A note that some lines are hints; "" where none is."""
    if not any(finding.hint for finding in pair.findings):
        return ""
    return "the primary question is undecided, so slices and other metrics are hints, not claims"


def _missing(finding: Finding, labels: tuple[str, str], policy: str) -> str:
    """``17 rollouts of A, 22 of B (excluded); bounds +0.038 to +0.159``: of the difference, whatever they are."""
    first, second = finding.missing
    parts = [f"{counted(first, 'rollout')} of {labels[0]}"] if first else []
    parts += [f"{f'{second:,}' if first else counted(second, 'rollout')} of {labels[1]}"] if second else []
    bounds = f"; bounds {signed_to(finding.bounds, _digits([finding]))}" if finding.bounds else ""
    return f"{', '.join(parts)} ({POLICY.get(policy, policy)}){bounds}"


def _says_missing(note: str) -> bool:
    """Whether a note only says how many rollouts are missing, which the page says itself."""
    return "rollouts of" in note and "missing" in note


def _digits(findings: Sequence[Finding]) -> int:
    """The decimals of all numbers of a table; four digits of numbers that are large or tiny."""
    sizes = [abs(x) for each in findings for x in (each.first, each.second, *(each.interval or ())) if x is not None]
    if sizes and max(sizes) >= 10:
        return 1 if max(sizes) < 1000 else 0
    if sizes and 0 < max(sizes) < 0.01:
        return 6
    return places(*(each.interval for each in findings))


def _findings(pair: Pair, labels: tuple[str, str], comparison: Comparison) -> Table:
    """A row for each metric over all tasks, then the slices."""
    first = primary(pair)
    shown = [each for each in pair.findings if first is None or not _repeats(each, first)]
    shown.sort(key=lambda each: each.role != "primary")
    axis = _axis(shown)
    sliced = any(finding.by is not None for finding in shown)
    columns = [
        TableColumn("metric", after=3, middle=True),
        *([TableColumn(heading=True, only="terminal")] if sliced else []),
        *_columns(*labels, f"{labels[1]} − {labels[0]}", comparison),
    ]
    rows = []
    for finding in shown:
        down = " ↓" if finding.higher_is_better is False else ""
        name: Name = Name(finding.metric, 80, plain=f"{_cell_name(finding.metric)}{down}")
        heading: Cell = ""
        if finding.by is not None:
            whole = f"{finding.metric} | {finding.by}={finding.slice}"
            name = Name(whole, 80, plain=_cell_name(finding.slice or ""))
            heading = f"{_cell_name(finding.metric)} by {clean(finding.by)}"
        rows.append(Row([name, *([heading] if sliced else []), *_cells(finding, axis)]))
    return Table(columns, rows)


def _columns(first: str, second: str, difference: str, comparison: Comparison) -> list[TableColumn]:
    """The columns of what `_cells` says of a finding."""
    return [
        TableColumn(first, "right", after=3),
        TableColumn(second, "right", after=3),
        TableColumn(difference, "right", after=3),
        TableColumn(_interval(comparison), after=3, verbatim=True),
        TableColumn(style="chart", only="terminal", optional=True, least=FROM, sizes=PICTURE),
        TableColumn("p adjusted" if comparison.tests > 1 and comparison.adjust != "none" else "p", "right", after=3),
        TableColumn("verdict", style="verdict"),
    ]


def _interval(comparison: Comparison) -> str:
    return level(comparison.confidence).replace(_NO_BREAK, " ")


def _cell_name(name: str) -> str:
    return without_middle([clean(name, None)], 20)[0]


def _cells(finding: Finding, axis: Axis | None) -> list[Cell]:
    digits = _digits([finding])
    drawn: Cell = ""
    if axis and finding.delta is not None and finding.interval is not None:
        drawn = Picture(finding.delta, *finding.interval, axis)
    p = finding.p if finding.p_adjusted is None else finding.p_adjusted
    return [
        minus(figure(finding.first, digits)),
        minus(figure(finding.second, digits)),
        NONE if finding.delta is None else signed(finding.delta, digits),
        signed_to(finding.interval, digits) if finding.interval else NONE,
        drawn,
        NONE if p is None else p_value(p).removeprefix("p ").removeprefix("= "),
        verdict_of(finding),
    ]


def verdict_of(finding: Finding) -> str:
    """The verdict with its sign; a hint is called one."""
    if finding.hint is not None:
        return f"~ hint: {finding.hint}"
    return " ".join(filter(None, (MARKS.get(finding.verdict, ""), finding.verdict)))


def _axis(findings: Sequence[Finding]) -> Axis | None:
    """An axis in round steps that holds zero and all intervals, with a fifth to spare."""
    ends = [end for finding in findings for end in (*(finding.interval or ()), finding.delta) if end is not None]
    return round_axis([*ends, 0.0], SPARE) if ends else None


def _several(comparison: Comparison, pairs: Sequence[tuple[Contest, Pair]]) -> Iterator[Block]:
    """A row for each pair of runs, by the primary question."""
    findings = [(contest, pair, finding) for contest, pair in pairs if (finding := primary(pair)) is not None]
    datasets = list(dict.fromkeys(contest.dataset for contest, _ in pairs))
    runs = list(dict.fromkeys(name for contest in comparison.contests for name in names_of(contest)))
    where = clean(datasets[0] or "", NAME) if len(datasets) == 1 else counted(len(datasets), "dataset")
    about = ", ".join(filter(None, (where, counted(len(runs), "run"))))
    metrics = {clean(finding.metric) for _, _, finding in findings}
    metric = min(metrics) if len(metrics) == 1 else ""
    head = [
        *head_blocks(about, ", ".join(filter(None, (metric, f"{_interval(comparison)}s")))),
        *answer_blocks(Answer(f"{_decided([finding for _, _, finding in findings])}.")),
        Blank(),
    ]
    named = dict(zip(runs, letters(len(runs)), strict=True))
    if findings:
        head += [Sentence((f"{label}  ", Name(name, None, name))) for name, label in named.items()] + [Blank()]
    axis = _axis([finding for _, _, finding in findings])
    compared = Counter((contest.dataset, _names(contest, pair)) for contest, pair, _ in findings)
    places, metric_of, rows = [], dict[str, list[str]](), []
    for contest, pair, finding in findings:
        first, second = names = _names(contest, pair)
        agent = contest.runs[pair.first].agent if compared[contest.dataset, names] > 1 else None  # as a filter pipeline
        places.append(" · ".join(filter(None, (contest.dataset, agent))))
        metric_of.setdefault(clean(finding.metric), []).append(clean(places[-1], NAME))
        cell: Cell = Name(places[-1], plain=_cell_name(places[-1]))
        rows.append([cell, f"{named[second]} − {named[first]}", *_cells(finding, axis)])
    many = len(set(places)) > 1
    columns = [
        *([TableColumn("dataset", after=3, middle=True)] if many else []),
        TableColumn("runs", after=3),
        *_columns("first", "second", "difference", comparison),
    ]
    tail: list[Block] = [Blank()]
    if len(metrics) > 1:
        tail += [Sentence(f"{', '.join(where)}: {name}", "note") for name, where in metric_of.items()] + [Blank()]
    if len(runs) > 2:
        tail.append(Sentence("Ranks, and what changed: --details. Which models are tied: calipers leaderboard", "note"))
    yield from fitted(
        head, Table(columns, [Row(row if many else row[1:]) for row in rows]), [*tail, _foot(comparison)], "--details"
    )


def _names(contest: Contest, pair: Pair) -> tuple[str, str]:
    names = names_of(contest)
    return names[pair.first], names[pair.second]


def _ranked(contest: Contest) -> Ranks | None:
    """The ranks by the primary metric, where there are more than `MANY` runs; None where each meets a baseline."""
    finding = primary(contest.pairs[0])
    if finding is None or len(contest.runs) <= MANY or len(contest.pairs) < len(contest.runs):
        return None
    return next((ranks for ranks in contest.ranks if ranks.metric == finding.metric and ranks.places), None)


def _ranks(comparison: Comparison, contest: Contest, ranks: Ranks) -> Iterator[Block]:
    """A row for each run, the best first, with the ranks that it may hold."""
    names, first = names_of(contest), ranks.places[0]
    findings = _primaries(contest)
    less_sure = "" if first.rank_set == (1, 1) else f", and may rank {_set(first)}"
    answer = Answer(
        f"{names[first.run]} is first of {len(contest.runs):,}{less_sure}.",
        _decided(findings),
    )
    about = ", ".join(filter(None, (clean(contest.dataset or "", NAME), counted(len(contest.runs), "run"))))
    sure = percent(comparison.confidence)
    head = [
        *head_blocks(about, f"{clean(ranks.metric)}, {counted(ranks.tasks, 'common task')}, {sure} confidence"),
        *answer_blocks(answer),
        Blank(),
    ]
    digits = _digits(findings)
    rows = [Row(_rank_cells(contest, standing, digits)) for standing in ranks.places]
    tail: list[Block] = [Blank(), Sentence(OTHER_VIEWS, "note"), _foot(comparison)]
    yield from fitted(head, Table(RANK_COLUMNS, rows), tail, "--details")


def _ranks_of_each(comparison: Comparison) -> Iterator[Block]:
    """A row for each run of each dataset, the best first; datasets of few runs are named below."""
    ranked = [(contest, ranks) for contest in comparison.contests if (ranks := _ranked(contest)) is not None]
    others = [contest for contest in comparison.contests if _ranked(contest) is None]
    leads = [names_of(contest)[ranks.places[0].run] for contest, ranks in ranked]
    findings = [finding for contest, _ in ranked for finding in _primaries(contest)]
    most = max(dict.fromkeys(leads), key=leads.count)
    over = counted(len(ranked), "dataset")
    first = (
        f"{most} is first on {'each of' if leads.count(most) == len(leads) else f'{leads.count(most):,} of'} {over}."
    )
    answer = Answer(first, _decided(findings))
    runs = {name for contest, _ in ranked for name in names_of(contest)}
    right = f"{clean(ranked[0][1].metric)}, {percent(comparison.confidence)} confidence"
    head = [*head_blocks(f"{over}, {counted(len(runs), 'run')}", right), *answer_blocks(answer), Blank()]
    most_rows = max(ROWS // len(ranked), FEWEST)
    digits, rows = _digits(findings), []
    for contest, ranks in ranked:
        dataset = Name(contest.dataset or "", plain=clean(contest.dataset or "(unnamed)", NAME))
        rows += [Row([dataset, *_rank_cells(contest, standing, digits)]) for standing in ranks.places[:most_rows]]
    tail: list[Block] = []
    if left := sum(len(ranks.places) for _, ranks in ranked) - len(rows):
        tail.append(Sentence(f"… {counted(left, 'more run')} of these datasets: --details", "note"))
    tail.append(Blank())
    if others:
        named = ", ".join(clean(contest.dataset or "(unnamed)", NAME) for contest in others)
        tail.append(Sentence(f"Without ranks: {named} (--details)", "note"))
    tail += [Sentence(OTHER_VIEWS, "note"), _foot(comparison)]
    yield from fitted(head, Table([TableColumn("dataset", heading=True), *RANK_COLUMNS], rows), tail, "--details")


def _primaries(contest: Contest) -> list[Finding]:
    """The answers to the primary question, of each pair that has one."""
    return [finding for pair in contest.pairs if (finding := primary(pair)) is not None]


def _decided(findings: Sequence[Finding]) -> str:
    """``3 of 10 differences are decided``."""
    count = sum(finding.verdict != "undecided" for finding in findings)
    return f"{count:,} of {counted(len(findings), 'difference')} {'is' if count == 1 else 'are'} decided"


def _rank_cells(contest: Contest, standing: Place, digits: int) -> list[Cell]:
    run = Name(contest.runs[standing.run].name, None, names_of(contest)[standing.run])
    return [f"{standing.rank:g}", run, minus(figure(standing.value, digits)), _set(standing)]


def _set(standing: Place) -> str:
    """``2 to 4``; ``1``."""
    low, high = standing.rank_set
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _foot(comparison: Comparison) -> Sentence:
    settings = [] if comparison.test in USUAL_TESTS else [plain_method(comparison.test)]
    settings += [f"margin {comparison.margin:g}"] if comparison.margin is not None else []
    settings += [] if comparison.dialect == "native" else [f"{clean(comparison.dialect)} rules"]
    settings += [f"missing rollouts {POLICY[comparison.missing]}"] if comparison.missing != "gap" else []
    settings += [f"seed {comparison.seed}"] if comparison.seed else []
    return digest_line(settings, comparison.digest, "--details")


def glance(comparison: Comparison) -> Glance:
    """A comparison for a notebook: the verdict, a row with the drawn difference, what is missing."""
    pairs = [(contest, pair) for contest in comparison.contests for pair in contest.pairs]
    if len(pairs) == 1:
        contest, pair = pairs[0]
        main, names = primary(pair), names_of(contest)
        shown = [finding for finding in pair.findings if _in_short(finding, pair)]
        firsts = [Name(finding.metric + _cut(finding), None) for finding in shown]
        heads = "metric", f"A {names[pair.first]}", f"B {names[pair.second]}", "B − A"
        missing = ""
        if main and any(main.missing):
            old, new = (f"{number:,}" for number in main.missing)
            missing = f" {old} and {new} rollouts missing ({POLICY.get(comparison.missing, comparison.missing)})."
        sentence, foot = answer_of(comparison, contest, pair).line, f"{_tally(pair)}.{missing} "
    else:
        every = [(names_of(contest), pair, primary(pair)) for contest, pair in pairs]
        each = [(names, pair, finding) for names, pair, finding in every if finding and _in_short(finding, pair)]
        shown = [finding for _, _, finding in each]
        firsts = [Name(f"{names[pair.second]} − {names[pair.first]}", None) for names, pair, _ in each]
        heads = "runs", "first", "second", "difference"
        sentence, foot = f"{_decided(shown)}.", ""
    axis = _axis(shown)
    columns = [
        *(TableColumn(head) for head in heads[:3]),
        TableColumn(heads[3], style="value"),
        TableColumn(level(comparison.confidence)),
        TableColumn(style="chart"),
        TableColumn("p"),
        TableColumn("verdict"),
    ]
    rows = [Row([first, *_cells(finding, axis)]) for first, finding in zip(firsts, shown, strict=True)]
    return Glance(sentence, Table(columns, rows), f"{foot}{comparison.digest[:19]}…")


def _in_short(finding: Finding, pair: Pair) -> bool:
    """Whether a finding is in a short table: over all tasks, or at a training step where nothing is."""
    return finding.by is None or bool(_at_step(pair, finding))
