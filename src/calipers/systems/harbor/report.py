"""What Harbor prints of a job, eval by eval: a line of numbers, how often each reward was given, each exception raised.

Where an eval has several rewards each value stands beside the reward it is of; Harbor mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from calipers.reports.markdown import code
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean, width
from calipers.systems.system import OwnPage

KEY: Final = "harbor"
MOST: Final = 20  # rows of a table of counts

Cells = tuple[str, ...]
Table = Sequence[Cells]  # the head, then rows


def own_page(result: Result, shape: str, paths: Sequence[str], trust: bool) -> OwnPage | None:
    """What Harbor prints of a result, beneath our own table."""
    if shape not in ("table", "md"):
        return None
    return OwnPage(render_markdown(result) if shape == "md" else f"\nHarbor's own table\n{render(result)}")


def render(result: Result) -> str:
    """Harbor's tables of every eval, as plain lines; nothing for a result that is not Harbor's."""
    blocks = []
    for group in _evals(result):
        blocks += [clean(_title(group), None), *(_lines(table) for table in _tables(group))]
    return "".join(f"\n{block}\n" for block in blocks)


def render_markdown(result: Result) -> str:
    """The same as Markdown, in which no name can become anything else."""
    blocks = []
    for group in _evals(result):
        blocks += [f"### {code(_title(group), None)}", *(_markdown(table) for table in _tables(group))]
    return "".join(f"\n{block}\n" for block in blocks)


def _evals(result: Result) -> Iterator[Group]:
    return (group for group in result.groups if KEY in group.own)


def _title(group: Group) -> str:
    """Dataset, agent and model, as far as they are known, in Harbor's order."""
    return " • ".join(part for part in (group.dataset or "adhoc", group.agent, group.model) if part)


def _tables(group: Group) -> Iterator[Table]:
    """The numbers, the rewards and the exceptions; of what there is none, no table."""
    numbers = group.own[KEY]
    metrics = [(_heading(n, len(numbers["metrics"]), name), value) for n, name, value in _values(numbers["metrics"])]
    ladder = [(f"Pass@{k}", value) for k, value in numbers["pass_at_k"].items()]
    columns = [("Trials", numbers["n_trials"]), ("Exceptions", numbers["n_errors"]), *metrics, *ladder]
    yield [tuple(name for name, _ in columns), tuple(_figure(value) for _, value in columns)]
    several = len(numbers["reward_stats"]) > 1
    rewards = [
        (f"{name} {value}" if several else value, str(count))
        for name, values in numbers["reward_stats"].items()
        for value, count in values.items()
    ]
    for title, rows in (("Reward", rewards), ("Exception", _counts(numbers["exception_stats"]))):
        if rows:
            more = [(f"and {len(rows) - MOST} more", "")] if len(rows) > MOST else []
            yield [(title, "Count"), *rows[:MOST], *more]


def _values(metrics: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, Any]]:
    return ((number, name, value) for number, values in enumerate(metrics, 1) for name, value in values.items())


def _heading(number: int, metrics: int, name: str) -> str:
    shown = name.replace("_", " ").title()
    return shown if metrics == 1 else f"Metric {number}: {shown}"


def _counts(counts: Mapping[str, int]) -> list[Cells]:
    return [(name, str(count)) for name, count in counts.items()]


def _figure(value: Any) -> str:
    """Three decimals for what is no integer; a dash for what is no number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _lines(table: Table) -> str:
    """Columns side by side: the first set to the left, numbers to the right."""
    rows = [tuple(map(clean, row)) for row in table]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    named = rows[0][-1] == "Count"  # its first column holds words
    lines = []
    for row in rows:
        pads = [" " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        cells = [pad + cell for pad, cell in zip(pads, row, strict=True)]
        lines.append("  ".join([row[0] + pads[0], *cells[1:]] if named else cells).rstrip())
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    head, *rows = [tuple(map(code, row)) for row in table]
    rule = tuple("---" if head[-1] == "`Count`" and not n else "---:" for n in range(len(head)))
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
