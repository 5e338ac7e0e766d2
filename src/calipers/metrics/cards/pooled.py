"""Cards of the statistics of a reward over all rollouts, which are Harbor's metrics."""

from __future__ import annotations

from functools import partial

from calipers.metrics.cards.card import Card

_NO_INTERVAL = "None is computed, and why says so: "
_EXTREME = _NO_INTERVAL + "the extremes of a sample say little about the extremes of its source."

_card = partial(
    Card,
    estimates="A description of these rollouts, each of them weighing the same, whichever task it is of.",
    source="Harbor 0.25.0, metrics over trials.",
    nothing="No value, and a why, when no rollout has a reward.",
    gaps="A gap leaves it; with --missing zero, which is Harbor's rule, it counts 0, for the extremes too. An outcome "
    "that is the model's own doing (refused, timed_out, ...) counts 0 where no verifier gave a reward.",
)

POOLED_MEAN = _card(
    name="pooled_mean",
    short="mean reward over rollouts, pooled",
    one_line="The mean reward of all rollouts; a task with more samples weighs more.",
    estimates="What one rollout is worth, a task weighing as much as it has samples.",
    formula="sum of the rewards / number of the rollouts",
    one_sample="The same as mean_reward.",
    interval="The rule of mean_reward with tasks weighing by their number of samples, so that samples of one task do "
    "not count as separate tasks: Wilson's with an effective number of tasks when all rewards lie in [0, 1], else t.",
    edges=("mean_reward averages per task first; this pools.",),
    others={
        "EvSys": "No such name; mean_reward averages per task first.",
        "NeMo Gym": "mean/reward: the same, gaps left out.",
        "Harbor": "mean: the same over all trials that ended, with every missing reward as 0.",
    },
)
POOLED_SUM = _card(
    name="pooled_sum",
    short="sum of the rewards over rollouts",
    one_line="The sum of the rewards of all rollouts: the true sum, rounded once.",
    formula="sum of the rewards",
    one_sample="The sum over tasks.",
    interval=_NO_INTERVAL + "a sum describes these rollouts and estimates nothing beyond them.",
    others={"Harbor": "sum: the same."},
)
POOLED_MIN = _card(
    name="pooled_min",
    short="smallest reward of any rollout",
    one_line="The smallest reward of any rollout.",
    formula="min of the rewards",
    one_sample="The smallest reward of any task.",
    interval=_EXTREME,
    others={"NeMo Gym": "min/reward: the same.", "Harbor": "min: the same; a missing reward makes it 0 or less."},
)
POOLED_MAX = _card(
    name="pooled_max",
    short="largest reward of any rollout",
    one_line="The largest reward of any rollout.",
    formula="max of the rewards",
    one_sample="The largest reward of any task.",
    interval=_EXTREME,
    edges=("max@k is another thing: the expected best of k samples of a task.",),
    others={"NeMo Gym": "max/reward: the same.", "Harbor": "max: the same; a missing reward makes it 0 or more."},
)
