"""``calipers run``: a benchmark against a model, or a suite: its plan, its matrix, its gate and its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.analyses.gate.policy import KEYS, NamedResult, Policy, policy_of
from calipers.cli import options
from calipers.cli.matrix import FOR_PEOPLE, folder_of, matrix_of, show_matrix
from calipers.cli.output import (
    PageOptions,
    Progress,
    notes,
    plugins_loaded,
    rendered,
    show,
    show_page,
    show_result,
    tell,
    tell_lines,
    tell_notes,
    write,
)
from calipers.cli.questions import dry_run_pages, own_questions
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.names import AGENT_RUNS, load
from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn
from calipers.reports.figures import counted
from calipers.reports.untrusted_text import clean, safe_json
from calipers.running.settings import SuiteFile, jobs_of, suite_file
from calipers.systems.system import replaces, run_export, run_pages

if TYPE_CHECKING:
    from calipers.analyses.gate.document import Gate
    from calipers.analyses.matrix.result import Matrix
    from calipers.running.job import Job
    from calipers.running.library import Loaded
    from calipers.running.notify import Listener
    from calipers.running.perform import Report

USAGE, INCOMPLETE = 2, 3
SHOWN = {"check_integrity": "integrity", "write_out": "written_out", "show_config": "shown_config"}
"""Flag -> the function of a task library behind it."""
AFTER = {"table": "", "md": "\n"}  # pages for people, and what parts a line from the text before it


@click.command(cls=options.GroupedCommand)
@click.argument("benchmarks", metavar="BENCHMARK...", nargs=-1, required=True)
@own_questions
@options.option(
    "--model",
    group=options.MODEL,
    metavar="KIND/NAME",
    multiple=True,
    help="Model to run, such as openai/gpt-4o-mini; may be repeated.",
)
@options.asking
@options.scoring
@options.option(
    "--out",
    group=options.OUTPUT,
    metavar="DIR",
    type=options.FolderPath(path_type=Path),
    help="Run folder.  [default: a folder below runs/]",
)
@options.shape()
@options.details
@options.economics
@options.every_row
@options.option(
    "--notify",
    group=options.OUTPUT,
    metavar="COMMAND|URL",
    multiple=True,
    help="Run this command, or post to this http(s):// URL, when the run ends, with the results as JSON; may be "
    "repeated.",
)
@options.dialect
@options.trust(None)
@options.of_lm_eval
@options.option(
    "--export",
    group=options.LM_EVAL,
    metavar="lm_eval[=DIR]",
    help="Also write lm-evaluation-harness' own result files.",
)
@options.of_harbor
@options.plugins
@options.option(
    "--unsafe-no-sandbox",
    "unsafe",
    group=options.GENERAL,
    is_flag=True,
    help="Run programs that the model wrote even if no sandbox is available.",
)
@options.verbose
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
        _note("--unsafe-no-sandbox: if no sandbox is available, programs that the model wrote run with your rights")
    export = settings.pop("export")
    shown = [name for name in SHOWN if settings.pop(name)]
    cache_requests = settings.pop("cache_requests") or ""
    folders = run_export(export) if export is not None else {}
    given = options.given_options(ctx, settings)
    listeners = _listeners(notify)
    page = PageOptions(details=details, economics=economics, every=every)
    with plugins_loaded(plugins):
        suite = _suite(benchmarks, given)
    if dry_run:
        with plugins_loaded(plugins):
            pages = suite.plan(given) if suite else dry_run_pages(benchmarks, given)
        write(pages)
        return
    with _notifying(listeners) as ending:
        with plugins_loaded(plugins):
            from calipers.running.perform import by_agents

            of_agents = not suite and by_agents(benchmarks, given)
            planned = 0
            if not of_agents:
                together = suite is not None
                planned = _run_models(benchmarks, given, shown, cache_requests, ending.reports, together=together)
        if of_agents:
            if export is not None:
                wrong, right = "is for lm-evaluation-harness tasks", "remove it: an agent's run writes Harbor's files"
                raise InputError.at("--export", wrong, right)
            if shown := [*shown, *(["cache_requests"] if cache_requests else [])]:
                wrong, right = "is for lm-evaluation-harness tasks", "remove it for an agent's run"
                raise InputError.at(f"--{shown[0].replace('_', '-')}", wrong, right)
            _run_agents(benchmarks, given, shape, ending, page)
        else:
            if not ending.reports:
                ctx.exit(2)  # a note has said why each could not run
            ending.complete = len(ending.reports) == planned and all(report.complete for report in ending.reports)
            if suite:
                code = suite.show(ending.reports, shape, page)
                for report in ending.reports:
                    tell_end(report)
                if code:
                    ctx.exit(code)
            else:
                _show_all(ending.reports, shape, folders, page)
        if not ending.complete:
            ctx.exit(INCOMPLETE)


@dataclass(slots=True)
class RunEnding:
    """What a command has come to."""

    reports: list[Any] = field(default_factory=list)  # of models or of agents
    complete: bool = False


def _listeners(texts: Sequence[str]) -> list[Listener]:
    """Whom --notify names; what cannot be one is an error before the run."""
    if not texts:
        return []
    from calipers.running.notify import listener

    return [listener(text) for text in texts]


@contextmanager
def _notifying(listeners: Sequence[Listener]) -> Iterator[RunEnding]:
    """Whoever listens is told how the block ends, unless nothing ran because the input was wrong."""
    ending = RunEnding()

    def tell_all() -> None:
        if listeners:
            from calipers.running.notify import notify

            notify(listeners, ending.reports, ending.complete, _note)

    try:
        yield ending
    except BaseException as error:
        if ending.reports or not _is_usage(error):
            tell_all()
        raise
    tell_all()


def _is_usage(error: BaseException) -> bool:
    """Whether an error is the user's: exit code 2."""
    if isinstance(error, (click.ClickException, SystemExit)):
        return True
    return isinstance(error, (CalipersError, click.exceptions.Exit)) and error.exit_code == USAGE


