"""Regenerate the generated parts of the documentation: command outputs, and three whole pages.

    python scripts/docs.py            write what is out of date
    python scripts/docs.py --check    write nothing; exit 1 and name the files that are out of date
    python scripts/docs.py README.md docs/recipes/gate_in_ci.md    only these pages

In README.md and below docs/, the text between ``<!-- output: COMMAND -->`` and ``<!-- /output -->`` is the command and
its output, including standard error. Between ``<!-- run: COMMAND -->`` and ``<!-- /run -->`` are a block with the
command, for copying, and a block with its standard output. Between ``<!-- file: PATH -->`` and ``<!-- /file -->`` is
the content of a file. The commands of a page run in the order of the page, in a folder with the files of the
repository only, so that a command may read what an earlier one wrote.

For a page with a line ``<!-- server: COMMAND -->``, that server runs meanwhile, and the page's first block to copy
starts it, without a comment, because zsh accepts no comments in a terminal. The server uses any free port; the page
shows 8000. As measured times vary, the output on such a page is only replaced if something else than times differs.

``docs/metrics.md`` is made from the metric cards, ``docs/commands.md`` from the help of every command,
``docs/api.md`` from the signatures and docstrings of the public names.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import calipers
from calipers.cards import METRIC_CARDS, Card, filled
from calipers.cli import COMMANDS, commands

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^<!-- (?P<kind>output|run|file): (?P<command>.+?) -->\n(?P<shown>.*?)^<!-- /(?P=kind) -->$",
    re.MULTILINE | re.DOTALL,
)
MARKER = re.compile(r"^<!-- /?(?:output|run|file)\b.*$", re.MULTILINE)
SERVER = re.compile(r"^<!-- server: (?P<command>.+?) -->$", re.MULTILINE)
ADDRESS = "127.0.0.1:8000"  # of the server, as pages show it
PORTS = range(8000, 9000)  # all of four digits, so that lines have the same length as on the page
READY = b"ready: "
MADE = {".calipers", ".git", "build", "demo", "dist", "runs"}  # generated files, which are hidden from the commands
EXPECTED = {0, 2, 3}  # success, invalid input, incomplete: a page may show an error
LANGUAGES = {".py": "python", ".yml": "yaml"}
SECONDS = 120
# Measured times: rows of the economics table, their totals, and times in sentences.
TIMES = re.compile(r"^ *(?:time|latency)_\w+ .*$|[\d.,]+ latency_s|(?:\d[\d.,]*\s(?:ms|s|min|h|d)\b ?)+", re.MULTILINE)
PADDING = re.compile(r"[ ─]+")  # its width depends on the longest number


def main(arguments: list[str]) -> int:
    """Regenerate the pages, or list those that are out of date."""
    names = [argument for argument in arguments if argument != "--check"]
    check = len(names) < len(arguments)
    generated = {"metrics.md": metrics_page, "commands.md": commands_page, "api.md": api_page}
    makers = {ROOT / "docs" / name: page for name, page in generated.items()}
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    chosen = {Path(name).resolve() for name in names} or {*paths, *makers}
    if any(name.startswith("-") for name in names) or chosen - {*paths, *makers}:
        print("usage: python scripts/docs.py [--check] [README.md | docs/PAGE.md]...", file=sys.stderr)
        return 2
    stale = []
    for path in dict.fromkeys([*makers, *paths]):
        if path not in chosen:
            continue
        old = path.read_text(encoding="utf-8") if path.exists() else None
        new = makers[path]() if path in makers else renewed(old or "", path.name)
        if new != old:
            stale.append(path)
            print(f"{path.relative_to(ROOT)}: {'out of date; run make docs' if check else 'written'}")
            if not check:
                path.write_text(new, encoding="utf-8")
    return 1 if stale and check else 0


def renewed(page: str, name: str) -> str:
    """The page with the current output of its commands."""
    blocks = list(BLOCK.finditer(page))
    inside = sum(len(MARKER.findall(block[0])) for block in blocks)
    if inside != len(MARKER.findall(page)) or inside != 2 * len(blocks):
        raise SystemExit(
            f"{name}: its output markers do not pair; expected <!-- output: COMMAND --> ... <!-- /output -->"
        )
    if not blocks:
        return page
    server_line = SERVER.search(page)
    server = server_line["command"] if server_line else None
    start = f"{server} &\n" if server else ""
    first = next((block.start() for block in blocks if block["kind"] == "run"), None)

    with prepared(server) as place:

        def block(old: re.Match[str]) -> str:
            kind, command = old["kind"], old["command"]
            if kind == "file":
                new = of_file(command)
            elif kind == "output":
                new = shown(command, place)
            else:
                new = copied(command, place, start if old.start() == first else "")
            kept = server is not None and without_times(new) == without_times(old["shown"])
            return f"<!-- {kind}: {command} -->\n{old['shown'] if kept else new}<!-- /{kind} -->"

        return BLOCK.sub(block, page)


def without_times(text: str) -> str:
    """The output without measured times and the padding around them."""
    return PADDING.sub(" ", TIMES.sub("TIME ", text))


class Place(typing.NamedTuple):
    """The folder in which the commands of a page run, and the address of its server if it has one."""

    folder: Path
    address: str | None = None


@contextmanager
def prepared(server: str | None = None) -> Iterator[Place]:
    """A context with a folder that has the repository's files, and with the running server."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for path in ROOT.iterdir():
            if path.name not in MADE and not path.name.startswith(".venv"):
                (folder / path.name).symlink_to(path)
        if server is None:
            yield Place(folder)
            return
        process, address = started(server, folder)
        try:
            yield Place(folder, address)
        finally:
            process.terminate()
            process.communicate()


