"""The page of two runs: the verdict, the difference on its axis, and the changes task by task."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from calipers.analyses.compare import SIDAK, Comparison, Contest, Finding, Pair
from calipers.analyses.compare.page import answer_to, at_step
from calipers.reports.figures import NONE, POLICY, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import note_of, text_of
from calipers.reports.result_page import all_seen
from calipers.reports.sentences import Answer, level, p_value, places, short_number, signed, signed_to
from calipers.web import draw
from calipers.web.draw import LETTER, Scale, Tone, circle, line, rect, scale_of, svg, words
from calipers.web.island import reading_words, what_if_data, what_if_section
from calipers.web.markup import Child, Markup, element, joined, name, one_line, text, visible
from calipers.web.page import (
    DIGITS,
    HtmlPage,
    NumberCard,
    Section,
    axis_row,
    axis_table,
    card_id,
    column_head,
    common_scale,
    estimate_card,
    estimate_row,
    heading,
    interval_table,
    method_card,
    method_term,
    once,
    plain_table,
    scrolled,
    slice_name,
    term,
)
from calipers.web.report_data import NO_TEXT, STATES, PairData, RunData, RunRollouts
from calipers.web.sections import (
    chip,
    chips,
    cost_section,
    foot,
    input_line,
    ledger_bar,
    provenance_section,
    spent_of,
    state_counts,
    state_word,
)

if TYPE_CHECKING:
    from calipers.analyses.leaderboard import Leaderboard
    from calipers.analyses.matrix.document import Matrix

BADGES: Final = {
    "better": "▲ Better",
    "worse": "▼ Worse",
    "equivalent": "= Equivalent",
    "higher": "▲ Higher",
    "lower": "▼ Lower",
    "undecided": "~ Undecided",
}
TONES: Final[dict[str, Tone]] = {"better": "blue", "higher": "blue", "worse": "orange", "lower": "orange"}
RUN_TONES: Final[tuple[Tone, Tone]] = ("grey", "blue")  # of the baseline A, and of B
SPARE: Final = 0.2  # share of the range that the axis of the difference leaves free at both ends
APART: Final = (
    "Each alone. Compare by the difference above, not by whether these two overlap: the runs share their tasks."
)
DIFFERENCE: Final = "card-difference"
ENDS: Final = 5  # the largest losses, and gains, that are shown at first
MOST: Final = 300  # tasks that are listed; with more tasks, changes are drawn as a line, not as bars
MOST_SQUARES: Final = 16  # rollouts of a task that are drawn; further ones are counted
LONGEST: Final = 44  # letters of an answer in the list
PROMPT: Final = 22  # letters of a prompt in the list
BEFORE: Final = 12  # letters of an answer that are kept before the first difference
TALL: Final = 46  # height of the bar of the largest change, in px
WAYS: Final = ("better", "same", "worse")


def pair_page(data: PairData) -> HtmlPage:
    """The page of two runs; for a comparison of more runs, a list of its pairs."""
    comparison = data.comparison
    pairs = [(contest, pair) for contest in comparison.contests for pair in contest.pairs]
    if len(pairs) != 1:
        return _several(comparison, pairs)
    contest, pair = pairs[0]
    finding = headline_of(pair)
    names = contest.runs[pair.first].name, contest.runs[pair.second].name
    answer = at_step(answer_to(finding, names, comparison), pair, finding)
    changes = changes_of(pair, data.first, data.second, finding.higher_is_better is not False)
    shown, island = shown_changes(changes), what_if_data(data)
    sections: list[Section | None] = [
        _runs_section(data, pair, finding, names, comparison),
        _ledger(data),
        *_slices(pair, finding, comparison),
        _tasks(pair, changes),
        _changed(data, shown, len(changes), names),
        _mcnemar(finding),
        _cost(data, finding),
        what_if_section(data, island),
        _notes(pair, comparison),
        _provenance(data, finding),
    ]
    return HtmlPage(
        title=answer.sentence,
        about=[*([contest.dataset] if contest.dataset else []), f"{names[0]} against {names[1]}"],
        top=_top(data, pair, finding, names, answer),
        sections=[section for section in sections if section is not None],
        foot=foot(data.runs, comparison.digest),
        cards=_cards(data, finding, names),
        data=_data(data, shown, island),
    )


def headline_of(pair: Pair) -> Finding:
    """The finding that is the subject of the page: the answer to the primary question."""
    return next((finding for finding in pair.findings if finding.role == "primary"), pair.findings[0])


def _top(data: PairData, pair: Pair, finding: Finding, names: tuple[str, str], answer: Answer) -> Markup:
    title = heading(answer.sentence, answer.detail)
    basis = element("p", badge(finding.verdict), " ", _basis(data.comparison, pair, finding), class_="basis")
    warnings = [
        element("p", element("b", "Warning: "), f"{text_of(remark)}.", class_="small")
        for remark in pair.remarks
        if remark.severity == "warning"
    ]
    return element("div", title, basis, _axis(finding, names, data.comparison.margin), *warnings, class_="top")


def badge(verdict: str) -> Markup:
    """The verdict as a word with its mark."""
    return element("span", BADGES.get(verdict, verdict), class_=f"badge {TONES.get(verdict, 'grey')}")


def _basis(comparison: Comparison, pair: Pair, finding: Finding) -> list[Child]:
    words: list[Child] = ["Paired over ", element("b", counted(pair.alignment.common, "common task"))]
    if finding.by is not None:
        words.append(f", {finding.by} {finding.slice}: {counted(finding.tasks, 'task')}")
    elif finding.tasks != pair.alignment.common:
        words.append(f", {finding.tasks:,} with a value in both")
    if finding.p is not None:
        words.append(f", {p_value(finding.p)}")
    words += [", ", term(DIFFERENCE, finding.metric), ", test ", method_term(finding.method), ". "]
    missing = finding.missing
    if any(missing):
        policy = POLICY.get(comparison.missing, comparison.missing)
        words.append(f"{counted(missing[0], 'rollout')} of A and {missing[1]:,} of B are missing and {policy}. ")
    if finding.bounds and finding.bounds[0] != finding.bounds[1]:
        words.append(f"Depending on them the difference is {signed_to(finding.bounds)}. ")
    if finding.undone_by_one:
        words.append("One more task that went fully against it would undo the verdict. ")
    if finding.hint:
        words.append(f"By itself it would be {finding.hint}: a hint, not a claim. ")
    return words


def _axis(finding: Finding, names: tuple[str, str], margin: float | None) -> Markup:
    if finding.delta is None:
        return Markup("")
    ends = [finding.delta, *(finding.interval or ()), *((-margin, margin) if margin else ())]
    scale = scale_of(ends, zero=True, spare=SPARE)
    digits = places(finding.interval)
    better = finding.higher_is_better
    words = ("B is lower", "B is higher") if better is None else ("B is worse", "B is better")
    return draw.headline(
        finding.delta,
        finding.interval,
        None,
        scale,
        label=_described(finding, f"{names[1]} less {names[0]}"),
        figure=lambda value: signed(value, digits),
        tone=TONES.get(finding.verdict, "grey"),
        ticks=lambda tick: short_number(tick, signed=True),
        zero=True,
        margin=margin,
        sides=words if better is not False else (words[1], words[0]),
    )


def _described(finding: Finding, subject: str) -> str:
    """A difference as a sentence, for screen readers."""
    if finding.delta is None:
        return f"{subject}: no value"
    digits = places(finding.interval)
    ends = (
        f"{100 * finding.confidence:.6g} percent interval {signed_to(finding.interval, digits)}"
        if finding.interval
        else "no interval"
    )
    return f"{subject}: {finding.metric} {signed(finding.delta, digits)}, {ends}, {finding.verdict}"


def _runs_section(
    data: PairData, pair: Pair, finding: Finding, names: tuple[str, str], comparison: Comparison
) -> Section | None:
    """Each run by itself, with a note that their intervals are not a comparison."""
    groups = [run.group for run in data.runs if finding.metric in run.group.metrics]
    if finding.by is not None or len(groups) < 2:
        return _values_section(finding, names)
    estimates = [group[finding.metric] for group in groups]
    scale = common_scale(estimates, all_seen(groups))
    digits = places(*(each.interval for each in estimates))
    rows = [
        estimate_row(
            [element("b", label), " ", name(run_name, 20)],
            group[finding.metric],
            group.ledger,
            scale,
            digits,
            card=card_id(finding.metric, label),
            label=f"{label} {run_name}: {finding.metric}",
            tone=tone,
        )
        for label, group, tone, run_name in zip("AB", groups, RUN_TONES, names, strict=True)
    ]
    note = [APART]
    if any(group.ledger.tasks != pair.alignment.common for group in groups):
        note.append("Each over all of its own tasks.")
    return Section("Both runs", interval_table("Both runs", "run", comparison.confidence, scale, rows), note, "both")


def _values_section(finding: Finding, names: tuple[str, str]) -> Section | None:
    """The values of both runs, for a comparison document without its runs."""
    if finding.first is None or finding.second is None:
        return None
    values = zip("AB", names, (finding.first, finding.second), finding.samples, strict=True)
    rows = [
        ([element("b", label), " ", name(run_name)], figure(value, 3), counted(samples, "sample"))
        for label, run_name, value, samples in values
    ]
    table = plain_table("Both runs", ("run", finding.metric, "samples"), rows)
    return Section("Both runs", table, "On their common tasks. Compare by the difference above.", "both")


def _ledger(data: PairData) -> Section | None:
    """Both ledgers, one below the other, with filters that count the rollouts of both."""
    if data.first is None or data.second is None:
        return None
    bodies = []
    for label, run in zip("AB", (data.first, data.second), strict=True):
        words = element("p", element("b", label), f" {run.group.ledger.planned:,} planned")
        bodies.append(element("div", words, ledger_bar(run, 22, f"{label}: "), class_="two-bars"))
    first, second = state_counts(data.first), state_counts(data.second)
    filters = []
    for state in dict.fromkeys([*first, *second]):
        counts, word = [f"{states.get(state, 0):,}" for states in (first, second)], state_word(state)
        inner = [draw.square(state), element("b", " | ".join(counts)), f" {word}"]
        filters.append(chip(inner, f"{counts[0]} of A and {counts[1]} of B {word}", data_state=state))
    body = joined([*bodies, chips(filters, "Outcomes")])
    return Section("Ledger", body, "Select a part to see its tasks below.", "ledger")


_ADJUSTED: Final = {
    SIDAK: "Each p is adjusted for the number of slices; the headline is not.",
    "none": "No p is adjusted for the number of slices.",
}


def _slices(pair: Pair, headline: Finding, comparison: Comparison) -> list[Section]:
    """A section of differences for each key of the breakdown."""
    keys = dict.fromkeys(finding.by for finding in pair.findings if finding.by is not None)
    sections = []
    for number, key in enumerate(keys):
        findings = [each for each in pair.findings if each.by == key and each.metric == headline.metric]
        if not findings:
            continue
        ends = [end for each in findings for end in (each.delta, *(each.interval or ()))]
        scale = draw.around_zero(scale_of(ends, zero=True))
        rows = [_slice_row(finding, scale) for finding in findings]
        body = [
            difference_table(f"By {key}", "slice", comparison.confidence, scale, rows),
            _what_would_decide(findings),
        ]
        note = ["Difference B − A.", _ADJUSTED.get(comparison.adjust, "Each p is adjusted, the headline's, too.")]
        sections.append(Section(f"By {key}", joined(body), note, f"by-{number}"))
    return sections


def _slice_row(finding: Finding, scale: Scale) -> Markup:
    shown = slice_name(finding.slice or "")
    return difference_row(
        [name(shown, 24)],
        finding.delta,
        finding.interval,
        finding.verdict,
        scale,
        label=_described(finding, f"{finding.by} {shown}"),
        small=p_value(finding.p_adjusted) if finding.p_adjusted is not None else "",
        why=plain_why(finding.why) if finding.why else "",
    )


def difference_table(caption: str, head: str, confidence: float, scale: Scale, rows: Iterable[Markup]) -> Markup:
    """A table of differences on one axis with a zero line."""
    axis = draw.axis_head(scale, signed=True)
    return axis_table(caption, (head, "B − A", axis, level(confidence), "verdict"), rows)


def difference_row(
    head: Sequence[Child],
    delta: float | None,
    interval: tuple[float, float] | None,
    verdict: str,
    scale: Scale,
    *,
    label: str,
    small: str = "",
    why: str = "",
) -> Markup:
    """A row of a `difference_table`, with its verdict as a word."""
    digits = places(interval)
    reason = "" if interval else f"no interval: {why}" if why else "no interval"
    picture = draw.interval_row(delta, interval, None, scale, label=label, tone=TONES.get(verdict, "grey"), zero=True)
    ends = signed_to(interval, digits) if interval else element("span", reason, class_="why")
    word = [verdict_word(verdict), element("small", small) if small else None]
    return axis_row(head, NONE if delta is None else signed(delta, digits), picture, ends, word)


def verdict_word(verdict: str) -> Markup:
    """The verdict in its colour, such as ``▲ better``."""
    return element("span", BADGES.get(verdict, verdict).lower(), class_=f"said {TONES.get(verdict, 'grey')}")


def _what_would_decide(findings: Sequence[Finding]) -> Markup | None:
    lines = []
    for finding in findings:
        if finding.verdict != "undecided" or finding.delta is None:
            continue
        unit = "task" if finding.units == finding.tasks else "cluster"
        ways = [f"about {counted(finding.more_tasks, f'new {unit}')}"] if finding.more_tasks else []
        if finding.more_samples:
            ways.append(f"{finding.units:,} with {counted(finding.more_samples, 'sample')} each")
        lines += [f"{slice_name(finding.slice or '')} is undecided: {text_of(remark)}." for remark in finding.remarks]
        if ways:
            size = signed(finding.delta, places(finding.interval))
            shown = slice_name(finding.slice or "")
            lines.append(
                f"{shown} is undecided: {', or '.join(ways)}, would decide it with 80 % chance if the true difference "
                f"is {size}."
            )
    return element("div", [element("p", line, class_="small") for line in lines]) if lines else None


def _tasks(pair: Pair, changes: Sequence[Change]) -> Section | None:
    """A bar for each task, and filters for better, same and worse."""
    if pair.flips is None or not changes:
        return None
    counts = dict(zip(WAYS, (pair.flips.better, pair.flips.same, pair.flips.worse), strict=True))
    note = ["One bar is one task: its score in B minus its score in A."]
    if len(changes) > MOST:
        note = ["The line has the tasks in order of their score in B minus their score in A."]
    elif len(changes) < sum(counts.values()):
        note = ["One bar is one task whose score changed: its score in B minus its score in A."]
    if len(changes) < (changed := counts["better"] + counts["worse"]):
        note.append(
            f"The document lists {len(changes):,} of the {changed:,} tasks that changed: the largest losses and gains."
        )
    return Section("Task by task", joined([bars(changes, counts), way_filters(counts)]), note, "tasks")


def _changed(data: PairData, shown: Sequence[Change], total: int, names: tuple[str, str]) -> Section | None:
    if not shown:
        return None
    runs = rollouts_of(data.first), rollouts_of(data.second)
    note = ["The same tasks in both runs, largest losses first."]
    if all(runs):
        note.append("A square is a sample. Open a task to read its rollouts.")
    table = change_table(shown, total, *runs, (f"A {names[0]}", f"B {names[1]}"))
    return Section("What changed", table, note, "changed")


def _mcnemar(finding: Finding) -> Section | None:
    """The numbers of tasks that both runs, one run or neither solved; None unless each task has one pass or failure."""
    test = finding.mcnemar
    if test is None or finding.first is None or finding.by is not None:
        return None
    both = round(finding.first * finding.tasks) - test.first_only
    neither = finding.tasks - both - test.first_only - test.second_only

    def cell(count: int, way: str = "") -> Markup:
        inner = element("b", f"{count:,}")
        if not way:
            return element("td", inner)
        label = f"{counted(count, 'task')} that only {'A' if way == 'worse' else 'B'} solved, filter"
        button = element("button", inner, type="button", data_way=way, aria_pressed="false", aria_label=label)
        return element("td", button, class_="discordant")

    rows = [
        element("tr", element("th", "A passed", scope="row"), cell(both), cell(test.first_only, "worse")),
        element("tr", element("th", "A failed", scope="row"), cell(test.second_only, "better"), cell(neither)),
    ]
    heads = element("tr", element("td"), [element("th", word, scope="col") for word in ("B passed", "B failed")])
    table = element(
        "table",
        element("caption", "Both, one, neither", class_="hidden"),
        element("thead", heads),
        element("tbody", rows),
        class_="two-by-two",
    )
    sentence = (
        f"{counted(test.first_only, 'task')} only A solved, {test.second_only:,} only B. "
        f"{p_value(test.exact)} (McNemar, exact)."
    )
    return Section("Both, one, neither", joined([table, element("p", sentence, class_="small")]), id="mcnemar")


def _cost(data: PairData, finding: Finding) -> Section | None:
    points = []
    for label, run, tone in zip("AB", (data.first, data.second), RUN_TONES, strict=True):
        spent = spent_of(run, label, finding.metric, tone) if run else None
        points += [spent] if spent else []
    better = finding.higher_is_better is not False
    ahead = {"better": (1, 0), "worse": (0, 1)}.get(finding.verdict)
    return cost_section(
        points,
        finding.metric,
        higher_is_better=better,
        confidence=data.comparison.confidence,
        ahead=lambda first, second: (first, second) == ahead,
    )


def _notes(pair: Pair, comparison: Comparison) -> Section | None:
    """The notes of a comparison: other differences between the runs, and excluded tasks."""
    remarks = [note_of(remark) for remark in pair.remarks if remark.severity == "note"]
    lines = list(dict.fromkeys([*remarks, *pair.notes, *comparison.notes]))
    in_first, in_second = pair.alignment.only_first.count, pair.alignment.only_second.count
    if in_first or in_second:
        tasks = f"{counted(in_first, 'task')} {'is' if in_first == 1 else 'are'} only in A"
        lines.insert(0, f"{tasks} and {in_second:,} only in B: excluded")
    if not lines:
        return None
    items = [element("li", f"{line.rstrip('.')}.") for line in lines]
    return Section("Notes", element("ul", items, class_="notes"), id="notes")


def _provenance(data: PairData, finding: Finding) -> Section:
    comparison = data.comparison
    inputs = [
        input_line(file, element("b", label), " ")
        for label, files in zip("AB", comparison.inputs, strict=False)
        for file in files[:4]
    ]
    return provenance_section(comparison, inputs, _command(data), signature=finding.signature, margin=comparison.margin)


def _command(data: PairData) -> str:
    """The command that prints the same numbers."""
    comparison = data.comparison
    pair = comparison.contests[0].pairs[0]
    words = ["calipers", "compare", *(file.path for files in comparison.inputs for file in files)]
    words += reading_words(data.runs)
    for metric in dict.fromkeys(finding.metric for finding in pair.findings):
        words += ["--metric", metric]
    for key in dict.fromkeys(finding.by for finding in pair.findings if finding.by):
        words += ["--by", key]
    return shlex.join([*words, *options_of(comparison, comparison.margin)])


def options_of(report: Comparison | Leaderboard | Matrix, margin: float | None = None) -> list[str]:
    """The options of the command that prints the numbers of a report, without options that have their default."""
    given = {
        "--cluster": report.cluster,
        "--dialect": report.dialect if report.dialect != "native" else None,
        "--missing": report.missing if report.missing != "gap" else None,
        "--margin": None if margin is None else f"{margin:g}",
        "--confidence": f"{report.confidence:g}" if report.confidence != 0.95 else None,
        "--seed": str(report.seed) if report.seed else None,
    }
    return [word for option, value in given.items() if value for word in (option, value)]


def _cards(data: PairData, finding: Finding, names: tuple[str, str]) -> list[NumberCard]:
    """The cards of the difference, of each run's value, and of the test."""
    ends = (
        f"{signed_to(finding.interval, DIGITS)}; {level(finding.confidence)} by {finding.method}"
        if finding.interval
        else "none"
    )
    adjusted = "" if finding.p_adjusted is None or finding.p_adjusted == finding.p else p_value(finding.p_adjusted)
    difference = NumberCard(
        DIFFERENCE,
        f"{finding.metric}, B − A",
        "no value" if finding.delta is None else signed(finding.delta, DIGITS),
        f"{finding.metric} of {names[1]} minus that of {names[0]} on the tasks that have a value in both.",
        [
            ("Interval", ends),
            ("p", "" if finding.p is None else f"{p_value(finding.p)}{f', adjusted {adjusted}' if adjusted else ''}"),
            ("Tasks", f"{finding.tasks:,} in both, {counted(finding.undefined_tasks, 'other')} without a value"),
            ("Missing", f"{counted(finding.missing[0], 'rollout')} of A, {finding.missing[1]:,} of B"),
            ("Verdict", finding.sentence),
            ("Signature", finding.signature),
        ],
    )
    cards: list[NumberCard | None] = [difference]
    for label, run in zip("AB", (data.first, data.second), strict=True):
        estimate = run.group.metrics.get(finding.metric) if run else None
        if run is None or estimate is None:
            continue
        card = estimate_card(
            finding.metric, estimate, run.group.ledger, missing=run.result.missing, confidence=run.result.confidence
        )
        cards.append(replace(card, id=card_id(finding.metric, label), name=f"{finding.metric} of {label}"))
        cards.append(method_card(estimate.method) if estimate.method else None)
    cards.append(method_card(finding.method))
    return once(cards)


