"""Cards: a description of each built-in metric, interval, test, adjustment and estimator; no arithmetic is loaded.

The texts are in `metrics/cards.toml` and `stats/cards.toml`.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any, Final, Generic, TypeVar

from calipers.errors import InputError, UnknownName
from calipers.names import METRICS

WIDTH = 80  # characters of a line of plain text: what every terminal has
_LABEL = 12
_SYSTEM = 10
_FOLDER = os.path.dirname(__file__)

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Card:
    """The description of a metric. ``{k}`` in any text is the requested k."""

    name: str  # the entry in `names.METRICS`
    short: str  # what a table says beside the number
    one_line: str
    estimates: str
    formula: str
    source: str
    nothing: str  # on no tasks
    gaps: str
    one_sample: str
    interval: str
    edges: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # system -> what the name means there
    unit: str = ""
    unbiased: bool = False  # if every task has the same number of samples; then a page says so

    def parts(self, k: int | None = None) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown, ``{k}`` filled in."""
        labelled = [
            ("estimates", self.estimates),
            ("formula", self.formula),
            ("unit", self.unit),
            ("source", self.source),
            ("no data", self.nothing),
            ("missing", self.gaps),
            ("one sample", self.one_sample),
            ("interval", self.interval),
        ]
        return [(label, filled(text, k)) for label, text in labelled if text]

    def to_text(self, k: int | None = None) -> str:
        """The card as plain text for a terminal."""
        lines = [filled(self.name, k), *_wrapped(filled(self.one_line, k), ""), ""]
        for label, text in self.parts(k):
            lines += _wrapped(text, f"{label:<{_LABEL}}")
        for number, edge in enumerate(self.edges):
            lines += _wrapped(filled(edge, k), f"{'note' if not number else '':<{_LABEL}}- ")
        if self.others:
            lines += ["", "in other systems"]
            lines += [
                line for who, text in self.others.items() for line in _wrapped(filled(text, k), f"  {who:<{_SYSTEM}}")
            ]
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """The card as a section of a page."""
        lines = [f"## `{filled(self.name, None)}`", "", escaped(filled(self.one_line, None)), ""]
        for label, text in self.parts():
            shown = f"`{text}`" if label == "formula" else escaped(text)
            lines.append(f"- **{label}**: {shown}")
        lines += [f"- **note**: {escaped(filled(edge, None))}" for edge in self.edges]
        if self.others:
            lines += ["", "| system | meaning there |", "|---|---|"]
            lines += [f"| {who} | {escaped(filled(text, None))} |" for who, text in self.others.items()]
        return "\n".join(lines) + "\n"


def filled(text: str, k: int | None) -> str:
    """The text with the requested k, or the letter.

    >>> filled("pass@{k}", 3), filled("pass@{k}", None), filled("the first {k} samples", 1)
    ('pass@3', 'pass@k', 'the first sample')
    """
    if k == 1:
        text = re.sub(r"(\{k\} (?:fresh )?sample)s\b", r"\1", text.replace("first {k} samples", "first sample"))
    return text.replace("{k}", "k" if k is None else str(k))


def escaped(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    for mark in ("\\", "`", "*", "_", "|", "<"):
        text = text.replace(mark, "\\" + mark)
    return text


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


class Cards(Mapping[str, C], Generic[C]):
    """Cards by name, from a TOML file; ``kinds`` makes a card from a table ``[kind."name"]``.

    A card is parsed when it is first used: parsing all of them takes longer than a small score.
    """

    def __init__(self, path: str, kinds: Mapping[str, Callable[[str, dict[str, Any]], C]]) -> None:
        self._path, self._kinds = path, kinds
        self._made: dict[str, C] = {}

    def __getitem__(self, name: str) -> C:
        if name not in self._made:
            kind, table = _tables(self._path)[name]
            if kind not in self._kinds:
                raise KeyError(name)
            self._made[name] = self._kinds[kind](name, _parsed(self._path, table))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, (kind, _) in _tables(self._path).items() if kind in self._kinds)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _tables(path: str) -> dict[str, tuple[str, str]]:
    """The kind and the unparsed table of each card; the shared texts are under the name ""."""
    with open(path, encoding="utf-8") as file:
        shared, *rest = re.split(r'^\[(\w+)\."(.+)"\]$', file.read(), flags=re.MULTILINE)
    tables = {name: (kind, table) for kind, name, table in zip(rest[::3], rest[1::3], rest[2::3], strict=True)}
    return {**tables, "": ("texts", shared)}


@cache
def _texts(path: str) -> dict[str, str]:
    """The texts that cards share, by name."""
    import tomllib

    texts: dict[str, str] = {}
    for name, text in tomllib.loads(_tables(path)[""][1])["texts"].items():
        texts[name] = Template(text).substitute(texts)  # a text may hold those before it
    return texts


def _parsed(path: str, table: str) -> dict[str, Any]:
    import tomllib

    texts = _texts(path) if "${" in table else {}

    def full(value: Any) -> Any:
        if isinstance(value, str):
            return Template(value).substitute(texts)
        if isinstance(value, list):
            return tuple(map(full, value))
        return dict(zip(value, map(full, value.values()), strict=True)) if isinstance(value, dict) else value

    fields = tomllib.loads(table)
    return dict(zip(fields, map(full, fields.values()), strict=True))


METRIC_CARDS: Final = Cards(
    os.path.join(_FOLDER, "metrics", "cards.toml"), {"metric": lambda name, fields: Card(name, **fields)}
)
"""Entry of `METRICS` -> its card, in the order of the index."""


