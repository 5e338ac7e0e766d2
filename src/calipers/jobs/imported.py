"""Rewards that somebody else gave, people among them: from a file, by task and sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calipers.errors import InputError
from calipers.jobs.judging import Judged
from calipers.jobs.stored import NOTHING_CAME, Stored
from calipers.pipeline import read
from calipers.reports.figures import counted


class Imported:
    """A reward for each (task, sample) that the file has; a rollout it does not have is `missing`."""

    def __init__(self, path: str, rewards: Mapping[tuple[str, int], float]) -> None:
        self._path, self._rewards = path, rewards
        self._used: set[tuple[str, int]] = set()
        self._empty: set[tuple[str, int]] = set()  # scores of rollouts that have no completion to score
        self._without = 0

    @classmethod
    def read(cls, path: str, columns: Mapping[str, str]) -> Imported:
        """The rewards of a file of rollouts, in any format there is; ``columns`` is what it calls its keys."""
        table = read(path, columns=columns)
        if len(table.keys) > 1:
            raise InputError.at(path, f"has {len(table.keys)} groups (agent, model, dataset)", "expected one")
        if "reward" not in table.rewards and len(table.rewards) != 1:
            known = ", ".join(table.rewards) or "none"
            raise InputError.at(path, f"no reward (there is {known})", "name it: --columns reward=KEY")
        given = table.rewards.get("reward") or next(iter(table.rewards.values()))
        odd = np.flatnonzero(given.given & ~np.isfinite(given.values))
        if len(odd):
            task = table.tasks[int(table.task[odd[0]])]
            raise InputError.at(path, f"the reward of task {task!r} is no finite number", "expected one, or none")
        keys = zip((table.tasks[task] for task in table.task.tolist()), table.sample.tolist(), strict=True)
        rows = zip(keys, given.values.tolist(), given.given.tolist(), strict=True)
        return cls(path, {key: value for key, value, there in rows if there})

    def __call__(self, rows: Sequence[Stored]) -> Judged:
        """The rewards of some stored rollouts."""
        found = Judged(
            [None] * len(rows), [row.outcome or "missing" for row in rows], [None] * len(rows), [False] * len(rows)
        )
        for place, row in enumerate(rows):
            key = str(row.task), row.sample
            reward = self._rewards.get(key)
            if row.outcome in NOTHING_CAME:
                if reward is not None:
                    self._empty.add(key)
                continue
            if reward is None:
                self._without += 1
                found.outcomes[place] = "missing"
                continue
            self._used.add(key)
            found.rewards[place], found.outcomes[place], found.seen[place] = reward, "scored", True
        return found

    def notes(self) -> list[str]:
        """What matched nothing, on either side."""
        strange = len(self._rewards.keys() - self._used - self._empty)
        said = []
        if self._without:
            said.append(f"{counted(self._without, 'rollout')} without a score in it: a gap each")
        if strange:
            said.append(f"{counted(strange, 'score')} for no rollout of the run: not used")
        if self._empty:
            said.append(f"{counted(len(self._empty), 'score')} for rollouts that brought no completion: not used")
        return [f"{self._path}: {one}" for one in said]
