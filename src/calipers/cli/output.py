"""Output: results on standard output, notes on standard error, files written atomically, and a progress bar."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

import click

from calipers.errors import InputError, display
from calipers.names import SYSTEMS, is_remote
from calipers.reports.untrusted_text import clean, guarded, is_terminal, note_line, safe_json
from calipers.stores import check_target, uploaded

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from calipers.remarks import Remark
    from calipers.reports.document import Document
    from calipers.reports.junit import TestSuite
    from calipers.reports.page import Page
    from calipers.reports.result import Result
    from calipers.running.notify import Listener
    from calipers.systems import OwnPage

PATIENCE = 2.0  # seconds before a progress bar is shown
PRINTED = "calipers.printed"  # the key in a command's context of the notes that it has printed
RENDERERS = {  # format -> the module of calipers.reports
    **{"csv": "csv", "json": "json", "md": "markdown", "table": "terminal"},
    **{"latex": "latex", "github": "markdown"},
}


class PageOptions(TypedDict):
    """The options of a result's page: --details, --economics and --all."""

    details: bool
    economics: bool
    every: bool


@contextmanager
def plugins_loaded(plugins: Iterable[str]) -> Iterator[None]:
    """Load plugins; inside the block, whatever user code prints goes to standard error, away from our output."""
    with redirect_stdout(sys.stderr):
        for plugin in plugins:
            from calipers.compat import load_plugin

            load_plugin(plugin)
        yield


def show(document: Document, shape: str) -> None:
    """Print a document to standard output as a table, JSON, CSV or Markdown."""
    if shape == "table":
        from calipers.reports import terminal

        with standard_output() as stream:
            terminal.show(document, stream)
    else:
        write(rendered(document, shape))


def rendered(document: Document, shape: str) -> str:
    """A document as text in a format; ``table`` gives plain lines, as wide as the terminal if there is one."""
    fits = shape == "table" and is_terminal(sys.stdout)
    settings = {"columns": shutil.get_terminal_size().columns} if fits else {}
    text: str = import_module(f"calipers.reports.{RENDERERS[shape]}").render(document, **settings)
    return text


def show_result(result: Result, shape: str, paths: Sequence[str] = (), *, trust: bool = False, **shown: Any) -> None:
    """Print a result, and the page of its dialect's own system after it or instead of it.

    ``shown`` are the options of the page: details, economics, every. Without them, the page names ``calipers score``
    as the command that has these options.
    """
    from calipers.reports.github import result_annotations
    from calipers.reports.result import document

    shown = shown or {"command": "calipers score RUN "}
    page = None
    if result.dialect in SYSTEMS.entries:
        from calipers.systems import own_page

        page = own_page(result, shape, paths, trust=trust)
    if page is None or not page.alone:
        show(document(result, **shown), shape)
    if shape == "github":
        annotate(document(result, **shown), result_annotations(result))
    if page is not None:
        show_page(page)


def write_junit(name: str, suites: Sequence[TestSuite]) -> None:
    """Print JUnit XML to standard output."""
    from calipers.reports import junit

    write(junit.render(name, suites))


def annotate(document: Document, annotations: Iterable[str]) -> None:
    """Print annotations for GitHub's runner to standard error, and add the document to the step summary."""
    from calipers.reports.github import add_summary

    for line in annotations:
        click.echo(line, err=True)  # not `print_err`, which would disarm these commands
    if error := add_summary(rendered(document, "md")):
        print_note(error)


def show_page(page: OwnPage) -> None:
    """Print another system's page; its remarks go to standard error."""
    if page.text:
        write(page.text)
    for remark in page.remarks:
        print_err(remark)


def write_json(target: Target | None, page: Page) -> None:
    """Write a report to the file of ``--out``, as JSON that is safe to print; do nothing without a target."""
    if target is not None:
        target.write(safe_json(page.to_json()).encode())


