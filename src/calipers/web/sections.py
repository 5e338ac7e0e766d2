"""Sections that several pages share: the ledger, every rollout, curves over k, score against cost, and provenance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from calipers.formats.read import Input
from calipers.reports.figures import NONE, POLICY, counted, figure
from calipers.reports.sentences import level, money, short_number, to
from calipers.rollouts.record import OUTCOMES
from calipers.stats.curve import Curve
from calipers.web import draw
from calipers.web.draw import (
    LETTER,
    UNIT,
    Bracket,
    CurvePoint,
    Ends,
    Scale,
    Segment,
    Series,
    Tone,
    circle,
    line,
    round_scale,
    spread,
    svg,
    words,
)
from calipers.web.markup import Child, Markup, cut, element, joined, name, visible
from calipers.web.page import Section, as_table
from calipers.web.report_data import MOST_ROWS, STATES, LedgerPart, RolloutText, RunData, RunRollouts, ledger_parts

if TYPE_CHECKING:
    from calipers.analyses.compare import Comparison
    from calipers.analyses.leaderboard import Leaderboard
    from calipers.analyses.matrix.document import Matrix
    from calipers.reports.result import Result

MOST_SQUARES = 5_000  # more rollouts are shown as a histogram, not as squares
MOST_COLUMNS = 120  # and so are more tasks
DRAWN_HERE = 1_500  # if there are more rollouts, the page's script draws their squares from its data
BINS = 20
LOG_FROM = 16  # the axis of curves with a larger k is logarithmic
SHOWN_ORDER = ("passed", "scored", "wrong", "zero", "missing")  # of a task's squares, from the bottom
CURVE_WORDS: tuple[tuple[str, Tone], ...] = (("one of k passes", "blue"), ("all k pass", "orange"))
TALL = 200  # height of the picture of score against cost, in px
TOP = 12  # px above it
LEFT, WIDE = 6.0, 92.0  # left end and width of the picture, in per cent; the numbers of the axis are on its left
STEP_FACTORS = (1, 2, 5, 10)  # tick steps, times a power of ten
LOG = 20  # the cost axis is logarithmic if the largest cost is more than this many times the smallest
NAMED = 6  # up to this many runs have their name beside their point; with more runs, points have only their label
PIXELS = 8.2  # px per per cent, on a wide page
LETTER_WIDTH = 6.6  # width of a letter beside a point, in px
LONGEST_NAME = 22  # letters of a name beside a point
MOST_DECADES = 5  # a logarithmic axis with more decades has no tick at some of them


STATE_WORDS: Final = {"zero": "counted as 0", "left": "not run (stopped early)"}


def state_word(state: str) -> str:
    """The name of a state on a page."""
    return STATE_WORDS.get(state, state)


def state_counts(run: RunData) -> dict[str, int]:
    """The number of rollouts of a run in each state, in the order of `STATES`, without states that have none."""
    counts = dict.fromkeys(STATES, 0)
    for part in ledger_parts(run):
        counts[part.state] += part.count
    return {state: count for state, count in counts.items() if count}


def ledger_sentence(run: RunData) -> list[Markup | str]:
    """The ledger as a sum: ``320 planned = 281 scored + 22 counted as 0 + 17 missing``."""
    states = state_counts(run)
    scored = sum(states.get(state, 0) for state in ("passed", "scored", "wrong"))
    others = [f"{states[state]:,} {state_word(state)}" for state in ("zero", "missing", "left") if state in states]
    return [element("b", f"{run.group.ledger.planned:,} planned"), f" = {' + '.join([f'{scored:,} scored', *others])}"]


def ledger_bar(run: RunData, height: int, prefix: str = "") -> Markup:
    """All planned rollouts of a run in one bar; its label begins with ``prefix``."""
    parts = [Segment(state, count, state_word(state)) for state, count in state_counts(run).items()]
    counts = ", ".join(f"{part.count:,} {part.word}" for part in parts)
    label = f"{prefix}{run.group.ledger.planned:,} planned rollouts: {counts}"
    return draw.ledger_bar(parts, label=label, height=height)


def chip(inner: Child, label: str, **data: str) -> Markup:
    """A filter button; a script makes it work."""
    aria = {"aria_pressed": "false", "aria_label": f"{label}, filter"}
    return element("button", inner, type="button", class_="chip", **data, **aria)


def chips(inner: Child, label: str) -> Markup:
    """A row of filters."""
    return element("div", inner, class_="chips", role="group", aria_label=label)


def grid_section(run: RunData) -> Section | None:
    """Every rollout as a square, by task; or a histogram of task scores."""
    rolled = run.rollouts
    if rolled is None or not len(rolled):
        return None
    if run.outright and len(rolled) <= MOST_SQUARES and len(rolled.tasks.ids) <= MOST_COLUMNS:
        note = (
            "A column is a task, a square is a sample. Tasks are sorted by score. Select a column to list its rollouts."
        )
        order = sorted_tasks(rolled)
        body = joined([_grid(rolled, order), draw.brackets(_brackets(rolled)), _grid_table(rolled, order)])
        return Section("Every rollout", body, note, "every-rollout")
    return task_scores(run)


def task_scores(run: RunData) -> Section | None:
    """The scores of the tasks as a histogram; None if there are none, or if some are not between 0 and 1."""
    rolled = run.rollouts
    if rolled is None:
        return None
    scores = rolled.tasks.mean.kept()
    if not len(scores) or not bool(((scores >= 0) & (scores <= 1)).all()):
        return None
    counts = np.histogram(scores, bins=BINS, range=(0.0, 1.0))[0].tolist()
    bins = ", ".join(f"{n:,} from {at / BINS:.2f} to {(at + 1) / BINS:.2f}" for at, n in enumerate(counts) if n)
    picture = draw.histogram(counts, label=f"Scores of {counted(len(scores), 'task')}: {bins}")
    body = joined([picture, element("p", f"{_solved_words(rolled)}.", class_="small")])
    return Section("Every task", body, "The score of a task is the mean reward of its samples.", "every-rollout")


def sorted_tasks(rolled: RunRollouts) -> list[int]:
    """The codes of the tasks by score, the highest first; ties by passes, then in the order of the table."""
    tasks = rolled.tasks
    mean = np.where(tasks.mean.given, tasks.mean.values, -1.0)
    order: list[int] = np.lexsort((np.arange(len(mean)), -tasks.passed, -mean)).tolist()
    return order


def task_states(rolled: RunRollouts, task: int) -> list[str]:
    """The states of a task's rollouts, passes first."""
    starts = rolled.table.by_task.starts
    codes = rolled.states[starts[task] : starts[task + 1]].tolist()
    return sorted((STATES[code] for code in codes), key=SHOWN_ORDER.index)


