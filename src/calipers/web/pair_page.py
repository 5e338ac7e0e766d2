"""The page of two runs: the verdict, the difference on its axis, then what changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from calipers.analyses.compare.page import at_step
from calipers.analyses.compare.result import Comparison, Contest, Finding, Pair
from calipers.reports.figures import NONE, POLICY, counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import Answer, level, of_difference, p_value, places, signed, signed_to
from calipers.rollouts.record import ABSENT
from calipers.web import draw
from calipers.web.changes import (
    WAYS,
    Change,
    bars,
    change_data,
    change_table,
    changes_of,
    rollouts_of,
    shown_changes,
    way_filters,
)
from calipers.web.cost import RunCost, cost_section
from calipers.web.draw import Scale, Tone, scale_of
from calipers.web.gather import PairData, RunData, ledger_parts
from calipers.web.island import what_if_data, what_if_section
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import (
    HtmlPage,
    NumberCard,
    Section,
    axis_table,
    card_id,
    estimate_row,
    heading,
    interval_table,
    of_estimate,
    of_method,
    once,
    term,
)
from calipers.web.run_page import STATE_WORDS, bar_parts, command_line, foot, ledger_label, method_term, state_counts

if TYPE_CHECKING:
    from calipers.analyses.leaderboard.document import Leaderboard
    from calipers.analyses.matrix.result import Matrix

BADGES: Final = {
    "better": "▲ Better",
    "worse": "▼ Worse",
    "equivalent": "= Equivalent",
    "higher": "▲ Higher",
    "lower": "▼ Lower",
    "undecided": "~ Undecided",
}
TONES: Final[dict[str, Tone]] = {"better": "blue", "higher": "blue", "worse": "orange", "lower": "orange"}
SPARE: Final = 0.2  # share of the range that the axis of the difference leaves free
APART: Final = (
    "Each alone. Compare by the difference above, not by whether these two overlap: the runs share their tasks."
)
DIFFERENCE: Final = "card-difference"


def pair_page(data: PairData) -> HtmlPage:
    """The page of two runs; of a comparison of more, its pairs one after another."""
    comparison = data.comparison
    pairs = [(contest, pair) for contest in comparison.contests for pair in contest.pairs]
    if len(pairs) != 1:
        return _several(comparison, pairs)
    contest, pair = pairs[0]
    finding = headline_of(pair)
    names = contest.runs[pair.first].name, contest.runs[pair.second].name
    answer = at_step(answer_of(finding, names, comparison), pair, finding)
    changes = changes_of(pair, data.first, data.second, finding.higher_is_better is not False)
    shown = shown_changes(changes)
    sections: list[Section | None] = [
        _both(data, pair, finding, names, comparison),
        _ledger(data),
        *_slices(pair, finding, comparison),
        _tasks(pair, changes),
        _changed(data, shown, len(changes), names),
        _mcnemar(finding),
        _cost(data, finding),
        what_if_section(data),
        _notes(pair, comparison),
        _provenance(data, finding),
    ]
    runs = [run for run in (data.first, data.second) if run is not None]
    return HtmlPage(
        title=answer.sentence,
        about=[*([contest.dataset] if contest.dataset else []), f"{names[0]} against {names[1]}"],
        top=_top(data, pair, finding, names, answer),
        sections=[section for section in sections if section is not None],
        foot=foot(runs, comparison.digest),
        cards=_cards(data, finding, names),
        data=_data(data, shown),
    )


def headline_of(pair: Pair) -> Finding:
    """The finding that the page is about: the primary question."""
    return next((finding for finding in pair.findings if finding.role == "primary"), pair.findings[0])


def answer_of(finding: Finding, names: tuple[str, str], comparison: Comparison) -> Answer:
    """The sentence of two runs, and how sure it is."""
    first, second = names
    return of_difference(
        first,
        second,
        finding.verdict,
        finding.delta,
        finding.interval,
        confidence=finding.confidence,
        margin=comparison.margin,
        why=plain_why(finding.why) if finding.why else None,
        more_tasks=finding.more_tasks if finding.verdict == "undecided" else None,
    )


def _top(data: PairData, pair: Pair, finding: Finding, names: tuple[str, str], answer: Answer) -> Markup:
    title = heading(answer.sentence, answer.detail)
    basis = element("p", badge(finding.verdict), " ", _basis(data.comparison, pair, finding), class_="basis")
    return element("div", title, basis, _axis(finding, names, data.comparison.margin), class_="top")


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
        words.append(f"{missing[0]:,} rollouts of A and {missing[1]:,} of B are missing and {policy}. ")
    if finding.bounds and finding.bounds[0] != finding.bounds[1]:
        words.append(f"Depending on them the difference is {signed_to(finding.bounds)}. ")
    if finding.worst_verdict and finding.worst_verdict != finding.verdict:
        words.append(f"If all of them speak against it, the verdict is {finding.worst_verdict}. ")
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
        ticks=lambda tick: draw.tick_text(tick, signed=True),
        zero=True,
        margin=margin,
        sides=words if better is not False else (words[1], words[0]),
    )


def _described(finding: Finding, what: str) -> str:
    """A difference as a sentence."""
    if finding.delta is None:
        return f"{what}: no value"
    digits = places(finding.interval)
    ends = (
        f"{100 * finding.confidence:.6g} percent interval {signed_to(finding.interval, digits)}"
        if finding.interval
        else "no interval"
    )
    return f"{what}: {finding.metric} {signed(finding.delta, digits)}, {ends}, {finding.verdict}"


def _both(
    data: PairData, pair: Pair, finding: Finding, names: tuple[str, str], comparison: Comparison
) -> Section | None:
    """Each run by itself, with the note that says how not to read it."""
    runs = [data.first, data.second]
    estimates = [run.group.metrics.get(finding.metric) if run else None for run in runs]
    if finding.by is not None or not all(estimates):
        return _both_values(finding, names)
    scale = scale_of(
        end for each in estimates if each for end in (each.value, *(each.interval or ()), *(each.bounds or ()))
    )
    digits = places(*(each.interval for each in estimates if each))
    rows = []
    tones: tuple[Tone, Tone] = ("grey", "blue")
    for label, run, estimate, tone, called in zip("AB", runs, estimates, tones, names, strict=True):
        if run is None or estimate is None:
            continue
        rows.append(
            estimate_row(
                [element("b", label), " ", name(called, 20)],
                estimate,
                run.group.ledger,
                scale,
                digits,
                card=card_id(finding.metric, label),
                label=f"{label} {called}: {finding.metric}",
                tone=tone,
            )
        )
    note = [APART]
    whole = [run.group.ledger.tasks for run in runs if run]
    if any(tasks != pair.alignment.common for tasks in whole):
        note.append("Each over all of its own tasks.")
    return Section("Both runs", interval_table("Both runs", "run", comparison.confidence, scale, rows), note, "both")


def _both_values(finding: Finding, names: tuple[str, str]) -> Section | None:
    """The values alone, where a comparison was read without its runs."""
    if finding.first is None or finding.second is None:
        return None
    rows = [
        element(
            "tr",
            element("th", element("b", label), " ", name(called), scope="row"),
            element("td", figure(value, 3)),
            element("td", counted(samples, "sample")),
        )
        for label, called, value, samples in zip(
            "AB", names, (finding.first, finding.second), finding.samples, strict=True
        )
    ]
    heads = [element("th", word, scope="col") for word in ("run", finding.metric, "samples")]
    table = element(
        "table",
        element("caption", "Both runs", class_="hidden"),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        class_="plain",
    )
    return Section("Both runs", table, "On their common tasks. Compare by the difference above.", "both")


def _ledger(data: PairData) -> Section | None:
    """Both ledgers under each other, with filters that count both."""
    if data.first is None or data.second is None:
        return None
    runs = [data.first, data.second]
    counts = [state_counts(ledger_parts(run)) for run in runs]
    bodies = []
    for label, run, states in zip("AB", runs, counts, strict=True):
        said = f"{label}: {ledger_label(run.group.ledger, states)}"
        words = element("p", element("b", label), f" {run.group.ledger.planned:,} planned")
        bodies.append(
            element("div", words, draw.ledger_bar(bar_parts(states), label=said, height=22), class_="two-bars")
        )
    chips = []
    for state in dict.fromkeys(state for states in counts for state in states):
        word = STATE_WORDS.get(state, state)
        both = f"{counts[0].get(state, 0):,} | {counts[1].get(state, 0):,}"
        said = f"{counts[0].get(state, 0):,} of A and {counts[1].get(state, 0):,} of B {word}, filter"
        inner = [draw.square(state), element("b", both), f" {word}"]
        chips.append(
            element(
                "button", inner, type="button", class_="chip", data_state=state, aria_pressed="false", aria_label=said
            )
        )
    bodies.append(element("div", chips, class_="chips", role="group", aria_label="Outcomes"))
    return Section("Ledger", joined(bodies), "Select a part to see its tasks below.", "ledger")


def _slices(pair: Pair, headline: Finding, comparison: Comparison) -> list[Section]:
    """A section of differences for each key."""
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
        note = ["Difference B − A.", "Each p is adjusted for the number of slices; the headline is not."]
        sections.append(Section(f"By {key}", joined(body), note, f"by-{number}"))
    return sections


def _slice_row(finding: Finding, scale: Scale) -> Markup:
    shown = "(no value)" if finding.slice == ABSENT else finding.slice or ""
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
    """One row of such a table, with its verdict as a word."""
    digits = places(interval)
    reason = "" if interval else f"no interval: {why}" if why else "no interval"
    picture = draw.interval_row(
        delta, interval, None, scale, label=label, tone=TONES.get(verdict, "grey"), zero=True, why=reason
    )
    ends = signed_to(interval, digits) if interval else element("span", reason, class_="why")
    return element(
        "tr",
        element("th", head, scope="row", role="rowheader", class_="name-cell"),
        element("td", NONE if delta is None else signed(delta, digits), role="cell", class_="value-cell"),
        element("td", picture, role="cell", class_="axis-cell"),
        element("td", ends, role="cell", class_="interval-cell"),
        element("td", verdict_word(verdict), element("small", small) if small else None, role="cell", class_="n-cell"),
        role="row",
    )


def verdict_word(verdict: str) -> Markup:
    """``▲ better``, in its colour."""
    return element("span", BADGES.get(verdict, verdict).lower(), class_=f"said {TONES.get(verdict, 'grey')}")


def _what_would_decide(findings: Sequence[Finding]) -> Markup | None:
    lines = []
    for finding in findings:
        if finding.verdict != "undecided" or finding.delta is None:
            continue
        ways = [f"about {counted(finding.more_tasks, 'more task')}"] if finding.more_tasks else []
        ways += [f"{counted(finding.more_samples, 'more sample')} per task"] if finding.more_samples else []
        if ways:
            size = signed(finding.delta, places(finding.interval))
            shown = "(no value)" if finding.slice == ABSENT else finding.slice
            lines.append(
                f"{shown} is undecided: {', or '.join(ways)}, would decide it if the true difference is {size}."
            )
    return element("div", [element("p", line, class_="small") for line in lines]) if lines else None


def _tasks(pair: Pair, changes: Sequence[Change]) -> Section | None:
    """One bar a task, and filters for better, same and worse."""
    if pair.flips is None or not changes:
        return None
    counts = dict(zip(WAYS, (pair.flips.better, pair.flips.same, pair.flips.worse), strict=True))
    note = "One bar is one task: its score in B minus its score in A."
    if len(changes) < sum(counts.values()):
        note = f"One bar is one task whose score changed. {note}"
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
    """Both, one, neither: where each task has one pass or fail in each run."""
    test = finding.mcnemar
    if test is None or finding.first is None or finding.by is not None:
        return None
    both = round(finding.first * finding.tasks) - test.first_only
    neither = finding.tasks - both - test.first_only - test.second_only

    def cell(count: int, way: str = "") -> Markup:
        if not way:
            return element("td", element("b", f"{count:,}"))
        label = f"{count:,} tasks that only {'A' if way == 'worse' else 'B'} solved, filter"
        inner = element("b", f"{count:,}")
        return element(
            "td",
            element("button", inner, type="button", data_way=way, aria_pressed="false", aria_label=label),
            class_="discordant",
        )

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
    said = (
        f"{counted(test.first_only, 'task')} only A solved, {test.second_only:,} only B. "
        f"{p_value(test.exact)} (McNemar, exact)."
    )
    return Section("Both, one, neither", joined([table, element("p", said, class_="small")]), id="mcnemar")


def _cost(data: PairData, finding: Finding) -> Section | None:
    points = []
    for label, run, tone in zip("AB", (data.first, data.second), ("grey", "blue"), strict=True):
        spent = spent_of(run, label, finding.metric, tone) if run else None  # type: ignore[arg-type]  # zip forgets that the tones are literals
        points += [spent] if spent else []
    better = finding.higher_is_better is not False
    ahead = {"better": (1, 0), "worse": (0, 1)}.get(finding.verdict)
    return cost_section(
        points,
        finding.metric,
        higher_is_better=better,
        confidence=data.comparison.confidence,
        ahead=lambda one, other: (one, other) == ahead,
    )


def spent_of(run: RunData, label: str, metric: str, tone: Tone = "blue") -> RunCost | None:
    """A run as a point of score against cost; None where its cost or its score is not known."""
    estimate, cost = run.group.metrics.get(metric), run.group.economics.get("cost_per_task")
    if estimate is None or estimate.value is None or cost is None or cost.value is None:
        return None
    return RunCost(label, run.name, estimate.value, estimate.interval, cost.value, cost.interval, tone)


def _notes(pair: Pair, comparison: Comparison) -> Section | None:
    """What differs beside the answers, and what else must be said."""
    lines = list(dict.fromkeys([*pair.notes, *comparison.notes]))
    if pair.alignment.only_first.count or pair.alignment.only_second.count:
        only = pair.alignment
        lines.insert(
            0, f"{only.only_first.count:,} tasks are only in A and {only.only_second.count:,} only in B: excluded"
        )
    if not lines:
        return None
    items = [element("li", f"{line.rstrip('.')}.") for line in lines]
    return Section("Notes", element("ul", items, class_="notes"), id="notes")


def _provenance(data: PairData, finding: Finding) -> Section:
    comparison = data.comparison
    inputs = [
        element(
            "div",
            element("b", label),
            " ",
            element("code", element("bdi", file.path)),
            f" · {counted(file.rollouts, 'rollout')} · ",
            element("code", f"sha256 {file.sha256[:16]}…", title=file.sha256),
        )
        for label, files in zip("AB", comparison.inputs, strict=False)
        for file in files[:4]
    ]
    digest = element("code", f"{comparison.digest[:31]}…", title=comparison.digest)
    rows: list[tuple[str, Child]] = [("Input", inputs)] if inputs else []
    rows += [("Digest", digest), ("Signature", element("code", finding.signature, class_="wrap"))]
    rows.append(("Made with", _made_with(comparison)))
    body: list[Child] = [
        element("dl", [(element("dt", label), element("dd", words)) for label, words in rows], class_="facts")
    ]
    if inputs:
        body.append(command_line(_command(data)))
    note = "Anyone with the inputs can get the same numbers, to the last bit."
    return Section("Provenance", joined(body), note, "provenance")


def _made_with(comparison: Comparison) -> str:
    from calipers import __version__

    policy = POLICY.get(comparison.missing, comparison.missing)
    parts = [f"Calipers {__version__}", f"{comparison.dialect} rules", f"missing {policy}", f"seed {comparison.seed}"]
    parts.append(f"{100 * comparison.confidence:.6g}\N{NO-BREAK SPACE}% confidence")
    parts += [f"margin {comparison.margin:g}"] if comparison.margin else []
    return " · ".join(parts)


def _command(data: PairData) -> str:
    """The command that prints the same numbers."""
    comparison = data.comparison
    pair = comparison.contests[0].pairs[0]
    words = ["calipers", "compare", *(file.path for files in comparison.inputs for file in files)]
    for metric in dict.fromkeys(finding.metric for finding in pair.findings):
        words += ["--metric", metric]
    for key in dict.fromkeys(finding.by for finding in pair.findings if finding.by):
        words += ["--by", key]
    return shlex.join([*words, *options_of(comparison, comparison.margin)])


def options_of(report: Comparison | Leaderboard | Matrix, margin: float | None = None) -> list[str]:
    """The options of the command that prints the numbers of a report, where they are not the defaults."""
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
    digits = 6
    ends = (
        f"{signed_to(finding.interval, digits)}; {level(finding.confidence)} by {finding.method}"
        if finding.interval
        else "none"
    )
    adjusted = "" if finding.p_adjusted is None or finding.p_adjusted == finding.p else p_value(finding.p_adjusted)
    difference = NumberCard(
        DIFFERENCE,
        f"{finding.metric}, B − A",
        "no value" if finding.delta is None else signed(finding.delta, digits),
        f"{finding.metric} of {names[1]} minus that of {names[0]} on the tasks that have a value in both.",
        [
            ("Interval", ends),
            ("p", "" if finding.p is None else f"{p_value(finding.p)}{f', adjusted {adjusted}' if adjusted else ''}"),
            ("Tasks", f"{finding.tasks:,} in both, {counted(finding.undefined_tasks, 'other')} without a value"),
            ("Missing", f"{finding.missing[0]:,} rollouts of A, {finding.missing[1]:,} of B"),
            ("Verdict", finding.sentence),
            ("Signature", finding.signature),
        ],
    )
    cards: list[NumberCard | None] = [difference]
    for label, run in zip("AB", (data.first, data.second), strict=True):
        estimate = run.group.metrics.get(finding.metric) if run else None
        if run is None or estimate is None:
            continue
        card = of_estimate(
            finding.metric, estimate, run.group.ledger, missing=run.result.missing, confidence=run.result.confidence
        )
        cards.append(replace(card, id=card_id(finding.metric, label), name=f"{finding.metric} of {label}"))
        cards.append(of_method(estimate.method) if estimate.method else None)
    cards.append(of_method(finding.method))
    return once(cards)


def _data(data: PairData, shown: Sequence[Change]) -> dict[str, Any]:
    first, second = rollouts_of(data.first), rollouts_of(data.second)
    if first is None or second is None:
        return {}
    what_if = what_if_data(data)
    return {"changed": change_data(shown, first, second), **({"what_if": what_if} if what_if else {})}


def _several(comparison: Comparison, pairs: Sequence[tuple[Contest, Pair]]) -> HtmlPage:
    """A comparison of more than two runs: every pair in a row."""
    headlines = [headline_of(pair) for _, pair in pairs]
    scale = scale_of([end for each in headlines for end in (each.delta, *(each.interval or ()))], zero=True)
    rows = []
    for (contest, pair), finding in zip(pairs, headlines, strict=True):
        first, second = contest.runs[pair.first].name, contest.runs[pair.second].name
        where = element("small", name(contest.dataset)) if contest.dataset and len(comparison.contests) > 1 else None
        head = [name(second, 20), element("small", "against ", name(first, 20)), where]
        label = _described(finding, f"{second} less {first}")
        rows.append(
            difference_row(
                head, finding.delta, finding.interval, finding.verdict, scale, label=label, why=finding.why or ""
            )
        )
    decided = sum(finding.verdict != "undecided" for finding in headlines)
    title = f"{counted(len(pairs), 'pair')} of runs were compared."
    said = heading(title, f"{decided:,} of them are decided")
    table = difference_table("Every pair", "B against A", comparison.confidence, scale, rows)
    section = Section("Every pair", table, f"Difference of {headlines[0].metric}, B − A." if headlines else "", "pairs")
    sections = [section, _provenance(PairData(comparison, None, None), headlines[0])] if headlines else []
    return HtmlPage(
        title,
        [f"{len(pairs):,} pairs"],
        element("div", said, class_="top"),
        sections,
        [f"Calipers · {comparison.digest}"],
    )
