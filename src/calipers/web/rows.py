"""Rows of numbers: a table of values with their intervals on one axis, and what the pictures say in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from calipers.metrics.cards import CARDS
from calipers.reports.figures import counted, figure
from calipers.reports.plain_words import plain_why
from calipers.reports.sentences import MINUS, duration, level, money, places, to
from calipers.rollouts.ledger import Ledger
from calipers.stats.estimate import Estimate
from calipers.web import draw
from calipers.web.cards import term
from calipers.web.draw import Scale
from calipers.web.markup import Markup, element

SHOWN_IN: Final[Mapping[str, Callable[[float], str]]] = {"USD": money, "s": duration}
"""Unit -> how its numbers are written."""


def interval_table(caption: str, head: str, confidence: float, scale: Scale, rows: Iterable[Markup]) -> Markup:
    """A table of values with their intervals on one axis; all such tables of a page share their columns."""
    columns = [
        element("th", head, scope="col", role="columnheader", class_="name-cell"),
        element("th", "value", scope="col", role="columnheader", class_="value-cell"),
        element(
            "th",
            draw.axis_head(scale),
            element("span", "picture", class_="hidden"),
            scope="col",
            role="columnheader",
            class_="axis-cell",
        ),
        element("th", level(confidence), scope="col", role="columnheader", class_="interval-cell"),
        element("th", element("span", "tasks", class_="hidden"), scope="col", role="columnheader", class_="n-cell"),
    ]
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", columns, role="row"), role="rowgroup"),
        element("tbody", list(rows), role="rowgroup"),
        class_="intervals",
        role="table",
    )


def estimate_row(
    head: Sequence[Markup | str | None],
    estimate: Estimate,
    ledger: Ledger,
    scale: Scale | None,
    digits: int,
    *,
    card: str | None,
    label: str,
    whole: float | None = None,
    tone: draw.Tone = "blue",
    extra: bool = False,
) -> Markup:
    """One row of such a table. ``extra`` rows are folded until they are asked for. Without a card no number opens one.

    Without a scale the number has a unit of its own, and no place on the table's axis.
    """
    known = estimate.value is not None and math.isfinite(estimate.value)
    value = estimate.value if known else None
    why = "" if estimate.interval else no_interval(estimate)
    said = described(label, estimate, ledger)
    if scale is None:
        unit = unit_of(estimate)
        show = SHOWN_IN.get(unit, partial(figure, places=digits))
        picture: Markup | str = "" if unit in SHOWN_IN else element("small", unit)
    else:
        show = partial(figure, places=digits)
        picture = draw.interval_row(
            value, estimate.interval, estimate.bounds, scale, label=said, whole=whole, tone=tone, why=why
        )
    shown = show(value) if value is not None else figure(None)
    interval: Markup | str = element("span", why or "no value", class_="why")
    if estimate.interval:
        interval = " to ".join(show(end).replace("-", MINUS) for end in estimate.interval)
    tasks: list[Markup | str] = [counted(estimate.tasks, "task")]
    if estimate.undefined_tasks:
        k = estimate.made.k
        few = (
            f"{estimate.undefined_tasks:,} have fewer than {k} samples"
            if k and k > 1
            else f"{estimate.undefined_tasks:,} without"
        )
        tasks.append(element("small", few))
    return element(
        "tr",
        element("th", list(head), scope="row", role="rowheader", class_="name-cell"),
        element("td", shown if card is None else term(card, shown, value=True), role="cell", class_="value-cell"),
        element("td", picture, role="cell", class_="axis-cell"),
        element("td", interval, role="cell", class_="interval-cell"),
        element("td", tasks, role="cell", class_="n-cell"),
        role="row",
        class_="extra" if extra else None,
    )


def unit_of(estimate: Estimate) -> str:
    """The unit of a metric, such as USD; empty for a number without one."""
    card = CARDS.get(estimate.made.metric)
    return card.unit if card else ""


def bounds_words(estimate: Estimate, ledger: Ledger) -> str:
    """What the bounds mean: ``0.422 to 0.475 if all 17 missing rollouts had failed or passed``."""
    if not estimate.bounds:
        return ""
    missing = (
        "missing samples" if estimate.undefined_tasks or not ledger.gaps else counted(ledger.gaps, "missing rollout")
    )
    every = f"all {missing}" if ledger.gaps != 1 else f"the {missing}"
    ranged = any(setting.startswith("range:") for setting in estimate.made.settings)
    ways = "had the lowest or the highest reward" if ranged else "had failed or passed"
    return f"{to(estimate.bounds, places(estimate.interval))} if {every} {ways}"


def described(metric: str, estimate: Estimate, ledger: Ledger) -> str:
    """A row's picture as a sentence."""
    if estimate.value is None:
        return f"{metric} has no value"
    digits = places(estimate.interval)
    parts = [f"{metric} {figure(estimate.value, digits)}"]
    if estimate.interval:
        level_said = next((word[11:] for word in estimate.made.settings if word.startswith("confidence:")), "")
        share = f"{100 * float(level_said):.6g} percent interval" if level_said else "interval"
        parts.append(f"{share} {to(estimate.interval, digits)}")
    else:
        parts.append(no_interval(estimate))
    if words := bounds_words(estimate, ledger):
        parts.append(words)
    return ", ".join(parts)


def no_interval(estimate: Estimate) -> str:
    """Why a number has no interval, in a few words."""
    if estimate.tasks == 1:
        return "no interval: one task"
    why = plain_why(estimate.why) if estimate.why else ""
    return why if why.startswith("no ") else f"no interval: {why}" if why else "no interval"
