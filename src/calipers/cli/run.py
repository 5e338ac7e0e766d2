"""``calipers run``: run a benchmark against a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.matrix import FOR_PEOPLE, folder_of, matrix_of, show_matrix
from calipers.cli.output import (
    PageOptions,
    Progress,
    as_lines,
    listeners_of,
    plugins_loaded,
    print_err,
    print_note,
    print_notes,
    print_result_notes,
    show_page,
    show_result,
    write,
)
from calipers.errors import CalipersError, InputError
from calipers.names import AGENT_RUNS, load
from calipers.reports.untrusted_text import clean
from calipers.systems import replaces, run_export, run_pages

if TYPE_CHECKING:
    from calipers.cli.suite import SuiteCommand
    from calipers.running import Job
    from calipers.running.library import Loaded
    from calipers.running.notify import Listener
    from calipers.running.perform import Report
    from calipers.tasks import Suite, Task

USAGE, INCOMPLETE = 2, 3
FIRST = 5  # questions that a dry run shows
SHOWN = {"check_integrity": "integrity", "write_out": "written_out", "show_config": "shown_config"}
"""Option -> the function of the task library that it calls."""
OF_TASKS = ("num_fewshot", "include_path", "load_seeds", "fewshot_seed", "task_metadata", "default_metrics")
OF_LIBRARY = (*SHOWN, "cache_requests", "export", *OF_TASKS)
NO_LIBRARY = "is for tasks of lm-evaluation-harness, and no benchmark is one", "remove it"
SEPARATOR = {"table": "", "md": "\n"}  # format for people -> the text before a line added after the page


@click.command(cls=options.GroupedCommand)
@click.argument("benchmarks", metavar="BENCHMARK...", nargs=-1, required=True)
@options.question_options
@options.reasoning(options.TABLE)
@options.option(
    options.MODEL, "--model", "KIND/NAME", "Model to run, such as openai/gpt-4o-mini; may be repeated.", multiple=True
)
@options.request_options
@options.scoring_options
@options.option(
    options.OUTPUT,
    "--out",
    "DIR",
    "Run folder.  [default: a folder below runs/]",
    type=options.FolderPath(path_type=Path),
)
@options.shape()
@options.page_options
@options.option(
    options.OUTPUT,
    "--notify",
    "COMMAND|URL",
    "Run this command, or post to this http(s):// URL, when the run ends, with the results as JSON; may be repeated.",
    multiple=True,
)
@options.dialect
@options.trust(None)
@options.lm_eval_options
@options.option(options.LM_EVAL, "--export", "lm_eval[=DIR]", "Also write lm-evaluation-harness' own result files.")
@options.harbor_options
@options.plugins
@options.flag(
    options.GENERAL, "--unsafe-no-sandbox unsafe", "Run programs that the model wrote even if no sandbox is available."
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    benchmarks: tuple[str, ...],
    plugins: tuple[str, ...],
    shape: str,
    notify: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    details: bool,
    economics: bool,
    every: bool,
    **settings: Any,
) -> None:
    """Run each BENCHMARK against each model, verify the completions and score them.

    A BENCHMARK is a table of questions (CSV, TSV, JSON Lines, a JSON array, Parquet), a directory with tasks.jsonl, a
    name in the store, a task file or a task name of lm-evaluation-harness, a YAML file with the settings of a run or of
    a suite, or, for an agent, a directory of Harbor tasks. If a run stops, run the same command again to resume it.
    """
    if unsafe:
        from calipers.isolate.launch import forgo

        forgo()
        print_note(
            "--unsafe-no-sandbox: if no sandbox is available, programs that the model wrote run with your rights"
        )
    export = settings.pop("export")
    shown = [name for name in SHOWN if settings.pop(name)]
    cache_requests = settings.pop("cache_requests") or ""
    folders = run_export(export) if export is not None else {}
    given = options.given_options(ctx, settings)
    listeners = listeners_of(notify)
    page = PageOptions(details=details, economics=economics, every=every)
    with plugins_loaded(plugins):
        from calipers.running.perform import by_agents

        suite = _suite(benchmarks, given)
        of_agents = not suite and by_agents(benchmarks, given)
    if dry_run:
        if of_agents:
            raise InputError.at("--dry-run", "is for questions, not for agents", "expected calipers check BENCHMARK")
        with plugins_loaded(plugins):
            pages = suite.plan(given) if suite else dry_run_pages(benchmarks, given)
        write(pages)
        return
    with _notifying(listeners) as ending:
        if of_agents:
            options.refuse(OF_LIBRARY, *NO_LIBRARY)
            _run_agents(benchmarks, given, shape, ending, page)
        else:
            with plugins_loaded(plugins):
                together = suite is not None
                planned = _run_models(benchmarks, given, shown, cache_requests, ending.reports, together=together)
            if not ending.reports:
                ctx.exit(USAGE)  # notes say why each run could not start
            ending.complete = len(ending.reports) == planned and all(report.complete for report in ending.reports)
            if suite:
                code = suite.show(ending.reports, shape, page)
                for report in ending.reports:
                    print_end(report)
                if code:
                    ctx.exit(code)
            else:
                _show_all(ending.reports, shape, folders, page)
        if not ending.complete:
            ctx.exit(INCOMPLETE)


@dataclass(slots=True)
class RunEnding:
    """The outcome of the command so far."""

    reports: list[Any] = field(default_factory=list)  # the reports of models or of agents
    complete: bool = False


@contextmanager
def _notifying(listeners: Sequence[Listener]) -> Iterator[RunEnding]:
    """Notify the listeners when the block ends, unless nothing ran because of a usage error."""
    ending = RunEnding()

    def tell_all() -> None:
        if listeners:
            from calipers.running.notify import notify

            notify(listeners, ending.reports, ending.complete, print_note)

    try:
        yield ending
    except BaseException as error:
        if ending.reports or not _is_usage(error):
            tell_all()
        raise
    tell_all()


def _is_usage(error: BaseException) -> bool:
    """Whether an error is a usage error, with exit code 2."""
    if isinstance(error, (click.ClickException, SystemExit)):
        return True
    return isinstance(error, (CalipersError, click.exceptions.Exit)) and error.exit_code == USAGE


def _show_all(reports: Sequence[Report], shape: str, folders: Mapping[str, Any], page: PageOptions) -> None:
    """Show the matrix of several runs, the results, other systems' pages of them, and the closing notes."""
    from calipers.running.perform import together

    matrix = matrix_of(reports) if shape in FOR_PEOPLE and len(reports) > 1 else None
    if matrix is not None:
        show_matrix(matrix, shape, where=folder_of(reports), details=page["details"], every=page["every"])
    for result in together(reports) if matrix is None or page["details"] or page["economics"] else ():
        if not replaces(result.dialect, shape):
            show_result(result, shape, **page)
        print_result_notes(result)
    for system_page in run_pages(reports, shape, folders):
        show_page(system_page)
    for report in reports:
        print_end(report)


