"""The command: parse, one public call, print. What a command needs is loaded when it runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from calipers.cli.output import discard_output, tell
from calipers.errors import CalipersError, UnknownName
from calipers.names import load
from calipers.reports.untrusted_text import clean

BUG = 70  # what sysexits.h calls an internal software error
INTERRUPTED = 130
NOBODY_READS = 141  # as a process ends that writes into a closed pipe
USAGE = 2

COMMANDS: Final = {  # name -> (module:function, one line of help)
    "run": ("calipers.cli.run:run", "Run a benchmark against a model; the same command goes on."),
    "lm-eval": ("calipers.cli.lm_eval:lm_eval", "Run lm-evaluation-harness' tasks by its own command line."),
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


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.pass_context
def commands(ctx: click.Context, version: bool) -> None:
    """Turn LLM rollouts into numbers one can defend."""
    if version:
        from calipers import __version__

        click.echo(f"calipers {__version__}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command with this process's arguments, and end the process."""
    if "_CALIPERS_COMPLETE" in os.environ:  # a shell asks what could come next
        commands.main(prog_name="calipers")
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run the command; whatever goes wrong is one line on standard error and an exit code."""
    try:
        with commands.make_context("calipers", [*arguments]) as ctx:  # click's own main would swallow a closed pipe
            commands.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    except CalipersError as error:
        return _say(str(error), error.exit_code)
    except click.ClickException as error:
        return _say(_one_line(error, arguments), USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return NOBODY_READS
    except SystemExit as stop:
        return _say(f"a plugin ended the run: SystemExit: {stop.code}", USAGE)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            discard_output()
            return _say("standard output: cannot be written (No space left on device)", USAGE)
        return _bug(error, verbose=not {"-v", "--verbose"}.isdisjoint(arguments))
    return 0


def _say(text: str, code: int) -> int:
    tell(clean(text, None))
    return code


def _bug(error: Exception, *, verbose: bool) -> int:
    if verbose:
        import traceback

        tell("".join(traceback.format_exception(error)).rstrip("\n"))
    more = "" if verbose else "; run again with -v for the traceback"
    return _say(f"this is a bug in Calipers: {type(error).__name__}: {error}{more}", BUG)


def _one_line(error: click.ClickException, arguments: Sequence[str]) -> str:
    """A usage error in the shape of all our errors: what is wrong, and what would be right."""
    command = " ".join(["calipers", *arguments[:1]])  # what cannot be parsed comes without its command
    if isinstance(error, click.UsageError) and error.ctx:
        command = error.ctx.command_path
    if isinstance(error, click.NoSuchOption):
        close = [repr(name) for name in error.possibilities or ()]
        right = f"did you mean {' or '.join(close)}?" if close else f"see {command} --help"
        return f"no option {error.option_name!r}; {right}"
    message = error.format_message().strip().removesuffix(".")
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"
