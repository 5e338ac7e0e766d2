"""Cards of the statistics of any numeric column."""

from __future__ import annotations

from calipers.metrics.cards.card import Card

_NOTHING = "No value, and a why, when no rollout has a number in the column."
_GAPS = (
    "A rollout without a number in the column is left out. In a column of rewards an outcome that is the model's own "
    "doing (refused, truncated, ...) counts 0, and every other outcome without a reward is a gap."
)
_ASK = "Ask with column=: the name of any numeric key, of a usage number, or of a reward."
_NO_INTERVAL = "None is computed, and why says so: "
_HARBOR = "Over trials, a missing value counting 0."


def _card(word: str, short: str, one_line: str, formula: str, one_sample: str, interval: str, **more: object) -> Card:
    texts = {
        "estimates": "A description of these rollouts, each of them weighing the same.",
        "source": "Textbook definition.",
        "nothing": _NOTHING,
        "gaps": _GAPS,
        "edges": (_ASK,),
        **more,
    }
    return Card(
        name=word,
        short=short,
        one_line=one_line,
        formula=formula,
        one_sample=one_sample,
        interval=interval,
        **texts,  # type: ignore[arg-type]  # texts by the names of the fields
    )


MEAN = _card(
    "mean",
    "mean of the column over rollouts, pooled",
    "The mean of a column over all rollouts that have it.",
    "sum of the values / number of the values",
    "The mean over tasks.",
    "The rule of mean_reward with tasks weighing by their number of samples, so that samples of one task do not count "
    "as separate tasks: Wilson's with an effective number of tasks when all values lie in [0, 1], else t.",
    estimates="What the column is worth in one rollout, a task weighing as much as it has samples.",
    source="Miller 2024, Adding error bars to evals, arXiv 2411.00640",
    edges=(_ASK, "mean_reward averages per task first; mean(column=reward) pools."),
    others={
        "EvSys": "No such name; mean_reward averages per task first.",
        "lm-eval": "Over documents, after one value each has been chosen.",
        "NeMo Gym": "mean/FIELD: the same, pooled over rollouts.",
        "Harbor": _HARBOR,
    },
)
MEDIAN = _card(
    "median",
    "median of the column over rollouts",
    "The middle value of a column; of an even number of values, the mean of the two in the middle.",
    "percentile with q = 50",
    "The middle over tasks.",
    _NO_INTERVAL + "it is no mean of task values.",
    others={
        "lm-eval": "The upper of the two middle values, when their number is even.",
        "NeMo Gym": "median/FIELD: the same.",
    },
)
MIN = _card(
    "min",
    "smallest value of the column",
    "The smallest value of a column.",
    "min of the values",
    "The smallest value of any task.",
    _NO_INTERVAL + "the extremes of a sample say little about the extremes of its source.",
    others={"NeMo Gym": "min/FIELD: the same.", "Harbor": _HARBOR},
)
MAX = _card(
    "max",
    "largest value of the column",
    "The largest value of a column.",
    "max of the values",
    "The largest value of any task.",
    _NO_INTERVAL + "the extremes of a sample say little about the extremes of its source.",
    edges=(_ASK, "max@k is another thing: the expected best of k samples of a task."),
    others={"NeMo Gym": "max/FIELD: the same.", "Harbor": _HARBOR},
)
SUM = _card(
    "sum",
    "sum of the column over rollouts",
    "The sum of a column over all rollouts that have it: the true sum, rounded once.",
    "sum of the values",
    "The sum over tasks.",
    _NO_INTERVAL + "a sum describes these rollouts and estimates nothing beyond them.",
    edges=(_ASK, "It does not depend on the order of rollouts, nor on how files divide them."),
    others={"Harbor": _HARBOR},
)
STD = _card(
    "std",
    "standard deviation of the column, n - 1",
    "The standard deviation of a column over all rollouts, with n - 1.",
    "sqrt(sum (x - mean)^2 / (n - 1))",
    "The spread between tasks. A single value in all is undefined: null, and a why.",
    _NO_INTERVAL + "none is known here for a standard deviation of pooled rollouts.",
    edges=(_ASK, "Spread within tasks and between tasks is mixed; it is no error bar of the mean."),
    others={"NeMo Gym": "std/FIELD: the same; 0.0 when there is exactly one rollout."},
)
PERCENTILE = _card(
    "percentile",
    "percentile of the column, linear rule",
    "The q-th percentile of a column, q from 0 to 100.",
    "x_(j) + g (x_(j+1) - x_(j)) with j + g = 1 + (n - 1) q / 100 over the sorted values",
    "The percentile over tasks.",
    _NO_INTERVAL + "it is no mean of task values.",
    source="The linear rule of Hyndman and Fan 1996 (their type 7), which numpy uses by default.",
    edges=(
        "Ask with column= and q=: percentile(column=latency_s, q=95).",
        "Other rules give other numbers on small data: of 1 to 20, p90 is 18.1 here and 19 by the upper rule.",
    ),
)
