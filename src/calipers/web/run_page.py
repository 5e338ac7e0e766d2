"""The page of one run: sentence, number, ledger, details. Sections are functions; one without data is absent."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from calipers.reports.figures import EACH_BY_ITSELF, POLICY, asked_again, counted, decimals, figure, listed
from calipers.reports.result import Group, Result, Slice
from calipers.reports.sentences import duration, level, money, money_per, of_run, of_running, percent, places
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.record import ABSENT
from calipers.stats.estimate import Estimate
from calipers.stats.variance import TWICE, Split
from calipers.web import draw
from calipers.web.draw import Segment, scale_of
from calipers.web.gather import STATES, LedgerPart, RunData, ledger_parts
from calipers.web.island import command_words, what_if_data, what_if_section
from calipers.web.markup import Markup, element, joined, name
from calipers.web.page import (
    HtmlPage,
    NumberCard,
    Section,
    bounds_words,
    card_id,
    described,
    estimate_row,
    heading,
    interval_table,
    of_estimate,
    of_method,
    once,
    term,
    unit_of,
)
from calipers.web.rollout_sections import curve_section, grid_section, rollout_data, rollouts_section

SLICES_SORTED = 8  # more slices are sorted by value, the worst first
SLICES_SHOWN = 20
SLICES_KEPT = 200  # of more, the lowest: a page with a row for each of 10,000 tasks would be too large
ALIKE = ("mean_reward", "pass_rate", "pass@{k}")  # one number where rewards are 0 or 1
METRIC_WORDS = {"pass@{k}": "at least one of {k} passes", "pass^{k}": "all {k} pass", "pass_rate": "share of passes"}


def run_page(run: RunData) -> HtmlPage:
    """The page of one run."""
    sections = sections_of(run)
    group, result = run.group, run.result
    about = [*filter(None, (group.dataset, group.model, group.agent)), counted(group.ledger.planned, "rollout")]
    return HtmlPage(
        title=str(answer(run).sentence),
        about=about,
        top=top(run),
        sections=sections,
        foot=foot([run], result.digest),
        cards=cards_of(run),
        data=data_of(run),
    )


def sections_of(run: RunData) -> list[Section]:
    """The sections of a run that have something to show."""
    sections: list[Section] = []
    for make in SECTIONS:
        made = make(run)
        sections += made if isinstance(made, list) else [made] if made is not None else []
    return sections


def headline_of(group: Group) -> tuple[str, Estimate] | None:
    """The metric that the page is about: the first."""
    return next(iter(group.metrics.items()), None)


def answer(run: RunData) -> Any:
    """The sentence of the run, and how sure it is."""
    found = headline_of(run.group)
    if found is None:
        from calipers.reports.sentences import Answer

        return Answer(f"{run.who or 'The run'} has no metric.")
    metric, estimate = found
    ledger = run.group.ledger
    if run.progress is not None:
        return of_running(
            run.who,
            run.group.dataset or "",
            finished=run.progress.finished,
            planned=run.progress.planned,
            value=run.progress.value,
            interval=run.progress.interval,
            confidence=run.result.confidence,
        )
    return of_run(
        run.who,
        run.group.dataset or "",
        metric,
        estimate,
        planned=ledger.planned - ledger.stopped_early,
        missing=ledger.gaps,
        confidence=run.result.confidence,
        solved=run.outright,
    )


def top(run: RunData) -> Markup:
    """Sentence, what it is from, and the headline axis."""
    said = answer(run)
    found = headline_of(run.group)
    title = heading(said.sentence, said.detail)
    parts: list[Markup | str] = [title, element("p", basis(run), class_="basis")]
    if found is not None and found[1].value is not None and math.isfinite(found[1].value):
        metric, estimate = found
        parts.append(headline_axis(metric, found[1].value, estimate, run.group.ledger))
        parts.append(remark_below(estimate, run.group.ledger))
    return element("div", parts, class_="top")


def basis(run: RunData) -> list[Markup | str]:
    """What the number is from: tasks, rollouts, missing ones, the metric and its method."""
    group, result = run.group, run.result
    found = headline_of(group)
    ledger = group.ledger
    used = found[1].samples if found else ledger.scored
    words: list[Markup | str] = [
        "From ",
        element("b", counted(found[1].tasks if found else ledger.tasks, "task")),
        " and ",
        element("b", f"{used:,} of {ledger.planned:,}"),
        " planned rollouts. ",
    ]
    if ledger.gaps:
        policy = POLICY.get(result.missing, result.missing)
        words.append(f"{counted(ledger.gaps, 'rollout')} {'is' if ledger.gaps == 1 else 'are'} missing and {policy}. ")
    if group.stop:
        words.append(f"The run was stopped early: {group.stop.bias}. ")
    if found:
        metric, estimate = found
        words.append(term(card_id(metric), metric))
        if estimate.method and estimate.interval:
            words += [", interval by ", method_term(estimate.method)]
        words.append(".")
    return words


def method_term(method: str) -> Markup | str:
    """The name of a method, which opens its card where it has one."""
    card = of_method(method)
    return term(card.id, method) if card else method


def headline_axis(metric: str, value: float, estimate: Estimate, ledger: Ledger) -> Markup:
    """The answer on an axis."""
    digits = places(estimate.interval)
    scale = scale_of(_ends(estimate), zero=bool(unit_of(estimate)))
    return draw.headline(
        value,
        estimate.interval,
        estimate.bounds,
        scale,
        label=described(metric, estimate, ledger),
        figure=lambda value: figure(value, digits),
        remark=bounds_words(estimate, ledger),
    )


def remark_below(estimate: Estimate, ledger: Ledger) -> Markup | str:
    """The remark of the bounds, where the axis is too narrow to hold it."""
    words = bounds_words(estimate, ledger)
    return element("p", f"Hollow: {words}.", class_="narrow-remark", aria_hidden="true") if words else ""


def ledger_section(run: RunData) -> Section:
    """Where every planned rollout is."""
    parts = ledger_parts(run)
    states = state_counts(parts)
    note = "Every planned rollout is in exactly one place."
    if run.rollouts is not None:
        note += " Select a part to see its rollouts below."
    body = [
        element("p", ledger_sentence(run.group.ledger, states), class_="equation"),
        draw.ledger_bar(bar_parts(states), label=ledger_label(run.group.ledger, states)),
        filters(parts, buttons=run.rollouts is not None),
    ]
    body += [element("p", line, class_="small") for line in ledger_remarks(run)]
    return Section("Ledger", joined(body), note, "ledger")


def state_counts(parts: Iterable[LedgerPart]) -> dict[str, int]:
    """How many rollouts look alike, in the order of `STATES`."""
    counts = dict.fromkeys(STATES, 0)
    for part in parts:
        counts[part.state] += part.count
    return {state: count for state, count in counts.items() if count}


STATE_WORDS = {"zero": "counted as 0", "left": "not run (stopped early)"}


def bar_parts(states: Mapping[str, int]) -> list[Segment]:
    """The parts of a ledger's bar."""
    return [Segment(state, count, STATE_WORDS.get(state, state)) for state, count in states.items()]


