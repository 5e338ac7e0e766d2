"""verl's generation files (``rollout_data_dir``, ``validation_data_dir``) as rollouts, and its ``best@k``.

A task is its prompt and its ground truth: the ``uid`` of a prompt is new at every validation.
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
    """A row, as far as it says something."""

    input: Raw = NOTHING
    output: Raw = NOTHING
    gts: Raw = NOTHING
    uid: str | None = None


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("input", Raw, NOTHING),
    ("output", Raw, NOTHING),
    ("gts", Raw, NOTHING),
    ("score", Number | str, ABSENT),
    ("step", int | None, ABSENT),
    ("uid", str | None, ABSENT),
    ("request_id", str | None, ABSENT),
]
"""Every other key is one of ``reward_extra_info``: a reward where it has numbers."""


SYSTEM: Final = "verl"
HEADLINE: Final = "score"
KEYS: Final = frozenset(key for key, _, _ in FIELDS)
_OUTPUT: Final = re.compile(r"(.+_[0-9]+)_([0-9]{1,9})")  # {uuid}_{session}_{output}


def users_turn(prompt: str) -> str:
    r"""What the user said last in a prompt whose special tokens are gone.

    >>> users_turn("system\nBe brief.\nuser\nWhat is 2+2?\nassistant\n")
    'What is 2+2?'
    """
    turn = prompt.rpartition("\nuser\n")[2].removeprefix("user\n")
    return turn.rstrip().removesuffix("\nassistant").strip()


def take(rows: RowBlock) -> None:
    """A block of rows, each the output of a rollout."""
    tasks = rows.memory.setdefault("tasks", PromptTasks(users_turn))
    rows.gather.tasks(tasks.of(rows["input"], rows["gts"]))
    scores = rows[HEADLINE]
    if str in set(map(type, scores)):
        scores = [_number(score) if isinstance(score, str) else score for score in scores]
    rows.gather.numbers("reward", HEADLINE, scores)
    rows.gather.labels(STEP, [None if step is ABSENT else step for step in rows[STEP]])
    extra_columns(rows, "reward", texts=True)
    _take_ids(rows)


def _number(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def _take_ids(rows: RowBlock) -> None:
    """Which rollout each row belongs to, and its place among the outputs of that rollout."""
    uids, requests = rows["uid"], rows["request_id"]
    if str in set(map(type, uids)):
        parted = [_OUTPUT.fullmatch(uid) if isinstance(uid, str) else None for uid in uids]
        rows.gather.whole("attempt", [1 if match is None else int(match[2]) + 1 for match in parted])
        sessions = [None if match is None else match[1] for match in parted]
    elif str in set(map(type, requests)):
        sessions = list(requests)
    else:
        return
    rows.ids.extend([-1] * (rows.gather.rows - len(rows.ids)))
    rows.ids.extend([hashed(session) if isinstance(session, str) else -1 for session in sessions])


LAYOUT: Final = Layout(SYSTEM, FIELDS, take, extras=True, headline=HEADLINE)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file: of several outputs of one session, the last."""
    parts = read_rows("calipers.systems.verl:LAYOUT", source, names, labels, progress)
    parts, dropped = last_outputs(parts)
    notes = []
    if dropped:
        rows = "1 row is an earlier output" if dropped == 1 else f"{dropped:,} rows are earlier outputs"
        notes.append(f"{source.path}: {rows} of a session: a session is one rollout, and its last output counts")
    return with_notes(parts, source.path, notes)


