"""``calipers demo``: a tour on bundled rollouts. It runs the commands that it shows."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable

import click

from calipers.cli.options import Command
from calipers.cli.output import Target, as_lines, write
from calipers.errors import InputError
from calipers.reports.untrusted_text import is_terminal

ROLLOUTS, REWARDS, RESULT, REPORT = "arith.jsonl", "rewards.json", "result.json", "report.html"
BENCHMARK = ("arith/tasks.jsonl", "arith/metadata.yaml")
METRICS = ("mean_reward", "pass@3", "pass^3", "mean(column=f1)")
WIDTH = 85  # approximate width of a line of a command


@click.command(cls=Command)
@click.option("--out", metavar="DIR", default="demo", show_default=True, help="Folder for the files of the demo.")
def demo(out: str) -> None:
    """Tour Calipers on made-up rollouts: 40 sums with 8 samples each. It works offline."""
    examples = files("calipers") / "examples"
    copies = {name: os.path.join(out, name) for name in (ROLLOUTS, REWARDS, *BENCHMARK)}
    result, report = os.path.join(out, RESULT), os.path.join(out, REPORT)
    for path in (result, report):
        if os.path.lexists(path) and not os.path.lexists(copies[ROLLOUTS]):
            raise _taken(path)
    _make_folder(os.path.join(out, "arith"))
    for name, path in copies.items():
        _copy(examples / name, path)

    _say(f"The folder {out} has 320 rollouts, made up for this tour: 40 sums with 8 samples each.\n")
    _say("The name pass@3 has two meanings. EvSys takes the first 3 samples of each task:")
    _run("score", copies[REWARDS], "--metric", "pass@3", "--dialect", "evsys")
    _say("The unbiased estimator of Chen et al. (2021) uses all samples of the same file:")
    _run("score", copies[REWARDS], "--metric", "pass@3")
    _say("Where does the model fail? The same rollouts with outcomes and usage, by difficulty:")
    metrics = [word for metric in METRICS for word in ("--metric", metric)]
    _run("score", copies[ROLLOUTS], *metrics, "--by", "difficulty", "--out", result)
    _say("Run the benchmark with the completions of this file; run the same command again to resume:")
    model, run = f"replay/{copies[ROLLOUTS]}", os.path.join(out, "run")
    _run("run", os.path.join(out, "arith"), "--model", model, "--samples", "4", "--metric", "pass@1", "--out", run)
    _say("One page about these rollouts, with every one of them; it needs no network:")
    _run("report", copies[ROLLOUTS], "--by", "difficulty", "--out", report)
    _say(f"{result} and {run} have the results with all digits.")
    _say(f"Open {report} in a browser.")


def _say(text: str, colour: str | None = None) -> None:
    text = as_lines(text.split("\n"))
    plain = os.environ.get("NO_COLOR") or not is_terminal(sys.stdout)
    write(text if plain else click.style(text, fg=colour, bold=colour is None))


def _run(*words: str) -> None:
    """Print a command as a shell would read it, and run it."""
    from calipers.cli import commands

    _say(f"$ {_shell(words)}", "green")
    _say("")
    with suppress(click.exceptions.Exit), commands.make_context("calipers", [*words]) as ctx:
        commands.invoke(ctx)  # exit code 3: some completions are missing, as the ledger shows
    _say("")


def _shell(words: Sequence[str]) -> str:
    """A command as a user would type it; a long command is broken into lines before options."""
    lines = ["calipers"]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        needed = len(word) + (len(following) if word.startswith("--") else 0)
        if word.startswith("--") and len(lines[-1]) + needed > WIDTH:
            lines.append("   ")
        lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError.at(path, f"cannot be created as a folder ({error.strerror})", "choose another --out") from None


def _copy(example: Traversable, path: str) -> None:
    """Copy an example; InputError if a file with other content exists."""
    content = example.read_bytes()
    if os.path.lexists(path):
        try:
            with open(path, "rb") as file:
                same = file.read() == content
        except OSError:
            same = False
        if not same:
            raise _taken(path)
        return
    Target(path).write(content)


def _taken(path: str) -> InputError:
    return InputError.at(path, "already exists and is not part of the demo", "choose another --out")