def _grid(rolled: RunRollouts, order: Sequence[int]) -> Markup:
    tasks = rolled.tasks
    label = f"{counted(len(rolled), 'rollout')} of {counted(len(order), 'task')}: {_solved_words(rolled)}"
    if len(rolled) > DRAWN_HERE:
        return element("div", id="grid", data_label=label)
    titles = [f"{tasks.ids[task]}: {tasks.passed[task]} of {tasks.given[task]} passed" for task in order]
    columns = [task_states(rolled, task) for task in order]
    return element("div", draw.squares(columns, label=label, titles=titles, tasks=order), id="grid")


def _solved(rolled: RunRollouts) -> tuple[int, int, int]:
    """The number of tasks that are solved always, sometimes and never; a task without a number is never solved."""
    given, passes = rolled.tasks.given, rolled.tasks.passed
    always = int(((given > 0) & (passes == given)).sum())
    never = int((passes == 0).sum())
    return always, len(given) - always - never, never


def _brackets(rolled: RunRollouts) -> list[Bracket]:
    always, sometimes, never = _solved(rolled)
    step = 100 / (always + sometimes + never)
    first, second = always * step, (always + sometimes) * step
    return [
        Bracket(0, first, f"{counted(always, 'task')} always solved", f"{always:,} always"),
        Bracket(first, second, f"{counted(sometimes, 'task')} sometimes solved", f"{sometimes:,} sometimes"),
        Bracket(second, 100, f"{counted(never, 'task')} never solved", f"{never:,} never"),
    ]


def _solved_words(rolled: RunRollouts) -> str:
    always, sometimes, never = _solved(rolled)
    return f"{counted(always, 'task')} always solved, {sometimes:,} sometimes, {never:,} never"


def _grid_table(rolled: RunRollouts, order: Sequence[int]) -> Markup:
    tasks = rolled.tasks
    rows = (
        (name(tasks.ids[task]), f"{tasks.passed[task]:,}", f"{tasks.given[task]:,}", f"{tasks.missing[task]:,}")
        for task in order
    )
    return as_table("Rollouts by task", ("task", "passed", "with a reward", "missing"), rows)


