"""The reader of NeMo-RL's data files, ``val_data_step10.jsonl`` and ``train_data_step1.jsonl``.

Every value of a row is a list, usually of one element.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from calipers.formats import Beginning, Format, Raw
from calipers.formats.lines import NOTHING, kind_of
from calipers.formats.system_rows import (
    SPLIT,
    STEP,
    Layout,
    Number,
    PromptTasks,
    RowBlock,
    conversation,
    read_noted,
    step_in,
)
from calipers.rollouts.column import Ints

SYSTEM: Final = "nemo_rl"
REWARD: Final = "rewards"
_STEP: Final = re.compile(r"_step([0-9]+)\.")
_SPLIT: Final = re.compile(r"(train|val)(?:idation)?_data")
_ENCODER: Final = msgspec.json.Encoder()
_QUOTE: Final = ord('"')


class Message(msgspec.Struct, gc=False):
    """A turn of a conversation."""

    role: str | None = None
    content: Raw = NOTHING


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("content", list[list[Message | str] | str | None], msgspec.NODEFAULT),
    ("rewards", list[Number], msgspec.NODEFAULT),
    ("filtered_rewards", list[Number] | None, None),  # only the rewards of rollouts that dynamic sampling kept
]


def take(rows: RowBlock) -> Ints | None:
    """Add a block of rows; each element of a row is a rollout."""
    sizes = list(map(len, rows["content"]))
    one_each = set(sizes) == {1}
    contents = list(chain.from_iterable(rows["content"]))
    tasks = rows.memory.setdefault("tasks", PromptTasks())
    rows.builder.tasks(tasks.without_golds(_prompts(contents)))
    if one_each and set(map(len, rows[REWARD])) == {1}:
        rewards = list(chain.from_iterable(rows[REWARD]))
    else:
        columns = zip(rows[REWARD], rows["filtered_rewards"], sizes, strict=True)
        rewards = [reward for row in columns for reward in _rewards(*row)]
    rows.builder.numbers("reward", REWARD, rewards)
    _label(rows, len(contents))
    return None if one_each else np.repeat(np.arange(rows.size), sizes)


def _rewards(rewards: list[Any], filtered: list[Any] | None, size: int) -> list[Any]:
    """The rewards of a row's ``size`` rollouts.

    They are ``filtered`` if ``rewards`` has another length, because it then has the rewards of the whole batch. If
    neither list fits, every reward is None.
    """
    for candidate in (rewards, filtered):
        if candidate is not None and len(candidate) == size:
            return candidate
    return [None] * size


def _prompts(contents: Sequence[Any]) -> list[bytes]:
    """The prompt of each rollout as JSON."""
    try:  # fast path: usually every conversation is a text of the user, followed by the model's first turn
        if {content[1].role for content in contents} == {"assistant"}:
            first = [content[0] for content in contents]
            raws = [bytes(message.content) for message in first]
            if {raw[0] for raw in raws} == {_QUOTE} and "assistant" not in {message.role for message in first}:
                return raws
    except (AttributeError, IndexError, TypeError):  # some conversation has another shape
        pass
    return [_prompt(content) for content in contents]


def _prompt(content: Any) -> bytes:
    """The prompt of a rollout as JSON.

    It is the messages before the model's first turn (or their text, if there is only one), or the first of several
    texts.
    """
    if isinstance(content, list) and content and isinstance(content[0], Message):
        turns = []
        for message in content:
            if not isinstance(message, Message) or message.role == "assistant":
                break
            turns.append(message)
        if len(turns) == 1 and kind_of(turns[0].content) == "text":
            return bytes(turns[0].content)
        return _ENCODER.encode(turns)
    if isinstance(content, list):
        return _ENCODER.encode(content[0] if content else "")
    return _ENCODER.encode(content)


def _label(rows: RowBlock, size: int) -> None:
    """Add the step and the split, which are only in the file's name."""
    step = rows.memory.setdefault("step", step_in(os.path.basename(rows.path), _STEP))
    split = _SPLIT.search(os.path.basename(rows.path))
    for name, value in ((STEP, step), (SPLIT, split and split[1])):
        if value is not None:
            rows.labelled.add(name)
            rows.constant(name, value, size)


LAYOUT: Final = Layout(SYSTEM, FIELDS, take)


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The prompt and the completion of each rollout of a row."""
    return [_texts(content) for content in msgspec.json.decode(row["content"])]


def _texts(content: Any) -> dict[str, Any]:
    if isinstance(content, list) and content and all(isinstance(text, str) for text in content):
        return {"prompt": content[0], "completion": "".join(content[1:])}
    return conversation(content) if isinstance(content, list) else {"prompt": content}


def recognise(start: Beginning) -> bool:
    """Whether the first row has NeMo-RL's keys, ``content rewards idx``, and ``rewards`` is a list."""
    row = start.row
    return row is not None and {"content", REWARD, "idx"} <= row.keys() and kind_of(row[REWARD]) == "list"


ROLLOUTS: Final = Format(
    SYSTEM,
    partial(read_noted, "calipers.systems.nemo_rl:LAYOUT", ()),
    recognise,
    in_folders=True,
    line_extras=line_extras,
)
