"""NeMo Gym: its rollouts, metrics, servers and collections. This file has its keys, file names and metric names.

A metric's name is a statistic, a slash, and any numeric key: ``mean/reward``. The file imports little, because the
glossary of every dialect loads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from calipers.systems import DialectCard, System

TASK: Final = "_ng_task_index"
ROLLOUT: Final = "_ng_rollout_index"
AGENT: Final = "agent_ref"
PARAMS: Final = "responses_create_params"
FAILURE: Final = "_ng_failure_class"
TERMINAL: Final = "_ng_failure_terminal"
KILLED: Final = "_ng_no_persist"
ATTEMPT: Final = "_ng_attempt_index"
REWARD: Final = "reward"
LEAST_INT, MOST_INT = -(2**63), 2**63 - 1  # the range of an index

FAILURES: Final = "_failures.jsonl"
INPUTS: Final = "_materialized_inputs.jsonl"
METRICS: Final = "_aggregate_metrics.json"
AGENT_METRICS: Final = "_agent_metrics.json"
PROFILE_ENDS: Final = ("_reward_profiling.jsonl", AGENT_METRICS)  # the two files of the offline profile

AnyPath = TypeVar("AnyPath", str, Path)


def beside(path: AnyPath, ending: str) -> AnyPath:
    """The path of a file beside a file of rollouts: ``ending`` replaces the last extension.

    >>> beside("runs/r.x.jsonl", METRICS)
    'runs/r.x_aggregate_metrics.json'
    """
    return type(path)(os.path.splitext(path)[0] + ending)


def outcome_of(failure: object) -> str:
    """The outcome of an attempt that NeMo Gym marks as failed: who failed, judged by the failure class."""
    word = str(failure)
    return "judge_failed" if "judge" in word else "verifier_failed" if "verif" in word else "client_failed"


STATISTICS: Final = ("mean", "max", "min", "median", "std")
KEY: Final = "KEY"
"""Placeholder for a numeric key in a list of the names."""


class Words(Mapping[str, str]):
    """NeMo Gym's metric names, and the Calipers metric of each. There is one per numeric key; the list shows KEY.

    >>> WORDS["max/output_tokens"], "pass@1" in WORDS
    ('max(column=output_tokens)', False)
    """

    def __getitem__(self, name: str) -> str:
        statistic, slash, key = name.partition("/")
        if statistic not in STATISTICS or not (slash and key):
            raise KeyError(name)
        return f"{statistic}(column={key})"

    def __iter__(self) -> Iterator[str]:
        return iter([f"{statistic}/{KEY}" for statistic in STATISTICS])

    def __len__(self) -> int:
        return len(STATISTICS)


WORDS: Final = Words()
DEFAULT: Final = tuple(f"{statistic}/*" for statistic in STATISTICS)  # every statistic of every numeric key

SYSTEM = System(
    DialectCard(
        one_line="NeMo Gym's five statistics of any numeric key, pooled over an agent's rollouts.",
        default=DEFAULT,
        gaps="excluded from the estimate: NeMo Gym keeps failed attempts in a separate file",
        words=WORDS,
    ),
    exports={
        "nemo_gym": "calipers.systems.nemo_gym.export:MetricsExport",
        "nemo_gym_profile": "calipers.systems.nemo_gym.export:ProfileExport",
    },
)
