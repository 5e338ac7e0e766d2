"""lm-evaluation-harness: a mean of each metric over documents, by the names of its results."""

from __future__ import annotations

from calipers.request import Dialect

AVERAGED = (
    "acc",
    "acc_all",
    "acc_bytes",
    "acc_mutual_info",
    "acc_norm",
    "exact_match",
)

LM_EVAL = Dialect(
    "lm_eval",
    metrics={
        "mean": "mean_reward",
        "mean_reward": "mean_reward",
        **{name: f"mean_reward(reward={name})" for name in AVERAGED},
    },
    default=("mean",),
    over_datasets=False,  # rewards are of many kinds; groups say which belong together
)
