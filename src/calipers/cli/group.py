"""The commands by name. A command's module is imported when it is called, never for the help."""

from __future__ import annotations

from typing import Final

import click

from calipers.errors import UnknownName
from calipers.names import load

COMMANDS: Final = {  # name -> (module:function, one line of help)
    "run": ("calipers.cli.run:run", "Run a benchmark against a model; the same command goes on."),
    "score": ("calipers.cli.score:score", "Turn rollouts into numbers. No model is called."),
    "collect": ("calipers.cli.collect:collect", "Rollouts from NeMo Gym's agents, or from a built-in one."),
    "serve": ("calipers.cli.serve:serve", "Answer NeMo Gym's routes over HTTP; host a server written for it."),
    "rescore": ("calipers.cli.rescore:rescore", "Judge the stored completions of a run again; show what flipped."),
    "compare": ("calipers.cli.compare:compare", "Say whether one run is better than another, and how sure that is."),
    "gate": ("calipers.cli.gate:gate", "Say whether results are good enough: exit 0 yes, 1 no, 3 unknown."),
    "plan": ("calipers.cli.plan:plan", "Say how many tasks and samples show a difference, and at what price."),
    "curve": ("calipers.cli.curve:curve", "Say what k samples are worth, for every k, with bands and a picture."),
    "items": ("calipers.cli.items:items", "Say which tasks are hard, tell runs apart, or contradict the rest."),
    "judge-check": ("calipers.cli.judge_check:judge_check", "Check a judge against labels, and put its score right."),
    "check": ("calipers.cli.check:check", "Say whether a benchmark is right; --selftest tries its verifiers."),
    "init": ("calipers.cli.init:init", "Start a dataset or a task in Harbor's form, perhaps with a metric.py."),
    "publish": ("calipers.cli.publish:publish", "Put a benchmark into the local store, a dataset into a registry."),
    "list": ("calipers.cli.list:list_names", "List the metrics, verifiers, models, dialects and more there are."),
    "explain": ("calipers.cli.explain:explain", "Say what a metric, a verifier, an outcome or a dialect means."),
    "demo": ("calipers.cli.demo:demo", "A tour on bundled rollouts, offline."),
}


verbose = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback, should Calipers fail."
)
"""An option of every command; `calipers.cli.execute` looks for it."""


class Commands(click.Group):
    """The group of all commands, which knows their names and helps without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, loaded now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = load(COMMANDS[cmd_name][0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; an unknown name is an error that says the nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UnknownName.of("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help; click's own would import every one of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
