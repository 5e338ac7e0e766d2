r"""A document as LaTeX: every table with booktabs rules, for a paper; it needs \usepackage{booktabs}."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calipers.reports.document import Document, Glyphs, Name, Picture, Styled, Table, Text, Title
from calipers.reports.untrusted_text import clean

_ESCAPES: Final = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\char34{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$",
    "−": "$-$", "·": r"$\cdot$", "–": "--", "…": r"\ldots{}", "→": r"$\to$",
    "\N{REPLACEMENT CHARACTER}": "?",
}  # fmt: skip
_TABLE: Final = str.maketrans(_ESCAPES)


def render(document: Document) -> str:
    """The tables of a document, each with the title above it as its caption."""
    return "\n".join(_tables(document))


def _tables(document: Document) -> Iterator[str]:
    caption = ""
    yield r"% needs \usepackage{booktabs}"
    for block in document.blocks():
        if isinstance(block, Title):
            caption = _text(block.text if block.markdown is None else block.markdown)
        elif isinstance(block, Table) and block.only != "terminal":
            yield _table(block, caption)


def _table(table: Table, caption: str) -> str:
    indexes = [index for index, column in enumerate(table.columns) if column.only != "terminal"]
    columns = [table.columns[index] for index in indexes]
    heads = [_text(column.head if column.markdown is None else column.markdown) for column in columns]
    cells = [[row.cells[index] for index in indexes] for row in table.rows]
    rows = [["" if isinstance(cell, Picture) else _text(cell) for cell in row] for row in cells]
    kept = [at for at, head in enumerate(heads) if head or any(row[at] for row in rows)]
    alignments = "".join("l" if columns[at].align == "left" else "r" for at in kept)
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{caption}}}"] if caption else []),
        rf"\begin{{tabular}}{{{alignments}}}",
        r"\toprule",
        _row([heads[at] for at in kept]),
        r"\midrule",
        *(_row([row[at] for at in kept]) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    line = " & ".join(cells)
    # A row that begins with [ or *, also after blanks, would be read as an argument of the \\ before it.
    return f"{{}}{line} \\\\" if line.lstrip().startswith(("[", "*")) else f"{line} \\\\"


def _text(text: Text) -> str:
    if isinstance(text, tuple):
        return "".join(map(_text, text))
    if isinstance(text, Name):
        return escaped(clean(text.text, text.longest))
    if isinstance(text, Styled):
        return rf"\textbf{{{escaped(text.text)}}}" if text.style == "strong" and text.text else escaped(text.text)
    return escaped(text.plain if isinstance(text, Glyphs) else text)


def escaped(text: str) -> str:
    r"""Text on one line, escaped so that LaTeX reads no command in it.

    >>> escaped(r"100 % of $x_1^2 \input{a}")
    '100 \\% of \\$x\\_1\\textasciicircum{}2 \\textbackslash{}input\\{a\\}'
    """
    return re.sub(r"\s+", " ", clean(text, None).translate(_TABLE))
