"""The short page of a comparison: the verdict in a sentence, its numbers, changed tasks and missing rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from calipers.analyses.compare import (
    HOLM,
    STRICT_ALLOWS,
    Changed,
    Comparison,
    Contest,
    Finding,
    Pair,
    Ranks,
    RunRank,
    Tipping,
    one_more,
    step_order,
)
from calipers.remarks import Remark
from calipers.reports.axes import Axis
from calipers.reports.document import Blank, Block, Cell, Glance, Name, Picture, Row, Sentence, Table, TableColumn
from calipers.reports.doubts import doubt_blocks
from calipers.reports.figures import NONE, POLICY, counted, figure, letters, percent
from calipers.reports.plain_words import plain_method, plain_why
from calipers.reports.remark_texts import note_of, text_of
from calipers.reports.result_page import PICTURE, answer_blocks, digest_line, fitted, head_blocks, round_axis
from calipers.reports.sentences import Answer, level, minus, of_difference, p_value, places, signed, signed_to
from calipers.reports.terminal import FROM
from calipers.reports.untrusted_text import clean, note_line, without_middle
from calipers.rollouts.labels import STEP
from calipers.rollouts.ledger import RANDOM
from calipers.stats.missing import FEW_TASKS

NAME: Final = 34  # width of a run's name in columns
MANY: Final = 4  # with more runs, ranks are shown instead of every pair
LOSSES: Final = 3  # losses, and as many gains, that are listed
NOTES: Final = 3  # notes that are shown
ROWS: Final = 14  # rows of all datasets together, if there are several
FEWEST: Final = 2  # minimum rows of each dataset, if there are several
SPARE: Final = 0.2  # free space on each side of the picture, relative to the range of the intervals
USUAL_TESTS: Final = ("floored_t", "default")
MARKS: Final = {"better": "▲", "worse": "▼", "equivalent": "=", "undecided": "~"}
RANK_COLUMNS: Final = (
    TableColumn("#", "right"),
    TableColumn("run", after=3, middle=True),
    TableColumn("value", "right", after=3),
    TableColumn("may rank", verbatim=True),
)
RETRY: Final = (
    "Retry them: calipers run ... --retry-failed. If their loss does not depend on the answers, "
    "--missing random says so"
)
OTHER_VIEWS: Final = "Every pair: --pairs. Which models are tied: calipers leaderboard"
_LABEL = 17  # width of the label that starts a line
_NO_BREAK = "\N{NO-BREAK SPACE}"


def short_page(comparison: Comparison, losses: int = LOSSES) -> Iterator[Block]:
    """The short page: one pair with its changed tasks, a row for each of several pairs, or ranks of many runs."""
    if len(comparison.pairs) == 1:
        yield from _pair_page(comparison, *comparison.pairs[0], losses)
    elif len(comparison.contests) == 1 and (ranks := _primary_ranks(comparison.contests[0])) is not None:
        yield from _ranks_page(comparison, comparison.contests[0], ranks)
    elif any(map(_primary_ranks, comparison.contests)):
        yield from _datasets_page(comparison)
    else:
        yield from _pairs_page(comparison)
    yield from doubt_blocks(comparison.doubts)
    for note in comparison.notes:  # on a terminal the command prints them to stderr
        yield Sentence("", markdown=note)


def names_of(contest: Contest) -> list[str]:
    """The names of the runs; long names lose their middle."""
    return without_middle([clean(run.name, None) for run in contest.runs], NAME)


def primary(pair: Pair) -> Finding | None:
    """The finding that answers the primary question, else the first finding; None without findings."""
    return next((finding for finding in pair.findings if finding.role == "primary"), next(iter(pair.findings), None))


def answer_of(comparison: Comparison, contest: Contest, pair: Pair) -> Answer:
    """The answer to the primary question."""
    (first, second), finding = _names(contest, pair), primary(pair)
    if finding is None:
        return Answer(f"{second} and {first} have no metric in common.")
    return at_step(answer_to(finding, (first, second), comparison), pair, finding)


def answer_to(finding: Finding, names: tuple[str, str], comparison: Comparison) -> Answer:
    """The answer of a finding; ``names`` are the names of the first and the second run."""
    answer = of_difference(
        *names,
        finding.verdict,
        finding.delta,
        finding.interval,
        confidence=finding.confidence,
        margin=comparison.margin,
        why=plain_why(finding.why) if finding.why else None,
        even_if=survives(finding, names) if finding.verdict == finding.as_observed else "",
        reasons=reasons_of(finding, names),
    )
    if comparison.missing == RANDOM and any(finding.missing):
        assumed = text_of(Remark("missing_random", {}))
        answer = replace(answer, sentence=f"{answer.sentence.removesuffix('.')}, {assumed}.")
    if finding.remarks:
        return answer
    advice = _advice(finding, comparison)
    return replace(answer, detail=". ".join(filter(None, (answer.detail, advice))), rest=advice)


def reasons_of(finding: Finding, names: tuple[str, str]) -> list[str]:
    """Why a finding is undecided although the observed rollouts decide it, and what can be done; else empty."""
    if not finding.remarks or finding.hint is not None:
        return []
    roles = {"first": names[0], "second": names[1]}
    reasons = [text_of(remark, roles) for remark in finding.remarks]
    if finding.undecided_by == "missing":
        if finding.as_observed != "undecided" and finding.delta is not None:
            reasons.append(_as_seen(finding, names))
        reasons.append(RETRY)
    return reasons


def _as_seen(finding: Finding, names: tuple[str, str]) -> str:
    """``As seen B is better by 0.168; that holds unless more than 28 of the 51 missing rollouts of B failed``."""
    first, second = names
    if finding.as_observed == "equivalent":
        return f"As seen {second} and {first} are equivalent"
    size = figure(abs(finding.delta or 0.0), _digits([finding]))
    seen = f"As seen {second} is {finding.as_observed} than {first} by {size}"
    words = unless(finding, names)
    return f"{seen}; that holds {words}" if words else seen


def _advice(finding: Finding, comparison: Comparison) -> str:
    """How many new tasks or clusters would decide an undecided difference; "" if that is not known."""
    if finding.verdict != "undecided" or not finding.more_tasks:
        return ""
    if comparison.order is not None:  # the number is that of a test for a fixed number of tasks
        return "Add tasks to the runs and compare again: this test is valid after every batch"
    unit = "cluster" if comparison.cluster else "task"
    new = f"About {counted(finding.more_tasks, f'new {unit}')}, tested on their own,"
    chance = f"with 80{_NO_BREAK}% chance"
    if comparison.margin is None:
        advice = f"{new} would show a difference this large {chance}"
    else:  # they show the difference, or that it is within the margin, whichever takes fewer
        advice = f"If this is the true difference, {new[0].lower()}{new[1:]} would decide it {chance}"
    return f"{advice}{_allowed(finding, unit)}"


def _allowed(finding: Finding, unit: str) -> str:
    """The number of new tasks at both ends of the interval: ``; the data allow anything from 60 to 640 tasks``."""
    if finding.new_tasks is None or not finding.stderr:
        return ""
    least, most = finding.new_tasks
    if most is None:
        return f"; the data allow anything from {counted(least, unit)} to no number at all"
    return f"; the data allow anything from {least:,} to {counted(most, unit)}"


def at_step(answer: Answer, pair: Pair, finding: Finding) -> Answer:
    """The answer, with its training step if steps are compared."""
    if not _is_at_step(pair, finding):
        return answer
    return replace(
        answer, sentence=f"{answer.sentence.removesuffix('.')} at {finding.by} {clean(finding.slice or '')}."
    )


def _pair_page(comparison: Comparison, contest: Contest, pair: Pair, losses: int) -> Iterator[Block]:
    finding, letters_of_runs = primary(pair), letters(len(contest.runs))
    labels = letters_of_runs[pair.first], letters_of_runs[pair.second]
    about = clean(contest.dataset, NAME) if contest.dataset else f"{labels[1]} against {labels[0]}"
    head: list[Block] = [
        *head_blocks(about, _question_line(pair, finding)),
        *answer_blocks(answer_of(comparison, contest, pair)),
    ]
    if finding and _is_at_step(pair, finding):
        head.append(Sentence(_step_sentence(comparison, pair, finding)))
    if finding and finding.undone_by_one:
        unseen = one_more(finding.delta, comparison.cluster).capitalize()
        head.append(Sentence(f"{unseen} would undo this verdict; {STRICT_ALLOWS}."))
    head.append(Blank())
    runs = contest.runs[pair.first], contest.runs[pair.second]
    first, second = (Name(run.name, None, name) for run, name in zip(runs, _names(contest, pair), strict=True))
    head += [Sentence((f"{labels[0]}  ", first, f"   {labels[1]}  ", second)), Blank()]
    tail: list[Block] = [Blank(), Sentence(_tally(pair))]
    tail += [*_changes(pair, losses), *_unmatched(pair, labels)]
    if finding and any(finding.missing):
        tail.append(Sentence(_missing(finding, labels, comparison.missing), label="missing".ljust(_LABEL)))
    warnings = [note_of(remark) for remark in pair.remarks if remark.severity != "note"]
    tail += [Sentence(note_line(warning), markdown=warning) for warning in warnings]
    # the line above counts the missing rollouts
    remarks = [note_of(each) for each in pair.remarks if each.severity == "note" and each.code != "run_missing"]
    notes = [note for note in (hints(pair), *remarks, *pair.notes) if note]
    tail += [Sentence(note_line(note), markdown=note) for note in notes[:NOTES]]
    tail += [Sentence(f"… {counted(len(notes) - NOTES, 'note')} more: --details", "note")] if notes[NOTES:] else []
    yield from fitted(head, _findings(pair, labels, comparison), [*tail, Blank(), _foot(comparison)], "--details")


def _is_at_step(pair: Pair, finding: Finding) -> bool:
    """Whether the finding is for one training step, because the runs are not compared over all tasks."""
    return finding.by is not None and STEP in finding.by and all(each.by is not None for each in pair.findings)


def _step_sentence(comparison: Comparison, pair: Pair, finding: Finding) -> str:
    """A sentence that names the training step of the verdict, and how the p values of the steps are adjusted."""
    steps = list(dict.fromkeys(each.slice or "" for each in pair.findings if each.by == finding.by))
    last = max(steps, key=step_order) == finding.slice
    which = ", the last that both runs have" if last else ""
    others = _STEPS_ADJUSTED.get(comparison.adjust, "") if len(steps) > 1 else ""
    return f"This is {finding.by} {clean(finding.slice or '')}{which}{others}."


_STEPS_ADJUSTED: Final = {
    HOLM: "; the other steps are adjusted for each other",
    "bh": "; all steps are adjusted for each other",
}


def _question_line(pair: Pair, finding: Finding | None) -> str:
    """``mean_reward, 40 common tasks``, or ``mean_reward = pass_rate, ...`` if both metrics share a row."""
    metric = "" if finding is None else question_of(finding)
    if finding is not None:
        metric += "".join(f" = {clean(other.metric)}" for other in pair.findings if _same_numbers(other, finding))
    way = " (lower is better)" if finding is not None and finding.higher_is_better is False else ""
    return ", ".join(filter(None, (f"{metric}{way}", counted(pair.alignment.common, "common task"))))


def _same_numbers(finding: Finding, other: Finding) -> bool:
    """Whether two findings have different metrics but the same numbers, as pass_rate has if rewards are 0 or 1."""
    return finding.metric != other.metric and _numbers(finding) == _numbers(other)


def _numbers(finding: Finding) -> tuple[object, ...]:
    numbers = finding.first, finding.second, finding.delta, *(finding.interval or ()), finding.p, finding.p_adjusted
    shown = tuple(None if number is None else round(number, 12) for number in numbers)
    return finding.by, finding.slice, *shown, verdict_of(finding), finding.higher_is_better


def question_of(finding: Finding) -> str:
    """The question that a finding answers: its metric, ``mean_reward[level=hard]`` for a slice."""
    return clean(finding.metric) + _slice_suffix(finding)


def _slice_suffix(finding: Finding) -> str:
    return "" if finding.by is None else f"[{clean(finding.by)}={clean(finding.slice or '')}]"


def common_count(pair: Pair) -> str:
    """``40 common tasks``, and how they were paired if not by id."""
    how = "" if pair.alignment.by == "id" else ", paired by content, because their ids differ"
    return f"{counted(pair.alignment.common, 'common task')}{how}"


def _tally(pair: Pair) -> str:
    """``40 common tasks: 25 better, 6 same, 9 worse``."""
    common, flips = common_count(pair), pair.flips
    if flips is None:
        return common
    worse, better = ways(pair)
    step = f" ({clean(flips.metric)})" if flips.metric.endswith("]") else ""
    return f"{common}{step}: {flips.better:,} {better}, {flips.same:,} same, {flips.worse:,} {worse}"


def ways(pair: Pair) -> tuple[str, str]:
    """The titles of the two lists of changed tasks: worse and better, or lower and higher."""
    question = pair.flips.metric if pair.flips else None
    directions = [each.higher_is_better for each in pair.findings if each.question == question]
    return ("lower", "higher") if directions == [None] else ("worse", "better")


def _unmatched(pair: Pair, labels: tuple[str, str]) -> list[Block]:
    sides = zip((pair.alignment.only_first, pair.alignment.only_second), labels, strict=True)
    parts = [f"{side.count:,} only in {label}" for side, label in sides if side.count]
    return [Sentence(f"{', '.join(parts)} (excluded)", label="other tasks".ljust(_LABEL))] if parts else []


def _changes(pair: Pair, losses: int) -> Iterator[Block]:
    """The tasks with the largest losses and gains."""
    if pair.flips is None:
        return
    has_direction = ways(pair) == ("worse", "better")
    titles = ("largest losses", "largest gains") if has_direction else ("furthest down", "furthest up")
    for title, changes in zip(titles, (pair.flips.regressions, pair.flips.fixes), strict=True):
        if changes[:losses]:
            yield Sentence(tuple(_changed_names(changes[:losses])), label=f"  {title}".ljust(_LABEL + 2))


def _changed_names(changes: Sequence[Changed]) -> Iterator[Name | str]:
    """``task-3 −0.5, task-7 −0.25``, in pieces of a sentence."""
    for number, change in enumerate(changes):
        yield ", " if number else ""
        yield Name(change.task, plain=without_middle([clean(change.task, None)], 24)[0].replace(" ", _NO_BREAK))
        yield f"{_NO_BREAK}{signed(change.second - change.first)}"


def survives(finding: Finding, names: tuple[str, str]) -> str:
    """The worst case that the verdict survives: ``even if all 51 missing rollouts of B failed``; "" without one."""
    tipping = finding.tipping
    if tipping is None or tipping.most < tipping.missing:
        return ""
    missing = all_of(tipping.missing, "missing rollout")
    return f"even if {missing} of {_run_of(tipping, names)} {tipping.outcome}{_others_too(finding, names)}"


def unless(finding: Finding, names: tuple[str, str]) -> str:
    """The missing rollouts that undo a verdict: ``unless more than 28 of the 51 ... failed``; "" if that is unknown."""
    tipping = finding.tipping
    if tipping is None or tipping.most >= tipping.missing:
        return ""
    run, others_too = _run_of(tipping, names), _others_too(finding, names)
    if tipping.most < 0:  # those of the other run undo it alone
        return f"unless {others_too.removeprefix(' and ')}" if others_too else ""
    if tipping.most == 0:
        every = counted(tipping.missing, "missing rollout")
        some = f"the {every}" if tipping.missing == 1 else f"any of the {every}"
        return f"unless {some} of {run} {tipping.outcome}{others_too}"
    about = "" if tipping.exact or tipping.tasks >= FEW_TASKS else "about "
    some = f"more than {about}{tipping.most:,} of the {tipping.missing:,} missing rollouts"
    return f"unless {some} of {run} {tipping.outcome}{others_too}"


def _run_of(tipping: Tipping, names: tuple[str, str]) -> str:
    return names[1] if tipping.run == "second" else names[0]


def _others_too(finding: Finding, names: tuple[str, str]) -> str:
    """The missing rollouts of the other run, which all count against the verdict: `` and all 17 of A passed``."""
    tipping = finding.tipping
    if tipping is None or tipping.run == "first" or not finding.missing[0]:
        return ""
    opposite = {"failed": "passed", "passed": "failed"}[tipping.outcome]
    return f" and {all_of(finding.missing[0])} of {names[0]} {opposite}"


def all_of(count: int, noun: str = "") -> str:
    """``all 59 missing rollouts``, ``the 1 missing rollout``."""
    plural = f" {noun}{'' if count == 1 else 's'}" if noun else ""
    return f"{'the' if count == 1 else 'all'} {count:,}{plural}"


def hints(pair: Pair) -> str:
    """A note that some findings are hints; "" if none is."""
    if not any(finding.hint for finding in pair.findings):
        return ""
    return "the primary question is undecided, so slices and other metrics are hints, not claims"


def _missing(finding: Finding, labels: tuple[str, str], policy: str) -> str:
    """``17 rollouts of A, 22 of B (excluded); bounds +0.038 to +0.159``; the bounds are those of the difference."""
    first, second = finding.missing
    parts = [f"{counted(first, 'rollout')} of {labels[0]}"] if first else []
    parts += [f"{f'{second:,}' if first else counted(second, 'rollout')} of {labels[1]}"] if second else []
    bounds = f"; bounds {signed_to(finding.bounds, _digits([finding]))}" if finding.bounds else ""
    return f"{', '.join(parts)} ({POLICY.get(policy, policy)}){bounds}"


def _digits(findings: Sequence[Finding]) -> int:
    """The number of decimals of all numbers in a table."""
    sizes = [abs(x) for each in findings for x in (each.first, each.second, *(each.interval or ())) if x is not None]
    if sizes and max(sizes) >= 10:
        return 1 if max(sizes) < 1000 else 0
    if sizes and 0 < max(sizes) < 0.01:
        return 6
    return places(*(each.interval for each in findings))


def _findings(pair: Pair, labels: tuple[str, str], comparison: Comparison) -> Table:
    """A row for each metric over all tasks, then the slices; metrics that repeat the primary numbers are left out."""
    main = primary(pair)
    shown = [each for each in pair.findings if main is None or not _same_numbers(each, main)]
    shown.sort(key=lambda each: each.role != "primary")
    axis = _axis(shown)
    has_slices = any(finding.by is not None for finding in shown)
    columns = [
        TableColumn("metric", after=3, middle=True),
        *([TableColumn(heading=True, only="terminal")] if has_slices else []),
        *_columns(*labels, f"{labels[1]} − {labels[0]}", comparison),
    ]
    rows = []
    for finding in shown:
        down = " ↓" if finding.higher_is_better is False else ""
        name: Name = Name(finding.metric, 80, plain=f"{_cell_name(finding.metric)}{down}")
        heading: Cell = ""
        if finding.by is not None:
            full = f"{finding.metric} | {finding.by}={finding.slice}"
            name = Name(full, 80, plain=_cell_name(finding.slice or ""))
            heading = f"{_cell_name(finding.metric)} by {clean(finding.by)}"
        rows.append(Row([name, *([heading] if has_slices else []), *_cells(finding, axis)]))
    return Table(columns, rows)


def _columns(first: str, second: str, difference: str, comparison: Comparison) -> list[TableColumn]:
    """The columns of the cells that `_cells` returns."""
    return [
        TableColumn(first, "right", after=3),
        TableColumn(second, "right", after=3),
        TableColumn(difference, "right", after=3),
        TableColumn(_interval_heading(comparison), after=3, verbatim=True),
        TableColumn(style="chart", only="terminal", optional=True, least=FROM, sizes=PICTURE),
        TableColumn("p adjusted" if comparison.tests > 1 and comparison.adjust != "none" else "p", "right", after=3),
        TableColumn("verdict", style="verdict"),
    ]


def _interval_heading(comparison: Comparison) -> str:
    return level(comparison.confidence).replace(_NO_BREAK, " ")


def _cell_name(name: str) -> str:
    return without_middle([clean(name, None)], 20)[0]


def _cells(finding: Finding, axis: Axis | None) -> list[Cell]:
    """The cells of a finding: both values, the difference, its interval and picture, p and the verdict."""
    digits = _digits([finding])
    picture: Cell = ""
    if axis and finding.delta is not None and finding.interval is not None:
        picture = Picture(finding.delta, *finding.interval, axis)
    p = finding.p if finding.p_adjusted is None else finding.p_adjusted
    return [
        minus(figure(finding.first, digits)),
        minus(figure(finding.second, digits)),
        NONE if finding.delta is None else signed(finding.delta, digits),
        signed_to(finding.interval, digits) if finding.interval else NONE,
        picture,
        NONE if p is None else p_value(p).removeprefix("p ").removeprefix("= "),
        verdict_of(finding),
    ]


def verdict_of(finding: Finding) -> str:
    """The verdict with its mark; a hint is marked as a hint."""
    if finding.hint is not None:
        return f"~ hint: {finding.hint}"
    return " ".join(filter(None, (MARKS.get(finding.verdict, ""), finding.verdict)))


def _axis(findings: Sequence[Finding]) -> Axis | None:
    """An axis with round steps that includes zero and all intervals, with some space on each side."""
    ends = [end for finding in findings for end in (*(finding.interval or ()), finding.delta) if end is not None]
    return round_axis([*ends, 0.0], SPARE) if ends else None


def _pairs_page(comparison: Comparison) -> Iterator[Block]:
    """A row for each pair of runs, by the primary question."""
    findings = [(contest, pair, finding) for contest, pair in comparison.pairs if (finding := primary(pair))]
    datasets = list(dict.fromkeys(contest.dataset for contest, _ in comparison.pairs))
    runs = list(dict.fromkeys(name for contest in comparison.contests for name in names_of(contest)))
    dataset = clean(datasets[0] or "", NAME) if len(datasets) == 1 else counted(len(datasets), "dataset")
    about = ", ".join(filter(None, (dataset, counted(len(runs), "run"))))
    metrics = {clean(finding.metric) for _, _, finding in findings}
    metric = min(metrics) if len(metrics) == 1 else ""
    head = [
        *head_blocks(about, ", ".join(filter(None, (metric, f"{_interval_heading(comparison)}s")))),
        *answer_blocks(Answer(f"{_decided_line([finding for _, _, finding in findings])}.")),
        Blank(),
    ]
    label_of = dict(zip(runs, letters(len(runs)), strict=True))
    if findings:
        head += [Sentence((f"{label}  ", Name(name, None, name))) for name, label in label_of.items()] + [Blank()]
    axis = _axis([finding for _, _, finding in findings])
    pair_counts = Counter((contest.dataset, _names(contest, pair)) for contest, pair, _ in findings)
    rows, row_names, pair_names = [], list[str](), list[str]()
    for contest, pair, finding in findings:
        first, second = names = _names(contest, pair)
        # agents distinguish pairs with equal names, such as the filter pipelines of lm-evaluation-harness
        agent = contest.runs[pair.first].agent if pair_counts[contest.dataset, names] > 1 else None
        row_name = " · ".join(filter(None, (contest.dataset, agent)))
        row_names.append(row_name)
        pair_names.append(f"{label_of[second]} − {label_of[first]}")
        cell: Cell = Name(row_name, plain=_cell_name(row_name))
        rows.append([cell, pair_names[-1], *_cells(finding, axis)])
    name_rows = len(set(row_names)) > 1
    columns = [
        *([TableColumn("dataset", after=3, middle=True)] if name_rows else []),
        TableColumn("runs", after=3),
        *_columns("first", "second", "difference", comparison),
    ]
    tail: list[Block] = [Blank()]
    if len(metrics) > 1:
        rows_by_metric: dict[str, list[str]] = {}
        for row_name, (_, _, finding) in zip(row_names if name_rows else pair_names, findings, strict=True):
            rows_by_metric.setdefault(clean(finding.metric), []).append(clean(row_name, NAME))
        tail += [Sentence(f"{', '.join(names)}: {metric}", "note") for metric, names in rows_by_metric.items()]
        tail.append(Blank())
    if len(runs) > 2:
        tail.append(Sentence("Ranks, and what changed: --details. Which models are tied: calipers leaderboard", "note"))
    yield from fitted(
        head,
        Table(columns, [Row(row if name_rows else row[1:]) for row in rows]),
        [*tail, _foot(comparison)],
        "--details",
    )


def _names(contest: Contest, pair: Pair) -> tuple[str, str]:
    names = names_of(contest)
    return names[pair.first], names[pair.second]


def _primary_ranks(contest: Contest) -> Ranks | None:
    """The ranks by the primary metric; None for at most `MANY` runs, with a baseline, or if there are no ranks."""
    finding = primary(contest.pairs[0])
    if finding is None or len(contest.runs) <= MANY or len(contest.pairs) < len(contest.runs):
        return None
    return next((ranks for ranks in contest.ranks if ranks.metric == finding.metric and ranks.places), None)


def _ranks_page(comparison: Comparison, contest: Contest, ranks: Ranks) -> Iterator[Block]:
    """A row for each run of one dataset, the best first, with the ranks that are not ruled out."""
    names, first = names_of(contest), ranks.places[0]
    findings = _primary_findings(contest)
    may_rank = "" if first.rank_set == (1, 1) else f", and may rank {_rank_set(first)}"
    is_first = "is first of"
    if equal := sum(standing.rank == first.rank for standing in ranks.places[1:]):
        is_first = f"and {counted(equal, 'other run')} share the best value of"
    answer = Answer(f"{names[first.run]} {is_first} {len(contest.runs):,}{may_rank}.", _decided_line(findings))
    about = ", ".join(filter(None, (clean(contest.dataset or "", NAME), counted(len(contest.runs), "run"))))
    confidence = f"{percent(comparison.confidence)} confidence"
    head = [
        *head_blocks(about, f"{clean(ranks.metric)}, {counted(ranks.tasks, 'common task')}, {confidence}"),
        *answer_blocks(answer),
        Blank(),
    ]
    digits = _digits(findings)
    rows = [Row(_rank_cells(contest, standing, digits)) for standing in ranks.places]
    tail: list[Block] = [Blank(), Sentence(OTHER_VIEWS, "note"), _foot(comparison)]
    yield from fitted(head, Table(RANK_COLUMNS, rows), tail, "--details")


def _datasets_page(comparison: Comparison) -> Iterator[Block]:
    """A row for each run of each dataset, the best first; datasets without ranks are listed below the table."""
    ranked = [(contest, ranks) for contest in comparison.contests if (ranks := _primary_ranks(contest)) is not None]
    unranked = [contest for contest in comparison.contests if _primary_ranks(contest) is None]
    # a run that shares the best value of a dataset is not first there
    leaders = [names_of(contest)[ranks.places[0].run] for contest, ranks in ranked if ranks.places[0].rank == 1]
    findings = [finding for contest, _ in ranked for finding in _primary_findings(contest)]
    leader = max(dict.fromkeys(leaders), key=leaders.count, default="No run alone")
    datasets, count = counted(len(ranked), "dataset"), leaders.count(leader)
    share = "any of" if not count else "each of" if count == len(ranked) else f"{count:,} of"
    answer = Answer(f"{leader} is first on {share} {datasets}.", _decided_line(findings))
    runs = {name for contest, _ in ranked for name in names_of(contest)}
    right = f"{clean(ranked[0][1].metric)}, {percent(comparison.confidence)} confidence"
    head = [*head_blocks(f"{datasets}, {counted(len(runs), 'run')}", right), *answer_blocks(answer), Blank()]
    most_rows = max(ROWS // len(ranked), FEWEST)
    digits, rows = _digits(findings), []
    for contest, ranks in ranked:
        dataset = Name(contest.dataset or "", plain=clean(contest.dataset or "(unnamed)", NAME))
        rows += [Row([dataset, *_rank_cells(contest, standing, digits)]) for standing in ranks.places[:most_rows]]
    tail: list[Block] = []
    if left := sum(len(ranks.places) for _, ranks in ranked) - len(rows):
        tail.append(Sentence(f"… {counted(left, 'more run')} of these datasets: --details", "note"))
    tail.append(Blank())
    if unranked:
        names = ", ".join(clean(contest.dataset or "(unnamed)", NAME) for contest in unranked)
        tail.append(Sentence(f"Without ranks: {names} (--details)", "note"))
    tail += [Sentence(OTHER_VIEWS, "note"), _foot(comparison)]
    yield from fitted(head, Table([TableColumn("dataset", heading=True), *RANK_COLUMNS], rows), tail, "--details")


def _primary_findings(contest: Contest) -> list[Finding]:
    """The finding on the primary question of each pair that has findings."""
    return [finding for pair in contest.pairs if (finding := primary(pair)) is not None]


def _decided_line(findings: Sequence[Finding]) -> str:
    """``3 of 10 differences are decided``."""
    count = sum(finding.verdict != "undecided" for finding in findings)
    return f"{count:,} of {counted(len(findings), 'difference')} {'is' if count == 1 else 'are'} decided"


def _rank_cells(contest: Contest, standing: RunRank, digits: int) -> list[Cell]:
    run = Name(contest.runs[standing.run].name, None, names_of(contest)[standing.run])
    return [f"{standing.rank:g}", run, minus(figure(standing.value, digits)), _rank_set(standing)]


def _rank_set(standing: RunRank) -> str:
    """The ranks that are not ruled out, ``2 to 4`` or ``1``."""
    low, high = standing.rank_set
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _foot(comparison: Comparison) -> Sentence:
    """The last line: the settings that are not the default, and the digest."""
    settings = [] if comparison.test in USUAL_TESTS else [plain_method(comparison.test)]
    settings += [f"margin {comparison.margin:g}"] if comparison.margin is not None else []
    settings += [] if comparison.dialect == "native" else [f"{clean(comparison.dialect)} rules"]
    settings += [f"missing rollouts {POLICY[comparison.missing]}"] if comparison.missing != "gap" else []
    settings += [f"seed {comparison.seed}"] if comparison.seed else []
    return digest_line(settings, comparison.digest, "--details")


def glance(comparison: Comparison) -> Glance:
    """A comparison for a notebook: the verdict, a row with a picture for each difference, and missing rollouts."""
    if len(comparison.pairs) == 1:
        ((contest, pair),) = comparison.pairs
        main, names = primary(pair), _names(contest, pair)
        shown = [finding for finding in pair.findings if _in_glance(finding, pair)]
        firsts = [Name(finding.metric + _slice_suffix(finding), None) for finding in shown]
        heads = "metric", f"A {names[0]}", f"B {names[1]}", "B − A"
        missing = ""
        if main and any(main.missing):
            old, new = (f"{number:,}" for number in main.missing)
            missing = f" {old} and {new} rollouts missing ({POLICY.get(comparison.missing, comparison.missing)})."
        sentence, foot = answer_of(comparison, contest, pair).line, f"{_tally(pair)}.{missing} "
    else:
        answered = [
            (_names(contest, pair), finding)
            for contest, pair in comparison.pairs
            if (finding := primary(pair)) and _in_glance(finding, pair)
        ]
        shown = [finding for _, finding in answered]
        firsts = [Name(f"{second} − {first}", None) for (first, second), _ in answered]
        heads = "runs", "first", "second", "difference"
        sentence, foot = f"{_decided_line(shown)}.", ""
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


def _in_glance(finding: Finding, pair: Pair) -> bool:
    """Whether a finding is in the notebook's table: over all tasks, or at a step if nothing is over all tasks."""
    return finding.by is None or _is_at_step(pair, finding)