def _show_all(reports: Sequence[Report], shape: str, folders: Mapping[str, Any], page: PageOptions) -> None:
    """Show the results, other systems' pages of them, and the closing notes; of several runs the matrix first."""
    from calipers.running.perform import together

    matrix = matrix_of(reports) if shape in FOR_PEOPLE else None
    if matrix is not None:
        show_matrix(matrix, shape, where=folder_of(reports), details=page["details"], every=page["every"])
    for result in together(reports) if matrix is None or page["details"] or page["economics"] else ():
        if not replaces(result.dialect, shape):
            show_result(result, shape, **page)
        notes(result)
    for theirs in run_pages(reports, shape, folders):
        show_page(theirs)
    for report in reports:
        tell_end(report)


def tell_end(report: Report) -> None:
    """Print the closing notes of a run: its notes, whether it stopped early, and the path of its result."""
    tell_notes(report.notes)
    if report.stopped:
        more = "" if report.by_rule else "; run the same command again to resume"
        _note(f"{report.folder}: stopped early: {report.stopped}{more}")
    tell(f"{report.folder}/result.json")


def _run_agents(
    benchmarks: Sequence[str], given: dict[str, Any], shape: str, ending: RunEnding, page: PageOptions
) -> None:
    """Run agents on datasets and show each result; complete if every planned trial has a reward."""

    @contextmanager
    def watched() -> Iterator[Progress]:
        with redirect_stdout(sys.stderr), Progress(unit="trials") as progress:
            yield progress

    for report in load(AGENT_RUNS).run(benchmarks, given, watched, _note):
        ending.reports.append(report)
        show_result(report.result, shape, **page)
        if shape in AFTER:
            write(f"{AFTER[shape]}{clean(report.environment, None)}\n")
        notes(report.result)
        tell(f"{report.folder}/result.json")
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
    """Add the report of each run; the number of runs that were planned. ``together``: models side by side."""
    from calipers.running.library import library, loaded_for
    from calipers.running.settings import jobs_of

    jobs, remarks = jobs_of(benchmarks, given)
    tell_notes(remarks)
    tasks = loaded_for(jobs, cache_requests)
    if cache_requests and tasks is None:
        wrong = "is for tasks of lm-evaluation-harness, and no benchmark is one"
        raise InputError.at("--cache-requests", wrong, "expected none")
    for name, job in ((name, job) for job in jobs if job.from_library for name in shown):
        texts = getattr(library(), SHOWN[name])(job, tasks)
        for text in [texts] if isinstance(texts, str) else texts:
            tell_lines(text)
    # one by one: those that are there stay if a later one is interrupted
    reports.extend(_side_by_side(jobs, tasks) if together else reports_of(jobs, tasks))
    reports.sort(key=lambda report: jobs.index(report.job))
    return len(jobs)


