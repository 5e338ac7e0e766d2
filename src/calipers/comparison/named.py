"""Which of the metrics that a user names are ours, and which may stand in lm-evaluation-harness' table of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calipers.comparison.samples import FORMATS
from calipers.comparison.values import is_theirs
from calipers.errors import CalipersError, InputError
from calipers.plan import make_plan
from calipers.readers.files import STDIN, Source
from calipers.readers.read import found_format
from calipers.readers.run_plan import is_run

Asked = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Named:
    """Metrics by whose they are."""

    ours: Sequence[Asked] | None  # None: none was named, and the dialect's own are meant
    theirs: Mapping[str, CalipersError] = field(default_factory=dict)  # a name -> why it is none of ours

    @property
    def wanted(self) -> Sequence[str] | None:
        """The names to be looked for in tables; None for all there are."""
        return None if self.ours is None else list(self.theirs)


def named(metrics: str | Sequence[Asked] | None, dialect: str | None, sources: Sequence[Any]) -> Named:
    """Tell the metrics apart; where no source can have a table, all are taken for ours.

    A name that is ours means ours, whatever a table has: acc in lm_eval's dialect is the mean of a reward.
    """
    if not metrics:
        return Named(None)
    every = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics)
    if not any(map(may_have_table, sources)):
        return Named(every)
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
    return Named(ours, theirs)


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
        with Source(path) as file:
            return found_format(file).name in FORMATS
    except InputError:  # the reader says it better
        return False
