"""``calipers run``: a benchmark against a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli.agents import run_agents, wants_agents
from calipers.cli.group import verbose
from calipers.cli.lm_eval import export_folder, show_theirs
from calipers.cli.output import notes, show_result, tell
from calipers.cli.run_options import asking, reaching, scoring, working
from calipers.errors import CalipersError, InputError
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.running.job import Job
    from calipers.running.perform import Report

INCOMPLETE = 3
FORMATS = ("table", "json", "csv", "md")


@click.command()
@click.argument("benchmarks", metavar="BENCHMARK...", nargs=-1, required=True)
@click.option("--model", metavar="SPEC", multiple=True, help="kind/name, such as openai/gpt-4o-mini; may be repeated.")
@asking
@working
@reaching
@scoring
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="The run's folder.  [default: below runs/]")
@click.option(
    "--format", "shape", type=click.Choice(FORMATS), default="table", show_default=True, help="Of standard output."
)
@click.option("--export", metavar="lm_eval[=DIR]", help="Write its own files, for tasks of lm-evaluation-harness.")
@click.option(
    "--plugin",
    "plugins",
    metavar="FILE|MODULE",
    multiple=True,
    help="Python code that brings metrics or verifiers; it is run.",
)
@click.option(
    "--unsafe-no-sandbox", "unsafe", is_flag=True, help="Run a model's programs even where no sandbox can be had."
)
@verbose
@click.pass_context
def run(
    ctx: click.Context,
    /,
    benchmarks: tuple[str, ...],
    plugins: tuple[str, ...],
    shape: str,
    unsafe: bool,
    **settings: Any,
) -> None:
    """Run each BENCHMARK against each model, judge and score what comes back.

    A BENCHMARK is a directory with tasks.jsonl, a name in the store, a task file or a task's name of
    lm-evaluation-harness, a YAML file that says it all, or, for an agent, a directory of Harbor's tasks.
    The same command again goes on where the last one stopped.
    """
    if unsafe:
        from calipers.isolate.launch import forgo

        forgo()
        _note("--unsafe-no-sandbox: programs written by the model run with your rights where no sandbox can be had")
    export = export_folder(settings.pop("export"))
    given = {name: value for name, value in settings.items() if _was_given(ctx, name)}
    with redirect_stdout(sys.stderr):  # what a plugin prints is no data of ours
        for plugin in plugins:
            from calipers.compat import load_plugin

            load_plugin(plugin)
    if wants_agents(benchmarks, given):
        if export is not None:
            wrong, right = "is for tasks of lm-evaluation-harness", "expected none: an agent's run is Harbor's files"
            raise InputError.at("--export", wrong, right)
        run_agents(ctx, benchmarks, given, shape)
        return
    with redirect_stdout(sys.stderr):
        from calipers.running.settings import jobs_of

        jobs, told = jobs_of(benchmarks, given)
        for note in told:
            _note(note)
        reports = list(_reports(jobs))
    if not reports:
        ctx.exit(2)  # each has said why
    from calipers.running.perform import together

    for result in together(reports):
        if shape != "md" or result.dialect != "lm_eval":
            show_result(result, shape)
        notes(result)
    show_theirs(reports, shape, export)
    for report in reports:
        for note in report.notes:
            _note(note)
        if report.stopped:
            more = "" if report.by_rule else "; the same command goes on"
            _note(f"{report.folder}: stopped early: {report.stopped}{more}")
        tell(f"{report.folder}/result.json")
    if len(reports) < len(jobs) or not all(report.complete for report in reports):
        ctx.exit(INCOMPLETE)


def _reports(jobs: Sequence[Job]) -> Iterator[Report]:
    """Each job's report; of several, one that cannot run is passed over, and says why."""
    from calipers.cli.watch import Watch
    from calipers.running.perform import perform

    tasks = None
    if any(job.lm_eval for job in jobs):
        from calipers.systems.lm_eval.jobs.settings import Loaded

        tasks = Loaded()  # each is loaded once, however many models are asked
    for job in jobs:
        try:
            with Watch(f"{job.benchmark} · {job.model}" if len(jobs) > 1 else "") as watch:
                report = perform(job, watch, _note, tasks)
            yield report
        except CalipersError as error:
            if len(jobs) == 1:
                raise
            _note(f"{job.benchmark} · {job.model}: {error}")


def _was_given(ctx: click.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT)


def _note(text: str) -> None:
    tell(f"note: {clean(text, None)}")