def _summands(states: Mapping[str, int]) -> list[str]:
    scored = sum(states.get(state, 0) for state in ("passed", "scored", "wrong"))
    rest = [
        f"{states[state]:,} {STATE_WORDS.get(state, state)}" for state in ("zero", "missing", "left") if state in states
    ]
    return [f"{scored:,} scored", *rest]


def ledger_sentence(ledger: Ledger, states: Mapping[str, int]) -> list[Markup | str]:
    """``320 planned = 281 scored + 22 counted as 0 + 17 missing``."""
    return [element("b", f"{ledger.planned:,} planned"), f" = {' + '.join(_summands(states))}"]


def ledger_label(ledger: Ledger, states: Mapping[str, int]) -> str:
    """The bar as a sentence."""
    words = [f"{count:,} {STATE_WORDS.get(state, state)}" for state, count in states.items()]
    return f"{ledger.planned:,} planned rollouts: {', '.join(words)}"


def filters(parts: Sequence[LedgerPart], *, buttons: bool) -> Markup:
    """A filter for each outcome with its count; a script makes them work."""
    shown = []
    for part in parts:
        inner = [draw.square(part.state), element("b", f"{part.count:,}"), " ", part.word]
        key = f"{part.state}:{part.outcome}"
        if buttons and part.state != "left":  # those have no rollouts to list
            label = f"{part.count:,} {part.word}, filter"
            shown.append(
                element(
                    "button",
                    inner,
                    type="button",
                    class_="chip",
                    data_filter=key,
                    aria_pressed="false",
                    aria_label=label,
                )
            )
        else:
            shown.append(element("span", inner, class_="chip"))
    return element("div", shown, class_="chips", role="group", aria_label="Outcomes")


