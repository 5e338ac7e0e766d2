"""The rows of tinker-cookbook's evaluations and rollout summaries, as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.lines import ABSENT
from calipers.formats.system_rows import Number

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