def print_end(report: Report) -> None:
    """Print the end of a run on standard error: its notes, why it stopped early, and the path of its result."""
    print_notes(report.notes)
    if report.stopped:
        more = "" if report.by_rule else "; run the same command again to resume"
        print_note(f"{report.folder}: stopped early: {report.stopped}{more}")
    print_err(f"{report.folder}/result.json")


def _run_agents(
    benchmarks: Sequence[str], given: dict[str, Any], shape: str, ending: RunEnding, page: PageOptions
) -> None:
    """Run agents on datasets and show each result; the ending is complete if every planned trial has a reward."""

    @contextmanager
    def watched() -> Iterator[Progress]:
        with redirect_stdout(sys.stderr), Progress(unit="trials") as progress:
            yield progress

    for report in load(AGENT_RUNS).run(benchmarks, given, watched, print_note):
        ending.reports.append(report)
        show_result(report.result, shape, **page)
        if shape in SEPARATOR:
            write(f"{SEPARATOR[shape]}{clean(report.environment, None)}\n")
        print_result_notes(report.result)
        print_err(f"{report.folder}/result.json")
    ending.complete = all(report.complete for report in ending.reports)


def _run_models(
    benchmarks: Sequence[str],
    given: Mapping[str, Any],
    shown: Sequence[str],
    cache_requests: str,
    reports: list[Report],
    *,
    together: bool = False,
) -> int:
    """Run each job, and add its report to ``reports``; return the number of planned runs.

    ``together``: run different models at the same time.
    """
    from calipers.running.library import library, loaded_for
    from calipers.running.settings import jobs_of

    jobs, remarks = jobs_of(benchmarks, given)
    print_notes(remarks)
    tasks = loaded_for(jobs, cache_requests)
    if tasks is None:
        options.refuse(OF_LIBRARY, *NO_LIBRARY)
    for name, job in ((name, job) for job in jobs if job.from_library for name in shown):
        texts = getattr(library(), SHOWN[name])(job, tasks)
        for text in [texts] if isinstance(texts, str) else texts:
            print_err(text)
    # extend() adds reports one by one, so earlier reports are kept if a later run is interrupted
    reports.extend(_side_by_side(jobs, tasks) if together else reports_of(jobs, tasks))
    reports.sort(key=lambda report: jobs.index(report.job))
    return len(jobs)