def ledger_remarks(run: RunData) -> list[str]:
    """What else must be said of the ledger."""
    ledger = run.group.ledger
    lines = []
    if ledger.attempts > ledger.planned:
        lines.append(f"{counted(ledger.attempts - ledger.planned, 'earlier attempt')} were replaced by later ones.")
    if ledger.asked_again:
        lines.append(f"{asked_again(ledger.asked_again)}.")
    lines += [f"{number:,} scored without reward {key!r}." for key, number in ledger.lacking.items()]
    if ledger.exceptions:
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in list(ledger.exceptions.items())[:8])
        lines.append(f"Errors by kind: {kinds}.")
    return lines


def metrics_section(run: RunData) -> Section | None:
    """A row for each metric."""
    group = run.group
    if not group.metrics:
        return None
    rows = metric_rows(run)
    together = [estimate for _, estimate, _ in rows if not apart(estimate, rows[0][1])]
    unit = unit_of(rows[0][1])
    scale = scale_of((end for estimate in together for end in _ends(estimate)), zero=bool(unit))
    digits = places(*(estimate.interval for estimate in together))
    shown = [
        estimate_row(
            [term(card_id(metric), metric), element("small", small) if small else None],
            estimate,
            group.ledger,
            None if apart(estimate, rows[0][1]) else scale,
            decimals(estimate) if apart(estimate, rows[0][1]) else digits,
            card=card_id(metric),
            label=metric,
        )
        for metric, estimate, small in rows
    ]
    body = [interval_table("Metrics", "metric", run.result.confidence, scale, shown)]
    body += [element("p", element("b", "Warning: "), f"{words}.", class_="small") for words in group.warnings]
    bounded = any(estimate.bounds for _, estimate, _ in rows)
    notes = [f"Line: {level(run.result.confidence)}."]
    if bounded:
        notes.append("Hollow bar: from all missing rollouts failed to all passed.")
    return Section("Metrics", joined(body), notes, "metrics")


def apart(estimate: Estimate, first: Estimate) -> bool:
    """Whether a number cannot stand on the axis of the first: it has another unit, or only one is a share."""
    shares = [all(0 <= end <= 1 for end in _ends(each) if end is not None) for each in (estimate, first)]
    return unit_of(estimate) != unit_of(first) or shares[0] != shares[1]


def metric_rows(run: RunData) -> list[tuple[str, Estimate, str]]:
    """The metrics of the page with a word each; those that are one number are one row, and it says so."""
    rows: list[tuple[str, Estimate, str]] = []
    alike: list[str] = []
    first: Estimate | None = None
    for metric, estimate in run.group.metrics.items():
        same = estimate.made.metric in ALIKE and (estimate.made.k or 1) == 1
        if same and run.outright and first is not None and _same(first, estimate):
            alike.append(metric)
            continue
        if same and first is None:
            first = estimate
        words = METRIC_WORDS.get(estimate.made.metric, "").replace("{k}", str(estimate.made.k))
        rows.append((metric, estimate, "" if estimate.made.k == 1 else words))
    if alike and first is not None:
        place = next(at for at, row in enumerate(rows) if row[1] is first)
        metric, estimate, _ = rows[place]
        rows[place] = metric, estimate, f"= {' = '.join(alike)} (rewards are 0 or 1)"
    return rows


