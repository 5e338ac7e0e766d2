"""``calipers gate``: whether results are good enough; exit 0 yes, 1 no, 3 nobody knows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import Target, plugins_loaded, rendered, tell, write
from calipers.errors import InputError
from calipers.names import DIALECTS
from calipers.reports.untrusted_text import clean, harmless, note_line, on_github, safe_json

if TYPE_CHECKING:
    from calipers.analyses.gate.document import Gate
    from calipers.analyses.gate.policy import Policy

FORMATS = ("table", "json", "md", "junit")


@click.command()
@click.argument("result", metavar="[RESULT]", required=False, type=click.Path())
@click.option(
    "--require",
    "requirements",
    metavar="'EXPR OP NUMBER'",
    multiple=True,
    help="What must hold, such as 'lower(pass@1) >= 0.6'; may be repeated. EXPR is a metric, lower(metric), "
    "upper(metric), delta(metric) or lower(delta(metric)); worst(...) of any takes missing rollouts at their worse "
    "end; missing is their share; metric[key=value] is one slice, metric[task=*] every task, worst(pass_rate[task]) "
    "the worst; OP is < <= > >= ==.",
)
@click.option("--policy", metavar="FILE", type=click.Path(), help="A YAML file of requirements, of several results.")
@click.option("--baseline", metavar="PATH", type=click.Path(), help="What delta(metric) is compared with.")
@click.option("--agent", metavar="NAME", help="Ask only the group of this agent.  [default: every group]")
@click.option("--model", metavar="NAME", help="Ask only the group of this model.")
@click.option("--dataset", metavar="NAME", help="Ask only the group of this dataset.")
@click.option(
    "--max-gaps",
    "--max-missing",
    "max_gaps",
    metavar="N|N%",
    help="So many rollouts of a group may be missing; more is exit 3. Without it, exit 3 where they could decide.",
)
@click.option("--dialect", metavar="NAME", help=f"Whose names and rules score rollouts: {', '.join(DIALECTS.entries)}.")
@options.cluster("interval")
@options.reward
@options.reward_range
@click.option("--columns", metavar="ROLE=KEY,...", multiple=True, help="What a file calls its keys: task=id.")
@click.option(
    "--missing", type=click.Choice(["gap", "zero", "fail"]), help="What becomes of gaps, where rollouts are scored."
)
@click.option("--confidence", metavar="SHARE", type=float, help="Of the intervals.  [default: 0.95]")
@click.option("--seed", metavar="N", type=int, help="Of resampling.  [default: 0]")
@click.option("--junit", metavar="FILE", type=click.Path(), help="Write the checks as JUnit XML to this file, too.")
@options.out("the checks")
@options.shape(*FORMATS)
@options.plugins
@options.verbose
def gate(
    result: str | None,
    plugins: tuple[str, ...],
    columns: tuple[str, ...],
    junit: str | None,
    out: str | None,
    shape: str,
    requirements: tuple[str, ...],
    policy: str | None,
    baseline: str | None,
    agent: str | None,
    model: str | None,
    dataset: str | None,
    max_gaps: str | None,
    **scoring: Any,
) -> None:
    """Say whether RESULT is good enough: exit 0 yes, 1 no, 3 when a value is null.

    RESULT is a result.json, or anything that calipers score reads, which is scored first. Every requirement is
    asked of every group, unless --agent, --model or --dataset picks. A gate never passes on a null.
    """
    inputs = [path for path in (result, policy, baseline) if path]
    targets = [Target(path, inputs) for path in (junit, out) if path is not None]
    names = options.roles(columns)
    with plugins_loaded(plugins):
        from calipers.analyses.gate.gate import gate as held_against
        from calipers.analyses.gate.numbers import GateScoring

        who = {"agent": agent, "model": model, "dataset": dataset}
        required = _asked(result, requirements, policy, baseline, max_gaps, who)
        checks = held_against(required, GateScoring(columns=names, **scoring), alone=policy is None)
    _written(checks, targets, junit)
    _show(checks, shape)
    for note in checks.notes:
        tell(note_line(note))
    _tell_github(checks)
    if checks.exit_code:
        raise click.exceptions.Exit(checks.exit_code)


def _asked(
    result: str | None,
    requirements: tuple[str, ...],
    policy: str | None,
    baseline: str | None,
    max_gaps: str | None,
    who: dict[str, str | None],
) -> Policy:
    """What is required of what, by a policy or by the options."""
    from dataclasses import replace

    from calipers.analyses.gate.policy import NamedResult, Policy, gaps_allowed, read_policy
    from calipers.analyses.gate.requirement import parse

    most = None if max_gaps is None else gaps_allowed(max_gaps, "--max-gaps")
    if policy is not None:
        picked = [f"--{name}" for name, value in who.items() if value is not None]
        if clash := [*(["--require"] if requirements else []), *picked]:
            raise InputError.at(clash[0], "stands beside --policy", "expected it in the policy's file")
        required = read_policy(policy)
        if required.results:
            if given := [name for name, value in (("RESULT", result), ("--baseline", baseline)) if value]:
                raise InputError.at(policy, f"names its results, and {given[0]} is given", "expected one of them")
        elif result is None:
            raise InputError.at(policy, "names no results", "expected results: in it, or RESULT beside it")
        else:
            required = replace(required, results=[NamedResult(result, result, baseline)])
        return replace(required, max_gaps=most or required.max_gaps)
    if result is None or not requirements:
        missing = "RESULT" if result is None else "--require 'EXPR OP NUMBER'"
        raise InputError(f"{missing} is missing; expected RESULT with --require, or --policy FILE")
    parsed = [
        replace(parse(text), agent=who["agent"], model=who["model"], dataset=who["dataset"]) for text in requirements
    ]
    return Policy(parsed, [NamedResult(result, result, baseline)], most)


def _written(checks: Gate, targets: list[Target], junit: str | None) -> None:
    for target in targets:
        if target.path == junit:
            from calipers.analyses.gate.ci import render

            target.write(render(checks).encode())
        else:
            target.write(safe_json(checks.to_json()).encode())


def _show(checks: Gate, shape: str) -> None:
    from calipers.analyses.gate import ci
    from calipers.analyses.gate.document import document

    text = ci.render(checks) if shape == "junit" else rendered(document(checks), shape)
    write(_guarded(text, {"json": "#\\u0023[", "junit": "#&#35;["}.get(shape, "# #[")))


def _guarded(text: str, instead: str) -> str:
    """The text as it is; where GitHub's runner reads it, with nothing that it would take for a command."""
    return harmless(text, instead) if on_github() else text


def _tell_github(checks: Gate) -> None:
    """Annotations for the runner, and the summary of its step, where there is a runner."""
    from calipers.analyses.gate import ci
    from calipers.analyses.gate.document import document

    if on_github():
        for line in ci.annotated(checks):
            click.echo(line, err=True)  # our own commands
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(rendered(document(checks), "md") + "\n")
        except OSError as error:
            tell(f"note: {clean(path, None)}: cannot be written ({error.strerror})")
