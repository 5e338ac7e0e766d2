"""Code in a model's text: what stands between the fences of Markdown."""

from __future__ import annotations

import re
from typing import Final

FENCE: Final = re.compile(r"( {0,12})(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*")
PYTHON: Final = frozenset({"py", "python", "python3"})


def python_in(text: str) -> str | None:
    """The last block marked as Python, else the last unmarked one, else the whole text if it has no fences.

    A block that is never closed goes on to the end. None when there is nothing but white space, or only
    blocks of other languages.

    >>> python_in("Try:\\n```python\\nprint(1)\\n```\\nIt prints\\n```\\n1\\n```\\n")
    'print(1)\\n'
    """
    blocks = fenced(text)
    if not blocks:
        return text if text.strip() else None
    for wanted in (PYTHON, {""}):
        found = [code for language, code in blocks if language in wanted and code.strip()]
        if found:
            return found[-1]
    return None


def fenced(text: str) -> list[tuple[str, str]]:
    """Every fenced block as (language, code), in order; the indentation of its fence is taken off."""
    blocks: list[tuple[str, list[str]]] = []
    opened: re.Match[str] | None = None
    for line in text.splitlines(keepends=True):
        fence = FENCE.fullmatch(line.rstrip())
        if opened is None:
            if fence:
                opened = fence
                blocks.append((fence[3].lower(), []))
        elif fence and not fence[3] and fence[2].startswith(opened[2]):
            opened = None
        else:
            indent = opened[1]
            blocks[-1][1].append(line.removeprefix(indent))
    return [(language, "".join(lines)) for language, lines in blocks]
