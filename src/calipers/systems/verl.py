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
from calipers.rollouts.table import Labels, Part, rollout_ids_of


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
    """Read the rollouts of a file. A session is one rollout; if it has several outputs, the last one counts."""
    parts = read_rows("calipers.systems.verl:LAYOUT", source, names, labels, progress)
    parts, dropped = last_outputs(parts)
    notes = []
    if dropped:
        rows = "1 row is an earlier output" if dropped == 1 else f"{dropped:,} rows are earlier outputs"
        notes.append(f"{source.path}: {rows} of a session: a session is one rollout, and its last output counts")
    return with_notes(parts, source.path, notes)


def last_outputs(parts: list[SystemPart]) -> tuple[list[SystemPart], int]:
    """The parts with only the last output of each session, and the number of rows that were dropped."""
    if all(part.rollout_ids is None or not (part.attempt > 1).any() for part in parts):
        return parts, 0
    ids, output = rollout_ids_of(parts), np.concatenate([part.attempt for part in parts])
    order = np.lexsort((output, ids))
    last = np.append(np.diff(ids[order]) != 0, True) | (ids[order] < 0)
    kept = np.zeros(len(ids), dtype=bool)
    kept[order[last]] = True
    remaining, start = [], 0
    for part in parts:
        last_rows = some_rows(part, np.flatnonzero(kept[start : start + len(part)]))
        last_rows.attempt[:] = 1
        remaining.append(last_rows)
        start += len(part)
    return remaining, int(len(kept) - kept.sum())


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a file's rows, without the earlier outputs of a session."""
    tasks, earlier, row_numbers = PromptTasks(users_turn), _earlier_outputs(path), count()

    def text_of(row: VerlText) -> Text | None:
        if next(row_numbers) in earlier:
            return None
        task = tasks.of([row.input], [row.gts])[0]
        return Text(None, None, None, task, 0, target=raw_hash(row.gts), completion=row.output, prompt=row.input)

    return row_texts(path, VerlText, text_of, wanted)


def _earlier_outputs(path: str) -> set[int]:
    """The numbers of the rows that `last_outputs` drops: they are not the last output of their session."""
    last: dict[str, tuple[int, int]] = {}
    earlier = set()
    for row_number, row in enumerate(marked_rows(blocks_of(Source(path)), VerlText, [b""])):
        if match := _OUTPUT.fullmatch(row.uid or ""):
            output = int(match[2]), row_number
            before = last.setdefault(match[1], output)
            last[match[1]] = max(before, output)
            if before != output:
                earlier.add(min(before, output)[1])
    return earlier


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
