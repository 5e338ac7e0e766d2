"""EvSys: six metrics by name, the first k samples by order, 0.0 for nothing."""

from __future__ import annotations

from calipers.request import Dialect

EVSYS = Dialect(
    "evsys",
    metrics={
        "avg": "mean_reward",
        "mean_reward": "mean_reward",
        "pass@1": "any_of_first_1",
        "pass@3": "any_of_first_3(short=judged)",
        "pass^3": "all_of_first_3",
        "pass_rate": "pass_rate",
    },
    undefined=0.0,
    lenient=True,
    label=str,
)
