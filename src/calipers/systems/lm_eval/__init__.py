"""lm-evaluation-harness: its files, tasks, rules and numbers."""

from calipers.systems import DialectCard, System

INVALID = "[invalid]"  # the answer of lm-evaluation-harness if a regex filter finds none
AVERAGED = ("acc", "acc_all", "acc_bytes", "acc_mutual_info", "acc_norm", "exact_match")

SYSTEM = System(
    DialectCard(
        one_line="lm-evaluation-harness' means over documents, one for each metric and filter.",
        default=("mean",),
        gaps="excluded from the estimate; lm-evaluation-harness itself has no missing rollouts",
        words={
            "mean": "mean_reward",
            "mean_reward": "mean_reward",
            **{name: f"mean_reward(reward={name})" for name in AVERAGED},
        },
    ),
    page="calipers.systems.lm_eval.report:own_page",
    numbers="calipers.systems.lm_eval.report:with_own_numbers",
    run_page="calipers.systems.lm_eval.report:run_page",
    replaces=frozenset({"md"}),
)
