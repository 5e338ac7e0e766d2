"""Two runs task by task: which tasks changed and by how much, what each run usually answered, and how that differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.analyses.compare.result import Pair
from calipers.reports.figures import counted
from calipers.reports.sentences import places, signed
from calipers.web.draw import LETTER, line, pc, svg, words
from calipers.web.gather import STATES, RunData, RunRollouts
from calipers.web.markup import Child, Markup, element, joined, name, text, visible

ENDS: Final = 5  # tasks at each end that are shown at once
MOST: Final = 300  # tasks that are listed, and whose bars are drawn one by one
MOST_SQUARES: Final = 16  # rollouts of a task that are drawn; more are counted
LONGEST: Final = 44  # letters of an answer in the list
PROMPT: Final = 22  # letters of a prompt there
BEFORE: Final = 12  # letters of it that are kept before the first difference
TALL: Final = 46  # px of the largest change
WAYS: Final = ("better", "same", "worse")


@dataclass(frozen=True, slots=True)
class Change:
    """A task of both runs: its value in each, and where it stands among their rollouts."""

    task: str
    first: float | None  # None: the same value in both, which nobody needs
    second: float | None
    gain: float  # positive where the second run is better
    codes: tuple[int, int] | None  # of the task in the tables of the runs; None without rollouts

    @property
    def way(self) -> str:
        """Better, same or worse: the second run against the first."""
        return "better" if self.gain > 0 else "worse" if self.gain < 0 else "same"

    @property
    def delta(self) -> float:
        """Second less first."""
        return 0.0 if self.first is None or self.second is None else self.second - self.first


def changes_of(pair: Pair, first: RunData | None, second: RunData | None, higher_is_better: bool) -> list[Change]:
    """The common tasks of two runs, the largest loss first; those that are the same only where rollouts are there."""
    if pair.flips is None:
        return []
    sign = 1 if higher_is_better else -1
    tables = rollouts_of(first), rollouts_of(second)
    places_of = [{} if run is None else {task: code for code, task in enumerate(run.table.tasks)} for run in tables]

    def codes(task: str) -> tuple[int, int] | None:
        found = [of.get(task) for of in places_of]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    moved = [
        Change(change.task, change.first, change.second, sign * (change.second - change.first), codes(change.task))
        for change in (*pair.flips.regressions, *pair.flips.fixes)
    ]
    known = {change.task for change in moved}
    listed = (
        len(moved) == pair.flips.better + pair.flips.worse
    )  # else the list is cut, and who is the same is not known
    still = []
    if listed and pair.alignment.by == "id":
        common = [task for task in places_of[0] if task in places_of[1] and task not in known]
        still = (
            [Change(task, None, None, 0.0, codes(task)) for task in common] if len(common) == pair.flips.same else []
        )
    return sorted([*moved, *still], key=lambda change: change.gain)


def rollouts_of(run: RunData | None) -> RunRollouts | None:
    """The rollouts of a run, where there are any."""
    return None if run is None else run.rollouts


def shown_changes(changes: Sequence[Change]) -> list[Change]:
    """The tasks that are listed: the largest losses and the largest gains, as many as the page holds."""
    if len(changes) <= MOST:
        return list(changes)
    return [*changes[: MOST // 2], *changes[-MOST // 2 :]]


def bars(changes: Sequence[Change], counts: Mapping[str, int]) -> Markup:
    """A bar for each task, gains first; a dot where nothing changed. Beyond `MOST` tasks, a line of steps."""
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
                marks.append(Markup(f'<circle class="same" cx="{pc(left + wide / 2)}" cy="{middle}" r="1.5"/>'))
                continue
            top, kind = (middle - tall, "up") if gain > 0 else (middle, "down")
            place = f'x="{pc(left + gap / 2)}" width="{pc(wide - gap)}" y="{round(top, 1)}" height="{tall}"'
            marks.append(Markup(f'<rect class="{kind}" {place} rx="1"/>'))
    said = ", ".join(f"{counts[way]:,} {way}" for way in WAYS)
    label = f"{counted(len(gains), 'task')}: {said}; the largest change is {signed(largest)}"
    marks.append(words(0, middle + 18, f"{counts['better']:,} better", "better", "start"))
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
    """A filter for each way that tasks went; a script makes them work."""
    marks = {"better": "▲", "same": "•", "worse": "▼"}
    buttons = [
        element(
            "button",
            element("span", marks[way], class_=way, aria_hidden="true"),
            element("b", f"{counts[way]:,}"),
            f" {way}",
            type="button",
            class_="chip",
            data_way=way,
            aria_pressed="false",
            aria_label=f"{counts[way]:,} {way}, filter",
        )
        for way in WAYS
        if counts[way]
    ]
    return element("div", buttons, class_="chips", role="group", aria_label="Tasks")


def change_table(
    changes: Sequence[Change],
    total: int,
    first: RunRollouts | None,
    second: RunRollouts | None,
    labels: tuple[str, str],
) -> Markup:
    """The tasks in two columns: squares and the usual answer of each run, and the change."""
    runs = first, second
    answers = [
        usual_answers(run, [change.codes[side] for change in changes if change.codes]) for side, run in enumerate(runs)
    ]
    with_answers = any(map(len, answers))
    with_squares = any(change.codes for change in changes)
    digits = places()
    heads = [_head("task")]
    for label in labels:
        heads += [_head(label)] if with_squares else [_head(f"{label} value")]
        heads += [_head("usual answer")] if with_answers else []
    heads.append(_head("change", "change"))
    rows = []
    middle = range(ENDS, len(changes) - ENDS)
    for number, change in enumerate(changes):
        if number == ENDS and len(middle) > 0 and len(changes) > 2 * ENDS + 1:
            rows.append(_between(total - 2 * ENDS, total, len(changes), len(heads)))
        said = [answers[side].get(change.codes[side]) if change.codes else None for side in (0, 1)]
        marked = differing(*said)
        cells: list[Child] = [element("th", _task(change, first), scope="row", class_="task")]
        for side, run in enumerate(runs):
            value = change.first if side == 0 else change.second
            drawn = task_squares(run, change.codes[side], labels[side]) if change.codes and run is not None else None
            cells.append(
                element(
                    "td",
                    drawn if with_squares else "" if value is None else f"{value:.{digits}f}",
                    class_="squares-cell",
                )
            )
            cells += [element("td", marked[side], class_="answer")] if with_answers else []
        tone = {"better": "better", "worse": "worse", "same": "same"}[change.way]
        cells.append(element("td", signed(change.delta, digits), class_=f"change {tone}"))
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
    return joined(
        [element("div", table, class_="wide", tabindex="0", role="region", aria_label="What changed"), status]
    )


def _head(word: str, kind: str = "") -> Markup:
    return element("th", word, scope="col", class_=kind or None)


def _between(hidden: int, total: int, listed: int, columns: int) -> Markup:
    """The row that stands for the tasks between; its button shows them."""
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
    """The states that the task's rollouts have in either run."""
    if change.codes is None:
        return None
    kinds: set[str] = set()
    for run, code in zip(runs, change.codes, strict=True):
        if run is not None:
            start, stop = run.table.by_task.starts[code : code + 2]
            kinds |= {STATES[state] for state in np.unique(run.states[start:stop]).tolist()}
    return " ".join(sorted(kinds)) or None


