"""``calipers collect``: rollouts from NeMo Gym's agent servers, or from the built-in agent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.options import given_options, verbose
from calipers.cli.output import notes, plugins_loaded, show_result, tell
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.cli.watch import Watch
    from calipers.systems.nemo_gym.collect.loop import LaneStanding

INCOMPLETE = 3
FORMATS = ("table", "json", "csv", "md")


@click.command()
@click.argument("words", metavar="[+KEY=VALUE]...", nargs=-1)
@click.option("--input", metavar="FILE", type=click.Path(), help="Tasks, one JSON object a line.")
@click.option("--output", metavar="FILE", type=click.Path(), help="Rollouts; NeMo Gym's other files go beside it.")
@click.option(
    "--agent",
    "agents",
    metavar="NAME=URL",
    multiple=True,
    help="An agent server, or NAME=openai/MODEL for the built-in agent; may be repeated. "
    "Others are looked up at NeMo Gym's head server.",
)
@click.option("--agent-name", metavar="NAME", help="For tasks that name no agent.  [default: the only --agent]")
@click.option("--num-repeats", metavar="N", help="Rollouts of each task; by agent: math=4,_default=1.  [default: 1]")
@click.option("--add-seed", is_flag=True, default=None, help="Give each rollout its number as a seed.")
@click.option("--limit", type=int, metavar="N", help="Only the first N lines of the input.")
@click.option("--prompt-config", metavar="FILE", type=click.Path(), help="YAML with user and system templates.")
@click.option("--responses-create-params", "params", metavar="JSON", help="Laid over every task's own.")
@click.option("--temperature", type=float, metavar="T", help="Likewise, this one alone.")
@click.option("--top-p", type=float, metavar="P", help="Likewise.")
@click.option("--max-output-tokens", type=int, metavar="N", help="Likewise.")
@click.option("--base-url", metavar="URL", help="Of the built-in agent's model.  [default: $OPENAI_BASE_URL]")
@click.option("--verify-url", metavar="URL", help="A resources server that judges the built-in agent's answers.")
@click.option("--verifier", metavar="NAME", help="A verifier that does, such as exact_match.")
@click.option("--concurrency", type=int, metavar="N", help="Rollouts in flight at most.  [default: 32]")
@click.option("--retries", type=int, metavar="N", help="Further tries of a call that failed.  [default: 8]")
@click.option("--timeout", type=float, metavar="S", help="Seconds for one rollout.  [default: 1800]")
@click.option("--token-env", metavar="VAR", help="Show the servers the token that this environment variable holds.")
@click.option("--resume/--overwrite", "resume", default=True, help="Go on with what is there, or begin anew.")
@click.option("--local", is_flag=True, default=None, help="Compute all metrics here; ask no agent for its own.")
@click.option("--disable-aggregation", is_flag=True, default=None, help="Write no metrics file.")
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Of the table; may be repeated.")
@click.option(
    "--format", "shape", type=click.Choice(FORMATS), default="table", show_default=True, help="Of standard output."
)
@click.option(
    "--plugin", "plugins", metavar="FILE|MODULE", multiple=True, help="Python code that brings verifiers; it is run."
)
@verbose
@click.pass_context
def collect(
    ctx: click.Context, /, words: tuple[str, ...], plugins: tuple[str, ...], shape: str, **options: Any
) -> None:
    """Collect rollouts from agent servers, aggregate and score them.

    Each task is posted to its agent's /run as often as asked. The same command again goes on where
    the last one stopped. The arguments of ng_collect_rollouts, such as +num_repeats=4, mean the same here.
    """
    given = given_options(ctx, options)
    with plugins_loaded(plugins):
        from calipers.cli.watch import Watch
        from calipers.systems.nemo_gym.collect.collect import collect as perform
        from calipers.systems.nemo_gym.collect.request import collecting

        request = collecting(given, words)
        with Watch() as watch:
            collection = perform(request, lambda standing: _look(watch, standing))
    show_result(collection.result, shape)
    notes(collection.result)
    for line in collection.headlines:
        tell(f"key metrics of {clean(line, None)}")
    for note in collection.notes:
        tell(f"note: {clean(note, None)}")
    if collection.stopped:
        tell(f"note: stopped early: {clean(collection.stopped, None)}; the same command goes on")
    tell(str(collection.metrics or collection.output))
    if not collection.complete:
        ctx.exit(INCOMPLETE)


def _look(watch: Watch, standing: LaneStanding) -> None:
    """Show where a collection stands, if it is time to."""
    from calipers.cli.watch import State

    if not watch.due() and standing.in_flight:
        return
    waiting = f"the last calls, as {standing.stopped}" if standing.stopped else ""
    watch.tick(
        State(
            planned=standing.planned,
            done=standing.done,
            outcomes=dict(standing.outcomes),
            spent=None,
            elapsed=time.monotonic() - standing.began,
            in_flight=standing.in_flight,
            limit=sum(lane.pace.limit for lane in standing.lanes),
            waiting=waiting or (f"rate limit: {standing.held:.0f} s" if standing.held >= 1 else ""),
        )
    )
