"""HTML and SVG as values: text is escaped here and nowhere else.

Texts of models and files are untrusted. Whatever is not `Markup` is escaped, and characters that could hide or reorder
text are made visible.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

JOINERS = "\u200c\u200d"  # harmless format characters: some scripts and emoji need them
# control, format (such as bidi), surrogate, private use, unassigned; line and paragraph separators
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_IN_SCRIPT = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
_HIDDEN = re.compile(  # controls, direction marks, other invisible characters, surrogates
    "[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_EMPTY = frozenset(("br", "col", "input", "link", "meta", "hr"))  # elements without an end tag


class Markup(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
"""The content of an element: text, which is escaped, `Markup`, or several children; None for no content."""


def visible(value: str) -> str:
    """The text with control, bidi and ANSI characters made visible; line breaks and tabs stay.

    >>> visible("a\\x1b[31mb\\u202ec\\r\\nd")
    'a␛[31mb⟨U+202E⟩c\\nd'
    """
    if value.isascii() and value.isprintable():
        return value
    return "".join(map(_seen, value.replace("\r\n", "\n")))


def _seen(character: str) -> str:
    if character in "\n\t" or character in JOINERS or unicodedata.category(character) not in _HARMFUL:
        return character
    return "␛" if character == "\x1b" else f"⟨U+{ord(character):04X}⟩"


def text(value: str | int) -> Markup:
    """A text as HTML, escaped for elements and quoted attributes alike.

    >>> text("a < b & \\u202ec")
    'a &lt; b &amp; ⟨U+202E⟩c'
    """
    if isinstance(value, Markup):
        return value
    return Markup(visible(str(value)).translate(_ESCAPES))


def attr(value: str | int | float) -> str:
    """The value of an attribute, in quotes.

    >>> attr('say "x"')
    '"say &quot;x&quot;"'
    """
    return f'"{text(str(value))}"'


def element(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element with its children and attributes.

    An underscore at the end of an attribute's name is dropped; others become hyphens. An attribute that is None or
    False is left out, and one that is True has no value.

    >>> element("a", "x < y", href="#1", class_="term", data_k=None)
    '<a href="#1" class="term">x &lt; y</a>'
    """
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f"{key}={attr(value)}")
    opening = f"<{' '.join(parts)}>"
    if tag in _EMPTY:
        return Markup(opening)
    return Markup(f"{opening}{joined(children)}</{tag}>")


def joined(children: Child) -> Markup:
    """The children concatenated, with texts escaped."""
    if children is None:
        return Markup("")
    if isinstance(children, (str, int)):
        return text(children)
    return Markup("".join(map(joined, children)))


def island(name: str, value: Any) -> Markup:
    """A script element with a value as JSON; no text in the value can end the element."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)
    content = _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", content)
    return Markup(f'<script type="application/json" id="{name}">{content}</script>')


def name(value: str, most: int = 48) -> Markup:
    """An untrusted name: isolated from the direction of the text around it, never wrapped, shortened if long."""
    shown = cut(value, most)
    return element("bdi", shown, class_="name", title=None if shown == value else value)


def cut(value: str, most: int) -> str:
    """A name without its middle if it is longer than ``most``, because names differ at both ends.

    >>> cut("Claude-3.5-Sonnet-20241022", 22)
    'Claude-3.5-So…20241022'
    """
    return value if len(value) <= most else f"{value[: most - 9]}…{value[-8:]}"


def one_line(words: str, longest: int) -> str:
    """A text on one line of at most ``longest`` characters, with line breaks as ⏎."""
    line = visible(words[: 4 * longest]).strip().replace("\n", " ⏎ ").replace("\t", " ")
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def identifier(value: str) -> str:
    """A text as the id of an element: letters, digits, underscores and hyphens, different for different texts.

    >>> identifier("pass@4"), identifier("pass^4")
    ('pass-40-4', 'pass-5e-4')
    """
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):x}-", value)