def curve_section(run: RunData, *, of: str = "") -> Section | None:
    """pass@k and pass^k for every k; ``of`` is added to the caption of the table, such as " of RUN"."""
    if run.rollouts is None or run.rollouts.curves is None:
        return None
    pass_at, pass_hat = run.rollouts.curves  # pass@k and pass^k
    most, full = len(pass_at.points), pass_at.points[0].tasks
    series = [
        Series(curve.metric, word, tone, _points(curve, most, full))
        for curve, (word, tone) in zip((pass_at, pass_hat), CURVE_WORDS, strict=True)
    ]
    below = [
        (_position(point.k, most), f"{point.k}", f"{point.tasks:,}")
        for point in pass_at.points
        if _is_marked(point.k, most)
    ]
    ends = " and ".join(f"{curve.metric} {figure(curve.points[-1].value, 3)}" for curve in (pass_at, pass_hat))
    label = f"From {figure(pass_at.points[0].value, 3)} at k = 1 to {ends} at k = {most}"
    picture = draw.curves(series, UNIT, label=label, below=below, names=("k", "tasks"))
    rows = [
        (f"{any_of.k}", *_value_and_interval(any_of), *_value_and_interval(all_of), f"{any_of.tasks:,}")
        for any_of, all_of in zip(pass_at.points, pass_hat.points, strict=True)
    ]
    interval = level(run.result.confidence)
    table = as_table(f"pass@k for every k{of}", ("k", "pass@k", interval, "pass^k", interval, "tasks"), rows)
    fewer = any(point.tasks < full for point in pass_at.points)
    note = "Hollow points: some tasks have fewer than k samples, so fewer tasks are in the number." if fewer else ""
    return Section("pass@k for every k", joined([picture, table]), note, "curve")


def _position(k: int, most: int) -> float:
    """The position of k on the axis, from 0 to 1."""
    return math.log(k) / math.log(most) if most > LOG_FROM else (k - 1) / (most - 1)


def _is_marked(k: int, most: int) -> bool:
    """Whether k has a dot and a number: every k, or only powers of two if there are many."""
    return most <= LOG_FROM or k & (k - 1) == 0


def _points(curve: Curve, most: int, full: int) -> list[CurvePoint]:
    return [
        CurvePoint(
            _position(point.k, most), point.value, point.interval, point.tasks == full, _is_marked(point.k, most)
        )
        for point in curve.points
        if point.value is not None
    ]


def _value_and_interval(point: Any) -> tuple[str, str]:
    return figure(point.value, 3), to(point.interval) if point.interval else "–"


def rollouts_section(run: RunData) -> Section | None:
    """The list of rollouts; the page's script fills it."""
    if run.rollouts is None or not len(run.rollouts):
        return None
    without = element("p", "The list of rollouts needs JavaScript.", class_="small")
    body = element("div", element("noscript", without), id="list")
    return Section("Rollouts", body, element("span", id="list-note", aria_live="polite"), "rollouts")


