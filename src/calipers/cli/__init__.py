"""The command line. Each command parses its arguments, calls one public function and prints; it is loaded on use."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from calipers.cli.output import discard, print_err
from calipers.errors import CalipersError, EngineError, UnknownName
from calipers.names import load
from calipers.reports.untrusted_text import clean

BUG = 70  # EX_SOFTWARE of sysexits.h: an internal software error
INTERRUPTED = 130
CLOSED_PIPE = 141  # 128 + SIGPIPE
USAGE = 2

COMMANDS: Final = {  # name -> (module:function, one line of help)
    "run": ("calipers.cli.run:run", "Run a benchmark against a model, or resume a run."),
    "lm-eval": ("calipers.cli.lm_eval:lm_eval", "Run lm-evaluation-harness tasks with its own command line."),
    "score": ("calipers.cli.score:score", "Compute metrics from rollouts. No model is called."),
    "merge": ("calipers.cli.merge:merge", "Merge partial scores of many files or machines."),
    "convert": ("calipers.cli.convert:convert", "Convert rollouts of any format to JSON Lines or Parquet."),
    "collect": ("calipers.cli.collect:collect", "Collect rollouts from NeMo Gym agents or a built-in agent."),
    "serve": ("calipers.cli.serve:serve", "Serve NeMo Gym's HTTP routes, or host a NeMo Gym server."),
    "rescore": ("calipers.cli.rescore:rescore", "Verify stored completions again and show what flipped."),
    "compare": ("calipers.cli.compare:compare", "Test whether one run is better than another."),
    "leaderboard": ("calipers.cli.leaderboard:leaderboard", "Rank many models on the same tasks, and show ties."),
    "report": ("calipers.cli.report:report", "Write one HTML file about a run, two runs or many."),
    "view": ("calipers.cli.view:view", "Show runs and every rollout in a browser, live."),
    "watch": ("calipers.cli.watch:watch", "Watch a training run: bands, alarms, the best checkpoint."),
    "gate": ("calipers.cli.gate:gate", "Check requirements: exit 0 passed, 1 failed, 3 undefined."),
    "plan": ("calipers.cli.plan:plan", "Plan how many tasks and samples a comparison needs."),
    "curve": ("calipers.cli.curve:curve", "Compute pass@k and other metrics for every k."),
    "items": ("calipers.cli.items:items", "Show which tasks are hard and which tell runs apart."),
    "judge-check": ("calipers.cli.judge_check:judge_check", "Check a judge against labels and correct its score."),
    "certify": ("calipers.cli.certify:certify", "Certify the numbers of a run, for others to check."),
    "verify": ("calipers.cli.verify:verify", "Check a certificate: exit 0 verified, 1 refused, 3 open."),
    "preregister": ("calipers.cli.preregister:preregister", "Certify the plan of a suite before its runs."),
    "audit": ("calipers.cli.audit:audit", "Look for signs that a run is not what it seems."),
    "check": ("calipers.cli.check:check", "Check a benchmark; --selftest tests its verifiers."),
    "init": ("calipers.cli.init:init", "Create a dataset or a task in Harbor's format."),
    "publish": ("calipers.cli.publish:publish", "Publish a benchmark or a dataset on this machine."),
    "list": ("calipers.cli.list:list_names", "List metrics, verifiers, models, dialects and more."),
    "explain": ("calipers.cli.explain:explain", "Explain a metric, a method or a word of a page."),
    "demo": ("calipers.cli.demo:demo", "Tour Calipers on bundled rollouts, offline."),
}


class Commands(click.Group):
    """The group of all commands, which lists their names and help without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return [*COMMANDS]  # not list(): the module calipers.cli.list has that name here once it is loaded

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the command with this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = load(COMMANDS[cmd_name][0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command to call; the error for an unknown name suggests the nearest names."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UnknownName.of("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; click's own method would import all of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def commands(ctx: click.Context, version: bool) -> None:
    """Turn LLM rollouts into numbers you can defend."""
    if version:
        from calipers import __version__

        click.echo(f"calipers {__version__}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with ``arguments``, by default those of this process; print any error as one line; exit."""
    if "_CALIPERS_COMPLETE" in os.environ:  # a shell requests completions
        commands.main(prog_name="calipers")
    arguments = sys.argv[1:] if arguments is None else arguments
    # numpy's BLAS starts a thread for each core, which spins for 0.1 s before it sleeps; 2**20 cycles are enough
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    code = 0
    try:
        with commands.make_context("calipers", [*arguments]) as ctx:  # click's own main would hide a closed pipe
            commands.invoke(ctx)
    except click.exceptions.Exit as ending:
        code = ending.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (Exception, SystemExit) as error:
        code = _print_error(error, arguments)
    ray = sys.modules.get("ray")
    if code == EngineError.exit_code and ray is not None and ray.is_initialized():
        # the cluster is lost: Ray would end this process later, with another exit code
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _print_error(error: Exception | SystemExit, arguments: Sequence[str]) -> int:
    """Print an error as one line on standard error, and return the exit code."""
    if isinstance(error, CalipersError):
        return _print(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return _print(_one_line(error, arguments), USAGE)
    if isinstance(error, BrokenPipeError):
        discard(sys.stdout)
        return CLOSED_PIPE
    if isinstance(error, SystemExit):
        return _print(f"a plugin ended the run: SystemExit: {error.code}", USAGE)
    if isinstance(error, UnicodeEncodeError):
        for argument in arguments:
            if any("\ud800" <= character <= "\udfff" for character in argument):
                return _print(f"{argument!r:.80} is not UTF-8; expected text in UTF-8", USAGE)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        discard(sys.stdout)
        return _print("standard output: cannot be written (No space left on device)", USAGE)
    return _print_bug(error, verbose=not {"-v", "--verbose"}.isdisjoint(arguments))


def _print(text: str, code: int) -> int:
    print_err(clean(text, None))
    return code


def _print_bug(error: Exception, *, verbose: bool) -> int:
    if verbose:
        import traceback

        print_err("".join(traceback.format_exception(error)).rstrip("\n"))
    more = "" if verbose else "; run again with -v for the traceback"
    return _print(f"this is a bug in Calipers: {type(error).__name__}: {error}{more}", BUG)


def _one_line(error: click.ClickException, arguments: Sequence[str]) -> str:
    """A usage error in the form of all errors of Calipers: the problem, and what is expected."""
    command = " ".join(["calipers", *arguments[:1]])  # for a parsing error without a context
    if isinstance(error, click.UsageError) and error.ctx:
        command = error.ctx.command_path
    if isinstance(error, click.NoSuchOption):
        close = [repr(name) for name in error.possibilities or ()]
        advice = f"did you mean {' or '.join(close)}?" if close else f"see {command} --help"
        return f"no option {error.option_name!r}; {advice}"
    message = error.format_message().strip().removesuffix(".")
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"