def _side_by_side(jobs: Sequence[Job], tasks: Loaded | None) -> Iterator[Report]:
    """Run the jobs of different models at the same time; yield the report of each job when it ends.

    A job that cannot run is skipped with a note.
    """
    from calipers.cli.live import Watch
    from calipers.running.loop import lanes, side_by_side
    from calipers.running.perform import perform

    several, noted = len(lanes(jobs)) > 1, set[str]()

    def note_once(text: str) -> None:
        if text not in noted:  # every model has the same notes about a benchmark
            noted.add(text)
            print_note(text)

    def work(job: Job) -> Report:
        with Watch(_title(job) if len(jobs) > 1 else "", drawn=not several) as watch:
            return perform(job, watch, note_once, tasks)

    for job, outcome in side_by_side(jobs, work):
        if not isinstance(outcome, BaseException):
            yield outcome
        elif isinstance(outcome, CalipersError) and len(jobs) > 1:
            if str(outcome) not in noted:  # several runs may fail because of the same setting
                noted.add(str(outcome))
                print_note(f"{_title(job)}: {outcome}")
        else:
            raise outcome


def _title(job: Job) -> str:
    return f"{job.lm_eval or job.benchmark} · {job.model}"


def _suite(benchmarks: Sequence[str], given: Mapping[str, Any]) -> SuiteCommand | None:
    """The suite to run, with its gate read and checked; None, at little cost, if the benchmarks are no suite."""
    if not any(benchmark.endswith((".yaml", ".yml")) for benchmark in benchmarks):
        return None
    from calipers.running.settings import suite_file

    file = suite_file(benchmarks)
    if file is None:
        return None
    from calipers.cli.suite import suite_command  # loads the gate, which other benchmarks do not need

    suite = suite_command(file)
    suite.check(given)
    return suite


def reports_of(jobs: Sequence[Job], tasks: Loaded | None) -> Iterator[Report]:
    """Run the jobs one after the other, and yield the report of each.

    If there are several jobs, one that cannot run is skipped with a note. Ctrl-C ends the current run, and no other
    starts. ``tasks`` are the loaded tasks of a library, which all models share.
    """
    from calipers.cli.live import Watch
    from calipers.running.perform import perform

    for number, job in enumerate(jobs, 1):
        try:
            with Watch(_title(job) if len(jobs) > 1 else "") as watch:
                report = perform(job, watch, print_note, tasks)
            yield report
        except CalipersError as error:
            if len(jobs) == 1:
                raise
            print_note(f"{_title(job)}: {error}")
        else:
            if report.interrupted and number < len(jobs):
                print_note(f"interrupted: {len(jobs) - number} of {len(jobs)} runs were not started")
                return


def dry_run_pages(benchmarks: Sequence[str], given: Mapping[str, Any]) -> str:
    """The page of a dry run: the first five questions of each benchmark."""
    from calipers.running.library import loaded_for
    from calipers.running.perform import rehearse
    from calipers.running.settings import jobs_of

    jobs, remarks = jobs_of(benchmarks, {"model": ("none/none",), **given})
    print_notes(remarks)
    tasks = loaded_for(jobs)
    seen = set[str]()
    pages = []
    for job in jobs:
        name = f"{job.benchmark}\0{job.lm_eval}"
        if name not in seen:
            seen.add(name)
            suite, questions = rehearse(job, tasks)
            pages.append(as_lines(_question_lines(suite, questions)))
            print_notes(suite.notes)
    return "\n".join(pages)


def _question_lines(suite: Suite, questions: Sequence[Task]) -> Iterator[str]:
    from calipers.reports.figures import counted

    yield suite.opening[0] if suite.opening else f"{suite.name}: {counted(len(questions), 'task')}"
    for task in questions[:FIRST]:
        yield ""
        location = suite.places.get(task.id)
        yield f"id: {task.id}" + (f" ({location})" if location else "")
        yield from _text("prompt", task.prompt)
        if task.target is not None:
            yield from _text("target", task.target)
        if task.metadata:
            yield f"metadata: {json.dumps(dict(task.metadata), ensure_ascii=False, default=str)}"
    more = len(questions) - FIRST
    yield ""
    others = f"; {counted(more, 'more question')} like these" if more > 0 else ""
    yield f"no request was sent{others}"


def _text(name: str, value: Any) -> Iterator[str]:
    """The lines of a named text; several lines are indented below the name."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lines = text.splitlines() or [""]
    if len(lines) == 1:
        yield f"{name}: {lines[0]}"
    else:
        yield f"{name}:"
        yield from (f"  {line}" for line in lines)
