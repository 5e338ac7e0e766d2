"""A document as Markdown that GitHub renders, in which no name can become a link, a mention or an image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from calipers.reports.document import (
    Block,
    Cell,
    Document,
    Glyphs,
    Instead,
    Name,
    Picture,
    Sentence,
    SentenceList,
    Styled,
    Table,
    Text,
    Title,
)
from calipers.reports.untrusted_text import LONGEST, clean, within

MOST_NAME = 2_000  # characters of a name that are processed
USUAL = "\\|_*`[]<"
_ENTITIES = {"<": "&lt;", "@": "&#64;"}
# GitHub links addresses, mentions of users (pass@k mentions nobody) and numbers of issues in plain text, too
_LINKS = re.compile(r"(?<![A-Za-z0-9])(?:@|#(?=[0-9]))|:(?=//)|(?<=www)(?=\.)", re.IGNORECASE)


def render(document: Document) -> str:
    """The document as Markdown, ready for a pull request or a job summary."""
    return "\n\n".join(_Page(document).blocks()) + "\n"


def code(text: str, longest: int | None = LONGEST) -> str:
    """Text as a code span that fits into a table cell; nothing in the text is rendered.

    >>> code("pass@3"), code("a`b|c")
    ('`pass@3`', '``a`b\\\\|c``')
    """
    text = (clean(text, longest) or " ").replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _short_names(cells: Sequence[Cell]) -> dict[Name, str]:
    """Each name in a column -> its shown text. Long names lose their middle, as related names differ at the end."""
    names = [cell for cell in cells if isinstance(cell, Name)]
    most = max((name.longest for name in names if name.longest is not None), default=0)
    cut = within([clean(_ends(name.text), None) if most else "" for name in names], max(most, 1))
    return {
        name: short if name.longest is not None else clean(name.text, None)
        for name, short in zip(names, cut, strict=True)
    }


def _ends(text: str) -> str:
    """A text without its middle if it has more than `MOST_NAME` characters."""
    return text if len(text) <= MOST_NAME else f"{text[: MOST_NAME // 2]}{text[-MOST_NAME // 2 :]}"


class _Page:
    """A renderer of one document as Markdown."""

    def __init__(self, document: Document) -> None:
        self._document = document
        signs = USUAL if document.escaped is None else document.escaped
        self._escapes = str.maketrans({sign: _ENTITIES.get(sign, f"\\{sign}") for sign in signs})

    def blocks(self) -> Iterator[str]:
        for block in self._document.blocks():
            yield from self._block(block)

    def _block(self, block: Block) -> Iterator[str]:
        if isinstance(block, SentenceList):
            outermost = min((sentence.indent for sentence in block.sentences), default=0)
            yield "\n".join(
                f"{'  ' * (sentence.indent - outermost)}- {text}"
                for sentence in block.sentences
                if (text := self._words(sentence))
            )
        elif isinstance(block, Table):
            if block.only != "terminal":
                yield self._table(block)
        elif isinstance(block, Title | Sentence) and (text := self._words(block)):
            yield f"{'#' * block.level} {text}" if isinstance(block, Title) else text

    def _words(self, block: Title | Sentence) -> str:
        words = self._text(block.text if block.markdown is None else block.markdown)
        label = block.label.strip() if words and isinstance(block, Sentence) else ""
        return f"{self._escaped(label)}: {words}" if label else words

    def _text(self, text: Text) -> str:
        if isinstance(text, tuple):
            return "".join(map(self._text, text))
        if isinstance(text, Name):
            return code(text.text, text.longest)
        if isinstance(text, Styled):
            return f"**{self._escaped(text.text)}**" if text.style == "strong" else self._escaped(text.text)
        if isinstance(text, Glyphs):
            return self._escaped(text.plain)
        return self._escaped(text)

    def _escaped(self, text: str) -> str:
        text = clean(text, None).translate(self._escapes)
        if self._document.escaped is None:
            text = _LINKS.sub(lambda match: f"{match[0]}\N{WORD JOINER}", text)
        return text

    def _table(self, table: Table) -> str:
        indexes = [index for index, column in enumerate(table.columns) if column.only != "terminal"]
        columns = [table.columns[index] for index in indexes]
        heads = [self._text(column.head if column.markdown is None else column.markdown) for column in columns]
        right = [self._document.flush_right and column.align != "left" for column in columns]
        lines = [heads, ["---:" if flush else "---" for flush in right]]
        if table.notes_head is not None:
            lines = [[*heads, self._text(table.notes_head)], [*lines[1], "---"]]
        names = {index: _short_names([row.cells[index] for row in table.rows]) for index in indexes}
        for row in table.rows:
            cells = [
                code(names[index][cell], None)
                if isinstance(cell := row.cells[index], Name)
                else self._cell(cell, table.columns[index].verbatim)
                for index in indexes
            ]
            notes = "; ".join(note for note in row.notes if not isinstance(note, Instead))
            words = self._text(notes if row.markdown is None else row.markdown)
            if table.notes_head is not None:
                cells.append(words)
            elif words:
                cells[-1] = " ".join(filter(None, (cells[-1], words)))
            lines.append(cells)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _cell(self, cell: Cell, verbatim: bool) -> str:
        if isinstance(cell, Picture):
            return ""
        return cell if verbatim and isinstance(cell, str) else self._text(cell)
