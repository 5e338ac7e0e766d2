"""Cards: a description of each interval, test, adjustment and estimator, from cards.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calipers.errors import UnknownName
from calipers.metrics.cards import Cards

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


_FILE: Final = __file__.removesuffix("py") + "toml"
INTERVALS: Final = Cards(_FILE, {"interval": _interval})
"""Name of an interval in a result -> its card."""
METHODS: Final = Cards(_FILE, {"method": _method})
"""Name of a test, an adjustment or an estimator in a result -> its card."""
CARDS: Final[Mapping[str, IntervalCard | MethodCard]] = Cards(_FILE, {"interval": _interval, "method": _method})
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
    return {**by_name, **{_plain(card): card for card in CARDS}}.get(plain)


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
