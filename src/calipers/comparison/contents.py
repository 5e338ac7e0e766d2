"""What the records say beside their numbers: the prompt of each task, and the answers of some.

The table of rollouts keeps no texts, so that the files are read once more, and only what is wanted kept.
Where a source says nothing, is a pipe, or is of a kind that keeps no texts, there is nothing here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from calipers.names import FORMATS
from calipers.readers.read import Input
from calipers.readers.texts import BAD, Raw, Text

Key = tuple[str | None, ...]  # agent, model, dataset
LONGEST = 4_000  # characters of an answer that are kept
DEEPEST = 32  # lists and objects within each other in which a text is looked for


@dataclass(slots=True)
class Said:
    """What one group of rollouts says."""

    prompts: dict[str, bytes] = field(default_factory=dict)  # task -> hash of its prompt
    documents: dict[str, bytes] = field(default_factory=dict)  # task -> hash of the document it is made of
    answers: dict[str, tuple[float, str]] = field(default_factory=dict)  # task -> (sample, text) of its first sample


def contents(
    inputs: Sequence[Input], keys: Sequence[Key], columns: Mapping[str, str], wanted: Mapping[Key, Collection[str]]
) -> dict[Key, Said]:
    """What the files of one side say: prompts of all tasks, answers of the wanted ones, by group."""
    found = {key: Said() for key in keys}
    owner: dict[Key, Key | None] = {}
    every = frozenset(task for tasks in wanted.values() for task in tasks)
    for one in inputs:
        for text in _texts(one, columns, every):
            who = text[:3]
            if who not in owner:
                owner[who] = _owner(who, keys)
            key = owner[who]
            if key is None:
                continue
            said, task = found[key], text.task
            if task not in said.prompts and (prompt := _prompt(text.prompt)) is not None:
                said.prompts[task] = _hash(prompt)
            if text.document and task not in said.documents:
                said.documents[task] = text.document.encode()
            # of several attempts at one sample, the later record is the later attempt
            first = task not in said.answers or text.sample <= said.answers[task][0]
            if first and task in wanted.get(key, ()) and (answer := _answer(text)):
                said.answers[task] = text.sample, answer[:LONGEST]
    return found


def spoken(value: Any, deepest: int = DEEPEST) -> str | None:
    """What a JSON value says: a text, the last text of messages or parts, a number as it is written.

    >>> spoken([{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": [{"text": "42"}]}])
    '42'
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        inside = reversed(value)
    elif isinstance(value, dict):
        inside = iter([value.get(key) for key in ("content", "text", "output")])
    else:
        return json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
    texts = (spoken(one, deepest - 1) for one in inside) if deepest else iter(())
    return next((text for text in texts if text is not None), None)


def _texts(one: Input, columns: Mapping[str, str], wanted: frozenset[str]) -> Iterator[Text]:
    texts = FORMATS.load(one.format).texts
    if texts is not None and (os.path.isfile(one.path) or os.path.isdir(one.path)):  # a pipe gives its bytes once
        yield from texts(one.path, columns, wanted)


def _owner(who: Key, keys: Sequence[Key]) -> Key | None:
    """The group that a record belongs to, by what it says of itself; None where several may be meant."""
    found = [key for key in keys if all(said is None or said == own for said, own in zip(who, key, strict=True))]
    exact = [key for key in found if key == who]
    return (exact or found)[0] if len(exact or found) == 1 else None


def _prompt(held: Any) -> str | None:
    """The text of a prompt: what the only message says, or all of them as they are; None without one."""
    value = _value(held)
    if value is None or value == "":
        return None
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    text = spoken(alone) if isinstance(alone, (str, dict)) else None
    return _written(value) if text is None else text


def _answer(text: Text) -> str | None:
    said = (spoken(_value(held)) for held in (text.answer, text.completion))
    return next((one for one in said if one is not None), None)


def _value(held: Any) -> Any:
    """A value, decoded where that was left to be done; None for what is no JSON."""
    if not isinstance(held, Raw):
        return held
    try:
        return msgspec.json.decode(held) if held else None
    except BAD:
        return None


def _written(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return None


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()