def _side_by_side(jobs: Sequence[Job], tasks: Loaded | None) -> Iterator[Report]:
    """The report of each job as it ends, models at the same time; a job that cannot run is skipped with a note."""
    from calipers.cli.live import Watch
    from calipers.running.perform import perform
    from calipers.running.side_by_side import lanes, side_by_side

    several, told = len(lanes(jobs)) > 1, set[str]()

    def say(text: str) -> None:
        if text not in told:  # each model would say it of its benchmark
            told.add(text)
            _note(text)

    def work(job: Job) -> Report:
        with Watch(f"{job.benchmark} · {job.model}" if len(jobs) > 1 else "", drawn=not several) as watch:
            return perform(job, watch, say, tasks)

    for job, outcome in side_by_side(jobs, work):
        if not isinstance(outcome, BaseException):
            yield outcome
        elif isinstance(outcome, CalipersError) and len(jobs) > 1:
            if str(outcome) not in told:  # a setting that is wrong for one run is wrong for all
                told.add(str(outcome))
                _note(f"{job.benchmark} · {job.model}: {outcome}")
        else:
            raise outcome


def _suite(benchmarks: Sequence[str], given: Mapping[str, Any]) -> SuiteCommand | None:
    """The suite that is to be run, its gate read and checked; None for other benchmarks, at little cost."""
    if not any(benchmark.endswith((".yaml", ".yml")) for benchmark in benchmarks):
        return None
    suite = suite_command(benchmarks)
    if suite is not None:
        suite.check(given)
    return suite


def reports_of(jobs: Sequence[Job], tasks: Loaded | None) -> Iterator[Report]:
    """The report of each job; if there are several, a job that cannot run is skipped with a note.

    ``tasks`` are those of a library; each is loaded once for all models.
    """
    from calipers.cli.live import Watch
    from calipers.running.perform import perform

    for job in jobs:
        try:
            with Watch(f"{job.benchmark} · {job.model}" if len(jobs) > 1 else "") as watch:
                report = perform(job, watch, _note, tasks)
            yield report
        except CalipersError as error:
            if len(jobs) == 1:
                raise
            _note(f"{job.benchmark} · {job.model}: {error}")


def _note(text: str) -> None:
    tell_notes([text])


BASELINE = "baseline"
OF_GATE = (BASELINE, *(key for key in KEYS if key != "results"))
UNDEFINED = 3  # exit code of a gate that cannot be checked
MATRIX_FILE, GATE_FILE = "matrix.json", "gate.json"