def _same(first: Estimate, second: Estimate) -> bool:
    return first.value == second.value and first.interval == second.interval and first.bounds == second.bounds


def _ends(estimate: Estimate) -> list[float | None]:
    return [estimate.value, *(estimate.interval or ()), *(estimate.bounds or ())]


def cost_section(run: RunData) -> Section | None:
    """What the run took, in one paragraph."""
    first, rest = cost_words(run.group)
    if not first and not rest:
        return None
    return Section("Cost", element("p", first, " ", element("span", rest, class_="second"), class_="cost"), id="cost")


def cost_words(group: Group) -> tuple[str, str]:
    """The totals in a sentence, and what a task and a rollout take."""
    totals, economics = group.totals, group.economics
    tokens = totals.get("input_tokens", 0.0) + totals.get("output_tokens", 0.0)
    parts = []
    if tokens:
        parts.append(f"{tokens:,.0f} tokens")
    if "cost_usd" in totals:
        parts.append(money(totals["cost_usd"]))
    if "latency_s" in totals:
        parts.append(duration(totals["latency_s"]))
    first = f"{listed(parts)} in total." if parts else ""
    sentences = []
    solved = [
        show(value)
        for metric, show in (("cost_per_solved", money), ("time_per_solved", duration))
        if (value := _value(economics, metric)) is not None
    ]
    if solved:
        cheap = _value(economics, "cost_per_solved")
        if cheap is not None and 0 < cheap < 0.001:
            price = money_per(cheap, "solved task")
            sentences.append(f"{price[:1].upper()}{price[1:]}{f'; {solved[1]} each' if len(solved) > 1 else ''}.")
        else:
            sentences.append(f"Per solved task: {listed(solved)}.")
    half, most = _value(economics, "latency_p50"), _value(economics, "latency_p90")
    if half is not None and most is not None:
        sentences.append(f"Half of the rollouts took under {duration(half)}, nine in ten under {duration(most)}.")
    return first, " ".join(sentences)


def _value(economics: Mapping[str, Estimate], metric: str) -> float | None:
    estimate = economics.get(metric)
    value = estimate.value if estimate else None
    return value if value is not None and math.isfinite(value) else None


def slice_sections(run: RunData, *, among: bool = False) -> list[Section]:
    """A section for each key of the breakdown; ``among`` other runs without cards, and with fewer rows."""
    return [_slice_section(run, key, cut, among) for key, cut in run.group.breakdowns.items() if cut]


def _slice_section(run: RunData, key: str, cut: Mapping[str, Slice], among: bool) -> Section:
    found = headline_of(run.group)
    metric = found[0] if found else ""
    parts = shown_slices(cut, metric)[: SLICES_SHOWN if among else None]
    whole = found[1].value if found else None
    scale = scale_of([whole, *(end for _, part in parts for end in _ends(part.metrics[metric]))])
    digits = places(*(part.metrics[metric].interval for _, part in parts))
    rows = []
    for number, (value, part) in enumerate(parts):
        shown = "(no value)" if value == ABSENT else value
        rows.append(
            estimate_row(
                [name(shown, 24)],
                part.metrics[metric],
                part.ledger,
                scale,
                digits,
                card=None if among else card_id(metric, key, value),
                label=f"{key} {shown}: {metric}",
                whole=whole,
                extra=number >= SLICES_SHOWN,
            )
        )
    body = [interval_table(f"By {key}", "slice", run.result.confidence, scale, rows)]
    if len(parts) > SLICES_SHOWN:
        body.append(element("button", f"Show all {len(parts)}", type="button", class_="control", data_more="extra"))
    if len(cut) > len(parts):
        left_out = f"The {len(parts):,} lowest of {len(cut):,} slices are in this file."
        body.append(element("p", left_out, class_="small"))
    notes = ["The dashed line is the whole benchmark."]
    if len(parts) > 1:
        notes.append(f"{EACH_BY_ITSELF[:1].upper()}{EACH_BY_ITSELF[1:]}.")
    return Section(f"By {key}", joined(body), notes, f"by-{list(run.group.breakdowns).index(key)}")


