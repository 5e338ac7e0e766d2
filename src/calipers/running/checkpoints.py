"""Evaluations of checkpoints: a user's command for each new checkpoint folder, one at a time, resumable.

::

    checkpoints/step_100/ ──► calipers run suite.yaml --model openai/step_100 --out STATE/evals/step_100

The command is run without a shell; ``{name}``, ``{path}`` and ``{out}`` are replaced within single arguments, whatever
they contain. A file in the folder of an evaluation marks that it has ended. An evaluation that was interrupted is run
again, and resumes if the command does.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from calipers.clients.reply import cleaned
from calipers.clients.secrets import key_like
from calipers.errors import InputError

PLACEHOLDERS: Final = ("{name}", "{path}", "{out}")
DONE: Final = ".evaluated"  # a file in the folder of an evaluation that has ended
FAILED: Final = ".failed"  # a file with the number of its failures
TRIES: Final = 3
KEPT: Final = 2_000  # characters of a failed command's output that are searched for its last line
_RIGHT: Final = "expected a command such as 'calipers run suite.yaml --model openai/{name} --out {out}'"


def evaluation_command(text: str) -> list[str]:
    """The words of ``--eval``, with placeholders for a checkpoint; InputError for an invalid command."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError.at("--eval", f"the command cannot be read ({error})", _RIGHT) from None
    if not words:
        raise InputError.at("--eval", "is empty", _RIGHT)
    if unknown := [name for name in re.findall(r"\{[a-z_]*\}", text) if name not in PLACEHOLDERS]:
        raise InputError.at("--eval", f"no placeholder {unknown[0]}", f"expected {', '.join(PLACEHOLDERS)}")
    if "{name}" not in text and "{path}" not in text:
        raise InputError.at("--eval", "has neither {name} nor {path}", _RIGHT)
    if "{out}" not in text:
        raise InputError.at("--eval", "has no {out}, so that its rollouts cannot be found", _RIGHT)
    return words


def new_checkpoints(folder: Path, evals: Path) -> Iterator[Path]:
    """The folders of checkpoints without an evaluation, in the order of the numbers in their names."""
    with suppress(FileNotFoundError):
        names = [entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
        numbered = {
            name: [int(number) for number in numbers] for name in names if (numbers := re.findall("[0-9]+", name))
        }
        for name in sorted(numbered, key=numbered.__getitem__):
            if not (evals / name / DONE).exists() and _failures(evals / name) < TRIES:
                yield folder / name


def _failures(out: Path) -> int:
    with suppress(OSError, ValueError):
        return int((out / FAILED).read_text())
    return 0


def evaluate(command: Sequence[str], checkpoint: Path, evals: Path, stopped: Callable[[], bool]) -> str:
    """Run the command for one checkpoint, and mark that it has ended; returns "" or the reason of a failure.

    It has a process group of its own, which gets SIGINT when the watch is stopped.
    """
    try:
        return _evaluated(command, checkpoint, evals / checkpoint.name, stopped)
    except OSError as error:  # such as a full disk
        return f"--eval of {checkpoint.name}: {error.filename or evals}: {error.strerror}; it is tried again"


def _evaluated(command: Sequence[str], checkpoint: Path, out: Path, stopped: Callable[[], bool]) -> str:
    out.mkdir(parents=True, exist_ok=True)
    values = {"{name}": checkpoint.resolve().name, "{path}": str(checkpoint.resolve()), "{out}": str(out.resolve())}
    words = [re.sub(r"\{(name|path|out)\}", lambda match: values[match[0]], word) for word in command]
    log = out / ".output"
    try:
        with open(log, "wb") as output:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
    except (OSError, ValueError) as error:
        return f"--eval {words[0]}: cannot be run ({getattr(error, 'strerror', None) or error})"
    interrupted = False
    while True:
        try:
            code = process.wait(0.2)
            break
        except subprocess.TimeoutExpired:
            if stopped() and not interrupted:
                interrupted = True
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
    if stopped():
        return ""
    if code:
        count = _failures(out) + 1
        (out / FAILED).write_text(str(count))
        lines = log.read_text(errors="replace")[-KEPT:].strip().splitlines()
        last = f": {cleaned(lines[-1], key_like(os.environ))}" if lines else ""
        again = "it is tried again" if count < TRIES else f"it failed {count} times and is left out"
        return f"--eval of {checkpoint.name}: exit code {code}{last}; {again}"
    (out / DONE).touch()
    return ""
