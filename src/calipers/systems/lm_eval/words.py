"""lm-evaluation-harness: a mean of each metric over documents, by the names of its results."""

from __future__ import annotations

from calipers.request import Dialect
from calipers.systems.lm_eval import SYSTEM

LM_EVAL = Dialect(
    "lm_eval",
    metrics=SYSTEM.card.words,
    default=SYSTEM.card.default,
    over_datasets=False,  # rewards are of many kinds; groups say which belong together
)