@dataclass(frozen=True, slots=True)
class SuiteCommand:
    """A suite that is to be run: its file, and the rules of its gate."""

    file: SuiteFile
    policy: Policy | None  # without results, which the runs will be
    baseline: str | None = None  # a model of the suite, or a path

    def plan(self, given: Mapping[str, Any]) -> str:
        """The page of a dry run: what would be run, where, and what would be checked."""
        from calipers.running.library import loaded_for
        from calipers.running.perform import rehearse

        jobs, remarks = jobs_of([self.file.path], given)
        tell_notes(remarks)
        tasks = loaded_for(jobs)
        sizes: dict[str, int] = {}
        for job in jobs:
            key = _planned_key(job)
            if key not in sizes:
                sizes[key] = len(rehearse(job, tasks)[1])
        return rendered(_plan_page(self, jobs, [sizes[_planned_key(job)] for job in jobs]), "table")

    def check(self, given: Mapping[str, Any]) -> None:
        """InputError, before anything runs, for a rule about an unknown metric, and for a baseline that is no model."""
        jobs = jobs_of([self.file.path], given)[0] if self.policy is not None else []
        self._check_rules(jobs)
        if self.baseline is None:
            return
        models = list(dict.fromkeys(job.model for job in jobs))
        where = f"{self.file.path}:{self.file.lines.get(('gate', BASELINE), 1)}"
        if self.baseline not in models and not os.path.exists(self.baseline):
            raise InputError.at(where, str(UnknownName.of("model in this suite", self.baseline, models)))
        if models == [self.baseline]:
            raise InputError.at(where, f"{self.baseline} is the only model", "expected another one to check")

    def _check_rules(self, jobs: Sequence[Job]) -> None:
        """Look up the metrics of the rules; the tasks of a library have metrics of their own, which are known later."""
        from calipers.request import make_plan

        if self.policy is None or any(job.from_library for job in jobs):
            return
        lines = self.file.lines
        for rule in self.policy.requirements:
            if not rule.missing:
                try:
                    make_plan([rule.metric], dialect=jobs[0].dialect)
                except UnknownName as error:
                    where = f"{self.file.path}:{lines.get(('gate', rule.tier)) or lines.get(('gate',), 1)}"
                    raise InputError.at(where, f"{rule.text!r}: {error}") from None

    def show(self, reports: Sequence[Report], shape: str, page: PageOptions) -> int:
        """Show matrix and gate, and write them beside the runs; the exit code of the gate, 0 without one.

        ``page`` are the options of the pages of the runs: details, economics, every.
        """
        from calipers.running.perform import together

        folder = folder_of(reports)
        matrix = matrix_of(reports)
        paged = matrix is None or ((page["details"] or page["economics"]) and shape in FOR_PEOPLE)
        if matrix is not None:
            _write(folder, reports, MATRIX_FILE, matrix)
            show_matrix(matrix, shape, where=folder, details=page["details"], every=page["every"])
        for result in together(reports) if paged else ():
            show_result(result, shape, **page)
            notes(result)
        if self.policy is None:
            return 0
        if self._baseline_lost(reports):
            tell_notes([f"the gate was not checked: its baseline {self.baseline} has no run"])
            return UNDEFINED
        checks = self.checked(reports)
        from calipers.analyses.gate.document import document

        _write(folder, reports, GATE_FILE, checks)
        if shape in FOR_PEOPLE:
            write("\n")
            show(document(checks), shape)
        else:
            tell(f"gate: {clean(checks.headline(), None)}")
        tell_notes(checks.notes)
        return checks.exit_code

    def _baseline_lost(self, reports: Sequence[Report]) -> bool:
        """Whether the baseline is a model of the suite that could not run."""
        if self.baseline is None or os.path.exists(self.baseline):
            return False
        return all(report.job.model != self.baseline for report in reports)

    def checked(self, reports: Sequence[Report]) -> Gate:
        """The rules of the gate, checked for every run but those of the baseline."""
        from calipers.analyses.gate.gate import held_against
        from calipers.analyses.gate.numbers import GateScoring

        assert self.policy is not None
        folders = [str(report.folder) for report in reports if report.job.model != self.baseline]
        before = [str(report.folder) for report in reports if report.job.model == self.baseline]
        named = NamedResult(self.file.path, folders, before[0] if len(before) == 1 else before or self.baseline)
        job = reports[0].job
        scoring = GateScoring(job.dialect, job.missing, job.cluster, job.reward, None, {}, job.confidence, job.seed)
        policy = Policy(self.policy.requirements, [named], self.policy.max_gaps, self.policy.allowed_failures)
        return held_against(policy, scoring, alone=True)


