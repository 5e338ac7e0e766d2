"""Cards of what rollouts cost."""

from __future__ import annotations

from functools import partial

from calipers.metrics.cards.card import Card
from calipers.metrics.cards.columns import WOODRUFF

_T_INTERVAL = (
    "The t interval over task values, since costs have no upper end. One task gives no interval; nor do values without "
    "any spread."
)
_NO_INTERVAL = "None is computed, and why says so: "
_SHOWN = "Shown by itself, under economics, when the log has usage. It is no part of the result's digest."
_NOT_TOTAL = "It is per sample: what a task costs in all is that times its samples."
_GAPS = "A rollout that does not report it is left out, never counted as 0. Failed rollouts that report it count."
_EVSYS = "The same number under the same name: the mean over samples that report it, then over tasks."

_per_task = partial(
    Card,
    source="EvSys, Benchmarks page",
    nothing="No value, and a why, when no rollout reports it.",
    gaps=_GAPS,
    one_sample="The mean over tasks.",
    interval=_T_INTERVAL,
    edges=(_NOT_TOTAL, _SHOWN),
    others={"EvSys": _EVSYS},
)

TIME_PER_TASK = _per_task(
    name="time_per_task",
    short="mean latency of a sample, averaged per task first",
    one_line="The mean over tasks of the mean latency of the task's samples.",
    estimates="How long one sample of one more task like these takes.",
    formula="(1/T) sum_t mean of latency_s over the task's samples",
    unit="s",
)
TOKENS_PER_TASK = _per_task(
    name="tokens_per_task",
    short="mean tokens of a sample, in and out",
    one_line="The mean over tasks of the mean tokens, in and out, of the task's samples.",
    estimates="How many tokens one sample of one more task like these takes.",
    formula="(1/T) sum_t mean of (input_tokens + output_tokens) over the task's samples",
    gaps=_GAPS + " Where only one of the two counts is reported, the other is 0.",
    edges=(_NOT_TOTAL, "Cached and reasoning tokens are not added: they are parts of the two.", _SHOWN),
    unit="tokens",
)
COST_PER_TASK = _per_task(
    name="cost_per_task",
    short="mean cost of a sample, averaged per task first",
    one_line="The mean over tasks of the mean cost of the task's samples.",
    estimates="What one sample of one more task like these costs.",
    formula="(1/T) sum_t mean of cost_usd over the task's samples",
    unit="USD",
)
COST_PER_SOLVED = Card(
    name="cost_per_solved",
    short="total cost over tasks with a pass",
    one_line="The total cost over the number of tasks with at least one pass.",
    estimates="What it took to solve a task here, the cost of failures included.",
    formula="sum of cost_usd / number of tasks with some r_ti >= 1",
    source="Own definition.",
    nothing="No value, and a why, when no rollout reports a cost, or no task has a pass.",
    gaps=_GAPS + " A task none of whose rollouts reports a cost is left out on both sides.",
    one_sample="Total cost over passes.",
    interval=_NO_INTERVAL + "it is a ratio of totals that may divide by no pass.",
    edges=(
        "A sample passes when its reward is at least 1.0; cost_per_solved(threshold=0.5) asks for another threshold.",
        "More samples cost more and solve little more: compare runs with the same number of samples.",
        _SHOWN,
    ),
    unit="USD",
)
TIME_PER_SOLVED = Card(
    name="time_per_solved",
    short="total latency over tasks with a pass",
    one_line="The total latency over the number of tasks with at least one pass.",
    estimates="How long it took to solve a task here, one sample after the other, the time of failures included.",
    formula="sum of latency_s / number of tasks with some r_ti >= 1",
    source="Own definition.",
    nothing="No value, and a why, when no rollout reports a latency, or no task has a pass.",
    gaps=_GAPS + " A task none of whose rollouts reports a latency is left out on both sides.",
    one_sample="Total latency over passes.",
    interval=_NO_INTERVAL + "it is a ratio of totals that may divide by no pass.",
    edges=(
        "A sample passes when its reward is at least 1.0; time_per_solved(threshold=0.5) asks for another threshold.",
        "More samples take longer and solve little more: compare runs with the same number of samples.",
        _SHOWN,
    ),
    unit="s",
)


def _latency(q: int, edge: str = "") -> Card:
    return Card(
        name=f"latency_p{q}",
        short=f"{q}th percentile of latency over rollouts",
        one_line=f"The {q}th percentile of latency over all rollouts.",
        estimates="A description of these rollouts, each of them weighing the same.",
        formula=f"percentile(column=latency_s, q={q})",
        source="The linear rule of Hyndman and Fan 1996 (their type 7), which numpy uses by default.",
        nothing="No value, and a why, when no rollout reports a latency.",
        gaps=_GAPS,
        one_sample="The percentile over tasks.",
        interval=WOODRUFF,
        edges=(edge, _SHOWN) if edge else (_SHOWN,),
        unit="s",
    )


LATENCY_P50 = _latency(50)
LATENCY_P90 = _latency(90)
LATENCY_P99 = _latency(99, "Of fewer than 100 rollouts it is hardly more than the largest value.")