def started(server: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server on the first free port; returns its process and address when it has printed that it is ready."""
    for port in PORTS:
        process = subprocess.Popen(
            [*server.split(), "--port", str(port)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        if process.stdout.readline().startswith(READY):
            return process, f"127.0.0.1:{port}"
        message = process.communicate()[1].decode()
        if f"port {port}" not in message:
            raise SystemExit(f"{server}: it does not start\n{message}")
    raise SystemExit(f"{server}: no free port from {PORTS[0]} to {PORTS[-1]}")


def shown(command: str, place: Place) -> str:
    """A block with a command and its output."""
    return fenced("console", f"$ {command}\n{output(command, place)}")


def copied(command: str, place: Place, before: str = "") -> str:
    """A block with a command, for copying, and a block with its standard output."""
    return fenced("sh", f"{before}{command}") + "\n" + fenced("text", output(command, place, notes=False))


def of_file(name: str) -> str:
    """A block with the content of a file in the repository."""
    path = ROOT / name
    return fenced(LANGUAGES[path.suffix], path.read_text(encoding="utf-8"))


def fenced(kind: str, text: str) -> str:
    """A block of code, with a fence longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}\n"


def environment() -> dict[str, str]:
    """The environment of commands: plain text in 100 columns, and ``calipers`` of this virtual environment."""
    programs = str(Path(sys.executable).parent)
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
    settings = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb"}
    return {**kept, **settings, "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}"}


