"""The sections that only rollouts can show: every rollout as a square, the curve over k, the list of rollouts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calipers.reports.figures import counted, figure
from calipers.reports.sentences import level, to
from calipers.rollouts.record import OUTCOMES
from calipers.stats.curve import Curve
from calipers.web import draw
from calipers.web.draw import LETTER, UNIT, Bracket, CurvePoint, Series, Tone
from calipers.web.gather import MOST_ROWS, STATES, LedgerPart, RolloutText, RunData, RunRollouts
from calipers.web.markup import Markup, element, joined, name, visible
from calipers.web.page import Section

MOST_SQUARES = 5_000  # rollouts whose squares are drawn; beyond, a histogram
MOST_COLUMNS = 120  # tasks, likewise
DRAWN_HERE = 1_500  # rollouts; more squares are drawn by the page's script, from its data
BINS = 20
LOG_FROM = 16  # k beyond which the axis of the curves is logarithmic
SHOWN_ORDER = ("passed", "scored", "wrong", "zero", "missing")  # of a task's squares, from the bottom
CURVE_WORDS: tuple[tuple[str, Tone], ...] = (("one of k passes", "blue"), ("all k pass", "orange"))


def grid_section(run: RunData) -> Section | None:
    """Every rollout: squares by task, or a histogram of task scores."""
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
    """The scores of the tasks as a histogram; None where they are not between 0 and 1."""
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
    """The tasks by score, the highest first; then by passes, then as they stand."""
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
    """How many tasks are solved always, sometimes, never; a task without a number is never solved."""
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


def as_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Markup | str]]) -> Markup:
    """The numbers of a picture as a table, folded."""
    lines = [
        element("tr", element("th", row[0], scope="row"), [element("td", cell) for cell in row[1:]]) for row in rows
    ]
    head = element("thead", element("tr", [element("th", word, scope="col") for word in heads]))
    table = element(
        "table", element("caption", caption, class_="hidden"), head, element("tbody", lines), class_="plain"
    )
    inside = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return element("details", element("summary", "Show as table"), inside, class_="as-table")


def curve_section(run: RunData, *, of: str = "") -> Section | None:
    """pass@k and pass^k for every k; the table is named after the run that they are ``of`` among others."""
    if run.rollouts is None or run.rollouts.curves is None:
        return None
    at, hat = run.rollouts.curves
    most, full = len(at.points), at.points[0].tasks
    series = [
        Series(curve.metric, word, tone, _points(curve, most, full))
        for curve, (word, tone) in zip((at, hat), CURVE_WORDS, strict=True)
    ]
    below = [(_place(point.k, most), f"{point.k}", f"{point.tasks:,}") for point in at.points if _marked(point.k, most)]
    ends = " and ".join(f"{curve.metric} {figure(curve.points[-1].value, 3)}" for curve in (at, hat))
    label = f"From {figure(at.points[0].value, 3)} at k = 1 to {ends} at k = {most}"
    picture = draw.curves(series, UNIT, label=label, below=below, names=("k", "tasks"))
    rows = [
        (f"{some.k}", *_value_and_interval(some), *_value_and_interval(every), f"{some.tasks:,}")
        for some, every in zip(at.points, hat.points, strict=True)
    ]
    said = level(run.result.confidence)
    table = as_table(f"pass@k for every k{of}", ("k", "pass@k", said, "pass^k", said, "tasks"), rows)
    fewer = any(point.tasks < full for point in at.points)
    note = "Hollow points: some tasks have fewer than k samples, so fewer tasks are in the number." if fewer else ""
    return Section("pass@k for every k", joined([picture, table]), note, "curve")


def _place(k: int, most: int) -> float:
    return math.log(k) / math.log(most) if most > LOG_FROM else (k - 1) / (most - 1)


def _marked(k: int, most: int) -> bool:
    """Whether a k has a dot and a number: every k, or the powers of two where there are many."""
    return most <= LOG_FROM or k & (k - 1) == 0


def _points(curve: Curve, most: int, full: int) -> list[CurvePoint]:
    return [
        CurvePoint(_place(point.k, most), point.value, point.interval, point.tasks == full, _marked(point.k, most))
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

    ``counts`` says how many rows each task has; ``kind`` has a character for each row, from "0" on, that is an index
    into ``kinds``; texts are keyed by row, prompts by task.
    """
    rolled = run.rollouts
    if rolled is None or not len(rolled):
        return None
    table = rolled.table
    rows = min(len(table), MOST_ROWS)
    tasks = int(table.task[rows - 1]) + 1
    both, code = np.unique(rolled.states[:rows].astype(np.int64) * 256 + table.outcome[:rows], return_inverse=True)
    parts = [LedgerPart(STATES[kind // 256], OUTCOMES[kind % 256], 0) for kind in both.tolist()]
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
        "kind": "".join(chr(48 + number) for number in code.reshape(-1).tolist()),
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
    """Completion, answer, error; without what is not there at the end."""
    words = [None if each is None else visible(each) for each in (text.completion, text.answer, text.error)]
    while words and words[-1] is None:
        words.pop()
    return words


def _tokens(rolled: RunRollouts) -> list[int] | None:
    """The tokens of each rollout, in and out; None where nobody counted them."""
    total = np.zeros(len(rolled))
    for word in ("input_tokens", "output_tokens"):
        if (column := rolled.table.columns.get(word)) is not None:
            total += np.where(column.given & np.isfinite(column.values), column.values, 0.0)
    tokens: list[int] = np.clip(total, 0, 1e15).astype(np.int64).tolist()
    return tokens if any(tokens) else None