def shown_slices(cut: Mapping[str, Slice], metric: str) -> list[tuple[str, Slice]]:
    """The slices of a page: as they stand, or the lowest first where there are more than a few."""
    parts = [(value, part) for value, part in cut.items() if metric in part.metrics]
    if len(parts) > SLICES_SORTED:
        parts.sort(key=lambda item: _or_last(item[1].metrics[metric].value))
    return parts[:SLICES_KEPT]


def _or_last(value: float | None) -> float:
    return math.inf if value is None or not math.isfinite(value) else value


def variance_section(run: RunData) -> Section | None:
    """The parts of the uncertainty, and what would narrow the interval."""
    found = headline_of(run.group)
    split = next(iter(run.group.variance.values()), None)
    if not isinstance(split, Split) or not (split.tasks or split.sampling) or found is None:
        return None
    if found[1].made.metric != "mean_reward" and not (run.outright and found[1].made.metric in ALIKE):
        return None
    share = split.share
    parts = [(1 - share, f"{percent(1 - share)} which tasks were asked"), (share, f"{percent(share)} luck of sampling")]
    words = " and ".join(word for _, word in parts)
    narrower = 1 - math.sqrt(1 - share)
    body = [
        draw.share_bar([part for part in parts if part[0] > 0], label=f"The variance of the mean: {words}"),
        element(
            "p",
            f"Twice as many tasks would narrow the interval by {percent(TWICE)}. "
            f"More samples of the same tasks would narrow it by at most {percent(narrower)}.",
            class_="cost",
        ),
    ]
    return Section("Where the uncertainty comes from", joined(body), id="uncertainty")


def absent_section(run: RunData) -> Section | None:
    """What a result without rollouts cannot show, and the command that shows it."""
    if run.rollouts is not None:
        return None
    paths = [source.path for source in run.result.inputs]
    words: list[Markup | str] = [
        "This report was made from a result, which has numbers and no rollouts. Passed and wrong rollouts, single "
        "tasks, the curve over k, what-if questions and texts are not in it. "
    ]
    if paths:
        command = f"calipers report {' '.join(shlex.quote(path) for path in paths[:3])}{' …' if len(paths) > 3 else ''}"
        words += ["With the rollouts they are: ", element("code", command), "."]
    return Section("Not shown", element("p", words, class_="second"), id="not-shown")


def provenance_section(run: RunData) -> Section:
    """What anyone needs to get the same number."""
    result = run.result
    found = headline_of(run.group)
    rows: list[tuple[str, Any]] = [("Input", inputs_markup(result))] if result.inputs else []
    rows.append(("Digest", element("code", f"{result.digest[:31]}…", title=result.digest)))
    if found:
        rows.append(("Signature", element("code", found[1].signature, class_="wrap")))
    if run.planned:
        rows.append(("Plan", run.planned))
    rows.append(("Made with", made_with(result)))
    body = [element("dl", [(element("dt", label), element("dd", words)) for label, words in rows], class_="facts")]
    if result.inputs:
        body.append(command_line(score_command(run)))
    return Section(
        "Provenance", joined(body), "Anyone with the input can get the same number, to the last bit.", "provenance"
    )


