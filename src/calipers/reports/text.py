"""A result as text: coloured on a terminal, plain aligned lines of the same content anywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TextIO

from calipers.reports.page import PLAIN_WIDTH, Line, page
from calipers.reports.result import Result
from calipers.reports.safe import guarded, is_terminal, plain

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {
    "title": "bold",
    "heading": "bold",
    "ledger": "",
    "head": "dim",
    "rule": "dim",
    "name": "bold",
    "value": "bold cyan",
    "figure": "",
    "note": "dim",
}


def render(result: Result, *, columns: int = PLAIN_WIDTH, ascii_only: bool = False) -> str:
    """The result as plain lines; the same result gives the same text, wherever it is printed."""
    return plain_lines(page(result, columns), ascii_only)


def show(result: Result, stream: TextIO) -> None:
    """Print a result: with colours to a terminal, as plain lines to a file or a pipe."""
    print_lines(partial(page, result), stream)


def plain_lines(lines: Iterable[Line], ascii_only: bool) -> str:
    """Lines without their styles."""
    text = "".join("".join(piece for piece, _ in line).rstrip() + "\n" for line in lines)
    return plain(text) if ascii_only else text


def print_lines(laid_out: Callable[[int], Iterable[Line]], stream: TextIO) -> None:
    """Print lines that are laid out for a number of columns: coloured on a terminal, else plain."""
    ascii_only = not speaks_unicode(stream)
    if ascii_only or not is_terminal(stream):
        stream.write(encodable(guarded(plain_lines(laid_out(PLAIN_WIDTH), ascii_only)), stream))
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    for line in laid_out(console.width):
        console.print(coloured(line), soft_wrap=True)


def coloured(line: Line) -> Text:
    """A line for a terminal, its pieces in their styles."""
    from rich.text import Text

    text = Text()
    for piece, style in line:
        if style == "chart":
            for part in re.findall(r"·+|[├─┤]+|●|\s+", piece):
                text.append(part, {"·": "dim", "●": "bold cyan"}.get(part[0], "cyan"))
        else:
            text.append(piece, _STYLES[style])
    text.rstrip()
    return text


def speaks_unicode(stream: TextIO) -> bool:
    """Whether a stream takes more than ASCII."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return encoding.startswith("utf")


def encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream cannot encode replaced, so that no name can stop the report."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, "replace").decode(encoding)
