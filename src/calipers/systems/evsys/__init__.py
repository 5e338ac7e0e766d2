"""EvSys: its Benchmark, prediction rows and metric names, and substitutes for its modules while they are absent."""

from calipers.systems.system import DialectCard, System

SYSTEM = System(
    DialectCard(
        one_line=(
            "EvSys' six metric names and its numbers: pass@k over the first "
            "k samples in order, 0.0 where there is no data."
        ),
        default=("mean_reward", "pass_rate"),
        gaps="excluded from the estimate: EvSys drops failed rollouts",
        nothing="0.0",
        slices="named by Python's str(): True, None; __missing__ for a missing value",
        words={
            "avg": "mean_reward",
            "mean_reward": "mean_reward",
            "pass@1": "any_of_first_1",
            "pass@3": "any_of_first_3(short=judged)",
            "pass^3": "all_of_first_3",
            "pass_rate": "pass_rate",
        },
    )
)
