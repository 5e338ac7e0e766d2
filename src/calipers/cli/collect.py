"""``calipers collect``: rollouts from NeMo Gym's agent servers or from the built-in agent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import plugins_loaded, print_err, print_note, print_notes, print_result_notes, show_result
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.cli.live import Watch
    from calipers.systems.nemo_gym.collect.loop import LaneStanding

INCOMPLETE = 3
TASKS, AGENTS = "Tasks", "Agents"  # groups of options


@click.command(cls=options.GroupedCommand)
@click.argument("words", metavar="[+KEY=VALUE]...", nargs=-1)
@options.file_option(TASKS, "--input", "Input file of tasks, with a JSON object per line.")
@options.integer(TASKS, "--limit", "N", "Use only the first N lines of the input.")
@options.file_option(TASKS, "--prompt-config", "YAML file with templates for user and system messages.")
@options.option(
    AGENTS,
    "--agent agents",
    "NAME=URL",
    "Agent server, or NAME=openai/MODEL for the built-in agent; may be repeated. NeMo Gym's head server "
    "resolves the agents that are not given.",
    multiple=True,
)
@options.option(AGENTS, "--agent-name", "NAME", "Agent for tasks that name none.  [default: the only --agent]")
@options.option(
    AGENTS, "--base-url", "URL", "URL of the built-in agent's OpenAI-compatible server.  [default: $OPENAI_BASE_URL]"
)
@options.option(AGENTS, "--verify-url", "URL", "URL of a resources server that verifies the built-in agent's answers.")
@options.option(AGENTS, "--verifier", "NAME", "Verifier for the built-in agent's answers, such as exact_match.")
@options.option(AGENTS, "--token-env", "VAR", "Environment variable with the token to send to the servers.")
@options.option(
    options.SAMPLING,
    "--num-repeats",
    "N",
    "Number of rollouts per task, or per agent, such as math=4,_default=1.  [default: 1]",
)
@options.flag(options.SAMPLING, "--add-seed", "Send the index of each rollout as its seed.", default=None)
@options.option(
    options.SAMPLING,
    "--responses-create-params params",
    "JSON",
    "Request parameters that override those of every task.",
)
@options.number(options.SAMPLING, "--temperature", "T", "Sampling temperature that overrides the task's.")
@options.number(options.SAMPLING, "--top-p", "P", "Nucleus sampling threshold that overrides the task's.")
@options.integer(options.SAMPLING, "--max-output-tokens", "N", "Maximum output tokens, overriding the task's.")
@options.integer(options.LIMITS, "--concurrency", "N", "Maximum number of rollouts in flight.  [default: 32]")
@options.retries
@options.number(options.LIMITS, "--timeout", "SECONDS", "Timeout of a rollout in seconds.  [default: 1800]")
@options.file_option(
    options.OUTPUT, "--output", "Output file of rollouts; NeMo Gym's other files are written beside it."
)
@options.flag(
    options.OUTPUT,
    "--resume/--overwrite resume",
    "Resume from an existing output file, or overwrite it.  [default: resume]",
    default=True,
)
@options.flag(options.OUTPUT, "--local", "Compute all metrics locally and request none from the agents.", default=None)
@options.flag(options.OUTPUT, "--disable-aggregation", "Do not write a metrics file.", default=None)
@options.metrics()
@options.shape()
@options.page_options
@options.plugins
@click.pass_context
def collect(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    plugins: tuple[str, ...],
    shape: str,
    details: bool,
    economics: bool,
    every: bool,
    **settings: Any,
) -> None:
    """Collect rollouts from agent servers, aggregate and score them.

    Each task is posted to /run of its agent, once per repeat. If a collection stops, run the same command again to
    resume it. The arguments of ng_collect_rollouts, such as +num_repeats=4, work here as well.
    """
    given = options.given_options(ctx, settings)
    with plugins_loaded(plugins):
        from calipers.cli.live import Watch
        from calipers.systems.nemo_gym.collect.collect import collect as perform
        from calipers.systems.nemo_gym.collect.request import collecting

        request = collecting(given, words)
        with Watch() as watch:
            collection = perform(request, lambda standing: _show_progress(watch, standing))
    show_result(collection.result, shape, details=details, economics=economics, every=every)
    print_result_notes(collection.result)
    for line in collection.headlines:
        print_err(f"key metrics of {clean(line, None)}")
    print_notes(collection.notes)
    if collection.stopped:
        print_note(f"stopped early: {collection.stopped}; run the same command again to resume")
    print_err(str(collection.metrics or collection.output))
    if not collection.complete:
        ctx.exit(INCOMPLETE)


def _show_progress(watch: Watch, standing: LaneStanding) -> None:
    """Show the progress of a collection, if an update is due."""
    from calipers.cli.live import State

    if not watch.due() and standing.in_flight:
        return
    waiting = f"the last requests ({standing.stopped})" if standing.stopped else ""
    watch.tick(
        State(
            planned=standing.planned,
            done=standing.done,
            outcomes=dict(standing.outcomes),
            spent=None,
            elapsed=time.monotonic() - standing.began,
            in_flight=standing.in_flight,
            limit=sum(lane.pace.limit for lane in standing.lanes),
            waiting=waiting or (f"rate limit: {standing.pause:.0f} s" if standing.pause >= 1 else ""),
            pause="the last requests" if waiting else "",
            retries=standing.retries,
        )
    )
