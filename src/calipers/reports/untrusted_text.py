"""Make text safe to output: without harmful characters, and without characters that the terminal cannot show."""

from __future__ import annotations

import os
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TextIO

LONGEST = 60
"""Characters of a name in a table; the rest is cut off."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
_JOINERS = "\u200c\u200d"  # harmless format characters: some scripts and emoji need them
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn"}  # control, format (such as bidi), surrogate, private use, unassigned
_ASCII = str.maketrans({**dict(zip("├┤─●·│┼↑↓–…±▲▼−" + BROKEN, "||-o.|+^v-~ ><-?", strict=True)), "→": "to"})
TAIL = 8  # columns at the end of a name that are always kept, because models of one family differ there


def clean(text: str, longest: int | None = LONGEST) -> str:
    """The text on one line, with harmful characters replaced by `BROKEN`, cut to ``longest`` characters.

    >>> clean("a\\x1b[31mb\\u202ec\\nd") == f"a{BROKEN}[31mb{BROKEN}c d"
    True
    """
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    shown = ""
    for character in text:
        if character.isspace():
            shown += " "
        else:
            harmful = unicodedata.category(character) in _HARMFUL and character not in _JOINERS
            shown += BROKEN if harmful else character
    return shown


def safe_json(document: str) -> str:
    """The same JSON with every harmful character escaped.

    Outside of its strings JSON text is ASCII, so every replaced character is inside a string.

    >>> safe_json('{"a": "\\x9b"}\\n')
    '{"a": "\\\\u009b"}\\n'

    The second character of ``##[``, which begins a command for a CI runner, is escaped, too.
    """
    document = document.replace("##[", "#\\u0023[")
    if document.isascii() and "\x7f" not in document:
        return document
    return re.sub(r"[^\n\x20-\x7e]", _escape, document)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if clean(character) == character:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def guarded(text: str) -> str:
    """Text that is safe to print: no line begins with ``::``, and in a GitHub job none contains ``##[``.

    Other CI runners, too, read lines that begin with ``::``, so these are changed in every output.

    >>> guarded("::error::x\\n a::b")
    ': :error::x\\n a::b'
    """
    if "::" in text:
        text = re.sub(r"^(\s*):(?=:)", r"\1: ", text, flags=re.MULTILINE)
    return text.replace("##[", "# #[") if on_github() else text


def on_github() -> bool:
    """Whether GitHub's runner reads the output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def plain(text: str) -> str:
    """The text in ASCII: our own drawing characters become similar ASCII characters, all others ``?``.

    >>> plain("├─●┤ ↑"), plain("… 3 more: --all")
    ('|-o| ^', '... 3 more: --all')
    """
    text = re.sub(r"^… ", "... ", text, flags=re.MULTILINE)  # an ellipsis elsewhere becomes one character
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that supports control sequences; None is a closed one."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def width(text: str) -> int:
    """The width of a text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def without_middle(texts: Sequence[str], most: int) -> list[str]:
    """Names without their middle, at most ``most`` columns wide; wider if two of them would otherwise be equal.

    >>> without_middle(["Claude-3.5-Sonnet-20241022", "GPT-4"], 21)
    ['Claude-3.5-S…20241022', 'GPT-4']
    """
    names, widest = set(texts), max(map(width, texts), default=0)
    if widest <= most:
        return [*texts]
    rooms = range(max(most, TAIL + 2), widest + 1)

    def are_distinct(room: int) -> bool:
        return len({_without_middle(text, room) for text in names}) == len(names)

    room = max(most, TAIL + 2) + bisect_left(rooms, True, key=are_distinct)  # more room never makes two names equal
    return [_without_middle(text, room) for text in texts]


def within(texts: Sequence[str], most: int) -> list[str]:
    """Names without their middle, at most ``most`` columns wide, and still distinct.

    Names that differ only in their middle keep the piece where they begin to differ, or get a number in its place if
    these pieces are still equal.

    >>> within(["organisation-aa-instruct-v2", "organisation-bb-instruct-v2"], 20)
    ['organ…aa-in…truct-v2', 'organ…bb-in…truct-v2']
    """
    room = max(most, TAIL + 2)
    cut = {text: _without_middle(text, room) for text in texts}
    same_cut: dict[str, list[str]] = {}
    for text, short in cut.items():
        same_cut.setdefault(short, []).append(text)
    taken = set(same_cut)
    for group in same_cut.values():
        if len(group) > 1:
            for text, short in zip(group, _distinct(group, room, taken), strict=True):
                cut[text] = short
                taken.add(short)
    return [cut[text] for text in texts]


def _distinct(texts: Sequence[str], most: int, taken: Collection[str]) -> list[str]:
    """Names that keep, between their head and their tail, the piece where they begin to differ."""
    first = next(at for at, letters in enumerate(zip_longest(*texts)) if len(set(letters)) > 1)
    for size in range((most - TAIL - 2) // 2, most - TAIL - 1):
        pieces = [_first_columns(text[first:], size) for text in texts]
        short = [_around(text, piece, most) for text, piece in zip(texts, pieces, strict=True)]
        if len({*short, *taken}) == len(texts) + len(taken):
            return short
    return [_around(text, f"{number}", most) for number, text in enumerate(texts, 1)]


def _around(text: str, piece: str, most: int) -> str:
    tail = _first_columns(text[::-1], TAIL)[::-1]
    head = _first_columns(text, max(most - width(piece) - width(tail) - 2, 0))
    return f"{head}…{piece}…{tail}"


def _without_middle(text: str, most: int) -> str:
    if width(text) <= most:
        return text
    tail = _first_columns(text[::-1], TAIL)[::-1]
    return f"{_first_columns(text, most - width(tail) - 1)}…{tail}"


def _first_columns(text: str, most: int) -> str:
    """The beginning of a text that is at most ``most`` columns wide."""
    columns = 0
    for index, character in enumerate(text):
        columns += _columns(character)
        if columns > most:
            return text[:index]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def note_line(note: str) -> str:
    """A note as a line of safe text, with "note: " before it unless it begins with "warning: ".

    >>> note_line("2 files were passed over"), note_line("warning: 30 % are missing")
    ('note: 2 files were passed over', 'warning: 30 % are missing')
    """
    text = clean(note, None)
    return text if text.startswith("warning: ") else f"note: {text}"