def rollout_data(run: RunData) -> dict[str, Any] | None:
    """The list of rollouts for the page's script, ``data["rollouts"]``.

    ``counts`` has the number of rows of each task. ``kind`` has a character for each row, whose code minus that of "0"
    is an index into ``kinds``. Texts are keyed by row, prompts by task.
    """
    rolled = run.rollouts
    if rolled is None or not len(rolled):
        return None
    table = rolled.table
    rows = min(len(table), MOST_ROWS)
    tasks = int(table.task[rows - 1]) + 1
    kinds, kind_of_row = np.unique(
        rolled.states[:rows].astype(np.int64) * 256 + table.outcome[:rows], return_inverse=True
    )
    parts = [LedgerPart(STATES[kind // 256], OUTCOMES[kind % 256], 0) for kind in kinds.tolist()]
    samples = table.sample[:rows]
    counts = np.bincount(table.task[:rows], minlength=tasks)
    usual = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    data: dict[str, Any] = {
        "planned": len(table),
        "tasks": [visible(task) for task in table.tasks[:tasks]],
        "counts": counts.tolist(),
        "samples": None if bool((samples == usual).all()) else samples.tolist(),
        "kinds": [
            {
                "state": part.state,
                "letter": LETTER[part.state],
                "word": part.word,
                "key": f"{part.state}:{part.outcome}",
            }
            for part in parts
        ],
        "kind": "".join(chr(48 + number) for number in kind_of_row.reshape(-1).tolist()),
        "texts": {row: _shown(text) for row, text in rolled.texts.items() if row < rows},
        "prompts": {task: visible(prompt) for task, prompt in rolled.prompts.items() if task < tasks},
        "no_texts": not rolled.wants_texts,
        "texts_cut": rolled.texts_cut,
        "order": sorted_tasks(rolled) if DRAWN_HERE < len(table) <= MOST_SQUARES else None,
    }
    if (tokens := _tokens(rolled)) is not None:
        data["tokens"] = tokens[:rows]
    if not run.outright:
        data["rewards"] = [
            round(value, 6) if given and math.isfinite(value) else None
            for value, given in zip(
                rolled.numbers.values[:rows].tolist(), rolled.numbers.given[:rows].tolist(), strict=True
            )
        ]
    return data


def _shown(text: RolloutText) -> list[str | None]:
    """Completion, answer and error, without trailing absent texts."""
    texts = [None if part is None else visible(part) for part in (text.completion, text.answer, text.error)]
    while texts and texts[-1] is None:
        texts.pop()
    return texts


def _tokens(rolled: RunRollouts) -> list[int] | None:
    """The input and output tokens of each rollout together; None if no rollout has any."""
    total = np.zeros(len(rolled))
    for word in ("input_tokens", "output_tokens"):
        if (column := rolled.table.columns.get(word)) is not None:
            with np.errstate(over="ignore"):
                total += np.where(column.given & np.isfinite(column.values), column.values, 0.0)
    tokens: list[int] = np.clip(total, 0, 1e15).astype(np.int64).tolist()
    return tokens if any(tokens) else None


@dataclass(frozen=True, slots=True)
class RunCost:
    """The score of a run, and the cost of one sample."""

    label: str  # A, B, or its rank
    name: str
    value: float
    interval: Ends | None
    cost: float  # US dollars per sample
    cost_interval: Ends | None
    tone: Tone = "blue"


def spent_of(run: RunData, label: str, metric: str, tone: Tone = "blue") -> RunCost | None:
    """The score and the cost of a run; None if either is not known."""
    estimate, cost = run.group.metrics.get(metric), run.group.economics.get("cost_per_task")
    if estimate is None or estimate.value is None or cost is None or cost.value is None:
        return None
    return RunCost(label, run.name, estimate.value, estimate.interval, cost.value, cost.interval, tone)


Ahead = Callable[[int, int], bool]
"""Whether the first run's score is better than the second's by their test; both runs are given by index."""


def cost_section(
    runs: Sequence[RunCost], metric: str, *, higher_is_better: bool, confidence: float, ahead: Ahead
) -> Section | None:
    """The section with score against cost; None with fewer than two runs whose cost is known."""
    if len(runs) < 2:
        return None
    times, unit = _price_unit(min((run.cost for run in runs if run.cost > 0), default=0.0))
    costs = _cost_scale([end * times for run in runs for end in (run.cost, *(run.cost_interval or ()))])
    scores = _zoomed([end for run in runs for end in (run.value, *(run.interval or ()))])
    corner = "Up and left" if higher_is_better else "Down and left"
    note = [f"Both intervals are drawn. {corner} is better."]
    steps = frontier(runs, higher_is_better, ahead)
    if len(steps) > 1:
        note.append("The thin line joins runs that no other run beats in both; each of its steps is decided.")
    picture = _picture(runs, times, costs, scores, steps, metric)
    foot = element("p", f"cost {unit}, lower is better", class_="axis-name")
    return Section(
        "Score against cost", Markup(picture + foot + _table(runs, metric, times, unit, confidence)), note, id="cost"
    )


def frontier(runs: Sequence[RunCost], higher_is_better: bool, ahead: Ahead) -> list[int]:
    """The runs that no other run beats in both score and cost, the cheapest first; empty if any step is undecided.

    A step from one run to the next is decided if the dearer run's score is better by its test, and if the intervals of
    both costs do not overlap.
    """
    sign = 1 if higher_is_better else -1
    order = sorted(range(len(runs)), key=lambda index: (runs[index].cost, -sign * runs[index].value))
    kept: list[int] = []
    for index in order:
        if not kept or sign * runs[index].value > sign * runs[kept[-1]].value:
            kept.append(index)
    for cheap, dear in pairwise(kept):
        low, high = runs[cheap].cost_interval, runs[dear].cost_interval
        if low is None or high is None or low[1] >= high[0] or not ahead(dear, cheap):
            return []
    return kept if len(kept) > 1 else []


def _price_unit(least: float) -> tuple[float, str]:
    """The number of samples that prices are for, and the unit in words; ``least`` is the smallest cost."""
    if least >= 0.001:
        return 1.0, "per sample"
    return (1e3, "per 1,000 samples") if least >= 1e-6 else (1e6, "per million samples")


def _zoomed(values: Sequence[float]) -> Scale:
    """A scale between round numbers around the values."""
    low, high = min(values), max(values)
    return round_scale(low, high, spread(low, high), STEP_FACTORS)


@dataclass(frozen=True, slots=True)
class _LogScale:
    """A logarithmic axis."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return min(max(100 * share, 0.0), 100.0)


def _cost_scale(costs: Sequence[float]) -> Scale | _LogScale:
    positive = [cost for cost in costs if cost > 0]
    if not positive or len(positive) < len(costs) or max(positive) <= LOG * min(positive):
        return _zoomed(costs)
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    ticks = tuple(10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / MOST_DECADES))))
    return _LogScale(10.0**first, 10.0**last, ticks)


def _picture(
    runs: Sequence[RunCost], times: float, costs: Scale | _LogScale, scores: Scale, steps: Sequence[int], metric: str
) -> Markup:
    def x(cost: float) -> float:
        return LEFT + WIDE * costs.at(cost * times) / 100

    def y(score: float) -> float:
        return round(TOP + TALL * (1 - scores.at(score) / 100), 1)

    marks = []
    for tick in scores.ticks:
        marks.append(line(LEFT, LEFT + WIDE, y(tick), y(tick), "track"))
        marks.append(words(LEFT - 1, y(tick) + 4, short_number(tick), "tick", "end"))
    for tick in costs.ticks:
        tick_x = x(tick / times)
        marks.append(words(tick_x, TOP + TALL + 20, money(tick), "tick", "end" if tick_x > 95 else "middle"))
    path = [(x(runs[index].cost), y(runs[index].value)) for index in steps]
    marks += [line(a[0], b[0], a[1], b[1], "frontier") for a, b in pairwise(path)]
    for run in runs:
        if run.cost_interval:
            left, right = map(x, run.cost_interval)
            marks.append(line(left, right, y(run.value), y(run.value), f"cross {run.tone}"))
        if run.interval:
            low, high = map(y, run.interval)
            marks.append(line(x(run.cost), x(run.cost), low, high, f"cross {run.tone}"))
    for run in runs:
        hollow = " hollow" if run.interval is None else ""
        marks.append(circle(x(run.cost), y(run.value), 5, f"point {run.tone}{hollow}"))
    marks += _names(runs, x, y)
    points = "; ".join(
        f"{run.label} {run.name}: {metric} {figure(run.value, 3)}, {money(run.cost * times)}" for run in runs[:NAMED]
    )
    more = f"; and {len(runs) - NAMED} more in the table" if len(runs) > NAMED else ""
    return svg(*marks, label=f"Score against cost. {points}{more}", class_="scatter", height=TOP + TALL + 28)


def _names(runs: Sequence[RunCost], x: Callable[[float], float], y: Callable[[float], float]) -> list[Markup]:
    """A name beside each point, at a spot without other names and points if there is one."""
    taken = [(x(run.cost) - 0.8, x(run.cost) + 0.8, y(run.value)) for run in runs]  # left, right and y of each mark
    marks = []
    for number, run in enumerate(runs):
        run_name = f" {cut(run.name, LONGEST_NAME)}" if len(runs) <= NAMED and run.label != run.name else ""
        wide = len(run.label + run_name) * LETTER_WIDTH / PIXELS
        right = x(run.cost_interval[1] if run.cost_interval else run.cost) + 1
        left = x(run.cost_interval[0] if run.cost_interval else run.cost) - 1
        near = x(run.cost) + 1
        spots = [(right, 4.0, "start"), (left, 4.0, "end"), (near, -8.0, "start"), (near, 16.0, "start")]
        free = [spot for spot in spots if _fits(spot, wide, y(run.value), taken[:number] + taken[number + 1 :])]
        spot_x, down, anchor = (free or spots)[0]
        start = spot_x if anchor == "start" else spot_x - wide
        taken.append((start, start + wide, y(run.value) + down - 4))
        # the name is an element of its own, because a phone has no room for it
        label = joined([run.label, element("tspan", run_name, class_="word") if run_name else None])
        marks.append(words(spot_x, round(y(run.value) + down, 1), label, f"spot {run.tone}", anchor))
    return marks


def _fits(spot: tuple[float, float, str], wide: float, y: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    """Whether a name of this width, at a spot near a point at ``y``, is inside the picture and meets no mark."""
    spot_x, down, anchor = spot
    start = spot_x if anchor == "start" else spot_x - wide
    if start < 0 or start + wide > 100:
        return False
    middle = y + down - 4
    return all(start > last or start + wide < first or abs(middle - other) > 12 for first, last, other in taken)


def _table(runs: Sequence[RunCost], metric: str, times: float, unit: str, confidence: float) -> Markup:
    rows = [
        (
            joined([f"{run.label} " if run.label != run.name else None, name(run.name)]),
            figure(run.value, 3),
            to(run.interval) if run.interval else NONE,
            money(run.cost * times),
            " to ".join(money(end * times) for end in run.cost_interval) if run.cost_interval else NONE,
        )
        for run in runs
    ]
    return as_table("Score against cost", ("run", metric, level(confidence), f"cost {unit}", level(confidence)), rows)


def input_line(file: Input, *before: Child) -> Markup:
    """A file with its rollouts and its hash."""
    return element(
        "div",
        before,
        element("code", element("bdi", file.path)),
        f" · {counted(file.rollouts, 'rollout')} · ",
        element("code", f"sha256 {file.sha256[:16]}…", title=file.sha256),
    )


def input_lines(files: Sequence[Input], most: int) -> list[Markup]:
    """The first ``most`` files, and the number of other files."""
    shown, more = [input_line(file) for file in files[:most]], len(files) - most
    return [*shown, element("div", f"and {counted(more, 'file')} more")] if more > 0 else shown


def provenance_section(
    document: Result | Comparison | Leaderboard | Matrix,
    inputs: Sequence[Markup],
    command: str,
    *,
    signature: str = "",
    plan: str = "",
    margin: float | None = None,
    note: str = "Anyone with the inputs can get the same numbers, to the last bit.",
) -> Section:
    """What is needed to reproduce the numbers; the command is left out if there are no inputs."""
    from calipers import __version__

    policy = POLICY.get(document.missing, document.missing)
    settings = [f"Calipers {__version__}", f"{document.dialect} rules", f"missing {policy}", f"seed {document.seed}"]
    settings.append(f"{100 * document.confidence:.6g}\N{NO-BREAK SPACE}% confidence")
    settings += [f"margin {margin:g}"] if margin else []
    facts = {
        "Input": inputs,
        "Digest": element("code", f"{document.digest[:31]}…", title=document.digest),
        "Signature": element("code", signature, class_="wrap") if signature else "",
        "Plan": plan,
        "Made with": " · ".join(settings),
    }
    rows = [(element("dt", label), element("dd", fact)) for label, fact in facts.items() if fact]
    body = [element("dl", rows, class_="facts"), command_line(command) if inputs else None]
    return Section("Provenance", joined(body), note, "provenance")


def command_line(command: str) -> Markup:
    """A command with a button to copy it."""
    button = element("button", "Copy", type="button", class_="control", data_copy=command, hidden=True)
    words = [element("span", word) if "-" in word or "/" in word else word for word in re.split("( )", command)]
    return element("div", element("code", words), button, class_="command")


def foot(runs: Sequence[RunData], digest: str) -> list[str]:
    """The last lines of a page: the digest, and how many texts are in the file."""
    lines = [f"Calipers · {digest}"]
    rolled = [run.rollouts for run in runs if run.rollouts is not None]
    if rolled and not all(rollouts.wants_texts for rollouts in rolled):
        lines.append("Texts were left out of this file (--no-texts).")
    elif rolled:
        texts, total = sum(len(rollouts.texts) for rollouts in rolled), sum(map(len, rolled))
        if not texts:
            lines.append("The rollouts have no texts.")
        elif texts < total:
            texts_cut = any(rollouts.texts_cut for rollouts in rolled)
            why = "the others were left out to keep the file small" if texts_cut else "the others have none"
            lines.append(f"Texts of {texts:,} of {counted(total, 'rollout')} are in this file; {why}.")
    return lines