def last_outputs(parts: list[SystemPart]) -> tuple[list[SystemPart], int]:
    """The parts with one row for each session, that of its last output; and how many other rows there were."""
    if all(part.rollout_ids is None or not (part.attempt > 1).any() for part in parts):
        return parts, 0
    ids, output = rollout_ids_of(parts), np.concatenate([part.attempt for part in parts])
    order = np.lexsort((output, ids))
    last = np.append(np.diff(ids[order]) != 0, True) | (ids[order] < 0)
    kept = np.zeros(len(ids), dtype=bool)
    kept[order[last]] = True
    remaining, start = [], 0
    for part in parts:
        rows = np.flatnonzero(kept[start : start + len(part)])
        some = some_rows(part, rows)
        some.attempt[:] = 1
        remaining.append(some)
        start += len(part)
    return remaining, int(len(kept) - kept.sum())


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """What the rows of a file say, each the last output of its session."""
    tasks, earlier, numbers = PromptTasks(users_turn), _earlier_outputs(path), count()

    def said(row: VerlText) -> Text | None:
        if next(numbers) in earlier:
            return None
        task = tasks.of([row.input], [row.gts])[0]
        return Text(None, None, None, task, 0, target=raw_hash(row.gts), completion=row.output, prompt=row.input)

    return row_texts(path, VerlText, said, wanted)


def _earlier_outputs(path: str) -> set[int]:
    """The rows, by their number, that are not the last output of their session, as in `last_outputs`."""
    last: dict[str, tuple[int, int]] = {}
    earlier = set()
    for at, row in enumerate(marked_rows(blocks_of(Source(path)), VerlText, [b""])):
        if match := _OUTPUT.fullmatch(row.uid or ""):
            output = int(match[2]), at
            before = last.setdefault(match[1], output)
            last[match[1]] = max(before, output)
            if before != output:
                earlier.add(min(before, output)[1])
    return earlier


def said(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, those of its extras among them."""
    texts = {key: raw for key, raw in row.items() if kind_of(raw) == "text" and key not in (*KEYS, *ROLES, *USAGE)}
    return [{**texts, **given(row, prompt="input", completion="output")}]


def in_folders(parts: Sequence[Part]) -> list[Part]:
    """The parts of files in several folders with the folder as the split: rows do not say train or validation."""
    folders = [os.path.basename(os.path.dirname(os.path.abspath(part.places.path))) for part in parts]
    own = [isinstance(part, SystemPart) and part.system == SYSTEM for part in parts]
    if len({folder for folder, mine in zip(folders, own, strict=True) if mine}) < 2:
        return list(parts)
    return [
        replace(part, labels={**part.labels, SPLIT: Labels(np.zeros(len(part), dtype=np.int64), [folder])})
        if mine
        else part
        for part, folder, mine in zip(parts, folders, own, strict=True)
    ]


def recognise(start: Beginning) -> bool:
    """Whether the first row is one of verl's: ``input output score step``, and not a record of ours."""
    row = start.row
    return (
        row is not None and {"input", "output", "score", "step"} <= row.keys() and not {"task", "task_id"} & row.keys()
    )


ROLLOUTS: Final = Format(SYSTEM, read, recognise, texts, in_folders=True, join=in_folders, line_extras=said)


DRAWS: Final = 1000
SEED: Final = 42  # verl seeds anew for every prompt, so that prompts with equally many samples share the draws
AT_ONCE: Final = 1 << 22  # drawn values held at a time


def bootstrap_best_at_k(rewards: Column, by: Groups, k: int) -> Column:
    """Mean over 1000 draws of the best of k samples drawn with replacement, per task, [T].

    ``val-core/.../best@k/mean`` of verl's process_validation_metrics. It is below `max@k`, as a draw may take the same
    sample twice: with n = k samples, one of which passes, ``1 - (1 - 1/n)^k`` and not 1. A gap where a task has fewer
    than k samples.
    """
    best = Column.gaps(by.size).values.copy()
    given = np.zeros(by.size, dtype=bool)
    for tasks, values in by.blocks(rewards):
        n = values.shape[1]
        if n < k:
            continue
        drawn = np.random.RandomState(SEED).choice(n, size=(DRAWS, k), replace=True)
        step = max(1, AT_ONCE // (DRAWS * k))
        for first in range(0, len(tasks), step):
            some = tasks[first : first + step]
            best[some] = values[first : first + step][:, drawn].max(axis=2).mean(axis=1)
            given[some] = True
    return Column(best, given)


BOOTSTRAP_BEST_AT_K: Final = Metric(
    "bootstrap_best@{k}",
    bootstrap_best_at_k,
    mean,
    params={"k": int},
    of_rewards=True,
    breaks=frozenset({"sample order"}),
)