def print_result_notes(result: Result, shape: str = "table") -> None:
    """Print the notes of a result on standard error; for CSV also its warnings, which CSV cannot show."""
    warnings = [f"warning: {text}" for group in result.groups for text in group.warnings] if shape == "csv" else []
    print_notes([*result.notes, *warnings])


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, one per line."""
    for note in notes:
        print_note(note)


def print_note(note: str) -> None:
    """Print a note or a warning on standard error."""
    print_err(note_line(note))


def print_warnings(remarks: Iterable[Remark], shape: str) -> None:
    """Print the warnings among remarks on standard error, unless a page with them was printed on the same terminal."""
    from calipers.reports.remark_texts import note_of

    if shape == "table" and is_terminal(sys.stdout) and is_terminal(sys.stderr):
        return
    for remark in remarks:
        if remark.severity == "warning":
            print_err(clean(note_of(remark), None))


def as_lines(texts: Iterable[str]) -> str:
    """The texts as lines, without terminal control characters."""
    return "".join(f"{clean(text, None)}\n" for text in texts)


def print_lines(texts: Iterable[str]) -> None:
    """Print lines on standard output, without terminal control characters and without commands for CI runners."""
    write(as_lines(texts))


def print_err(text: str) -> None:
    """Print a text on standard error, without terminal control characters and without commands for CI runners.

    A command prints the same note only once.
    """
    if text.startswith(("note: ", "warning: ")) and (ctx := click.get_current_context(silent=True)) is not None:
        printed: set[str] = ctx.meta.setdefault(PRINTED, set())
        if text in printed:
            return
        printed.add(text)
    try:
        click.echo(guarded(as_lines(display(text).splitlines() or [""])), err=True, nl=False)
    except BrokenPipeError:
        raise
    except OSError:  # such as a full disk: lose the text, but neither the work nor the exit code
        discard(sys.stderr)


def write(text: str) -> None:
    """Print a text to standard output, always in UTF-8, and without commands for CI runners (`guarded`)."""
    text = guarded(display(text))
    with standard_output() as stream:
        if hasattr(stream, "buffer"):
            stream.flush()
            stream.buffer.write(text.encode(errors="backslashreplace"))  # a file name may not be valid UTF-8
        else:
            stream.write(text)


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output, flushed at the end; InputError if it cannot be written."""
    if sys.stdout is None:
        raise InputError.at("standard output", "is closed", "expected an open standard output")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        raise InputError.at("standard output", f"cannot be written ({error.strerror})") from None


def discard(stream: TextIO) -> None:
    """Redirect a standard stream to the null device, so that the interpreter's last flush does not fail."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Target:
    """The file of ``--out``, which is checked before scoring and replaced atomically at the end."""

    def __init__(self, path: str, inputs: Sequence[str] = (), *, example: str = "result.json") -> None:
        self.path = path
        self.inputs = inputs
        self._remote = is_remote(path)
        if self._remote:
            check_target(path)
            return
        self._real = os.path.realpath(path)  # so that a link stays a link
        folder = os.path.dirname(self._real)
        if path in ("", "-"):
            raise InputError(f"{path!r} is not a file; expected a path, such as {example}")
        if not os.path.isdir(folder):
            raise InputError.at(path, f"there is no folder {os.path.dirname(path)!r}", "create it first")
        if os.path.isdir(self._real):
            raise InputError.at(path, "is a directory", f"expected a file, such as {example}")
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise InputError.at(path, "is not writable", "expected a file that you can write")
        if any(os.path.realpath(name) == self._real for name in inputs if name != "-"):
            raise InputError.at(path, "is one of the files to be read", "expected another file")

    def write(self, content: bytes) -> None:
        """Write the content to the file, as `write_all` does."""
        self.write_all([content])

    def write_all(self, chunks: Iterable[bytes | memoryview]) -> None:
        """Write the chunks to the file atomically: a failure leaves the old content."""
        if self._remote:
            with uploaded(self.path) as copy, open(copy, "wb") as file:
                file.writelines(chunks)
            return
        try:
            # not the real path, which a pipe such as /dev/fd/63 does not have
            if os.path.exists(self.path) and not stat.S_ISREG(os.stat(self.path).st_mode):
                with open(self.path, "wb") as device:  # a pipe or /dev/null cannot be replaced
                    device.writelines(chunks)
                return
            from calipers.stores import atomic_file

            with atomic_file(self._real) as file:
                file.writelines(chunks)
        except OSError as error:
            raise InputError.at(self.path, f"cannot be written ({error.strerror})") from None


def targets(paths: Iterable[str | None], inputs: Sequence[str | None] = ()) -> dict[str, Target]:
    """The target of each path that is given; InputError if two of them are the same file."""
    files: dict[str, Target] = {}
    real = set[str]()
    for path in paths:
        if path is not None:
            files[path] = Target(path, [name for name in inputs if name is not None])
            if os.path.realpath(path) in real:
                raise InputError.at(path, "would be written twice", "expected a file for each")
            real.add(os.path.realpath(path))
    return files


class Progress:
    """A progress bar on standard error, for bytes read or trials run, shown after two seconds."""

    def __init__(self, patience: float = PATIENCE, stream: TextIO | None = None, unit: str = "") -> None:
        self._stream = stream or sys.stderr  # None if it is closed
        self.wanted = is_terminal(self._stream)
        self._patience = patience
        self._unit = unit  # "" for bytes
        self._since = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    @property
    def callback(self) -> Progress | None:
        """This bar as a progress callback; None if it is not shown."""
        return self if self.wanted else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show progress; a total of 0 means that it is unknown."""
        if self._bar is None:
            if not self.wanted or time.monotonic() - self._since < self._patience:
                return
            self._bar = _bar(self._stream, self._unit)
            self._task = self._bar.add_task(self._unit or "reading", total=total or None)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total or None)


def _bar(stream: TextIO, unit: str) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    count = MofNCompleteColumn() if unit else DownloadColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    return Bar(*columns, console=Console(file=stream), transient=True)


def listeners_of(texts: Sequence[str]) -> list[Listener]:
    """The listeners of ``--notify``; InputError for an invalid one, before any work."""
    if not texts:
        return []
    from calipers.running.notify import listener

    return [listener(text) for text in texts]
