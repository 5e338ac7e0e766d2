"""Checks before two runs are compared: which system the metrics belong to, and notes for the reader."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from calipers.analyses.compare.align import Common, ReadRun
from calipers.analyses.compare.document_table import is_theirs, short
from calipers.analyses.compare.question import Question
from calipers.analyses.compare.source import ReadSource
from calipers.errors import CalipersError, Incomplete, InputError, UnknownName, nearest
from calipers.formats.format import COMPARED
from calipers.formats.read import found_format
from calipers.formats.run_folder import is_run
from calipers.formats.source import STDIN
from calipers.formats.source import Source as File
from calipers.pipeline import Source
from calipers.reports.figures import counted
from calipers.request import make_plan
from calipers.rollouts.column import Bools
from calipers.rollouts.labels import STEP, over_steps
from calipers.rollouts.ledger import Ledger
from calipers.rollouts.table import Rollouts

MetricRequest = str | Mapping[str, Any]
ONE_SHARED_OF: Final = 10  # of so many tasks of the smaller run, at least one is common to runs of one benchmark


def ours_and_theirs(
    metrics: str | Sequence[MetricRequest] | None, dialect: str | None, sources: Sequence[Any]
) -> tuple[Sequence[MetricRequest] | None, dict[str, CalipersError]]:
    """Metrics by whose they are: ours, None where none was named and the dialect's own are meant; and those that may
    be numbers of a table, each with why it is none of ours. Where no source can have a table, all are taken for ours.

    A name that is ours means ours, whatever a table has: acc in lm_eval's dialect is the mean of a reward.
    """
    if not metrics:
        return None, {}
    every = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics)
    if not any(map(may_have_table, sources)):
        return every, {}
    ours: list[MetricRequest] = []
    theirs: dict[str, CalipersError] = {}
    for metric in every:
        try:
            make_plan([metric], dialect=dialect)
            ours.append(metric)
        except CalipersError as error:
            if not isinstance(metric, str):
                raise
            theirs[metric.strip()] = error
    return ours, theirs


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


def gap_notes(name: str, part: Rollouts, missing: str) -> list[str]:
    """A note on the missing rollouts of a run; none where no rollout is missing."""
    gaps = Ledger.of(part).gaps
    if not gaps:
        return []
    what = "counted as 0" if missing == "zero" else "excluded"
    are = "is" if gaps == 1 else "are"
    return [f"{name}: {gaps:,} of {len(part):,} rollouts of these tasks {are} missing ({what})"]


def waiting_notes(settled: Bools) -> list[str]:
    """A note on the tasks that are not compared yet, because a task before them is unfinished."""
    waiting = int((~settled).sum())
    if not waiting:
        return []
    return [f"{counted(waiting, 'task')} excluded, from the first unfinished task on: finish the runs to include them"]


def check_gaps(contest: Sequence[ReadRun], question: Question) -> None:
    """Raise Incomplete where rollouts are missing and --missing fail is given."""
    if question.plan.missing != "fail":
        return
    for run in contest:
        if gaps := Ledger.of(run.rollouts).gaps:
            refusal = f"{run.name}: {gaps:,} of {len(run.rollouts):,} rollouts are missing"
            raise Incomplete(f"{refusal}; --missing gap excludes them, --missing zero counts them as 0")


def check_sources(sources: Sequence[Source]) -> None:
    """InputError where there is nothing to compare, or a file would be compared with itself."""
    if not sources:
        raise InputError("nothing to compare; expected two runs or more")
    paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
    real = [path if path == STDIN else os.path.realpath(path) for path in paths]
    for index, path in enumerate(real):
        if path in real[:index]:
            raise InputError.at(paths[index], "is given twice", "expected two different runs")


def unrelated(runs: tuple[ReadRun, ReadRun], common: Common, sources: Sequence[ReadSource]) -> str | None:
    """Why two runs with common ids are of different benchmarks; None where they are comparable.

    A new template changes the prompts and neither the targets nor the dataset's name; the tasks of a pilot are all in
    the full run; and where one benchmark has two names, its targets are the same.
    """
    sizes = [len(run.rollouts.tasks) for run in runs]
    shared = common.alignment.common
    if shared * ONE_SHARED_OF < min(sizes):
        of_each = " and ".join(f"{size:,}" for size in sizes)
        why = f"only {shared:,} of their {of_each} tasks are in both, fewer than a tenth of the smaller run"
    else:
        differing = _differing(runs, common, sources)
        if differing.total() * 2 <= shared:
            return None
        why = " and ".join(
            f"{count:,} {'has' if count == 1 else 'have'} another {word}" for word, count in differing.items()
        )
        why = f"of {counted(shared, 'task')} with the same id, {why}"
    names = [run.name if (name := run.key[2]) is None else f"{run.name} (dataset {name!r})" for run in runs]
    return f"{' and '.join(names)} look like runs of different benchmarks: {why}"


def _differing(runs: tuple[ReadRun, ReadRun], common: Common, sources: Sequence[ReadSource]) -> Counter[str]:
    """How many common tasks of datasets with two names have other targets or, without targets, other prompts."""
    datasets = {run.key[2] for run in runs}
    if common.alignment.by != "id" or len(datasets) < 2 or None in datasets:
        return Counter()
    texts = [sources[run.source].prompts(run.key) for run in runs]
    digests = [{task: digest for (_, task), digest in sources[run.source].digests.items()} for run in runs]
    equal: list[Sequence[Mapping[str, object]]] = [digests, [each.documents for each in texts]]
    ways: dict[str, Sequence[Mapping[str, object]]] = {
        "target": [each.targets for each in texts],
        "prompt": [each.prompts for each in texts],
    }
    differing = Counter[str]()
    for task in common.first.tasks:
        if any(task in first and first[task] == second.get(task) for first, second in equal):
            continue
        known = (word for word, (first, second) in ways.items() if task in first and task in second)
        word = next(known, None)
        if word is not None and ways[word][0][task] != ways[word][1][task]:
            differing[word] += 1
    return differing


def check_tables(
    theirs: Mapping[str, CalipersError],
    measured: Collection[str],
    refused: Sequence[Mapping[str, str]],
    sources: Sequence[ReadSource],
) -> list[str]:
    """Why some pairs of runs lack a number of lm-evaluation-harness' table; an error where all of them do."""
    notes: list[str] = []
    names = short(key for source in sources for table in source.tables.values() if table for key in table.ways)
    for name, unknown in theirs.items():
        why = list(dict.fromkeys(text for reasons in refused for key, text in reasons.items() if _means(name, key)))
        if any(_means(name, text) for text in measured):
            notes += why
        elif why:
            raise InputError(f"metric {name!r}: {'; '.join(why)}")
        elif any(name in source.rollouts.rewards for source in sources):
            right = f"expected mean_reward(reward={name}), or --dialect lm_eval"
            raise InputError(f"{name!r} is a reward of these runs, not a metric; {right}")
        elif names and nearest(name, names):
            raise UnknownName.of("metric of these runs", name, names)
        else:
            raise type(unknown)(f"{unknown}; the tables of these runs have {', '.join(names)}") if names else unknown
    return notes


def _means(name: str, key: str) -> bool:
    """Whether a name is a number of a table, or its metric in some pipeline."""
    return name in (key, key.rpartition(",")[0])


def source_notes(sources: Sequence[ReadSource], by: Collection[str] = ()) -> list[str]:
    """Notes of the readers, and notes on files with the same content and on several training steps in one number."""
    notes = [note for source in sources for note in source.rollouts.notes if not note.endswith(COMPARED)]
    if STEP not in by:
        notes += [f"{source.path}: {note}" for source in sources for note in over_steps(source.rollouts)]
    seen: dict[tuple[str, ...], str] = {}
    for source in sources:
        whole = [file for file in source.hashed() if file.format != "lm_eval_results"]  # whose rollouts stand beside it
        hashes = tuple(file.sha256 for file in whole)
        if hashes and hashes in seen:
            notes.append(f"{source.path} and {seen[hashes]} have the same content, so there is no difference")
        seen.setdefault(hashes, source.path)
    return notes
