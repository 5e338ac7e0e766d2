"""``--export nemo_gym_profile``: NeMo Gym's offline reward profile, as its own two files beside the rollouts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calipers.cli.output import Target
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.cli.progress import Progress
    from calipers.reports.result import Result

SYSTEM = "nemo_gym_profile"


class ProfileExport:
    """``<stem>_reward_profiling.jsonl`` and ``<stem>_agent_metrics.json``: checked before anything is read."""

    def __init__(self, paths: Sequence[str], *, force: bool) -> None:
        from calipers.systems.nemo_gym.read import without_companions
        from calipers.systems.nemo_gym.words import INPUTS

        mains = without_companions(paths)
        if len(mains) != 1 or mains[0] == "-":
            raise InputError.at(f"--export {SYSTEM}", "there is no one file to write beside", "expected one file")
        stem = os.path.splitext(mains[0])[0]
        self._rollouts, self._inputs = mains[0], f"{stem}{INPUTS}"
        if not os.path.isfile(self._inputs):
            right = "expected the inputs that the rollouts were planned from, beside them"
            raise InputError.at(self._inputs, "is not there", right)
        self._tasks, self._agents = (
            Target(f"{stem}{end}", paths) for end in ("_reward_profiling.jsonl", "_agent_metrics.json")
        )
        for target in (self._tasks, self._agents):
            if os.path.isfile(target.path) and not force:
                raise InputError.at(target.path, "is there already", "--force replaces it")

    def score(
        self, metrics: Sequence[str] | None, columns: Mapping[str, str], progress: Progress | None, settings: Any
    ) -> Result:
        """Score the rollouts and write the profile; a note says how many of the planned ones there are."""
        import calipers
        from calipers.systems.nemo_gym.aggregate import reward_profile
        from calipers.systems.nemo_gym.report import encoded

        result = calipers.score(self._rollouts, metrics, columns=columns, progress=progress, **settings)
        profile = reward_profile(_rows(self._inputs), _rows(self._rollouts), allow_partial=True)
        self._tasks.write(b"".join(encoded(task) + b"\n" for task in profile.tasks))
        self._agents.write(encoded(profile.agents) + b"\n")
        said = f"{self._tasks.path}: {profile.completed} of {profile.expected} planned rollouts are there"
        return replace(result, notes=[*result.notes, said])


def _rows(path: str) -> list[dict[str, Any]]:
    from calipers.formats.source import Source
    from calipers.systems.nemo_gym.read import records

    with Source(path) as source:
        return list(records(source))
