"""A gate as plain aligned lines and as Markdown: the same checks, the gate's answer last or first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from calipers.reports.figures import counted
from calipers.reports.gate import CRITICAL, Check, Gate
from calipers.reports.markdown import code
from calipers.reports.page import PLAIN_WIDTH
from calipers.reports.safe import LONGEST, clean, width

_BETWEEN = "  "
_WORDS = {"passed": "passed", "failed": "FAILED", "undefined": "NO ANSWER"}


def render(gate: Gate) -> str:
    """The checks in a table, what must be said of each under it, and what the gate says."""
    heads, rows = _columns(gate)
    widths = _widths(heads, rows)
    below = sum(widths) + len(_BETWEEN) * (len(widths) - 1) > PLAIN_WIDTH
    if below:  # the interval stands under its row where there is no room beside it
        at = len(heads) - 2
        heads, *rows = ([*row[:at], *row[at + 1 :]] for row in (heads, *rows))
        widths = _widths(heads, rows)
    lines = [_line(heads, widths), "─" * (sum(widths) + len(_BETWEEN) * (len(widths) - 1))]
    for check, row in zip(gate.checks, rows, strict=True):
        lines.append(_line(row, widths))
        interval = [f"{check.level} {check.ends}"] if below and check.interval else []
        lines += textwrap.wrap(
            "; ".join([*interval, *_said(check)]), PLAIN_WIDTH, initial_indent="  ", subsequent_indent="    ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join([*lines, "", f"gate {gate.sentence}"]) + "\n"


def render_markdown(gate: Gate) -> str:
    """The same for a pull request or a job's summary; no text in it is rendered as anything but text."""
    heads, _ = _columns(gate)
    lines = [heads, ["---"] * len(heads)]
    for check in gate.checks:
        cells = [_WORDS[check.word], *([check.tier] if "tier" in heads else [])]
        cells += [code(check.result, None)] if "result" in heads else []
        cells += [code(check.title or "(unnamed)", 200)] if "of" in heads else []
        cells += [code(check.require, None), check.shown, check.ends, _size(check)]
        lines.append([*cells[:-1], " ".join([cells[-1], *(code(said, None) for said in _said(check))]).strip()])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"### Gate {gate.sentence}\n\n{table}\n"


def _columns(gate: Gate) -> tuple[list[str], list[list[str]]]:
    """The heads and the cells; columns in which all would say the same are left out."""
    checks = gate.checks
    tiers = any(check.tier != CRITICAL for check in checks)
    results = len({check.result for check in checks}) > 1
    groups = len({(check.result, check.title) for check in checks}) > len({check.result for check in checks})
    heads = ["", *(["tier"] if tiers else []), *(["result"] if results else []), *(["of"] if groups else [])]
    levels = {check.level for check in checks if check.interval}
    heads += ["requirement", "value", levels.pop() if len(levels) == 1 else "interval", "n"]
    rows = []
    for check in checks:
        row = [_WORDS[check.word], *([check.tier] if tiers else [])]
        row += [_short(check.result)] if results else []
        row += [_short(check.title) or "(unnamed)"] if groups else []
        rows.append([*row, clean(check.require, 100), check.shown, check.ends, _size(check)])
    return heads, rows


def _short(name: str) -> str:
    """A name without its middle, where it is long: paths begin alike, and models of one family, too."""
    return clean(name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-LONGEST // 2 :]}", None)


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(width(row[place]) for row in (heads, *rows)) for place in range(len(heads))]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (wide - width(cell)) for cell, wide in zip(cells, widths, strict=True))
    return _BETWEEN.join(padded).rstrip()


def _said(check: Check) -> Iterator[str]:
    if check.why:
        yield clean(check.why, None)
    if check.remark:
        yield clean(check.remark, None)


def _size(check: Check) -> str:
    said = [counted(check.tasks, "task")] if check.tasks is not None else []
    said += [f"{counted(check.gaps, 'gap')}"] if check.gaps else []
    return ", ".join(said)
