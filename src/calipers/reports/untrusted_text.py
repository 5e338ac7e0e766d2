"""Text made safe for its output: no harmful characters, and no characters that the terminal cannot show."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TextIO

LONGEST = 60
"""Characters of a name in a table; the rest is cut off."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
_JOINERS = "\u200c\u200d"  # letters and emoji that need them are no trick
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn"}  # control, format (bidi among them), half characters, private, unassigned
_ASCII = str.maketrans({**dict(zip("├┤─●·│┼↑↓–…±▲▼−" + BROKEN, "||-o.|+^v-~ ><-?", strict=True)), "→": "to"})
TAIL = 8  # columns at the end of a name that are kept: models of one family differ there


def clean(text: str, longest: int | None = LONGEST) -> str:
    """The text on one line, each harmful character replaced by a mark, cut to ``longest`` characters.

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
    """The same JSON with every harmful character inside its strings written as an escape.

    JSON text outside of strings holds nothing but ASCII, so that what is replaced stands in one.

    >>> safe_json('{"a": "\\x9b"}\\n')
    '{"a": "\\\\u009b"}\\n'

    So is the second sign of ``##[``, with which a command for a CI runner begins.
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


def harmless(text: str, instead: str = "# #[") -> str:
    """Lines that hold no command for GitHub's runner: none begins with ``::``, none holds ``##[``.

    >>> harmless("model ##[error]x"), harmless("  ::stop-commands::x")
    ('model # #[error]x', '  : :stop-commands::x')
    """
    return _uncommanded(text).replace("##[", instead)


def guarded(text: str) -> str:
    """Text as it is printed: no line begins with ``::``, and in a job of GitHub's runner none holds ``##[``.

    Other runners read the first kind, too, so that it is kept out of every output.

    >>> guarded("::error::x\\n a::b")
    ': :error::x\\n a::b'
    """
    return harmless(text) if on_github() else _uncommanded(text)


def on_github() -> bool:
    """Whether GitHub's runner reads what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _uncommanded(text: str) -> str:
    return re.sub(r"^(\s*):(?=:)", r"\1: ", text, flags=re.MULTILINE) if "::" in text else text


def plain(text: str) -> str:
    """The text in ASCII, for a terminal that knows no more: our own signs by their look, others as ``?``.

    >>> plain("├─●┤ ↑"), plain("… 3 more: --all")
    ('|-o| ^', '... 3 more: --all')
    """
    text = re.sub(r"^… ", "... ", text, flags=re.MULTILINE)  # elsewhere a sign keeps its width
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can do more than print."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def without_middle(texts: Sequence[str], most: int) -> list[str]:
    """Names that take so many columns at most, each without its middle; longer ones where two would look alike.

    >>> without_middle(["Claude-3.5-Sonnet-20241022", "GPT-4"], 21)
    ['Claude-3.5-S…20241022', 'GPT-4']
    """
    longest = max(map(width, texts), default=0)
    for room in range(max(most, TAIL + 2), longest + 1):
        short = [_without_middle(text, room) for text in texts]
        if len(set(short)) == len(set(texts)):
            return short
    return list(texts)


def within(texts: Sequence[str], most: int) -> list[str]:
    """Names that take so many columns at most: as `without_middle` has them, where no two look alike.

    Those that differ only in what was cut out keep the piece in which they begin to differ; a number stands for it
    where that is still the same.

    >>> within(["organisation-aa-instruct-v2", "organisation-bb-instruct-v2"], 20)
    ['organ…aa-in…truct-v2', 'organ…bb-in…truct-v2']
    """
    room = max(most, TAIL + 2)
    cut = {text: _without_middle(text, room) for text in texts}
    alike: dict[str, list[str]] = {}
    for text, short in cut.items():
        alike.setdefault(short, []).append(text)
    taken = set(alike)
    for group in alike.values():
        if len(group) > 1:
            for text, short in zip(group, _told_apart(group, room, taken), strict=True):
                cut[text] = short
                taken.add(short)
    return [cut[text] for text in texts]


def _told_apart(texts: Sequence[str], most: int, taken: Collection[str]) -> list[str]:
    """Names with the piece that tells them apart between their head and their tail."""
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
    """The characters that so many columns hold."""
    taken = 0
    for number, character in enumerate(text):
        taken += _columns(character)
        if taken > most:
            return text[:number]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def note_line(note: str) -> str:
    """A note with the word before it, harmless; a warning says itself what it is.

    >>> note_line("2 files were passed over"), note_line("warning: 30 % are missing")
    ('note: 2 files were passed over', 'warning: 30 % are missing')
    """
    text = clean(note, None)
    return text if text.startswith("warning: ") else f"note: {text}"