def suite_command(benchmarks: Sequence[str]) -> SuiteCommand | None:
    """The suite of a command with its gate read; None where the benchmarks are no suite."""
    file = suite_file(benchmarks)
    if file is None:
        return None
    if file.gate is None:
        return SuiteCommand(file, None)
    line = file.lines.get(("gate",), 1)
    where = f"{file.path}:{line}: gate"
    content = {"critical": file.gate} if isinstance(file.gate, (str, list)) else file.gate
    if isinstance(content, dict) and isinstance(content.get("critical"), str):
        content = {**content, "critical": [content["critical"]]}
    if not isinstance(content, dict):
        raise InputError.at(where, f"is {file.gate!r:.60}", "expected a list of rules, or critical: [...]")
    baseline = content.get(BASELINE)
    if baseline is not None and not isinstance(baseline, str):
        raise InputError.at(where, f"baseline is {baseline!r:.60}", "expected a model of the suite, or a path")
    for key in content:
        if key not in OF_GATE:
            place = f"{file.path}:{file.lines.get(('gate', key), line)}"
            raise InputError.at(place, str(UnknownName.of("key of a gate", str(key), OF_GATE)))
    rules = {key: value for key, value in content.items() if key != BASELINE}
    policy = policy_of(rules, where, OF_GATE)
    if baseline is None and (moved := [rule.text for rule in policy.requirements if rule.delta]):
        raise InputError.at(where, f"{moved[0]!r} needs a baseline", "add baseline: MODEL, or a path, to the gate")
    return SuiteCommand(file, policy, baseline)


def _write(folder: str, reports: Sequence[Report], name: str, page: Matrix | Gate) -> None:
    """Write a document beside the runs, where they have a folder that is the suite's own."""
    from calipers.cli.output import Target

    if folder and reports[0].job.out is not None:
        Target(os.path.join(folder, name)).write(safe_json(page.to_json()).encode())


def _planned_key(job: Job) -> str:
    return f"{job.benchmark}\0{job.lm_eval}\0{job.limit}\0{job.documents}"


def _plan_page(suite: SuiteCommand, jobs: Sequence[Job], sizes: Sequence[int]) -> Document:
    """A row for each run that would be made."""
    benchmarks = dict.fromkeys(f"{job.benchmark}\0{job.lm_eval}" for job in jobs)
    models = dict.fromkeys(job.model for job in jobs)
    rollouts = sum(size * job.samples for size, job in zip(sizes, jobs, strict=True))
    counts = [counted(len(benchmarks), "benchmark"), counted(len(models), "model"), counted(len(jobs), "run")]
    columns = [
        TableColumn("benchmark", style="strong", middle=True),
        TableColumn("model", style="strong", middle=True),
        TableColumn("tasks", "right"),
        TableColumn("samples", "right"),
        TableColumn("rollouts", "right"),
        TableColumn("at once", "right"),
    ]
    rows = [
        Row(
            [
                Name(job.lm_eval or job.benchmark, None),
                Name(job.model, None),
                f"{size:,}",
                f"{job.samples:,}",
                f"{size * job.samples:,}",
                f"{job.concurrency:,}",
            ]
        )
        for job, size in zip(jobs, sizes, strict=True)
    ]
    out = jobs[0].out or "runs"
    blocks: list[Block] = [
        Sentence(f"{clean(suite.file.path, None)}: {', '.join(counts)}, {counted(rollouts, 'rollout')}", "strong"),
        Blank(),
        Table(columns, rows),
        Blank(),
        Sentence(f"Runs are kept in {clean(str(out), None)}; run the command again to resume them."),
        *_rules(suite),
        Sentence("No request was sent."),
    ]
    return Document(lambda: blocks, dict)


def _rules(suite: SuiteCommand) -> list[Sentence]:
    if suite.policy is None:
        return []
    texts = [f"{rule.text} ({rule.tier})" for rule in suite.policy.requirements]
    against = f", deltas against {clean(suite.baseline, None)}" if suite.baseline else ""
    return [Sentence(f"The gate checks {counted(len(texts), 'rule')}{against}: {clean('; '.join(texts), None)}.")]
