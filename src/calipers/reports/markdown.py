"""A result as Markdown: tables that GitHub renders, in which no name can become a link, a mention or an image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from calipers.reports.figures import (
    EACH_BY_ITSELF,
    account,
    advice,
    counted,
    decimals,
    ends,
    exceptions,
    figure,
    over,
    percent,
    reason,
    remarks,
    size,
    stopped,
    whole_account,
)
from calipers.reports.page import described, described_of, named, title, total
from calipers.reports.result import Group, Result, Slice
from calipers.reports.safe import LONGEST, clean
from calipers.stats.estimate import Estimate
from calipers.stats.suite import Suite

Cells = tuple[str, ...]


def render(result: Result) -> str:
    """The result as a page of Markdown, ready for a pull request or a job summary."""
    blocks = [block for group in result.groups for block in _group(group, result)]
    blocks += [block for suite in result.suites for block in _suite(suite, result)]
    return "\n\n".join([*blocks, _origin(result)]) + "\n"


def code(text: str, longest: int | None = LONGEST) -> str:
    """Text as a code span, whatever it holds: nothing in it is rendered, and it fits into a table's cell.

    >>> code("pass@3"), code("a`b|c")
    ('`pass@3`', '``a`b\\\\|c``')
    """
    text = (clean(text, longest) or " ").replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _group(group: Group, result: Result) -> Iterator[str]:
    if name := title(group, result):
        yield f"### {code(name, None)}"
    yield _prose(filter(None, (whole_account(group.ledger, result.missing), exceptions(group.ledger))))
    if group.stop:
        yield code(stopped(group.stop), None)
    interval = f"{percent(result.confidence)} interval"
    if group.metrics:
        yield _table(
            ("metric", "value", "± stderr", interval, "n", "what it is"),
            (
                (_metric(name, e), *_figures(e), _prose([described_of(group, e), *remarks(e)]))
                for name, e in group.metrics.items()
            ),
        )
    for key, said in advice(group.metrics, group.variance):
        yield f"mean reward{key and f' ({code(key)})'}: {said}"
    for said in group.warnings:
        yield f"**Warning:** {_prose([said])}"
    for key, cut in group.breakdowns.items():
        if not cut:
            yield f"by {code(key)}: no rollouts"
            continue
        yield "\n".join(
            f"- {code(value)}: {_prose([account(part.ledger, result.missing)])}" for value, part in cut.items()
        )
        yield _table((f"by {code(key)}", "metric", "value", "± stderr", interval, "n", ""), _slices(cut))
        if len(cut) > 1:
            yield EACH_BY_ITSELF
    if group.economics:
        yield _table(
            ("economics", "value", "± stderr", interval, "n", "what it is"),
            (
                (_metric(name, e), *_figures(e), _prose([described(e), *remarks(e)]))
                for name, e in group.economics.items()
            ),
        )
    if group.totals:
        yield "total: " + ", ".join(f"{total(amount)} {code(name)}" for name, amount in group.totals.items())


def _suite(suite: Suite, result: Result) -> Iterator[str]:
    yield f"### {code(over(suite), None)}"
    yield ", ".join(map(code, suite.datasets))
    yield _table(
        ("over datasets", "metric", "value", "± stderr", f"{percent(result.confidence)} interval", "n", ""),
        (
            (kind, _metric(name, estimate), *_figures(estimate), _reasons(estimate))
            for name, means in suite.metrics.items()
            for kind, estimate in (("macro", means.macro), ("micro", means.micro))
        ),
    )
    yield "macro: every dataset counts alike; micro: every task does"


def _reasons(estimate: Estimate) -> str:
    return " ".join(code(said, None) for said in reason(estimate))  # it names a dataset


def _slices(cut: Mapping[str, Slice]) -> Iterator[Cells]:
    for name in next(iter(cut.values())).metrics:
        for value, part in cut.items():
            yield (code(value), _metric(name, part[name]), *_figures(part[name]), _prose(remarks(part[name])))


def _metric(name: str, estimate: Estimate) -> str:
    arrow = named(name, estimate)[len(clean(name)) :]
    return code(name) + arrow


def _figures(estimate: Estimate) -> Cells:
    places = decimals(estimate)
    value, stderr = figure(estimate.value, places), figure(estimate.stderr, places)
    return value, stderr, ends(estimate.interval, places), size(estimate)


def _prose(said: Iterable[str]) -> str:
    return clean("; ".join(said), None).replace("|", "\\|").replace("_", "\\_").replace("<", "&lt;")


def _table(head: Cells, rows: Iterable[Cells]) -> str:
    right = ("value", "± stderr")
    lines = [head, tuple("---:" if name in right else "---" for name in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _origin(result: Result) -> str:
    sources = ", ".join(
        f"{code(source.path, None)} ({source.format}, {counted(source.rollouts, 'rollout')})"
        for source in result.inputs[:3]
    )
    more = f" and {counted(len(result.inputs) - 3, 'file')} more" if len(result.inputs) > 3 else ""
    settings = f"dialect {code(result.dialect)}, missing {code(result.missing)}, seed {result.seed}"
    return f"{sources}{more}{'; ' if sources else ''}{settings}, digest {code(result.digest[:23])}"
