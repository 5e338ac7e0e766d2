"""The reader of verl's generation files (``rollout_data_dir``, ``validation_data_dir``), and verl's ``best@k``.

A task is identified by its prompt and its ground truth, because verl gives a prompt a new ``uid`` at every validation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import Beginning, Columns, Format, Progress, Raw, Text
from calipers.formats.jsonl import marked_rows
from calipers.formats.lines import ABSENT, NOTHING, kind_of
from calipers.formats.source import Source, blocks_of
from calipers.formats.system_rows import (
    SPLIT,
    STEP,
    Layout,
    Number,
    PromptTasks,
    RowBlock,
    SystemPart,
    extra_columns,
    given,
    hashed,
    number,
    raw_hash,
    read_rows,
    row_texts,
    some_rows,
    with_notes,
)
from calipers.metrics import Metric, mean
from calipers.rollouts.column import Column, Groups
from calipers.rollouts.record import ROLES, USAGE
from calipers.rollouts.table import Labels, Part, join_codes, location, rollout_ids_of


class VerlText(msgspec.Struct, gc=False):
    """The texts of a row, and the id of its session."""

    input: Raw = NOTHING
    output: Raw = NOTHING
    gts: Raw = NOTHING
    uid: str | None = None


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("input", Raw, NOTHING),
    ("output", Raw, NOTHING),
    ("gts", Raw, NOTHING),
    ("score", Number | str, ABSENT),
    ("step", int | None, None),
    ("uid", str | None, ABSENT),
    ("request_id", str | None, ABSENT),
]
"""Any other key comes from ``reward_extra_info``, and is a reward if its values are numbers."""


SYSTEM: Final = "verl"
HEADLINE: Final = "score"
KEYS: Final = frozenset(key for key, _, _ in FIELDS)
_OUTPUT: Final = re.compile(r"(.+_[0-9]+)_([0-9]{1,9})")  # {uuid}_{session}_{output}


def users_turn(prompt: str) -> str:
    r"""The user's last turn in a prompt that was decoded without special tokens.

    >>> users_turn("system\nBe brief.\nuser\nWhat is 2+2?\nassistant\n")
    'What is 2+2?'
    """
    turn = prompt.rpartition("\nuser\n")[2].removeprefix("user\n")
    return turn.rstrip().removesuffix("\nassistant").strip()


def take(rows: RowBlock) -> None:
    """Add a block of rows; each row is an output of a rollout."""
    tasks = rows.memory.setdefault("tasks", PromptTasks(users_turn))
    rows.builder.tasks(tasks.of(rows["input"], rows["gts"]))
    scores = rows[HEADLINE]
    if str in set(map(type, scores)):
        scores = [_number(score) if isinstance(score, str) else score for score in scores]
    rows.builder.numbers("reward", HEADLINE, scores)
    rows.builder.labels(STEP, rows[STEP])
    extra_columns(rows, "reward", texts=True)
    _take_ids(rows)


def _number(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def _take_ids(rows: RowBlock) -> None:
    """Add the rollout id of each row and, as the attempt, its number among the outputs of that rollout."""
    uids, requests = rows["uid"], rows["request_id"]
    if str in set(map(type, uids)):
        matches = [_OUTPUT.fullmatch(uid) if isinstance(uid, str) else None for uid in uids]
        rows.builder.whole("attempt", [1 if match is None else int(match[2]) + 1 for match in matches])
        sessions = [None if match is None else match[1] for match in matches]
    elif str in set(map(type, requests)):
        sessions = list(requests)
    else:
        return
    rows.ids.extend([-1] * (rows.builder.rows - len(rows.ids)))
    rows.ids.extend([hashed(session) if isinstance(session, str) else -1 for session in sessions])


LAYOUT: Final = Layout(SYSTEM, FIELDS, take, extras=True, headline=HEADLINE)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a file. A session is one rollout of the task of its first output; its last output counts."""
    parts = read_rows("calipers.systems.verl:LAYOUT", source, names, labels, progress)
    parts, dropped = last_outputs(parts)
    notes = []
    if dropped:
        rows = "1 row is an earlier output" if dropped == 1 else f"{dropped:,} rows are earlier outputs"
        notes.append(f"{source.path}: {rows} of a session: a session is one rollout, and its last output counts")
    return with_notes(parts, source.path, notes)


def last_outputs(parts: list[SystemPart]) -> tuple[list[SystemPart], int]:
    """The parts with only the last output of each session, and the number of rows that were dropped.

    An output after the first has a prompt of its own, as its context was compacted, so the session's task is that of
    its output 0. InputError for a session without one.
    """
    if all(part.rollout_ids is None or not (part.attempt > 1).any() for part in parts):
        return parts, 0
    ids, output = rollout_ids_of(parts), np.concatenate([part.attempt for part in parts])
    names, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
    order = np.lexsort((output, ids))
    is_session = ids[order] >= 0
    ends = np.diff(ids[order]) != 0
    first, last = np.append(True, ends) | ~is_session, np.append(ends, True) | ~is_session
    headless = order[first & is_session & (output[order] > 1)]
    if len(headless):
        raise _no_first_output(parts, int(headless.min()))
    kept_rows = order[last]
    task[kept_rows] = task[order[first]]  # both have one row for each session, in the same order
    kept = np.zeros(len(ids), dtype=bool)
    kept[kept_rows] = True
    remaining, start = [], 0
    for part in parts:
        rows = np.flatnonzero(kept[start : start + len(part)])
        used, codes = np.unique(task[start + rows], return_inverse=True)
        last_rows = some_rows(part, rows)
        last_rows.attempt[:] = 1
        # a task of which no row is left would be a task without rollouts
        remaining.append(replace(last_rows, tasks=[names[code] for code in used.tolist()], task=codes.reshape(-1)))
        start += len(part)
    return remaining, int(len(kept) - kept.sum())


