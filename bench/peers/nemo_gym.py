"""NeMo Gym 0.4.0: from a rollout file to the object that its ``/aggregate_metrics`` route returns.

Its own aggregate command (``RolloutAggregationHelper`` in ``nemo_gym/rollout_collection.py``) loads the lines with
orjson, sorts and strips them, and posts them to a server, which calls ``compute_aggregate_metrics``. Here the same
steps run in one process, without the two HTTP transfers.
"""

from __future__ import annotations

import importlib
from typing import Any

from bench.peer import Numbers, Peer, Work

PEER = Peer(
    "nemo_gym",
    "NeMo Gym 0.4.0",
    packages=("nemo-gym", "pandas", "orjson"),
    requirement="nemo-gym==0.4.0",
    python="3.12",
    imports=(
        *("pandas==3.1.1", "wandb==0.31.0", "orjson", "pydantic"),  # reward_profile.py
        *("hydra-core", "omegaconf", "openai<=2.7.2", "ray", "rich"),  # global_config.py, config_types.py
    ),
    note="NeMo Gym is installed without its dependencies, and then only what its aggregation imports",
)


def prepare(path: str) -> Work:
    """Load, sort, strip and aggregate, in the order and with the calls of its own command."""
    loads = importlib.import_module("orjson").loads
    aggregate = importlib.import_module("nemo_gym.reward_profile").compute_aggregate_metrics

    def work() -> Any:
        with open(path, "rb") as file:
            results = [loads(line) for line in map(bytes.strip, file) if line]
        results.sort(key=lambda result: (result.get("_ng_task_index"), result.get("_ng_rollout_index")))
        return aggregate([_stripped(result) for result in results])

    return work


def numbers(answer: Any) -> Numbers:
    """The pooled statistics, with ``mean/f1`` as ``mean(column=f1)``."""
    named = ([*key.split("/", 1), value] for key, value in answer.agent_metrics.items())
    return {f"{statistic}(column={column})": float(value) for statistic, column, value in named}


def _stripped(result: dict[str, Any]) -> dict[str, Any]:
    """The fields that its collector sends: all except the large ones, and only the usage of the response."""
    entry = {key: value for key, value in result.items() if key not in ("response", "responses_create_params")}
    usage = (result.get("response") or {}).get("usage")
    if usage:
        entry["response"] = {"usage": usage}
    return entry
