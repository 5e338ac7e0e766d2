"""The rows of tinker-cookbook's evaluations and rollout summaries, as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number


class Turn(msgspec.Struct, gc=False):
    """One turn of a trajectory; that of a grader comes last."""

    role: str | None = None
    content: Any = None


class Logs(msgspec.Struct, gc=False):
    """What a benchmark noted of a trajectory."""

    expected: Raw = NOTHING


class TextTrajectory(msgspec.Struct, gc=False):
    """A trajectory, as far as it says something."""

    example_id: str | int | None = None
    idx: int | None = None
    benchmark: str | None = None
    turns: Raw = NOTHING
    logs: Raw = NOTHING
    error: str | None = None


EVALUATION: Final[list[tuple[str, Any, Any]]] = [
    ("example_id", str | int | None, None),
    ("idx", int | None, None),
    ("benchmark", str | None, None),
    ("reward", Number, ABSENT),
    ("metrics", dict[str, Any] | None, None),
    ("error", str | None, None),
    ("time_seconds", Number, ABSENT),
]

SUMMARY: Final[list[tuple[str, Any, Any]]] = [
    ("split", str | None, None),
    ("iteration", int | None, None),
    ("group_idx", int, msgspec.NODEFAULT),
    ("traj_idx", int, msgspec.NODEFAULT),
    ("tags", list[Any] | None, None),
    ("total_reward", Number, ABSENT),
    ("final_reward", Number, ABSENT),
    ("trajectory_metrics", dict[str, Any] | None, None),
]
