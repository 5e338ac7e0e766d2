"""What a comparison refuses before it begins, and what it tells beside its numbers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from calipers.comparison.named import Named
from calipers.comparison.question import Question
from calipers.comparison.runs import Meeting
from calipers.comparison.side import Side
from calipers.comparison.values import short
from calipers.errors import Incomplete, InputError, UnknownName, nearest
from calipers.pipeline import Source
from calipers.readers.files import STDIN
from calipers.readers.lm_eval_rows import COMPARED
from calipers.reports.figures import counted
from calipers.rollouts.column import Bools
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import Rollouts


def gaps_told(name: str, part: Rollouts, missing: str) -> list[str]:
    """A sentence on the rollouts of a run that have no number; none where all have one."""
    gaps = Ledger.of(part).gaps
    if not gaps:
        return []
    what = "counted as 0" if missing == "zero" else "excluded"
    are = "is" if gaps == 1 else "are"
    return [f"{name}: {gaps:,} of {len(part):,} rollouts of these tasks {are} missing ({what})"]


def waiting_told(settled: Bools) -> list[str]:
    """A sentence on the tasks that are not looked at yet, as tasks before them are unfinished."""
    waiting = int((~settled).sum())
    if not waiting:
        return []
    return [f"{counted(waiting, 'task')} left out, from the first unfinished one on: finish the runs to count them"]


def check_gaps(meeting: Meeting, question: Question) -> None:
    """Incomplete where a run has gaps and none may be."""
    if question.plan.missing != "fail":
        return
    for name, part in zip(meeting.names, meeting.parts, strict=True):
        if gaps := Ledger.of(part).gaps:
            refusal = f"{name}: {gaps:,} of {len(part):,} rollouts are gaps"
            raise Incomplete(f"{refusal}; --missing gap leaves them out, --missing zero counts them 0")


def check_sources(sources: Sequence[Source]) -> None:
    """InputError where there is nothing to compare, or a file would be compared with itself."""
    if not sources:
        raise InputError("nothing to compare; expected two runs or more")
    paths = [os.fspath(one) for one in sources if isinstance(one, (str, os.PathLike))]
    real = [path if path == STDIN else os.path.realpath(path) for path in paths]
    for place, path in enumerate(real):
        if path in real[:place]:
            raise InputError.at(paths[place], "is given twice", "expected another run: one and the same cannot differ")


def check_tables(
    asked: Named, measured: Collection[str], refused: Sequence[Mapping[str, str]], sides: Sequence[Side]
) -> list[str]:
    """Why some pairs of runs lack a number of lm-evaluation-harness' table; an error where all of them do."""
    notes: list[str] = []
    names = short(key for side in sides for table in side.tables.values() for key in table.ways)
    for name, unknown in asked.theirs.items():
        why = list(dict.fromkeys(text for said in refused for key, text in said.items() if _means(name, key)))
        if any(_means(name, text) for text in measured):
            notes += why
        elif why:
            raise InputError(f"metric {name!r}: {'; '.join(why)}")
        elif any(name in side.rollouts.rewards for side in sides):
            right = f"expected mean_reward(reward={name}), or --dialect lm_eval"
            raise InputError(f"{name!r} is a reward of these runs, and no metric; {right}")
        elif names and nearest(name, names):
            raise UnknownName.of("metric of these runs", name, names)
        else:
            raise type(unknown)(f"{unknown}; the tables of these runs have {', '.join(names)}") if names else unknown
    return notes


def _means(name: str, key: str) -> bool:
    """Whether a name is a number of a table, or its metric in some pipeline."""
    return name in (key, key.rpartition(",")[0])


def notes_of(sides: Sequence[Side], met: Sequence[Meeting]) -> list[str]:
    """What the readers passed over, files that are one and the same, and datasets without a match."""
    found = [note for side in sides for note in side.rollouts.notes if not note.endswith(COMPARED)]
    seen: dict[tuple[str, ...], str] = {}
    for side in sides:
        whole = [one for one in side.hashed() if one.format != "lm_eval_results"]  # whose rollouts stand beside it
        hashes = tuple(one.sha256 for one in whole)
        if hashes and hashes in seen:
            found.append(f"{side.path} and {seen[hashes]} hold the same bytes: there is no difference to be found")
        seen.setdefault(hashes, side.path)
    return [*found, *(note for meeting in met for note in meeting.notes)]
