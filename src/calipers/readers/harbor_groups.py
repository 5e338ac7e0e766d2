"""A finished Harbor job as EvSys harvests it: the surviving trials of each task, as trajectories.

A trial with a recorded exception, or without a verdict, does not survive; what became of it stands in the ledger
of the job itself. Where an agent left the text it wrote, it is the trajectory's only turn.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from calipers.errors import InputError
from calipers.readers.harbor_folder import JobFolder, Unreadable
from calipers.readers.harbor_trial import Trial, decode_trial, rewards, seconds, totals
from calipers.readers.trajectories import Trajectory, TrajectoryGroup, Turn

COMPLETION: Final = "agent/completion.txt"


def read_groups(job: str | os.PathLike[str], tasks: Sequence[str]) -> list[TrajectoryGroup]:
    """One group for each task, by its name in the job, in the order given; trials in the order they began."""
    folder = JobFolder(os.fspath(job))
    found: dict[str, list[tuple[str, str, Trajectory]]] = {name: [] for name in tasks}
    for place in folder.finished:
        try:
            trial = decode_trial(folder.result(place) or b"", folder.of(place, "result.json"))
        except (Unreadable, InputError):
            continue  # it did not survive either
        given = rewards(trial)
        if trial.exception_info is not None or given is None or trial.task_name not in found:
            continue
        one = Trajectory(_turns(folder, place), float(given.get("reward", 0.0)), {"usage": _usage(trial)})
        found[trial.task_name].append((trial.started_at or "", trial.trial_name, one))
    return [TrajectoryGroup([one for *_, one in sorted(ended, key=lambda e: e[:2])]) for ended in found.values()]


def _turns(folder: JobFolder, place: str) -> list[Turn]:
    text = folder.held(place, COMPLETION)
    return [] if text is None else [Turn([], [], [], text.decode(errors="replace"))]


def _usage(trial: Trial) -> Mapping[str, Any]:
    spent = totals(trial)
    return {
        "cost_usd": spent.cost_usd,
        "prompt_tokens": spent.n_input_tokens,
        "completion_tokens": spent.n_output_tokens,
        "cached_tokens": spent.n_cache_tokens,
        "latency_s": seconds(trial.agent_execution) or seconds(trial),
    }