def task_squares(run: RunRollouts, code: int, label: str) -> Markup:
    """The rollouts of one task in a row of squares, as they were sampled."""
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
    said = text(f"{label}: {counts}")
    size = f'width="{step * len(shown)}" height="10"'
    picture = Markup(f'<svg class="dots" role="img" aria-label="{said}" {size}>{drawn}</svg>')
    return joined([picture, more])


def usual_answers(run: RunRollouts | None, codes: Sequence[int]) -> dict[int, str]:
    """The most frequent answer of each task, of several the first; nothing where texts are not wanted."""
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
            usual[code] = _written(labels.values[int(kinds[best])])
    return usual


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def one_line(words: str, longest: int) -> str:
    """A text on one line: line ends as a mark, what is too long cut."""
    line = visible(words[: 4 * longest]).strip().replace("\n", " ⏎ ").replace("\t", " ")
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def differing(first: str | None, second: str | None) -> tuple[Child, Child]:
    """Two answers with what differs marked: what is left without their common beginning and end.

    >>> differing("139", "219")[0]
    ['', '<mark role="deletion">13</mark>', '9']
    """
    if first is None or second is None:
        return _whole(first), _whole(second)
    old, new = (visible(each[: 40 * LONGEST]).replace("\n", " ⏎ ") for each in (first, second))
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    return _marked(old, head, tail, "deletion"), _marked(new, head, tail, "insertion")


def _whole(answer: str | None) -> Child:
    return "–" if answer is None else element("code", one_line(answer, LONGEST))


def _common(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


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
    """What a script shows of each listed task: its prompt, and the texts of both runs that are in the file."""
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
        words_of = run.texts.get(row)
        said = (
            [None if each is None else visible(each) for each in (words_of.completion, words_of.answer)]
            if words_of
            else [None, None]
        )
        rows.append([int(run.table.sample[row]), STATES[run.states[row]], *said])
    return rows
