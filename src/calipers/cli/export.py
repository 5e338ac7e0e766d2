"""``--export``: the result as another system's own file, beside the rollouts or where the user says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from calipers.cli.output import Target
from calipers.errors import InputError, UnknownName

if TYPE_CHECKING:
    from calipers.cli.progress import Progress
    from calipers.reports.result import Result
    from calipers.rollouts.part import Part
    from calipers.systems.nemo_gym.aggregate import Hooks
    from calipers.systems.nemo_gym.report import GymEntry

HARBOR: Final = "harbor"
SYSTEMS: Final = ("nemo_gym", "nemo_gym_profile", HARBOR)  # the second is cli/profile.py's


def named(asked: str, paths: Sequence[str], *, force: bool, hooks: str | None) -> GymExport | HarborExport:
    """The export that ``SYSTEM`` or ``SYSTEM=PATH`` asks for, checked before anything is read."""
    if asked.partition("=")[0] != HARBOR:
        return GymExport(asked, paths, force=force, hooks=hooks)
    if hooks is not None:
        raise InputError.at("--hooks", "they are NeMo Gym's", "expected --export nemo_gym beside them")
    return HarborExport(asked, paths, force=force)


class GymExport:
    """NeMo Gym's ``<stem>_aggregate_metrics.json``: its place is checked before anything is read."""

    def __init__(self, asked: str, paths: Sequence[str], *, force: bool, hooks: str | None) -> None:
        system, named, path = asked.partition("=")
        if system not in SYSTEMS:
            raise UnknownName.of("system to export to", system, SYSTEMS)
        if system != "nemo_gym":
            raise InputError.at("--export", f"{system} writes beside the rollouts", f"expected {system} alone")
        if not named:
            path = _default(paths)
        elif not path:
            raise InputError.at("--export", f"{asked!r} names no file", "expected nemo_gym, or nemo_gym=PATH")
        self._target = Target(path, paths)  # whatever hinders --out hinders this file too
        if os.path.isfile(path) and not force:
            raise InputError.at(path, "is there already", "--force replaces it")
        self.path, self._paths, self._hooks = path, paths, hooks

    def score(
        self, metrics: Sequence[str] | None, columns: Mapping[str, str], progress: Progress | None, settings: Any
    ) -> Result:
        """Score the rollouts and write the file; both come from one reading."""
        from calipers.formats.read import begin
        from calipers.pipeline import score_rollouts
        from calipers.request import make_plan

        hooks = self._loaded()
        plan = make_plan(metrics, **settings)
        kept: list[Part] = []
        rollouts, inputs = begin(self._paths, columns=columns, labels=plan.labels, progress=progress, kept=kept)
        result = score_rollouts(rollouts, plan)
        del rollouts
        notes = self._write(kept, hooks)
        return replace(result, inputs=inputs(), notes=[*result.notes, *notes])

    def _loaded(self) -> Hooks | None:
        if self._hooks is None:
            return None
        from calipers.systems.nemo_gym.hooks import load_hooks

        return load_hooks(self._hooks)

    def _write(self, kept: list[Part], hooks: Hooks | None) -> list[str]:
        """Write the file from the rows that were read, or with a server's hooks; what to tell of it."""
        from calipers.systems.nemo_gym.aggregate import aggregate_agents, by_agent, entries_of, one_table
        from calipers.systems.nemo_gym.report import file_chunks

        table = one_table(kept)
        kept.clear()  # the table holds all that is needed, once
        if hooks is None:
            self._target.write_all(file_chunks(entries_of(table)))
            return []
        from calipers.formats.source import Source
        from calipers.systems.nemo_gym.read import records, without_companions

        rows = []
        for path in without_companions(self._paths):
            with Source(path) as source:
                rows += records(source)
        entries = aggregate_agents(by_agent(rows), hooks)
        self._target.write_all(file_chunks(entries))
        return [_headline(entry) for entry in entries]


class HarborExport:
    """The ``result.json`` of a Harbor job, computed anew from its trials: in the job's directory, or at PATH."""

    def __init__(self, asked: str, paths: Sequence[str], *, force: bool) -> None:
        from calipers.systems.harbor.folder import kind_of

        _, equals, path = asked.partition("=")
        if equals and not path:
            raise InputError.at("--export", f"{asked!r} names no file", "expected harbor, or harbor=PATH")
        if len(paths) != 1 or not os.path.isdir(paths[0]) or kind_of(paths[0]) != "job":
            wrong = f"{paths[0]} is no job" if len(paths) == 1 else f"{len(paths)} paths are given"
            raise InputError.at("--export harbor", wrong, "expected the directory of one Harbor job")
        path = path or os.path.join(paths[0], "result.json")
        self._target, self._paths = Target(path, paths), paths
        if os.path.isfile(path) and not force:
            raise InputError.at(path, "is there already", "--force replaces it")

    def score(
        self, metrics: Sequence[str] | None, columns: Mapping[str, str], progress: Progress | None, settings: Any
    ) -> Result:
        """Score the job as asked, and write its result as Harbor would."""
        import calipers
        from calipers.systems.harbor.job_result import document, encoded, lost, read_job

        result = calipers.score(self._paths, metrics, columns=columns, progress=progress, **settings)
        job = read_job(self._paths[0])
        written = document(job)
        self._target.write(encoded(written))
        notes = [note for note in job.notes if note not in result.notes]
        return replace(result, notes=[*result.notes, *notes, *lost(job, written)])


def _headline(entry: GymEntry) -> str:
    """An agent and its key metrics on one line.

    >>> from calipers.systems.nemo_gym.report import GymEntry
    >>> _headline(GymEntry("math", {}, {"pass@k": 2 / 3, "n": 3, "note": "x"}, []))
    'math: pass@k 0.6667, n 3, note x'
    """
    shown = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in _pairs(entry))
    return f"{entry.agent}: {', '.join(shown) or 'no key metrics'}"


def _pairs(entry: GymEntry) -> list[tuple[str, Any]]:
    return [pair for pair in entry.key_metrics.items() if isinstance(pair[1], (bool, int, float, str))]


def _default(paths: Sequence[str]) -> str:
    from calipers.systems.nemo_gym.read import without_companions
    from calipers.systems.nemo_gym.words import METRICS, beside

    mains = without_companions(paths)
    if len(mains) != 1 or mains[0] == "-":
        wrong = "there is no one file to write beside"
        raise InputError.at("--export nemo_gym", wrong, "name it, as in --export nemo_gym=metrics.json")
    return beside(mains[0], METRICS)