def inputs_markup(result: Result) -> list[Markup]:
    """The files, each with its rollouts and its hash."""
    shown = [
        element(
            "div",
            element("code", element("bdi", source.path)),
            f" · {counted(source.rollouts, 'rollout')} · ",
            element("code", f"sha256 {source.sha256[:16]}…", title=source.sha256),
        )
        for source in result.inputs[:8]
    ]
    more = len(result.inputs) - 8
    return [*shown, element("div", f"and {counted(more, 'file')} more")] if more > 0 else shown


def made_with(result: Result) -> str:
    """The version and the settings."""
    from calipers import __version__

    policy = POLICY.get(result.missing, result.missing)
    return (
        f"Calipers {__version__} · {result.dialect} rules · missing {policy} · seed {result.seed} · "
        f"{100 * result.confidence:.6g}\N{NO-BREAK SPACE}% confidence"
    )


def command_line(command: str) -> Markup:
    """A command with a button to copy it."""
    button = element("button", "Copy", type="button", class_="control", data_copy=command, hidden=True)
    words = [element("span", word) if "-" in word or "/" in word else word for word in re.split("( )", command)]
    return element("div", element("code", words), button, class_="command")


def score_command(run: RunData) -> str:
    """The command that prints the same numbers."""
    result = run.result
    words = command_words("score", [run], result) if run.rollouts else []
    words = words or ["calipers", "score", *(source.path for source in result.inputs)]
    for metric in run.group.metrics:
        words += ["--metric", metric]
    for key in run.group.breakdowns:
        words += ["--by", key]
    if run.cluster:
        words += ["--cluster", run.cluster]
    if result.missing != "gap" or result.dialect != "native":  # another system's default may differ
        words += ["--missing", result.missing]
    if result.seed:
        words += ["--seed", str(result.seed)]
    return shlex.join(words)


def foot(runs: Sequence[RunData], digest: str) -> list[str]:
    """The last lines: the digest, and what of the texts is in the file."""
    lines = [f"Calipers · {digest}"]
    rolled = [run.rollouts for run in runs if run.rollouts is not None]
    if rolled and not all(each.wants_texts for each in rolled):
        lines.append("Texts were left out of this file (--no-texts).")
    elif rolled:
        texts, rollouts = sum(len(each.texts) for each in rolled), sum(map(len, rolled))
        if not texts:
            lines.append("The rollouts have no texts.")
        elif texts < rollouts:
            cut = any(each.texts_cut for each in rolled)
            why = "the others were left out to keep the file small" if cut else "the others have none"
            lines.append(f"Texts of {texts:,} of {counted(rollouts, 'rollout')} are in this file; {why}.")
    return lines


def cards_of(run: RunData) -> list[NumberCard]:
    """The cards of all numbers and methods that the page shows."""
    group, result = run.group, run.result
    make = partial(of_estimate, missing=result.missing, confidence=result.confidence)
    cards: list[NumberCard | None] = [
        make(metric, estimate, group.ledger) for metric, estimate in group.metrics.items()
    ]
    found = headline_of(group)
    if found:
        for key, cut in group.breakdowns.items():
            for value, part in shown_slices(cut, found[0]):
                cards.append(make(found[0], part.metrics[found[0]], part.ledger, where=(key, value)))
    cards += [of_method(estimate.method) for estimate in group.metrics.values() if estimate.method]
    return once(cards)


def data_of(run: RunData) -> dict[str, Any]:
    """What the scripts of the page need."""
    data = {"rollouts": rollout_data(run), "what_if": what_if_data(run)}
    return {key: value for key, value in data.items() if value is not None}


SECTIONS: list[Callable[[RunData], Section | list[Section] | None]] = [
    ledger_section,
    metrics_section,
    cost_section,
    slice_sections,
    grid_section,
    curve_section,
    variance_section,
    what_if_section,
    rollouts_section,
    absent_section,
    provenance_section,
]
"""The sections in their order; one that has nothing to show gives None, and the slices several."""
