"""The page of one run: sentence, number, ledger, details. A section without data is left out."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from calipers.remarks import Remark
from calipers.reports.axes import is_range_known
from calipers.reports.figures import EACH_BY_ITSELF, POLICY, asked_again, counted, decimals, figure, listed
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Group, Slice
from calipers.reports.result_page import answer_of, passes_from
from calipers.reports.sentences import (
    Answer,
    begun,
    duration,
    level,
    money,
    money_per,
    of_run,
    of_running,
    percent,
    places,
)
from calipers.rollouts.checks import disagreements
from calipers.rollouts.ledger import Ledger
from calipers.stats.estimate import Estimate
from calipers.stats.variance import TWICE, Split
from calipers.web import draw
from calipers.web.island import command_words, what_if_data, what_if_section
from calipers.web.markup import Child, Markup, element, joined, name
from calipers.web.page import (
    HtmlPage,
    NumberCard,
    Section,
    bounds_words,
    card_id,
    common_scale,
    described,
    estimate_card,
    estimate_row,
    heading,
    interval_table,
    method_card,
    method_term,
    once,
    scales_of,
    slice_name,
    term,
    unit_of,
)
from calipers.web.report_data import LedgerPart, RunData, ledger_parts
from calipers.web.sections import (
    chip,
    chips,
    curve_section,
    foot,
    grid_section,
    input_lines,
    ledger_bar,
    ledger_sentence,
    provenance_section,
    rollout_data,
    rollouts_section,
)

SLICES_SORTED = 8  # more slices are sorted by value, the worst first
SLICES_SHOWN = 20
SLICES_KEPT = 200  # only the lowest are kept, because a page with a row for each of 10,000 tasks would be too large
ALIKE = ("mean_reward", "pass_rate", "pass@{k}")  # metrics that are equal if each task has one reward of 0 or 1
METRIC_WORDS = {"pass@{k}": "at least one of {k} passes", "pass^{k}": "all {k} pass", "pass_rate": "share of passes"}


def run_page(run: RunData) -> HtmlPage:
    """The page of one run."""
    group, island = run.group, what_if_data(run)
    sections: list[Section | None] = [
        ledger_section(run),
        metrics_section(run),
        cost_section(run),
        *slice_sections(run),
        grid_section(run),
        curve_section(run),
        variance_section(run),
        what_if_section(run, island),
        rollouts_section(run),
        absent_section(run),
        _provenance(run),
    ]
    data = {"rollouts": rollout_data(run), "what_if": island}
    return HtmlPage(
        title=str(answer(run).sentence),
        about=[*filter(None, (group.dataset, group.model, group.agent)), counted(group.ledger.planned, "rollout")],
        top=_top(run),
        sections=[section for section in sections if section is not None],
        foot=foot([run], run.result.digest),
        cards=_cards(run),
        data={key: value for key, value in data.items() if value is not None},
    )


def headline_of(group: Group) -> tuple[str, Estimate] | None:
    """The first metric with its estimate, which is the subject of the page; None without metrics."""
    return next(iter(group.metrics.items()), None)


def answer(run: RunData) -> Answer:
    """The answer of the run: its sentence, and its uncertainty."""
    headline, dataset, progress = headline_of(run.group), run.group.dataset or "", run.progress
    if headline is None:
        return answer_of(run.result, run.group)
    metric, estimate = headline
    confidence = run.result.confidence
    if progress is not None:
        return of_running(run.who, dataset, confidence=confidence, **asdict(progress))
    return of_run(
        run.who,
        dataset,
        metric,
        estimate,
        run.group.ledger,
        confidence=confidence,
        solved=run.outright,
        first_tries=run.group.first_tries,
    )


def _top(run: RunData) -> Markup:
    """The sentence, its basis, the headline axis, and the remark about bounds for pages too narrow for it."""
    sentence, headline, ledger = answer(run), _lead(run.group), run.group.ledger
    parts: list[Child] = [heading(sentence.sentence, sentence.detail), element("p", _basis(run), class_="basis")]
    if headline is not None and headline[1].value is not None and math.isfinite(headline[1].value):
        metric, estimate = headline
        words, digits = bounds_words(estimate, ledger), places(estimate.interval)
        axis = draw.headline(
            headline[1].value,
            estimate.interval,
            estimate.bounds,
            scales_of([estimate], run.group.ends_seen)[0],
            label=described(metric, estimate, ledger),
            figure=lambda value: figure(value, digits),
            remark=words,
        )
        narrow = element("p", f"Hollow: {words}.", class_="narrow-remark", aria_hidden="true") if words else None
        parts += [axis, narrow]
    return element("div", parts, class_="top")


def _lead(group: Group) -> tuple[str, Estimate] | None:
    """The number of the headline: that of first tries, if the numbers of samples follow the results."""
    return next(iter(group.first_tries.items()), None) or headline_of(group)


def _basis(run: RunData) -> list[Markup | str]:
    """The basis of the number: tasks, rollouts, missing rollouts, the metric and its method."""
    group, result = run.group, run.result
    headline = headline_of(group)
    ledger = group.ledger
    used = headline[1].samples if headline else ledger.scored
    words: list[Markup | str] = [
        "From ",
        element("b", counted(headline[1].tasks if headline else ledger.tasks, "task")),
        " and ",
        element("b", f"{used:,} of {ledger.planned:,}"),
        " planned rollouts. ",
    ]
    if ledger.gaps:
        policy = POLICY.get(result.missing, result.missing)
        words.append(f"{counted(ledger.gaps, 'rollout')} {'is' if ledger.gaps == 1 else 'are'} missing and {policy}. ")
    if group.stop:
        words.append(f"The run was stopped early: {group.stop.bias}. ")
    if headline:
        metric, estimate = headline
        words.append(term(card_id(metric), metric))
        if estimate.method and estimate.interval:
            words += [", interval by ", method_term(estimate.method)]
        words.append(".")
    return words


def ledger_section(run: RunData) -> Section:
    """The account of all planned rollouts."""
    note = "Every planned rollout is in exactly one place."
    if run.rollouts is not None:
        note += " Select a part to see its rollouts below."
    body = [
        element("p", ledger_sentence(run), class_="equation"),
        ledger_bar(run, 26),
        chips([_filter(part, run.rollouts is not None) for part in ledger_parts(run)], "Outcomes"),
    ]
    body += [element("p", line, class_="small") for line in _ledger_remarks(run.group.ledger)]
    return Section("Ledger", joined(body), note, "ledger")


def _filter(part: LedgerPart, works: bool) -> Markup:
    """An outcome with its count; a filter if there are rollouts to list."""
    inner = [draw.square(part.state), element("b", f"{part.count:,}"), " ", part.word]
    if works and part.state != "left":
        return chip(inner, f"{part.count:,} {part.word}", data_filter=f"{part.state}:{part.outcome}")
    return element("span", inner, class_="chip")


def _ledger_remarks(ledger: Ledger) -> list[str]:
    """Remarks on the ledger: replaced attempts, repeated rollouts, missing rewards and exceptions."""
    lines = []
    if (earlier := ledger.attempts - ledger.planned) > 0:
        replaced = "was replaced by a later one" if earlier == 1 else "were replaced by later ones"
        lines.append(f"{counted(earlier, 'earlier attempt')} {replaced}.")
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
    estimates = [estimate for _, estimate, _ in rows]
    scales = scales_of(estimates, group.ends_seen)
    scale, unit = scales[0], unit_of(estimates[0])
    on_axis = [each for each, its_scale in zip(estimates, scales, strict=True) if its_scale == scale]
    digits = places(*(estimate.interval for estimate in on_axis))
    shown = []
    for (metric, estimate, small), its_scale in zip(rows, scales, strict=True):
        own = its_scale != scale
        shown.append(
            estimate_row(
                [term(card_id(metric), metric), element("small", small) if small else None],
                estimate,
                group.ledger,
                None if unit_of(estimate) != unit else its_scale,
                decimals(estimate) if own else digits,
                card=card_id(metric),
                label=metric,
                own_axis=own,
            )
        )
    body = [interval_table("Metrics", "metric", run.result.confidence, scale, shown)]
    warnings = [*map(text_of, disagreements(run.result.checks)), *group.warnings]
    body += [element("p", element("b", "Warning: "), f"{words}.", class_="small") for words in warnings]
    bounded = any(estimate.bounds for _, estimate, _ in rows)
    notes = [f"Line: {level(run.result.confidence)}."]
    if bounded:
        notes.append("Hollow bar: from all missing rollouts failed to all passed.")
    if any(each.interval and not is_range_known(each, group.ends_seen) for each in estimates):
        notes.append(f"{begun(text_of(Remark('range_not_given')))}.")
    return Section("Metrics", joined(body), notes, "metrics")


def metric_rows(run: RunData) -> list[tuple[str, Estimate, str]]:
    """A row for each metric, as (metric, estimate, remark); equal metrics share a row, whose remark names them."""
    rows: list[tuple[str, Estimate, str]] = []
    others: list[str] = []
    first: Estimate | None = None
    for metric, estimate in run.group.metrics.items():
        may_equal = estimate.made.metric in ALIKE and (estimate.made.k or 1) == 1
        if may_equal and run.outright and first is not None and _are_equal(first, estimate):
            others.append(metric)
            continue
        if may_equal and first is None:
            first = estimate
        words = METRIC_WORDS.get(estimate.made.metric, "").replace("{k}", str(estimate.made.k))
        if passes := passes_from(estimate):
            words = f"{words}; {passes}" if words and estimate.made.k != 1 else passes
        rows.append((metric, estimate, passes if estimate.made.k == 1 else words))
    if others and first is not None:
        index = next(at for at, row in enumerate(rows) if row[1] is first)
        metric, estimate, _ = rows[index]
        rows[index] = metric, estimate, f"= {' = '.join(others)} (rewards are 0 or 1)"
    return rows


def _are_equal(first: Estimate, second: Estimate) -> bool:
    return first.value == second.value and first.interval == second.interval and first.bounds == second.bounds


def cost_section(run: RunData) -> Section | None:
    """The cost of the run, in one paragraph."""
    totals, details = cost_words(run.group)
    if not totals and not details:
        return None
    body = element("p", totals, " ", element("span", details, class_="second"), class_="cost")
    return Section("Cost", body, id="cost")


def cost_words(group: Group) -> tuple[str, str]:
    """A sentence with the totals, and sentences with the cost and time per solved task and per rollout."""
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
    """A section for each key of the breakdown; ``among`` other runs, without cards and with fewer rows."""
    return [_slice_section(run, key, cut, among) for key, cut in run.group.breakdowns.items() if cut]


def _slice_section(run: RunData, key: str, cut: Mapping[str, Slice], among: bool) -> Section:
    metric = slice_metric(run.group, cut)
    parts = shown_slices(cut, metric)[: SLICES_SHOWN if among else None]
    overall = run.group.metrics[metric].value if metric in run.group.metrics else None
    shown_here = [part.metrics[metric] for _, part in parts]
    whole = [run.group.metrics[metric]] if metric in run.group.metrics else []
    scale = common_scale([*whole, *shown_here], run.group.ends_seen)
    digits = places(*(part.metrics[metric].interval for _, part in parts))
    rows = []
    for number, (value, part) in enumerate(parts):
        shown = slice_name(value)
        rows.append(
            estimate_row(
                [name(shown, 24)],
                part.metrics[metric],
                part.ledger,
                scale,
                digits,
                card=None if among else card_id(metric, key, value),
                label=f"{key} {shown}: {metric}",
                overall=overall,
                extra=number >= SLICES_SHOWN,
            )
        )
    body = [interval_table(f"By {key}", "slice", run.result.confidence, scale, rows)]
    if len(parts) > SLICES_SHOWN:
        body.append(element("button", f"Show all {len(parts)}", type="button", class_="control", data_more="extra"))
    if len(cut) > len(parts):
        left_out = f"The {len(parts):,} lowest of {len(cut):,} slices are in this file."
        body.append(element("p", left_out, class_="small"))
    notes = ["The dashed line is the whole benchmark."] if overall is not None else []
    if len(parts) > 1:
        notes.append(f"{EACH_BY_ITSELF[:1].upper()}{EACH_BY_ITSELF[1:]}.")
    return Section(f"By {key}", joined(body), notes, f"by-{list(run.group.breakdowns).index(key)}")


def slice_metric(group: Group, cut: Mapping[str, Slice]) -> str:
    """The metric of a breakdown: the first of the group or, if only slices (training steps) have metrics, of these."""
    return next(iter(group.metrics or next(iter(cut.values())).metrics), "")


def shown_slices(cut: Mapping[str, Slice], metric: str) -> list[tuple[str, Slice]]:
    """The slices of a page: in their order, or the lowest first if there are more than a few."""
    parts = [(value, part) for value, part in cut.items() if metric in part.metrics]
    if len(parts) > SLICES_SORTED:
        parts.sort(key=lambda item: _sort_key(item[1].metrics[metric].value))
    return parts[:SLICES_KEPT]


def _sort_key(value: float | None) -> float:
    return math.inf if value is None or not math.isfinite(value) else value


def variance_section(run: RunData) -> Section | None:
    """The sources of the uncertainty, and what would narrow the interval."""
    headline = headline_of(run.group)
    split = next(iter(run.group.variance.values()), None)
    if not isinstance(split, Split) or not (split.tasks or split.sampling) or headline is None:
        return None
    metric = headline[1].made.metric
    if metric != "mean_reward" and not (run.outright and metric in ALIKE):
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
    """The parts that a result without rollouts cannot show, and the command that shows them."""
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


def _provenance(run: RunData) -> Section:
    """What is needed to reproduce the number."""
    headline = headline_of(run.group)
    return provenance_section(
        run.result,
        input_lines(run.result.inputs, 8),
        _score_command(run),
        signature=headline[1].signature if headline else "",
        plan=run.planned,
        note="Anyone with the input can get the same number, to the last bit.",
    )


def _score_command(run: RunData) -> str:
    """The command that prints the same numbers."""
    result = run.result
    words = command_words("score", [run], result) if run.rollouts else []
    words = words or command_words("score", [run], result, [file.path for file in result.inputs])
    for metric in run.group.metrics:
        words += ["--metric", metric]
    for key in run.group.breakdowns:
        words += ["--by", key]
    if run.cluster:
        words += ["--cluster", run.cluster]
    if result.missing != "gap" or result.dialect != "native":  # another dialect may have another default
        words += ["--missing", result.missing]
    if result.seed:
        words += ["--seed", str(result.seed)]
    return shlex.join(words)


def _cards(run: RunData) -> list[NumberCard]:
    """The cards of all numbers and methods that the page shows."""
    group = run.group
    make = partial(estimate_card, missing=run.result.missing, confidence=run.result.confidence)
    cards: list[NumberCard | None] = [make(metric, each, group.ledger) for metric, each in group.metrics.items()]
    for key, cut in group.breakdowns.items():
        metric = slice_metric(group, cut) if cut else ""
        for value, part in shown_slices(cut, metric):
            cards.append(make(metric, part.metrics[metric], part.ledger, cut=(key, value)))
    return once([*cards, *(method_card(estimate.method) for estimate in group.metrics.values() if estimate.method)])
