"""What a metric that was asked for reads of a table: which reward, which column, and what there is for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from calipers.dialects.dialect import Asked
from calipers.errors import UnknownName
from calipers.rollouts.column import Column
from calipers.rollouts.labels import answers
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import MISSING, USAGE
from calipers.rollouts.table import Rollouts


def column_of(part: Rollouts, name: str, params: Mapping[str, Any]) -> Column:
    """What a metric reads: the reward that was picked, the column asked for, or one by its name."""
    if name == "reward":
        return contributed(part, params.get("reward") or "reward")
    if name == "answer":
        return answers(part)
    wanted = params["column"] if name == "column" else name
    if wanted in part.columns:
        return part.columns[wanted]
    if wanted in part.rewards:
        return contributed(part, wanted)
    if name in USAGE:
        return Column.gaps(len(part))  # nobody reported it: missing, not zero
    raise UnknownName.of("column of numbers", wanted, [*part.columns, *part.rewards])


def is_reward(part: Rollouts, asked: Asked) -> bool:
    """Whether a statistic of a column is one of a reward, so that a gap in it is a rollout without a number."""
    wanted = asked.params.get("column")
    return "column" in asked.metric.reads and wanted in part.rewards and wanted not in part.columns


def per_column(asked: Asked, rollouts: Rollouts) -> list[Asked]:
    """A statistic of ``column=*`` is one of every column of numbers there is, rewards among them."""
    if asked.params.get("column") != "*":
        return [asked]
    names = sorted({*rollouts.rewards, *rollouts.columns})
    return [
        replace(asked, text=asked.text.replace("*", name), params={**asked.params, "column": name}) for name in names
    ]


def per_reward(asked: Asked, rollouts: Rollouts, chosen: str | None, every: bool = False) -> list[Asked]:
    """The reward key a metric reads: the one chosen, `reward`, the only one, or each in turn.

    ``every`` says that there is nothing special about one called `reward`.
    """
    if "reward" not in asked.metric.reads:
        return [asked]
    keys = sorted(rollouts.rewards)
    wanted = asked.params.get("reward") or chosen
    if wanted:
        if wanted not in keys:
            raise UnknownName.of("reward", wanted, keys)
        return [replace(asked, params={**asked.params, "reward": wanted})]
    if ("reward" in keys and not every) or len(keys) < 2:
        return [replace(asked, params={**asked.params, "reward": keys[0] if len(keys) == 1 else "reward"})]
    head, opened, rest = asked.text.partition("(")
    inner = f"{rest.removesuffix(')')}, " if opened else ""
    return [Asked(f"{head}({inner}reward={key})", asked.metric, {**asked.params, "reward": key}) for key in keys]


def economics_of(used: Collection[str]) -> list[str]:
    """The metrics of usage that a log with these columns can answer."""
    needs = {
        "time_per_task": {"latency_s"},
        "tokens_per_task": {"input_tokens", "output_tokens"},
        "cost_per_task": {"cost_usd"},
        "cost_per_solved": {"cost_usd"},
        "time_per_solved": {"latency_s"},
        "latency_p50": {"latency_s"},
        "latency_p90": {"latency_s"},
        "latency_p99": {"latency_s"},
    }
    return [name for name, columns in needs.items() if columns & set(used)]


def unrewarded(rollouts: Rollouts) -> list[str]:
    """A word to whoever did not say what the file calls the reward."""
    if rollouts.rewards or not len(rollouts) or bool((rollouts.outcome != MISSING).any()):
        return []
    keys = ", ".join([name for name in rollouts.columns if name not in USAGE][:8])
    return ["no rollout has a reward; --columns reward=KEY names it" + (f" (numbers here: {keys})" if keys else "")]
