"""``calipers collect``: rollouts from NeMo Gym's agent servers or from the built-in agent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import plugins_loaded, print_err, print_notes, print_result_notes, show_result
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.cli.live import Watch
    from calipers.systems.nemo_gym.collect.loop import LaneStanding

INCOMPLETE = 3
TASKS, AGENTS = "Tasks", "Agents"  # groups of options


@click.command(cls=options.GroupedCommand)
@click.argument("words", metavar="[+KEY=VALUE]...", nargs=-1)
@options.option(
    "--input", group=TASKS, metavar="FILE", type=click.Path(), help="Input file of tasks, with a JSON object per line."
)
@options.option("--limit", group=TASKS, type=int, metavar="N", help="Use only the first N lines of the input.")
@options.option(
    "--prompt-config",
    group=TASKS,
    metavar="FILE",
    type=click.Path(),
    help="YAML file with templates for user and system messages.",
)
@options.option(
    "--agent",
    "agents",
    group=AGENTS,
    metavar="NAME=URL",
    multiple=True,
    help="Agent server, or NAME=openai/MODEL for the built-in agent; may be repeated. NeMo Gym's head server "
    "resolves the agents that are not given.",
)
@options.option(
    "--agent-name", group=AGENTS, metavar="NAME", help="Agent for tasks that name none.  [default: the only --agent]"
)
@options.option(
    "--base-url",
    group=AGENTS,
    metavar="URL",
    help="URL of the built-in agent's OpenAI-compatible server.  [default: $OPENAI_BASE_URL]",
)
@options.option(
    "--verify-url",
    group=AGENTS,
    metavar="URL",
    help="URL of a resources server that verifies the built-in agent's answers.",
)
@options.option(
    "--verifier", group=AGENTS, metavar="NAME", help="Verifier for the built-in agent's answers, such as exact_match."
)
@options.option(
    "--token-env", group=AGENTS, metavar="VAR", help="Environment variable with the token to send to the servers."
)
@options.option(
    "--num-repeats",
    group=options.SAMPLING,
    metavar="N",
    help="Number of rollouts per task, or per agent, such as math=4,_default=1.  [default: 1]",
)
@options.option(
    "--add-seed", group=options.SAMPLING, is_flag=True, default=None, help="Send the index of each rollout as its seed."
)
@options.option(
    "--responses-create-params",
    "params",
    group=options.SAMPLING,
    metavar="JSON",
    help="Request parameters that override those of every task.",
)
@options.option(
    "--temperature",
    group=options.SAMPLING,
    type=float,
    metavar="T",
    help="Sampling temperature that overrides the task's.",
)
@options.option(
    "--top-p",
    group=options.SAMPLING,
    type=float,
    metavar="P",
    help="Nucleus sampling threshold that overrides the task's.",
)
@options.option(
    "--max-output-tokens",
    group=options.SAMPLING,
    type=int,
    metavar="N",
    help="Maximum output tokens, overriding the task's.",
)
@options.option(
    "--concurrency",
    group=options.LIMITS,
    type=int,
    metavar="N",
    help="Maximum number of rollouts in flight.  [default: 32]",
)
@options.retries
@options.option(
    "--timeout",
    group=options.LIMITS,
    type=float,
    metavar="SECONDS",
    help="Timeout of a rollout in seconds.  [default: 1800]",
)
@options.option(
    "--output",
    group=options.OUTPUT,
    metavar="FILE",
    type=click.Path(),
    help="Output file of rollouts; NeMo Gym's other files are written beside it.",
)
@options.option(
    "--resume/--overwrite",
    "resume",
    group=options.OUTPUT,
    default=True,
    help="Resume from an existing output file, or overwrite it.  [default: resume]",
)
@options.option(
    "--local",
    group=options.OUTPUT,
    is_flag=True,
    default=None,
    help="Compute all metrics locally and request none from the agents.",
)
@options.option(
    "--disable-aggregation", group=options.OUTPUT, is_flag=True, default=None, help="Do not write a metrics file."
)
@options.metrics()
@options.shape()
@options.details
@options.economics
@options.every_row
@options.plugins
@options.verbose
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
        print_err(f"note: stopped early: {clean(collection.stopped, None)}; run the same command again to resume")
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
