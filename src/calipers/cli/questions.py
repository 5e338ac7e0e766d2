"""Options of ``calipers run`` for your own questions and of ``calipers init --from``; the page of a dry run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.options import option
from calipers.cli.output import tell_notes
from calipers.errors import InputError
from calipers.names import is_code
from calipers.reports.untrusted_text import clean

if TYPE_CHECKING:
    from calipers.tasks.task import Suite, Task

SHOWN = 5  # questions of a dry run


def params_of(texts: Sequence[str]) -> dict[str, Any]:
    """The parameters of ``--param``; a value is read as JSON if possible, else as text.

    >>> params_of(("ignore_case=true", "marker=Answer:"))
    {'ignore_case': True, 'marker': 'Answer:'}
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            raise InputError.at("--param", f"{text!r} cannot be read", "expected KEY=VALUE, such as ignore_case=true")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value
    return values


def _params(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    return params_of(texts)


def _template(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    return None if text is None else unescaped(text)


def unescaped(text: str) -> str:
    r"""A text of the command line, in which a line break and a tab are written ``\n`` and ``\t``, a backslash ``\\``.

    >>> unescaped(r"Q: {question}\nA:")
    'Q: {question}\nA:'
    """
    return re.sub(r"\\([nt\\])", lambda mark: {"n": "\n", "t": "\t", "\\": "\\"}[mark[1]], text)


TABLE = "Your own questions"
COLUMN_OPTIONS = (
    option(
        "--prompt", group=TABLE, metavar="COLUMN", help="Column with the question.  [default: guessed from its name]"
    ),
    option(
        "--target",
        group=TABLE,
        metavar="COLUMN",
        help="Column with the right answer.  [default: guessed from its name]",
    ),
    option(
        "--id",
        group=TABLE,
        metavar="COLUMN",
        help="Column with the ids, or '#' for a hash of the prompt.  [default: id or task_id, else #]",
    ),
    option(
        "--metadata",
        group=TABLE,
        metavar="COLUMNS",
        multiple=True,
        help="Columns to keep as metadata for --by and --cluster, such as level,source.",
    ),
    option(
        "--template",
        group=TABLE,
        metavar="TEXT|FILE",
        callback=_template,
        help=r"Template of the prompt, such as 'Q: {question}\nA:', or a Jinja file (.jinja, .j2).",
    ),
    option(
        "--choices",
        group=TABLE,
        metavar="COLUMNS",
        multiple=True,
        help="Columns with the choices of a multiple-choice question, such as A,B,C,D, or one column of lists.",
    ),
    option(
        "--shuffle-choices",
        group=TABLE,
        is_flag=True,
        default=None,
        help="Shuffle the choices with the seed of --seed.",
    ),
    option(
        "--index-from",
        group=TABLE,
        type=click.Choice(["0", "1"]),
        callback=lambda context, option, text: None if text is None else int(text),
        help="Index of the first choice, used if targets are indices.",
    ),
)
VERIFIER_OPTIONS = (
    option(
        "--verifier",
        group=TABLE,
        metavar="NAME|FILE.py:FUNCTION",
        help="Verifier to use instead of those that the tasks name; a file is trusted and run, like --plugin.",
    ),
    option(
        "--param",
        "params",
        group=TABLE,
        metavar="KEY=VALUE",
        multiple=True,
        callback=_params,
        help="Parameter of the verifier; may be repeated.",
    ),
)


def own_questions(command: Any) -> Any:
    """The options of ``run`` for questions in a table, and for your own verifier."""
    dry_run = option(
        "--dry-run", group=TABLE, is_flag=True, help="Show five prompts with their targets and send no request."
    )
    for each in reversed((*COLUMN_OPTIONS, *VERIFIER_OPTIONS, dry_run)):
        command = each(command)
    return command


def table_questions(command: Any) -> Any:
    """The options of ``init`` for a benchmark that is made from a table."""
    source = option(
        "--from",
        "table",
        group=TABLE,
        metavar="FILE",
        help="Make the benchmark NAME from a table: CSV, TSV, JSON or Parquet.",
    )
    seed = option(
        "--seed",
        group=TABLE,
        type=int,
        metavar="N",
        default=0,
        show_default=True,
        help="Random seed of --shuffle-choices.",
    )
    for each in reversed((source, *COLUMN_OPTIONS, *VERIFIER_OPTIONS, seed)):
        command = each(command)
    return command


def make_benchmark(name: str | None, table: str, parent: Path, settings: Mapping[str, Any]) -> str:
    """Write the benchmark ``parent/name`` from a table; returns the lines to print."""
    from calipers.tasks.jsonl import write_suite
    from calipers.tasks.questions import Questions, questions_suite
    from calipers.tasks.table import read_table
    from calipers.verifiers.find import named_verifier

    if not name:
        raise InputError.at("--from", "the benchmark has no name", f"expected calipers init NAME --from {table}")
    given = {key: value for key, value in settings.items() if value is not None}
    questions = Questions(**given)
    suite = questions_suite(read_table(table), questions)
    judge = named_verifier(str(suite.tasks[0].verifier))
    for task in suite.tasks:
        try:
            judge.check(task)
        except InputError as error:
            raise InputError(f"{suite.places[task.id]}: {error}") from None
    folder = parent / name
    files = write_suite(folder, suite, questions.params, table)
    tell_notes(suite.notes)
    again = f" --verifier {questions.verifier}" if is_code(questions.verifier or "") else ""
    lines = [
        *suite.opening,
        *(f"wrote {file}" for file in files),
        f"run it with: calipers run {folder}{again} --model ...",
    ]
    return "".join(f"{clean(line, None)}\n" for line in lines)


def dry_run_pages(benchmarks: Sequence[str], given: Mapping[str, Any]) -> str:
    """The page of a dry run: the first five questions of each benchmark."""
    from calipers.running.library import loaded_for
    from calipers.running.perform import rehearse
    from calipers.running.settings import jobs_of

    jobs, remarks = jobs_of(benchmarks, {"model": ("none/none",), **given})
    tell_notes(remarks)
    tasks = loaded_for(jobs)
    seen = set[str]()
    pages = []
    for job in jobs:
        name = f"{job.benchmark}\0{job.lm_eval}"
        if name not in seen:
            seen.add(name)
            suite, questions = rehearse(job, tasks)
            pages.append("".join(f"{clean(line, None)}\n" for line in _lines(suite, questions)))
            tell_notes(suite.notes)
    return "\n".join(pages)


def _lines(suite: Suite, questions: Sequence[Task]) -> Iterator[str]:
    yield suite.opening[0] if suite.opening else f"{suite.name}: {len(questions):,} tasks"
    for task in questions[:SHOWN]:
        yield ""
        where = suite.places.get(task.id)
        yield f"id: {task.id}" + (f" ({where})" if where else "")
        yield from _text("prompt", task.prompt)
        if task.target is not None:
            yield from _text("target", task.target)
        if task.metadata:
            yield f"metadata: {json.dumps(dict(task.metadata), ensure_ascii=False, default=str)}"
    rest = len(questions) - SHOWN
    yield ""
    yield f"no request was sent{f'; {rest:,} more questions like these' if rest > 0 else ''}"


def _text(name: str, value: Any) -> Iterator[str]:
    """A text; if it has several lines, indented on lines of their own."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lines = text.splitlines() or [""]
    if len(lines) == 1:
        yield f"{name}: {lines[0]}"
    else:
        yield f"{name}:"
        yield from (f"  {line}" for line in lines)
