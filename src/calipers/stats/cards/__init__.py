"""Cards: what each interval, test, adjustment and estimator is, in plain words, without loading any arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.errors import UnknownName
from calipers.stats.cards.card import IntervalCard, MethodCard
from calipers.stats.cards.differences import DIFFERENCES
from calipers.stats.cards.families import FAMILIES
from calipers.stats.cards.intervals import INTERVALS
from calipers.stats.cards.judges import JUDGES
from calipers.stats.cards.samples import SAMPLES

__all__ = [
    "ALIASES",
    "CARDS",
    "DEFAULT",
    "EXPLAINED",
    "INTERVALS",
    "METHODS",
    "IntervalCard",
    "MethodCard",
    "asked_names",
    "canonical",
    "method_named",
]

DEFAULT: Final = "default"
ALIASES: Final[Mapping[str, str]] = {"exact": "clopper-pearson"}
METHODS: Final[Mapping[str, MethodCard]] = {**DIFFERENCES, **FAMILIES, **SAMPLES, **JUDGES}
"""Name of a test, an adjustment or an estimator, as it stands in a result -> its card."""
CARDS: Final[Mapping[str, IntervalCard | MethodCard]] = {**INTERVALS, **METHODS}
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
}
"""Other words -> the card that answers them."""


def method_named(name: str) -> str | None:
    """The card that a name means, - and _ and capitals aside; None where there is none.

    >>> method_named("mid-p"), method_named("PPI++"), method_named("clopper_pearson"), method_named("mean_reward")
    ('mid_p', 'ppi++', 'clopper-pearson', None)
    """
    plain = _plain(name)
    found = {_plain(other): card for other, card in EXPLAINED.items()}
    return {**found, **{_plain(card): card for card in CARDS}}.get(plain)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").replace("'", "")


def canonical(name: str) -> str:
    """The method that ``--interval`` means by a name; UnknownName where there is none.

    >>> canonical("exact"), canonical("default")
    ('clopper-pearson', 'default')
    """
    found = ALIASES.get(name, name)
    if found != DEFAULT and not (found in INTERVALS and INTERVALS[found].on_request):
        raise UnknownName.of("interval", name, asked_names())
    return found


def asked_names() -> list[str]:
    """Every name that ``--interval`` takes."""
    return [DEFAULT, *(name for name, card in INTERVALS.items() if card.on_request), *ALIASES]