def _no_first_output(parts: Sequence[SystemPart], row: int) -> InputError:
    """The error for a session whose first row is not its output 0."""
    place, path, session = location(parts, row), parts[0].places.path, int(rollout_ids_of(parts)[row])
    if os.path.isfile(path):  # the rows keep only a hash of the uid
        for texts_of_row in marked_rows(blocks_of(Source(path)), VerlText, [b""]):
            match = _OUTPUT.fullmatch(texts_of_row.uid or "")
            if match and hashed(match[1]) == session:
                place = f"{place}: uid {texts_of_row.uid!r}"
                break
    return InputError.at(place, "the session has no output 0, so its task is unknown", "expected all of its outputs")


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a file's rows, without the earlier outputs of a session; its prompt is that of its output 0."""
    tasks, row_numbers = PromptTasks(users_turn), count()
    earlier, first_rows = _sessions(path)

    def text_of(row: VerlText) -> Text | None:
        if next(row_numbers) in earlier:
            return None
        match = _OUTPUT.fullmatch(row.uid or "")
        first = first_rows.get(match[1], row) if match else row
        task = tasks.of([first.input], [first.gts])[0]
        return Text(None, None, None, task, 0, target=raw_hash(first.gts), completion=row.output, prompt=first.input)

    return row_texts(path, VerlText, text_of, wanted)


def _sessions(path: str) -> tuple[set[int], dict[str, VerlText]]:
    """The numbers of the rows that `last_outputs` drops, and output 0 of each session that has several outputs."""
    last: dict[str, tuple[int, int]] = {}
    earlier = set()
    several = set()
    for row_number, row in enumerate(marked_rows(blocks_of(Source(path)), VerlText, [b""])):
        if match := _OUTPUT.fullmatch(row.uid or ""):
            output = int(match[2]), row_number
            before = last.setdefault(match[1], output)
            last[match[1]] = max(before, output)
            if before != output:
                earlier.add(min(before, output)[1])
                several.add(match[1])
    first_rows = {}
    for row in marked_rows(blocks_of(Source(path)), VerlText, [b""]) if several else ():
        match = _OUTPUT.fullmatch(row.uid or "")
        if match and match[1] in several and int(match[2]) == 0:
            raws = [Raw(bytes(raw)) for raw in (row.input, row.gts)]  # the block's memory is used again
            first_rows[match[1]] = VerlText(input=raws[0], gts=raws[1])
    return earlier, first_rows


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row: prompt, completion, and every other key whose value is a string."""
    texts = {key: raw for key, raw in row.items() if kind_of(raw) == "text" and key not in (*KEYS, *ROLES, *USAGE)}
    return [{**texts, **given(row, prompt="input", completion="output")}]


def in_folders(parts: Sequence[Part]) -> list[Part]:
    """Label the parts with their folder as the split if they come from several folders.

    verl's rows do not say whether they are from training or validation; the two have folders of their own.
    """
    folders = [os.path.basename(os.path.dirname(os.path.abspath(part.places.path))) for part in parts]
    from_verl = [isinstance(part, SystemPart) and part.system == SYSTEM for part in parts]
    if len({folder for folder, verl in zip(folders, from_verl, strict=True) if verl}) < 2:
        return list(parts)
    return [
        replace(part, labels={**part.labels, SPLIT: Labels(np.zeros(len(part), dtype=np.int64), [folder])})
        if verl
        else part
        for part, folder, verl in zip(parts, folders, from_verl, strict=True)
    ]


def recognise(start: Beginning) -> bool:
    """Whether the first row has verl's keys, ``input output score step``, and is not a record of Calipers."""
    row = start.row
    return (
        row is not None and {"input", "output", "score", "step"} <= row.keys() and not {"task", "task_id"} & row.keys()
    )


ROLLOUTS: Final = Format(SYSTEM, read, recognise, texts, in_folders=True, join=in_folders, line_extras=line_extras)


DRAWS: Final = 1000
SEED: Final = 42  # verl reseeds for every prompt, so prompts with the same number of samples share their draws
AT_ONCE: Final = 1 << 22  # the largest number of drawn values in memory


def bootstrap_best_at_k(rewards: Column, by: Groups, k: int) -> Column:
    """Mean over 1000 draws of the best of k samples drawn with replacement, per task, [T].

    This is ``val-core/.../best@k/mean`` of verl's process_validation_metrics. It is below `max@k`, because a draw may
    have the same sample twice: for n = k samples of which one passes, it is about ``1 - (1 - 1/n)^k`` instead of 1.
    A gap if a task has fewer than k samples.
    """
    best = Column.gaps(by.size).values.copy()
    given = np.zeros(by.size, dtype=bool)
    for tasks, values in by.blocks(rewards):
        n = values.shape[1]
        if n < k:
            continue
        draws = np.random.RandomState(SEED).choice(n, size=(DRAWS, k), replace=True)
        step = max(1, AT_ONCE // (DRAWS * k))
        for first in range(0, len(tasks), step):
            chunk = tasks[first : first + step]
            best[chunk] = values[first : first + step][:, draws].max(axis=2).mean(axis=1)
            given[chunk] = True
    return Column(best, given)


BOOTSTRAP_BEST_AT_K: Final = Metric(
    "bootstrap_best@{k}",
    bootstrap_best_at_k,
    mean,
    params={"k": int},
    of_rewards=True,
    breaks=frozenset({"sample order"}),
)
