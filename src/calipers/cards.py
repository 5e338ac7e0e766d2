"""Cards: a description of each built-in metric, interval, test, adjustment and estimator.

The texts are in `metrics/cards.toml` and `stats/cards.toml`. Importing this module loads no numerical code.
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

WIDTH = 80  # characters per line of plain text; every terminal has as many
_LABEL = 12  # columns before the text of a line with a label
_SYSTEM = 10  # columns for the name of another system
_FOLDER = os.path.dirname(__file__)

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Card:
    """The description of a metric. ``{k}`` in any text is the requested k."""

    name: str  # the entry in `names.METRICS`
    short: str  # the description beside the number in a table
    one_line: str
    estimates: str
    formula: str
    source: str
    nothing: str  # the result for no tasks
    gaps: str  # the treatment of missing rewards
    one_sample: str
    interval: str
    edges: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # system -> what the name means there
    unit: str = ""
    unbiased: bool = False  # the estimate is unbiased if every task has the same number of samples; a page says so then

    def parts(self, k: int | None = None) -> list[tuple[str, str]]:
        """The labelled texts in the order of display, with ``{k}`` filled in."""
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
                line
                for system, text in self.others.items()
                for line in _wrapped(filled(text, k), f"  {system:<{_SYSTEM}}")
            ]
        return "\n".join(lines) + "\n"


def filled(text: str, k: int | None) -> str:
    """Fill in ``{k}``: the requested k, or the letter k if there is none.

    >>> filled("pass@{k}", 3), filled("pass@{k}", None), filled("the first {k} samples", 1)
    ('pass@3', 'pass@k', 'the first sample')
    """
    if k == 1:
        text = re.sub(r"(\{k\} (?:fresh )?sample)s\b", r"\1", text.replace("first {k} samples", "first sample"))
    return text.replace("{k}", "k" if k is None else str(k))


def _wrapped(text: str, label: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


class Cards(Mapping[str, C], Generic[C]):
    """Cards by name, from a TOML file with a table ``[kind."name"]`` for each card.

    ``kinds`` maps a kind to the function that makes a card from the name and the fields of its table. A card is parsed
    when it is first used, because parsing all cards takes longer than scoring a small file.
    """

    def __init__(self, path: str, kinds: Mapping[str, Callable[[str, dict[str, Any]], C]]) -> None:
        self._path, self._kinds = path, kinds
        self._cards: dict[str, C] = {}

    def __getitem__(self, name: str) -> C:
        if name not in self._cards:
            kind, table = _tables(self._path)[name]
            if kind not in self._kinds:
                raise KeyError(name)
            self._cards[name] = self._kinds[kind](name, _parsed(self._path, table))
        return self._cards[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, (kind, _) in _tables(self._path).items() if kind in self._kinds)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _tables(path: str) -> dict[str, tuple[str, str]]:
    """The kind and the unparsed TOML table of each card, by name; the shared texts have the name ""."""
    with open(path, encoding="utf-8") as file:
        shared, *parts = re.split(r'^\[(\w+)\."(.+)"\]$', file.read(), flags=re.MULTILINE)
    tables = {name: (kind, table) for kind, name, table in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}
    return {**tables, "": ("texts", shared)}


@cache
def _texts(path: str) -> dict[str, str]:
    """The texts that several cards use, by name."""
    import tomllib

    texts: dict[str, str] = {}
    for name, text in tomllib.loads(_tables(path)[""][1])["texts"].items():
        texts[name] = Template(text).substitute(texts)  # a text may refer to earlier texts
    return texts


def _parsed(path: str, table: str) -> dict[str, Any]:
    import tomllib

    texts = _texts(path) if "${" in table else {}

    def substituted(value: Any) -> Any:
        if isinstance(value, str):
            return Template(value).substitute(texts)
        if isinstance(value, list):
            return tuple(map(substituted, value))
        return dict(zip(value, map(substituted, value.values()), strict=True)) if isinstance(value, dict) else value

    fields = tomllib.loads(table)
    return dict(zip(fields, map(substituted, fields.values()), strict=True))


METRIC_CARDS: Final = Cards(
    os.path.join(_FOLDER, "metrics", "cards.toml"), {"metric": lambda name, fields: Card(name, **fields)}
)
"""Card by entry of `METRICS`, in the order of the index."""


def card_for(name: str) -> tuple[Card, int | None]:
    """The card of a metric by the name that a user gives, and its k; parameters in parentheses are ignored.

    >>> card, k = card_for("pass@3")
    >>> card.name, k
    ('pass@{k}', 3)
    >>> card_for("percentile(column=latency_s, q=95)")[0].unit
    ''
    """
    bare = name.partition("(")[0].strip()
    if bare in METRIC_CARDS:  # also a family, such as pass@{k}, which the list of metrics prints
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
    """The description of an interval."""

    one_line: str
    formula: str
    source: str
    use: str  # when to use it
    none: str  # the interval of an estimate of 0 %
    full: str  # the interval of an estimate of 100 %
    one_task: str = ONE_TASK
    mind: str = ""  # caveats
    coverage: str = ""  # measured coverage only
    on_request: bool = True  # whether --interval accepts the name

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
    """The description of a test, an adjustment or an estimator."""

    one_line: str
    answers: str  # the question that it answers
    formula: str
    source: str
    use: str  # when to use it, and when it is used automatically
    limit: str  # its limits
    measured: str = ""  # only results of a simulation or an enumeration
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
"""Card by the name of an interval in a result."""
METHODS: Final = Cards(_FILE, {"method": _method})
"""Card by the name of a test, an adjustment or an estimator in a result."""
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
"""Synonyms of methods -> the name of the card that explains them."""


def method_named(name: str) -> str | None:
    """The name of the card for a method, ignoring case and punctuation; None if there is no such card.

    >>> method_named("mid-p"), method_named("PPI++"), method_named("clopper_pearson"), method_named("mean_reward")
    ('mid_p', 'ppi++', 'clopper-pearson', None)
    """
    plain = _plain(name)
    by_synonym = {_plain(synonym): card for synonym, card in EXPLAINED.items()}
    return {**by_synonym, **{_plain(card): card for card in STATISTIC_CARDS}}.get(plain)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").replace("'", "")


def canonical(name: str) -> str:
    """The method for a value of ``--interval``; UnknownName if there is none.

    >>> canonical("exact"), canonical("default")
    ('clopper-pearson', 'default')
    """
    target = ALIASES.get(name, name)
    if target != DEFAULT and target not in ON_REQUEST:
        raise UnknownName.of("interval", name, interval_names())
    return target


def interval_names() -> list[str]:
    """Every name that ``--interval`` accepts."""
    return [DEFAULT, *ON_REQUEST, *ALIASES]