def output(command: str, place: Place, *, notes: bool = True) -> str:
    """The output of a command in the folder of a page; without ``notes``, only its standard output."""
    process = subprocess.run(
        ["sh", "-c", command.replace(ADDRESS, place.address) if place.address else command],
        cwd=place.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if notes else subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    text = process.stdout.decode()
    if process.returncode and not (notes and process.returncode in EXPECTED):  # an error is printed among the notes
        raise SystemExit(f"{command}: exit {process.returncode}\n{text}{'' if notes else process.stderr.decode()}")
    for path in (ROOT, place.folder):
        if str(path) in text:
            raise SystemExit(f"{command}: it prints {path}, which is useless to a reader; use a relative path")
    return text.replace(place.address, ADDRESS) if place.address else text


def metrics_page() -> str:
    """The page with the cards of all metrics, in the order of the index."""
    head = (
        "# Metrics\n\n"
        "<!-- Made by scripts/docs.py from the cards in src/calipers/metrics/cards.toml. -->\n\n"
        "This page defines every built-in metric: its formula and source, its interval, and what other systems mean\n"
        "by the same name. `calipers explain NAME` prints the entry of one metric, for the k you give. In the\n"
        "formulas T is the number of tasks, n the number of samples of a task, c the number of passes among them,\n"
        "and r a reward.\n\n"
    )
    return head + "\n".join(metric_section(card) for card in METRIC_CARDS.values())


def metric_section(card: Card) -> str:
    """The card of a metric as a section of a page."""
    lines = [f"## `{filled(card.name, None)}`", "", _escaped(filled(card.one_line, None)), ""]
    for label, text in card.parts():
        lines.append(f"- **{label}**: {f'`{text}`' if label == 'formula' else _escaped(text)}")
    lines += [f"- **note**: {_escaped(filled(edge, None))}" for edge in card.edges]
    if card.others:
        lines += ["", "| system | meaning there |", "|---|---|"]
        lines += [f"| {system} | {_escaped(filled(text, None))} |" for system, text in card.others.items()]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    for mark in ("\\", "`", "*", "_", "|", "<"):
        text = text.replace(mark, "\\" + mark)
    return text


def commands_page() -> str:
    """The page with the help of every command, as ``--help`` prints it in 100 columns."""
    head = (
        "# Every command\n\n"
        "<!-- Made by scripts/docs.py from the help of the commands. -->\n\n"
        "`calipers COMMAND --help` prints the same.\n\n"
        "| Command | What it does |\n|---|---|\n"
    )
    rows = [f"| [`{name}`](#calipers-{name}) | {text} |\n" for name, (_, text) in COMMANDS.items()]
    return head + "".join(rows) + "".join(command_section(name) for name in COMMANDS)


def command_section(name: str) -> str:
    """The help of a command and of its subcommands."""
    outer = click.Context(commands, info_name="calipers", max_content_width=100, terminal_width=100)
    command = commands.get_command(outer, name)
    assert command is not None
    inner = click.Context(command, info_name=name, parent=outer)
    text = command.get_help(inner)
    parts = [f"\n## calipers {name}\n\n```text\n{text.rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for subcommand_name in command.list_commands(inner):
            subcommand = command.get_command(inner, subcommand_name)
            assert subcommand is not None
            text = subcommand.get_help(click.Context(subcommand, info_name=subcommand_name, parent=inner))
            parts.append(f"\n### calipers {name} {subcommand_name}\n\n```text\n{text.rstrip()}\n```\n")
    return "".join(parts)


def api_page() -> str:
    """The page with the signatures and docstrings of the public names, functions first."""
    head = (
        "# Python API\n\n"
        "<!-- Made by scripts/docs.py from the docstrings of the public names. -->\n\n"
        "`import calipers` gives these names and no others. Each is marked. **Stable**: what it means and the\n"
        "parameters it has stay as they are; new parameters have defaults. **Provisional**: it may still change in a\n"
        "minor version, and the changelog says so.\n"
    )
    names = [name for name in calipers.__all__ if not name.startswith("_")]
    functions = [name for name in names if inspect.isfunction(getattr(calipers, name))]
    classes = [name for name in names if inspect.isclass(getattr(calipers, name))]
    parts = [head]
    for title, group in (("Functions", functions), ("Classes", classes)):
        parts += [f"\n## {title}\n", *(api_section(name, getattr(calipers, name)) for name in group)]
    if left := set(names) - {*functions, *classes}:
        raise SystemExit(f"{sorted(left)}: neither a function nor a class; docs/api.md has no section for it")
    return "".join(parts)


def api_section(name: str, value: Any) -> str:
    """The section of a public name: its signature, its docstring, and its public members."""
    mark = calipers._STABILITY[name].capitalize()
    parts = [f"\n### {name}\n\n*{mark}.*\n\n```python\n{signature(name, value)}\n```\n\n{described(value)}\n"]
    if inspect.isclass(value) and issubclass(value, calipers.Page) and value is not calipers.Page:
        parts.append("\nIt has the members of [`Page`](#page), too.\n")
    if inspect.isclass(value) and not issubclass(value, Exception):
        rows = [member(key, attribute) for key, attribute in vars(value).items() if not key.startswith("_")]
        rows = [row for row in rows if row]
        if rows:
            parts.append("\n| Member | What it is |\n|---|---|\n" + "".join(rows))
    return "".join(parts)


def member(key: str, attribute: Any) -> str:
    """The row of a documented method or property; "" for a field, which is part of the signature."""
    call = attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
    if not isinstance(call, types.FunctionType | property) or not (text := inspect.getdoc(call)):
        return ""
    first = text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| `{key}{'' if isinstance(call, property) else '()'}` | {code(first)} |\n"


def signature(name: str, value: Any) -> str:
    """The signature of a public name, with one parameter per line if it is longer than 100 characters."""
    if inspect.isclass(value) and issubclass(value, Exception | str):
        return f"class {name}({value.__bases__[0].__name__})"
    if typing.is_typeddict(value):
        keys = "".join(f"    {key}: {written(kind)}\n" for key, kind in value.__annotations__.items())
        return f"class {name}(TypedDict, total=False):\n{keys}".rstrip()
    kind = "class" if inspect.isclass(value) else "def"
    parameters = inspect.signature(value)
    rows = [parameter.replace(annotation=Written(parameter.annotation)) for parameter in parameters.parameters.values()]
    answer = parameters.empty if kind == "class" else Written(parameters.return_annotation)
    line = f"{kind} {name}{parameters.replace(parameters=rows, return_annotation=answer)}"
    if len(line) > 100:
        end = "" if kind == "class" else f" -> {answer}"
        line = f"{kind} {name}(\n{''.join(lines_of(rows))}){end}"
    return re.sub(r"<factory>|<function .*? at 0x\w+>|<object object at 0x\w+>", "...", line)


def written(annotation: Any) -> str:
    """The annotation of a key as in the source."""
    return str(getattr(annotation, "__forward_arg__", annotation))


class Written:
    """An annotation whose repr is its text in the source, without quotes."""

    def __init__(self, annotation: Any) -> None:
        self.text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self.text


def lines_of(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """A line for each parameter, with a star before the first keyword-only parameter."""
    star = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            yield "    *,\n"
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield f"    {parameter},\n"


def described(value: Any) -> str:
    """The docstring of a public name as Markdown, with its examples as code."""
    return code(re.sub(r"(?m)^(>>> .*(?:\n(?!\n).*)*)", r"```python\n\1\n```", inspect.getdoc(value) or ""))


def code(text: str) -> str:
    """Text of a docstring as Markdown."""
    return text.replace("``", "`") if "```" not in text else re.sub(r"(?<!`)``(?!`)", "`", text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
