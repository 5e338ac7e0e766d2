"""``calipers lm-eval``: the command line of lm-evaluation-harness."""

from __future__ import annotations

import click

from calipers.cli.output import plugins_loaded, print_err, print_notes, print_result_notes, show_page, write


@click.command(name="lm-eval", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def lm_eval(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Run tasks as the command of lm-evaluation-harness does, with its options and its table."""
    from calipers.systems.lm_eval.command_line import CommandOutput, read_command

    command = read_command(words)
    if isinstance(command, CommandOutput):
        write(command.text)
        ctx.exit(command.exit_code)
    from calipers.cli.run import INCOMPLETE, USAGE, print_end, reports_of
    from calipers.running.library import loaded_for

    print_notes(command.notes)
    with plugins_loaded(()):
        tasks = loaded_for(command.jobs, command.options["cache_requests"] or "")
        for text in command.before(tasks):
            print_err(text)
        reports = list(reports_of(command.jobs, tasks))
    if not reports:
        ctx.exit(USAGE)  # notes say why each run could not start
    show_page(command.page(reports))
    for report in reports:
        print_result_notes(report.result)
        print_end(report)
    if len(reports) < len(command.jobs) or not all(report.complete for report in reports):
        ctx.exit(INCOMPLETE)
