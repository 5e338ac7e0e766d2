"""The report, one HTML file that needs no network: read the sources, choose the page, and make the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.analyses.watch.document import SCHEMA as WATCH_SCHEMA
from calipers.analyses.watch.document import Watched
from calipers.analyses.watch.watch import is_watched
from calipers.errors import InputError
from calipers.formats.read import schema_of
from calipers.pipeline import Progress
from calipers.pipeline import Source as Rewarded
from calipers.reports.page import load
from calipers.web.page import HtmlPage, html
from calipers.web.report_data import USUAL, PairData, ReportData, RunData, report_data, with_less_text

if TYPE_CHECKING:
    from calipers.web.watch_page import WatchData

LARGEST = 3_000_000  # bytes of a file; texts are left out until it fits
OF_STEPS = ("columns", "truth", "reward", "cluster", "confidence")  # settings that a page by step supports
SPARE = 20_000  # bytes to leave out beyond the excess, because texts take more room in a file than by themselves


@dataclass(frozen=True, slots=True)
class HtmlReport:
    """A report: one HTML file that needs no network and no library."""

    html: str = field(repr=False)
    title: str = ""
    notes: Sequence[str] = ()  # for the user of the command

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file; InputError if it cannot be written."""
        try:
            Path(path).write_text(self.html, encoding="utf-8", newline="")
        except OSError as error:
            raise InputError.at(os.fspath(path), f"cannot be written ({error.strerror})") from None


def report(
    *sources: Rewarded,
    metrics: str | Sequence[str] | None = None,
    by: str | Sequence[str] = (),
    texts: bool = True,
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    threshold: float | None = None,
    range: tuple[float, float] | None = None,
    progress: Progress | None = None,
    flag: str | os.PathLike[str] | None = None,
    steps: bool = False,
) -> HtmlReport:
    """Report on one run, two runs, many runs, or a training run by step, as one HTML file.

    A source is anything that `score` reads, or a document: a result, a comparison or a leaderboard, whose numbers the
    report shows. Two runs of one dataset are compared, the second with the first; more runs are ranked. Without
    ``texts``, the file has no prompts, completions or answers. Without ``metrics``, the report shows the mean reward
    and, if there are several samples per task, pass@k and pass^k. ``flag`` is a file that names suspicious tasks, which
    the page of one or two runs can exclude: the JSON of `items` or of ``calipers check --selftest``, or a task id per
    line. A folder that ``calipers watch`` has looked at, or the document of a watch, is shown by step, with its bands
    and alarms; with ``steps``, any folder with a file for each step is.

    >>> report([[1, 0], [1, 1], [0, 0]], texts=False).title
    'The run passes 50\\xa0% of its samples.'
    """
    settings: dict[str, Any] = {
        **{"metrics": metrics, "by": by, "columns": columns, "truth": truth, "reward": reward, "flag": flag},
        **{"cluster": cluster, "dialect": dialect, "missing": missing, "confidence": confidence, "seed": seed},
        "threshold": threshold,
        "range": range,
    }
    watched = _watched(sources, steps, settings)
    if watched is not None:
        from calipers.web.watch_page import watch_page

        page = watch_page(watched)
        return HtmlReport(html(page), page.title, list(watched.watched.notes))
    data = report_data(sources, texts=texts, progress=progress, **settings)
    page = page_of(data)
    content = html(page)
    if texts and (over := len(content.encode()) - LARGEST) > 0:
        page = page_of(with_less_text(data, over + SPARE))
        content = html(page)
    return HtmlReport(content, page.title, notes_of(data))


def _watched(sources: Sequence[Rewarded], steps: bool, settings: Mapping[str, Any]) -> WatchData | None:
    """The data of a page by step; None if the sources are not the steps of a training run.

    InputError for a setting that the page does not support; the page of an earlier watch supports none.
    """
    path = os.fspath(sources[0]) if len(sources) == 1 and isinstance(sources[0], (str, os.PathLike)) else ""
    if steps and not os.path.isdir(path):
        raise InputError.at(path or "--steps", "is no folder", "expected one folder with a file for each step")
    watched = is_watched(path)
    if not steps and not watched and schema_of(path) != WATCH_SCHEMA:
        return None
    from calipers.web.watch_page import WatchData, watch_data

    given = [key for key, value in settings.items() if value and value != USUAL.get(key)]
    if not watched and os.path.isdir(path):
        if others := [key for key in given if key not in OF_STEPS]:
            advice = "remove it, or give the file of one step without --steps"
            raise InputError.at(_option(others[0]), "does not apply to a training run by step", advice)
        return watch_data(path, **{key: settings[key] for key in OF_STEPS})
    if given:
        expected = "expected the folder alone, or another folder of its steps"
        state = "is watched" if watched else "is the document of a watch"
        raise InputError.at(path, f"{state}, and {_option(given[0])} cannot change what the watch said", expected)
    if watched:
        return watch_data(path)
    document = load(path)
    return WatchData(document) if isinstance(document, Watched) else None


def _option(setting: str) -> str:
    return "--metric" if setting == "metrics" else f"--{setting}"


def page_of(data: ReportData) -> HtmlPage:
    """The page of one run, of two, or of many."""
    if isinstance(data, RunData):
        from calipers.web.run_page import run_page

        return run_page(data)
    if isinstance(data, PairData):
        from calipers.web.pair_page import pair_page

        return pair_page(data)
    from calipers.web.many_page import many_page

    return many_page(data)


def notes_of(data: ReportData) -> list[str]:
    """The notes for the user of the command: those of the readers, and about flagged tasks."""
    notes = [note for run in data.runs for note in run.result.notes]
    flags = next((run.flags for run in data.runs), None)
    if flags is not None:
        flagged = {task for tasks in flags.tasks.values() for task in tasks}
        notes += [] if flagged else [f"{flags.path} flags no task"]
        if unknown := flagged.difference(*(run.flagged for run in data.runs)):
            notes.append(f"{len(unknown):,} of {len(flagged):,} tasks in {flags.path} are not in these rollouts")
    return list(dict.fromkeys(notes))
