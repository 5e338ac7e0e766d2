"""The exports of a result as NeMo Gym's own files: the metrics of each agent, and the offline reward profile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.source import STDIN, Source
from calipers.reports.result import Result
from calipers.rollouts.table import Part
from calipers.systems.nemo_gym import AGENT, INPUTS, METRICS, PROFILE_ENDS, beside
from calipers.systems.nemo_gym.aggregate import (
    Hooks,
    aggregate_agents,
    by_agent,
    encoded,
    entries_of,
    file_chunks,
    gym_table,
    headline,
    reward_profile,
)
from calipers.systems.nemo_gym.read import records, without_companions
from calipers.systems.nemo_gym.wire import agent_name

PROFILE: Final = "nemo_gym_profile"

Contents = tuple[Sequence[Iterable[bytes | memoryview]], Sequence[str]]


class MetricsExport:
    """The export of ``<stem>_aggregate_metrics.json``, beside the rollouts or at ``target``.

    ``hooks`` names a class whose hooks add metrics.
    """

    def __init__(self, target: str | None, paths: Sequence[str], hooks: str | None) -> None:
        if target == "":
            raise InputError.at("--export", "'nemo_gym=' has no file name", "expected nemo_gym, or nemo_gym=PATH")
        if target is None:
            main = _only(paths, "--export nemo_gym", "name it, as in --export nemo_gym=metrics.json")
            target = beside(main, METRICS)
        self.paths, self.files = paths, [target]
        self._parts: list[Part] = []
        self._named_hooks = hooks
        self._hooks: Hooks | None = None

    def begin(self) -> list[Part]:
        """Load the hooks, and return the list to collect the parts that are read."""
        if self._named_hooks is not None:
            from calipers.systems.nemo_gym.hooks import load_hooks

            self._hooks = load_hooks(self._named_hooks)
        return self._parts

    def contents(self, result: Result) -> Contents:
        """The file's bytes from the parts that were read; with hooks, from the rows, and a note with each headline."""
        table = gym_table(self._parts)
        self._parts.clear()  # frees memory: the table has all that is needed
        if self._hooks is None:
            return [file_chunks(entries_of(table))], []
        rows = [row for path in without_companions(self.paths) for row in _rows(path)]
        codes = table.agent[~table.aside].tolist()
        rows = [
            row if code < 0 or agent_name(row) else {**row, AGENT: {"name": table.agents[code]}}  # that of its plan
            for row, code in zip(rows, codes, strict=True)
        ]
        entries = aggregate_agents(by_agent(rows), self._hooks)
        return [file_chunks(entries)], [headline(agent, blocks.key_metrics) for agent, blocks in entries]


class ProfileExport:
    """The export of ``<stem>_reward_profiling.jsonl`` and ``<stem>_agent_metrics.json``, beside the rollouts."""

    def __init__(self, target: str | None, paths: Sequence[str], hooks: str | None) -> None:
        if hooks is not None:
            raise InputError.at("--hooks", f"{PROFILE} has none", "expected --export nemo_gym")
        if target is not None:
            raise InputError.at("--export", f"{PROFILE} writes beside the rollouts", f"expected only {PROFILE}")
        main = _only(paths, f"--export {PROFILE}", "expected one file")
        self._inputs = beside(main, INPUTS)
        if not os.path.isfile(self._inputs):
            raise InputError.at(self._inputs, "does not exist", "expected the inputs of the rollouts beside them")
        self.paths, self.files = [main], [beside(main, end) for end in PROFILE_ENDS]

    def begin(self) -> None:
        """Return None: the export reads the files itself."""

    def contents(self, result: Result) -> Contents:
        """The bytes of the two files, and a note with the number of planned rollouts that exist."""
        profile = reward_profile(_rows(self._inputs), _rows(self.paths[0]), allow_partial=True)
        note = f"{self.files[0]}: {profile.completed} of {profile.expected} planned rollouts exist"
        tasks = b"".join(encoded(task) + b"\n" for task in profile.tasks)
        return [[tasks], [encoded(profile.agents) + b"\n"]], [note]


def _only(paths: Sequence[str], option: str, expected: str) -> str:
    """The only file of rollouts among the paths; InputError if there are several, or only standard input."""
    mains = without_companions(paths)
    if len(mains) != 1 or mains[0] == STDIN:
        raise InputError.at(option, "there is more than one file, or none, to write beside", expected)
    return mains[0]


def _rows(path: str) -> list[dict[str, Any]]:
    with Source(path) as source:
        return list(records(source))
