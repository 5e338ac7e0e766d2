"""``calipers gate``: check results against requirements; exit 0 passed, 1 failed, 3 undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import Target, annotate, plugins_loaded, print_err, rendered, targets, write, write_json
from calipers.errors import InputError
from calipers.reports.untrusted_text import note_line, on_github

if TYPE_CHECKING:
    from calipers.analyses.gate import Gate

REQUIREMENTS = "Requirements"  # a group of options
HISTORY = "Nightly runs"  # a group of options
OF_REQUIREMENTS = (
    "baseline",
    "max_gaps",
    "agent",
    "model",
    "dataset",
    "cluster",
    "threshold",
    "missing",
    "dialect",
    "confidence",
    "seed",
)
"""Options that a history does not read: it has its own test, and takes the rollouts of one model on one dataset."""
FORMATS = ("table", "json", "md", "latex", "junit", "github")


@click.command(cls=options.GroupedCommand)
@click.argument("result", metavar="[RESULT]", required=False, type=options.InputPath())
@options.option(
    REQUIREMENTS,
    "--require",
    "'EXPR OP NUMBER'",
    "Requirement, such as 'lower(pass@1) >= 0.6'; may be repeated. EXPR is METRIC, lower(METRIC), upper(METRIC), "
    "delta(METRIC) or lower(delta(METRIC)). worst(EXPR) assumes the worst of every missing rollout. missing is the "
    "fraction of missing rollouts. METRIC[KEY=VALUE] is a slice, METRIC[task=*] is every task, and "
    "worst(METRIC[task]) is the worst task. OP is < <= > >= ==.",
    multiple=True,
)
@options.file_option(REQUIREMENTS, "--policy", "YAML file with requirements, for one or several results.")
@options.option(
    REQUIREMENTS,
    "--baseline",
    "PATH",
    "Baseline result, rollouts or folder of runs for delta(metric).",
    type=options.InputPath(),
)
@options.option(
    REQUIREMENTS,
    "--max-gaps --max-missing max_gaps",
    "N|N%",
    "Maximum number or percentage of missing rollouts in a group; exit with 3 if more are missing.  "
    "[default: exit with 3 only if they could change the answer]",
)
@options.file_option(
    HISTORY,
    "--history",
    "File with all earlier nights: RESULT is compared with the best of them, and false alarms are controlled over "
    "all nights together. It is created in the first night.",
)
@options.option(
    HISTORY,
    "--alarm",
    "'ALARM > NUMBER'",
    "Regression to look for, such as 'drop(pass@1) > 0.02'.  [default: drop(reward) > 0]",
)
@options.option(
    HISTORY,
    "--false-alarms",
    "SHARE",
    "Highest expected share of false alarms among all alarms.  [default: 0.05]",
    type=click.FloatRange(0, 0.5, min_open=True),
)
@options.option(
    HISTORY,
    "--nights",
    "N",
    "Planned number of nights; it is fixed in the first one.  [default: 180]",
    type=click.IntRange(1, 100_000),
)
@options.option(
    HISTORY,
    "--online",
    "RULE",
    "Rule over nights: e-process, or lord++ or e-lond on the test of each night.  [default: e-process]",
)
@options.option(
    HISTORY,
    "--accept",
    "NIGHT",
    "Accept what changed at this night: it and the nights after it are the new reference, and an open alarm ends.",
    type=click.IntRange(1),
)
@options.pick_group
@options.cluster
@options.columns
@options.reward()
@options.reward_range
@options.threshold
@options.missing_compared
@options.trust_reader
@options.confidence(None)
@options.seed(None)
@options.file_option(options.OUTPUT, "--junit", "Also write the checks as JUnit XML to this file.")
@options.out
@options.shape(*FORMATS)
@options.dialect
@options.plugins
def gate(
    result: str | None,
    plugins: tuple[str, ...],
    columns: tuple[str, ...],
    junit: str | None,
    out: str | None,
    shape: str,
    history: str | None,
    alarm: str | None,
    false_alarms: float | None,
    online: str | None,
    nights: int | None,
    accept: int | None,
    **settings: Any,
) -> None:
    """Check RESULT against requirements: exit 0 if they are met, 1 if not, 3 if a value is null.

    RESULT is a result.json, anything that calipers score reads, which is scored first, or a folder of runs. Every
    group must meet every requirement, unless --agent, --model or --dataset selects groups. A null value never
    passes a gate.
    """
    files = targets((junit, out), (result, settings["policy"], settings["baseline"], history))
    settings["columns"] = options.roles(columns)
    nightly: dict[str, Any] = {"alarm": alarm, "online": online, "false_alarms": false_alarms, "nights": nights}
    nightly["accept"] = accept
    with plugins_loaded(plugins):
        if history is not None:
            if not settings["require"] and settings["policy"] is None:
                options.refuse(
                    OF_REQUIREMENTS, "is for requirements, and there are none", "add --require, or remove it"
                )
            from calipers.analyses.gate.history import gate_with_history

            checks = gate_with_history(result, history, **nightly, **settings)
        else:
            if given := [name for name, value in nightly.items() if value is not None]:
                option = f"--{given[0].replace('_', '-')}"
                raise InputError.at(option, "needs --history FILE", "expected the file of earlier nights")
            from calipers.analyses.gate.gate import gate as checked

            checks = checked(result, **settings)
    _write(checks, files, junit)
    _show(checks, shape)
    if checks.exit_code:
        raise click.exceptions.Exit(checks.exit_code)


def _write(checks: Gate, files: dict[str, Target], junit: str | None) -> None:
    for path, target in files.items():
        if path == junit:
            from calipers.analyses.gate import junit_page

            target.write(junit_page(checks).encode())
        else:
            write_json(target, checks)


def _show(checks: Gate, shape: str) -> None:
    """Print the page and its notes; for GitHub, also annotations and the step summary."""
    from calipers.analyses.gate import annotated, document, junit_page

    page = document(checks)
    write(junit_page(checks) if shape == "junit" else rendered(page, shape))
    for note in checks.notes:
        print_err(note_line(note))
    annotate(page, annotated(checks) if on_github() or shape == "github" else ())