def card_for(name: str) -> tuple[Card, int | None]:
    """The card of a metric as a user names it, and its k; parameters in parentheses do not matter.

    >>> card, k = card_for("pass@3")
    >>> card.name, k
    ('pass@{k}', 3)
    >>> card_for("percentile(column=latency_s, q=95)")[0].unit
    ''
    """
    bare = name.partition("(")[0].strip()
    if bare in METRIC_CARDS:  # pass@{k} itself, as the list prints it
        return METRIC_CARDS[bare], None
    match = METRICS.match(bare)
    if match is None or match[0] not in METRIC_CARDS:
        raise METRICS.unknown(bare)
    entry, k = match
    if k == 0:
        raise InputError(f"metric {name!r}: k is 0; expected a positive integer")
    return METRIC_CARDS[entry], k


ONE_TASK = "No interval: at least two tasks, or two clusters, are needed."


@dataclass(frozen=True, slots=True)
class IntervalCard:
    """What a reader should know about an interval before using it."""

    one_line: str
    formula: str
    source: str
    use: str  # when to use it
    none: str  # at 0 %
    full: str  # at 100 %
    one_task: str = ONE_TASK
    mind: str = ""
    coverage: str = ""  # only what was measured
    on_request: bool = True  # whether --interval takes the name

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("formula", self.formula),
            ("source", self.source),
            ("use", self.use),
            ("at 0 %", self.none),
            ("at 100 %", self.full),
            ("one task", self.one_task),
            ("note", self.mind),
            ("coverage", self.coverage),
            ("option", "" if self.on_request else "not available with --interval; it is used automatically"),
        ]
        return [(label, text) for label, text in labelled if text]


@dataclass(frozen=True, slots=True)
class MethodCard:
    """What a reader should know about a test, an adjustment or an estimator before using it."""

    one_line: str
    answers: str  # the question
    formula: str
    source: str
    use: str  # when to use it, and when it is used automatically
    limit: str  # what it cannot do
    measured: str = ""  # only what was simulated or enumerated
    option: str = ""  # how to request it

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("question", self.answers),
            ("formula", self.formula),
            ("use", self.use),
            ("measured", self.measured),
            ("limit", self.limit),
            ("source", self.source),
            ("option", self.option),
        ]
        return [(label, text) for label, text in labelled if text]


DEFAULT: Final = "default"
ALIASES: Final[Mapping[str, str]] = {"exact": "clopper-pearson"}
ON_REQUEST: Final = ("wilson", "t", "clopper-pearson", "jeffreys", "beta", "bootstrap", "bca", "beta_mixture")
"""The names that ``--interval`` accepts; other intervals are used automatically."""


def _interval(name: str, fields: dict[str, Any]) -> IntervalCard:
    return IntervalCard(**fields, on_request=name in ON_REQUEST)


def _method(_: str, fields: dict[str, Any]) -> MethodCard:
    return MethodCard(**fields)


_FILE: Final = os.path.join(_FOLDER, "stats", "cards.toml")
INTERVALS: Final = Cards(_FILE, {"interval": _interval})
"""Name of an interval in a result -> its card."""
METHODS: Final = Cards(_FILE, {"method": _method})
"""Name of a test, an adjustment or an estimator in a result -> its card."""
STATISTIC_CARDS: Final[Mapping[str, IntervalCard | MethodCard]] = Cards(
    _FILE, {"interval": _interval, "method": _method}
)
EXPLAINED: Final[Mapping[str, str]] = {
    **ALIASES,
    DEFAULT: "wilson_t",
    "sequence": "beta_mixture",
    "confidence_sequence": "beta_mixture",
    "paired_t": "floored_t",
    "permutation": "sign_flip",
    "tost": "equivalence",
    "no_worse": "non_inferiority",
    "anytime": "betting",
    "p_holm": "holm",
    "benjamini_hochberg": "bh",
    "p_bh": "bh",
    "benjamini_yekutieli": "by",
    "p_sidak": "sidak",
    "primary": "gatekeeping",
    "rank_set": "rank_sets",
    "max_t_bias": "winner",
    "worst": "bounds",
    "worst_case": "bounds",
    "power": "noncentral_t",
    "zero_inflated_beta_binomial": "beta_binomial",
    "score_test": "uneven_samples",
    "ppi_plus_plus": "ppi++",
    "ppipp": "ppi++",
    "krippendorffs_alpha": "krippendorff",
    "alpha": "krippendorff",
    "discrimination": "item_rest",
    "information": "two_parameter",
    "running_best": "e_process",
    "lord": "lord++",
    "lord_plus_plus": "lord++",
}
"""Other names -> the card that explains them."""


def method_named(name: str) -> str | None:
    """The card for a name, ignoring case and the difference of - and _; None where there is none.

    >>> method_named("mid-p"), method_named("PPI++"), method_named("clopper_pearson"), method_named("mean_reward")
    ('mid_p', 'ppi++', 'clopper-pearson', None)
    """
    plain = _plain(name)
    by_name = {_plain(other): card for other, card in EXPLAINED.items()}
    return {**by_name, **{_plain(card): card for card in STATISTIC_CARDS}}.get(plain)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").replace("'", "")


def canonical(name: str) -> str:
    """The method for a name of ``--interval``; UnknownName where there is none.

    >>> canonical("exact"), canonical("default")
    ('clopper-pearson', 'default')
    """
    target = ALIASES.get(name, name)
    if target != DEFAULT and target not in ON_REQUEST:
        raise UnknownName.of("interval", name, asked_names())
    return target


def asked_names() -> list[str]:
    """Every name that ``--interval`` accepts."""
    return [DEFAULT, *ON_REQUEST, *ALIASES]
