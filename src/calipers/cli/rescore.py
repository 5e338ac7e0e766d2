"""``calipers rescore``: another judge over the stored completions of a run."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli.options import roles, verbose
from calipers.cli.output import plugins_loaded, rendered, tell_notes, write
from calipers.cli.questions import params_of


@click.command()
@click.argument("run", metavar="RUN", type=click.Path())
@click.option("--verifier", metavar="NAME", help="Who judges.  [default: each task's own]")
@click.option("--param", "params", metavar="KEY=VALUE", multiple=True, help="Of the verifier; may be repeated.")
@click.option(
    "--filter",
    "filters",
    metavar="NAME[=SETTING]",
    multiple=True,
    help="What finds the answer in a completion first, such as last_number or 'regex=#### (.+)'; "
    "several work in their order.",
)
@click.option("--benchmark", metavar="DIR", help="Whose tasks hold the targets.  [default: as the run recorded]")
@click.option("--scores", metavar="FILE", help="Rewards that somebody else gave, by task and sample, instead.")
@click.option(
    "--columns", metavar="ROLE=KEY,...", multiple=True, help="What that file calls its keys: task=id,reward=score."
)
@click.option("--name", metavar="NAME", help="Of the new reward.  [default: after filters and verifier, or FILE]")
@click.option("--reward", metavar="KEY", help="Which old reward it is compared with.")
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="A metric of rewards; may be repeated.")
@click.option(
    "--by",
    metavar="KEY",
    multiple=True,
    help="Break the numbers down by a metadata path, task, sample or outcome; may be repeated.",
)
@click.option("--out", metavar="FILE", type=click.Path(), help="[default: rescored-NAME.jsonl beside the rollouts]")
@click.option("--concurrency", type=int, metavar="N", default=32, show_default=True, help="Verdicts at once, at most.")
@click.option(
    "--format", "shape", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Of the output."
)
@click.option(
    "--plugin",
    "plugins",
    metavar="FILE|MODULE",
    multiple=True,
    help="Python code that brings verifiers, filters or metrics; it is run.",
)
@verbose
def rescore(
    run: str, params: tuple[str, ...], columns: tuple[str, ...], shape: str, plugins: tuple[str, ...], **settings: Any
) -> None:
    """Judge the stored completions of RUN again, and show what flipped. No model is asked for other answers.

    RUN is the folder of a run, or JSON Lines with a rollout a line. Its log is only read: the new reward
    goes into a file of its own, beside the old ones.
    """
    with plugins_loaded(plugins):
        from calipers.analyses.rescore.rescore import Rescoring
        from calipers.analyses.rescore.rescore import rescore as judge_again

        rescored = judge_again(Rescoring(run, params=params_of(params), columns=roles(columns), **settings))
    from calipers.analyses.rescore.document import document

    write(rendered(document(rescored), shape))
    tell_notes(rescored.notes)
