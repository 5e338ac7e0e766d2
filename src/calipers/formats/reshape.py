"""JSON Lines with nested values or words: dotted paths as keys, and words as rewards.

``--columns task=meta.id`` names a value inside an object, ``--columns text=choices.0.text`` one inside a list, and
``--columns "task=tags.'eval.item'"`` one whose key has a dot.
``--truth yes=1,no=0`` gives words their rewards. Both are applied to the text of a block, line by line, before the
records are decoded, so that all rules and messages of the reader apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from calipers.formats.format import BAD, Raw, worths
from calipers.formats.frames import named, shown
from calipers.formats.lines import Block, LineError

WORTH: Final = "calipers: the reward that a word is worth"
"""The key of a line's reward if words are rewards."""

_ROW = msgspec.json.Decoder(dict[str, Raw])
_LIST = msgspec.json.Decoder(list[Raw])
_TEXT = msgspec.json.Decoder(str)
_KEY = msgspec.json.Encoder()

QUOTE: Final = "'"
_STEP: Final = re.compile(r"'([^']*)'|([^.]*)")


def path_steps(path: str) -> list[str]:
    """The keys of a path, between its dots; a key that has a dot itself is in quotes.

    >>> path_steps("meta.id"), path_steps("tags.'eval.item'")
    (['meta', 'id'], ['tags', 'eval.item'])
    """
    steps, at = [], 0
    while True:
        step = _STEP.match(path, at)
        if step is None or (step.end() < len(path) and path[step.end()] != "."):
            return path.split(".")  # a quote inside a key is part of it
        steps.append(step[1] if step[1] is not None else step[2])
        if step.end() >= len(path):
            return steps
        at = step.end() + 1


Reshape = Callable[[Block, int], Block]


def reshaping(names: Mapping[str, str]) -> tuple[Reshape | None, Mapping[str, str]]:
    """A function of a block of lines and the number of lines before it, and the names that apply to its result."""
    paths = {key: steps for key in names.values() if len(steps := path_steps(key)) > 1 or QUOTE in key}
    words = worths(names)
    if not paths and not words:
        return None, names
    reward = names.get("reward", "reward")

    def reshape(block: Block, before: int) -> Block:
        lines = bytes(block).split(b"\n")
        for at, line in enumerate(lines):
            if line and not line.isspace():
                lines[at] = _reshaped(line, before + at + 1, paths, reward, words)
        return b"\n".join(lines)

    return reshape, ({**names, "reward": WORTH} if words else names)


def _reshaped(
    line: bytes, number: int, paths: Mapping[str, list[str]], reward: str, words: Mapping[str, float]
) -> bytes:
    """One line with the values of the paths as additional keys, and its reward as a number."""
    try:
        row = _ROW.decode(line)
        added = {key: value for key, steps in paths.items() if key not in row and (value := _inside(row, steps))}
    except BAD:  # the reader has a better message
        return line
    if words and (raw := row.get(reward) or added.get(reward)):
        added[WORTH] = _worth(raw, number, reward, words)
    if not added:
        return line
    keys = b",".join(_KEY.encode(key) + b":" + bytes(raw) for key, raw in added.items())
    return line.rstrip()[:-1] + (b"," if row else b"") + keys + b"}"


def _inside(row: Mapping[str, Raw], steps: list[str]) -> Raw | None:
    """The value of a path: keys for objects, numbers for lists; None if there is no such value."""
    raw = row.get(steps[0])
    for step in steps[1:]:
        first = bytes(memoryview(raw)[:1]) if raw is not None else b""
        if first == b"{":
            raw = _ROW.decode(raw or b"").get(step)
        elif first == b"[" and step.isdecimal():
            values = _LIST.decode(raw or b"")
            raw = values[int(step)] if int(step) < len(values) else None
        else:
            return None
    return raw


def _worth(raw: Raw, number: int, key: str, words: Mapping[str, float]) -> Raw:
    """The reward, unchanged or by its word; LineError for an unknown word."""
    if bytes(memoryview(raw)[:1]) != b'"':
        return raw
    text = _TEXT.decode(raw)
    if (value := words.get(text.strip().lower())) is None:
        raise LineError(number, f"{named(key)} is {shown(text)}", f"expected a number, null or {known(words)}")
    return Raw(str(value).encode())


def known(words: Mapping[str, float]) -> str:
    """The words that are rewards, for an error."""
    return f"one of the words of --truth: {', '.join(words)}"
