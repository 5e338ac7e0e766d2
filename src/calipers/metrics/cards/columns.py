"""Cards of the statistics of any numeric column."""

from __future__ import annotations

from functools import partial

from calipers.metrics.cards.card import Card

_ASK = "Ask with column=: the name of any numeric key, of a usage number, or of a reward."
_NO_INTERVAL = "None is computed, and why says so: "
_EXTREME = _NO_INTERVAL + "the extremes of a sample say little about the extremes of its source."
WOODRUFF = (
    "Woodruff's interval (1952, method woodruff): every value whose share of rollouts below it the data would not tell "
    "from q. Samples of one task count together. None for one task, where too few tasks leave an end beyond all that "
    "was seen, nor where all values around it are equal."
)
_HARBOR = "Over trials, a missing value counting 0."

_card = partial(
    Card,
    estimates="A description of these rollouts, each of them weighing the same.",
    source="Textbook definition.",
    nothing="No value, and a why, when no rollout has a number in the column.",
    gaps="A rollout without a number in the column is left out. In a column of rewards an outcome that is the model's "
    "own doing (refused, truncated, ...) counts 0, and every other outcome without a reward is a gap.",
    edges=(_ASK,),
)

MEAN = _card(
    name="mean",
    short="mean of the column over rollouts, pooled",
    one_line="The mean of a column over all rollouts that have it.",
    estimates="What the column is worth in one rollout, a task weighing as much as it has samples.",
    formula="sum of the values / number of the values",
    source="Miller 2024, Adding error bars to evals, arXiv:2411.00640",
    one_sample="The mean over tasks.",
    interval="The rule of mean_reward with tasks weighing by their number of samples, so that samples of one task do "
    "not count as separate tasks: Wilson's with an effective number of tasks when all values lie in [0, 1], else t.",
    edges=(_ASK, "mean_reward averages per task first; mean(column=reward) pools."),
    others={
        "EvSys": "No such name; mean_reward averages per task first.",
        "lm-eval": "Over documents, after one value each has been chosen.",
        "NeMo Gym": "mean/FIELD: the same, pooled over rollouts.",
        "Harbor": _HARBOR,
    },
)
MEDIAN = _card(
    name="median",
    short="median of the column over rollouts",
    one_line="The middle value of a column; of an even number of values, the mean of the two in the middle.",
    formula="percentile(column=..., q=50)",
    one_sample="The middle over tasks.",
    interval=WOODRUFF,
    others={
        "lm-eval": "The upper of the two middle values, when their number is even.",
        "NeMo Gym": "median/FIELD: the same.",
    },
)
MIN = _card(
    name="min",
    short="smallest value of the column",
    one_line="The smallest value of a column.",
    formula="min of the values",
    one_sample="The smallest value of any task.",
    interval=_EXTREME,
    others={"NeMo Gym": "min/FIELD: the same.", "Harbor": _HARBOR},
)
MAX = _card(
    name="max",
    short="largest value of the column",
    one_line="The largest value of a column.",
    formula="max of the values",
    one_sample="The largest value of any task.",
    interval=_EXTREME,
    edges=(_ASK, "max@k is another thing: the expected best of k samples of a task."),
    others={"NeMo Gym": "max/FIELD: the same.", "Harbor": _HARBOR},
)
SUM = _card(
    name="sum",
    short="sum of the column over rollouts",
    one_line="The sum of a column over all rollouts that have it: the true sum, rounded once.",
    formula="sum of the values",
    one_sample="The sum over tasks.",
    interval=_NO_INTERVAL + "a sum describes these rollouts and estimates nothing beyond them.",
    edges=(_ASK, "It does not depend on the order of rollouts, nor on how files divide them."),
    others={"Harbor": _HARBOR},
)
STD = _card(
    name="std",
    short="standard deviation of the column, n - 1",
    one_line="The standard deviation of a column over all rollouts, with n - 1.",
    formula="sqrt(sum (x - mean)^2 / (n - 1))",
    one_sample="The spread between tasks. A single value in all is undefined: null, and a why.",
    interval=_NO_INTERVAL + "it is no mean of task values.",
    edges=(_ASK, "Spread within tasks and between tasks is mixed; it is no error bar of the mean."),
    others={"NeMo Gym": "std/FIELD: the same; 0.0 when there is exactly one rollout."},
)
PERCENTILE = _card(
    name="percentile",
    short="percentile of the column, linear rule",
    one_line="The q-th percentile of a column, q from 0 to 100.",
    formula="x_(j) + g (x_(j+1) - x_(j)) with j + g = 1 + (n - 1) q / 100 over the sorted values",
    source="The linear rule of Hyndman and Fan 1996 (their type 7), which numpy uses by default.",
    one_sample="The percentile over tasks.",
    interval=WOODRUFF,
    edges=(
        "Ask with column= and q=: percentile(column=latency_s, q=95).",
        "Other rules give other numbers on small data: of 1 to 20, p90 is 18.1 here and 19 by the upper rule.",
    ),
    others={
        "EvSys": "No such name.",
        "lm-eval": "No such name.",
        "NeMo Gym": "No such name.",
        "Harbor": "No such name.",
    },
)