def _data(data: PairData, shown: Sequence[Change], island: dict[str, Any] | None) -> dict[str, Any]:
    first, second = rollouts_of(data.first), rollouts_of(data.second)
    if first is None or second is None:
        return {}
    return {"changed": change_data(shown, first, second), **({"what_if": island} if island else {})}


def _several(comparison: Comparison, pairs: Sequence[tuple[Contest, Pair]]) -> HtmlPage:
    """The page of a comparison of more than two runs: a row for each pair."""
    headlines = [headline_of(pair) for _, pair in pairs]
    scale = scale_of([end for each in headlines for end in (each.delta, *(each.interval or ()))], zero=True)
    rows = []
    for (contest, pair), finding in zip(pairs, headlines, strict=True):
        first, second = contest.runs[pair.first].name, contest.runs[pair.second].name
        dataset = element("small", name(contest.dataset)) if contest.dataset and len(comparison.contests) > 1 else None
        head = [name(second, 20), element("small", "against ", name(first, 20)), dataset]
        label = _described(finding, f"{second} less {first}")
        rows.append(
            difference_row(
                head, finding.delta, finding.interval, finding.verdict, scale, label=label, why=finding.why or ""
            )
        )
    decided = sum(finding.verdict != "undecided" for finding in headlines)
    title = f"{counted(len(pairs), 'pair')} of runs were compared."
    table = difference_table("Every pair", "B against A", comparison.confidence, scale, rows)
    section = Section("Every pair", table, f"Difference of {headlines[0].metric}, B − A." if headlines else "", "pairs")
    sections = [section, _provenance(PairData(comparison, None, None), headlines[0])] if headlines else []
    return HtmlPage(
        title,
        [f"{len(pairs):,} pairs"],
        element("div", heading(title, f"{decided:,} of them are decided"), class_="top"),
        sections,
        [f"Calipers · {comparison.digest}"],
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A task of both runs: its value in each run, and its codes in their tables."""

    task: str
    first: float | None  # None if the value is the same in both runs, and so is not needed
    second: float | None
    gain: float  # positive if the second run is better
    codes: tuple[int, int] | None  # the codes of the task in the tables of both runs; None without rollouts

    @property
    def way(self) -> str:
        """Whether the second run is "better" than the first, the "same", or "worse"."""
        return "better" if self.gain > 0 else "worse" if self.gain < 0 else "same"

    @property
    def delta(self) -> float:
        """The second value minus the first."""
        return 0.0 if self.first is None or self.second is None else self.second - self.first


def changes_of(pair: Pair, first: RunData | None, second: RunData | None, higher_is_better: bool) -> list[Change]:
    """The common tasks of two runs, the largest loss first.

    Unchanged tasks are included only if they can be determined: that needs the rollouts of both runs, tasks that were
    paired by id, and the complete list of changed tasks.
    """
    if pair.flips is None:
        return []
    sign = 1 if higher_is_better else -1
    tables = rollouts_of(first), rollouts_of(second)
    codes_of = [{} if run is None else {task: code for code, task in enumerate(run.table.tasks)} for run in tables]

    def codes(task: str) -> tuple[int, int] | None:
        in_first, in_second = (run_codes.get(task) for run_codes in codes_of)
        return None if in_first is None or in_second is None else (in_first, in_second)

    changed = [
        Change(change.task, change.first, change.second, sign * (change.second - change.first), codes(change.task))
        for change in (*pair.flips.regressions, *pair.flips.fixes)
    ]
    known = {change.task for change in changed}
    same = []
    if len(changed) == pair.flips.better + pair.flips.worse and pair.alignment.by == "id":
        common = [task for task in codes_of[0] if task in codes_of[1] and task not in known]
        if len(common) == pair.flips.same:
            same = [Change(task, None, None, 0.0, codes(task)) for task in common]
    return sorted([*changed, *same], key=lambda change: change.gain)


def rollouts_of(run: RunData | None) -> RunRollouts | None:
    """The rollouts of a run; None without a run or without rollouts."""
    return None if run is None else run.rollouts


def shown_changes(changes: Sequence[Change]) -> list[Change]:
    """The listed tasks: at most `MOST`, the largest losses and the largest gains."""
    if len(changes) <= MOST:
        return list(changes)
    return [*changes[: MOST // 2], *changes[-MOST // 2 :]]


def bars(changes: Sequence[Change], counts: Mapping[str, int]) -> Markup:
    """A bar for each task, gains first, and a dot for an unchanged task; with more than `MOST` tasks, a step line."""
    gains = sorted((change.gain for change in changes), reverse=True)
    largest = max(map(abs, gains), default=0.0) or 1.0
    middle, wide = TALL + 8, 100 / max(len(gains), 1)
    marks = [line(0, 100, middle, middle, "axis")]
    if len(gains) > MOST:
        marks.append(_steps(gains, largest, middle))
    else:
        gap = min(0.25 * wide, 0.35)
        for number, gain in enumerate(gains):
            left, tall = number * wide, max(round(TALL * abs(gain) / largest, 1), 1.5)
            if gain == 0:
                marks.append(circle(left + wide / 2, middle, 1.5, "same"))
                continue
            top, kind = (middle - tall, "up") if gain > 0 else (middle, "down")
            marks.append(rect(left + gap / 2, wide - gap, round(top, 1), tall, kind, 1))
    numbers = ", ".join(f"{counts[way]:,} {way}" for way in WAYS)
    label = f"{counted(len(gains), 'task')}: {numbers}; the largest change is {signed(largest)}"
    if counts["better"]:  # else the first bar goes down, where these words would be
        marks.append(words(0, middle + 18, f"{counts['better']:,} better", "better", "start"))
    if counts["worse"]:
        marks.append(words(100, middle - 8, f"{counts['worse']:,} worse", "worse", "end"))
    return svg(*marks, label=label, class_="changes", height=2 * middle)


def _steps(gains: Sequence[float], largest: float, middle: int) -> Markup:
    points = []
    for number, gain in enumerate(gains):
        y = round(middle - TALL * gain / largest, 1)
        points += [f"{100 * number / len(gains):.2f},{y}", f"{100 * (number + 1) / len(gains):.2f},{y}"]
    shape = f'<polyline class="steps" points="{" ".join(points)}"/>'
    return Markup(
        f'<svg width="100%" height="{2 * middle}" viewBox="0 0 100 {2 * middle}" preserveAspectRatio="none">'
        f"{shape}</svg>"
    )


def way_filters(counts: Mapping[str, int]) -> Markup:
    """A filter for better, for unchanged and for worse tasks."""
    marks = {"better": "▲", "same": "•", "worse": "▼"}
    shown = []
    for way in WAYS:
        if counts[way]:
            mark = element("span", marks[way], class_=way, aria_hidden="true")
            inner = [mark, element("b", f"{counts[way]:,}"), f" {way}"]
            shown.append(chip(inner, f"{counts[way]:,} {way}", data_way=way))
    return chips(shown, "Tasks")


def change_table(
    changes: Sequence[Change],
    total: int,
    first: RunRollouts | None,
    second: RunRollouts | None,
    labels: tuple[str, str],
) -> Markup:
    """A row for each task: the squares and the most frequent answer of each run, and the change."""
    runs = first, second
    answers = [
        usual_answers(run, [change.codes[side] for change in changes if change.codes]) for side, run in enumerate(runs)
    ]
    with_answers = any(map(len, answers))
    with_squares = any(change.codes for change in changes)
    digits = places()
    heads = [column_head("task")]
    for label in labels:
        heads += [column_head(label)] if with_squares else [column_head(f"{label} value")]
        heads += [column_head("usual answer")] if with_answers else []
    heads.append(column_head("change", "change"))
    rows = []
    middle = range(ENDS, len(changes) - ENDS)
    for number, change in enumerate(changes):
        if number == ENDS and len(middle) > 0 and len(changes) > 2 * ENDS + 1:
            rows.append(_between(total - 2 * ENDS, total, len(changes), len(heads)))
        task_answers = [answers[side].get(change.codes[side]) if change.codes else None for side in (0, 1)]
        marked = differing(*task_answers)
        cells: list[Child] = [element("th", _task(change, first), scope="row", class_="task")]
        for side, run in enumerate(runs):
            value = change.first if side == 0 else change.second
            drawn = task_squares(run, change.codes[side], labels[side]) if change.codes and run is not None else None
            content = drawn if with_squares else "" if value is None else f"{value:.{digits}f}"
            cells.append(element("td", content, class_="squares-cell"))
            cells += [element("td", marked[side], class_="answer")] if with_answers else []
        cells.append(element("td", signed(change.delta, digits), class_=f"change {change.way}"))
        states = _states(change, runs)
        extra = "extra" if number in middle and len(changes) > 2 * ENDS + 1 else None
        rows.append(element("tr", cells, class_=extra, data_row=number, data_way=change.way, data_states=states))
    table = element(
        "table",
        element("caption", "What changed, task by task", class_="hidden"),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        class_="changed",
    )
    status = element("p", class_="small", role="status", id="changed-count")
    return joined([scrolled(table, "What changed", "wide"), status])


def _between(hidden: int, total: int, listed: int, columns: int) -> Markup:
    """The row in place of the hidden tasks; its button shows them."""
    more = f"Show all {total:,}" if listed == total else f"Show {listed:,} of {total:,}"
    button = element("button", more, type="button", class_="link", data_between=True, hidden=True)
    return element(
        "tr", element("td", f"{counted(hidden, 'task')} between. ", button, colspan=columns), class_="between"
    )


def _task(change: Change, run: RunRollouts | None) -> Markup:
    prompt = run.prompts.get(change.codes[0]) if run is not None and change.codes else None
    shown = element("span", one_line(prompt, PROMPT), class_="prompt", dir="auto") if prompt else None
    return joined([element("code", name(change.task, 24)), " ", shown])


def _states(change: Change, runs: Sequence[RunRollouts | None]) -> str | None:
    """The states of a task's rollouts in both runs, separated by spaces."""
    if change.codes is None:
        return None
    kinds: set[str] = set()
    for run, code in zip(runs, change.codes, strict=True):
        if run is not None:
            start, stop = run.table.by_task.starts[code : code + 2]
            kinds |= {STATES[state] for state in np.unique(run.states[start:stop]).tolist()}
    return " ".join(sorted(kinds)) or None


def task_squares(run: RunRollouts, code: int, label: str) -> Markup:
    """The rollouts of one task as a row of squares, in the order of their samples."""
    start, stop = run.table.by_task.starts[code : code + 2]
    states = [STATES[state] for state in run.states[start:stop].tolist()]
    step = 11
    shown = states if len(states) <= MOST_SQUARES else states[: MOST_SQUARES - 2]
    drawn = "".join(
        f'<rect class="{LETTER.get(state, "m")}" x="{1 + step * number}" y="1" width="8" height="8" rx="1.5"/>'
        for number, state in enumerate(shown)
    )
    counts = ", ".join(
        f"{states.count(state)} {'counted as 0' if state == 'zero' else state}" for state in STATES if state in states
    )
    more = element("small", f" +{len(states) - len(shown):,}") if len(shown) < len(states) else None
    aria_label = text(f"{label}: {counts}")
    size = f'width="{step * len(shown)}" height="10"'
    picture = Markup(f'<svg class="dots" role="img" aria-label="{aria_label}" {size}>{drawn}</svg>')
    return joined([picture, more])


def usual_answers(run: RunRollouts | None, codes: Sequence[int]) -> dict[int, str]:
    """The most frequent answer of each task, the first of several; empty without texts or without answers."""
    if run is None or not run.wants_texts or (labels := run.table.labels.get("answer")) is None:
        return {}
    usual = {}
    for code in codes:
        start, stop = run.table.by_task.starts[code : code + 2]
        given = labels.code[start:stop]
        given = given[given >= 0]
        if len(given):
            kinds, at, counts = np.unique(given, return_index=True, return_counts=True)
            best = min(range(len(kinds)), key=lambda index: (-counts[index], at[index]))
            answer = labels.values[int(kinds[best])]
            usual[code] = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return usual


def differing(first: str | None, second: str | None) -> tuple[Child, Child]:
    """Two answers with the difference marked: the text between their common beginning and their common end.

    >>> differing("139", "219")[0]
    ['', '<mark role="deletion">13</mark>', '9']
    """
    if first is None or second is None:
        return _unmarked(first), _unmarked(second)
    old, new = (visible(answer[: 40 * LONGEST]).replace("\n", " ⏎ ") for answer in (first, second))
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    return _marked(old, head, tail, "deletion"), _marked(new, head, tail, "insertion")


def _unmarked(answer: str | None) -> Child:
    return "–" if answer is None else element("code", one_line(answer, LONGEST))


def _common(first: str, second: str) -> int:
    """The length of the common beginning of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _marked(words: str, head: int, tail: int, role: str) -> Child:
    stop = len(words) - tail
    before, changed, after = words[:head], words[head:stop], words[stop:]
    if len(words) > LONGEST:
        before = before if head <= BEFORE else f"…{before[-BEFORE:]}"
        room = max(LONGEST - len(before), BEFORE)
        changed = changed if len(changed) <= room else f"{changed[: room - 1]}…"
        room = max(LONGEST - len(before) - len(changed), 0)
        after = after if len(after) <= room else f"{after[:room]}…"
    return [before, element("mark", changed, role=role) if changed else None, after]


def change_data(changes: Sequence[Change], first: RunRollouts | None, second: RunRollouts | None) -> list[Any]:
    """The data of each listed task for a script: its prompt, and the texts of both runs that are in the file."""
    return [
        {
            "prompt": next(
                (visible(run.prompts[code]) for run, code in _sides(change, first, second) if code in run.prompts), None
            ),
            "runs": [_rollouts(run, code) for run, code in _sides(change, first, second)],
        }
        for change in changes
    ]


def _sides(change: Change, first: RunRollouts | None, second: RunRollouts | None) -> list[tuple[RunRollouts, int]]:
    if change.codes is None or first is None or second is None:
        return []
    return [(first, change.codes[0]), (second, change.codes[1])]


def _rollouts(run: RunRollouts, code: int) -> list[Any]:
    start, stop = map(int, run.table.by_task.starts[code : code + 2])
    rows = []
    for row in range(start, stop):
        texts = run.texts.get(row, NO_TEXT)
        shown = [None if content is None else visible(content) for content in (texts.completion, texts.answer)]
        rows.append([int(run.table.sample[row]), STATES[run.states[row]], *shown])
    return rows
