"""What is checked before two runs are compared: whose the named metrics are, and what the reader must be told."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calipers.analyses.compare.question import Question
from calipers.analyses.compare.runs import Meeting
from calipers.analyses.compare.source import ReadSource
from calipers.analyses.compare.values import is_theirs, short
from calipers.errors import CalipersError, Incomplete, InputError, UnknownName, nearest
from calipers.formats.format import COMPARED
from calipers.formats.read import found_format
from calipers.formats.run_plan import is_run
from calipers.formats.source import STDIN
from calipers.formats.source import Source as File
from calipers.pipeline import Source
from calipers.reports.figures import counted
from calipers.request import make_plan
from calipers.rollouts.column import Bools
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import Rollouts

Asked = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NamedMetrics:
    """Metrics by whose they are."""

    ours: Sequence[Asked] | None  # None: none was named, and the dialect's own are meant
    theirs: Mapping[str, CalipersError] = field(default_factory=dict)  # a name -> why it is none of ours

    @property
    def wanted(self) -> Sequence[str] | None:
        """The names to be looked for in tables; None for all there are."""
        return None if self.ours is None else list(self.theirs)


def named(metrics: str | Sequence[Asked] | None, dialect: str | None, sources: Sequence[Any]) -> NamedMetrics:
    """Tell the metrics apart; where no source can have a table, all are taken for ours.

    A name that is ours means ours, whatever a table has: acc in lm_eval's dialect is the mean of a reward.
    """
    if not metrics:
        return NamedMetrics(None)
    every = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics)
    if not any(map(may_have_table, sources)):
        return NamedMetrics(every)
    ours: list[Asked] = []
    theirs: dict[str, CalipersError] = {}
    for one in every:
        try:
            make_plan([one], dialect=dialect)
            ours.append(one)
        except CalipersError as error:
            if not isinstance(one, str):
                raise
            theirs[one.strip()] = error
    return NamedMetrics(ours, theirs)


def may_have_table(source: Any) -> bool:
    """Whether a source is a run of one of lm-evaluation-harness' tasks, or of its files; looked at, not read."""
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return False
    path = os.fspath(source)
    if os.path.isdir(path):
        return is_theirs(path) if is_run(path) else True  # of its results, perhaps
    if not os.path.isfile(path):  # a pipe gives its bytes once, and not to who merely looks
        return False
    try:
        with File(path) as file:
            return found_format(file).has_documents
    except InputError:  # the reader says it better
        return False


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
    asked: NamedMetrics, measured: Collection[str], refused: Sequence[Mapping[str, str]], sides: Sequence[ReadSource]
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


def notes_of(sides: Sequence[ReadSource], met: Sequence[Meeting]) -> list[str]:
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
