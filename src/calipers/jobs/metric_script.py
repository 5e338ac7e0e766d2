"""A metric script, Harbor's ``metric.py``: run in the sandbox over rewards, and what it wrote.

::

    python metric.py -i rewards.jsonl -o metric.json      both files in one folder, -i and -o as Harbor gives them

A line of ``rewards.jsonl`` is the rewards of one rollout by name, or ``null`` where it has none; ``metric.json`` is an
object of values. Inside there is no network, no secret and nothing of the machine but the interpreter and what
the script declares; what it prints is ignored.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from calipers.errors import InputError, PluginError
from calipers.jobs.metric_script_declared import Unusable, declared
from calipers.jobs.metric_script_packages import packages
from calipers.reports.safe import clean
from calipers.run.secrets import HIDDEN, Secrets
from calipers.sandbox import Limits, Mechanism, SandboxError
from calipers.sandbox.launch import Launched, launch
from calipers.sandbox.mechanism import NAMES
from calipers.sandbox.probing import attempt
from calipers.sandbox.view import ENVIRONMENT, Entry, interpreter, view

Rewards = Mapping[str, float] | None
"""The rewards of one rollout by name; None where it has none."""

Kind = Literal["exit", "stopped", "no_output", "no_json", "no_object", "declaration"]

LIMITS: Final = Limits(seconds=60.0, memory_mb=2048)
LONGEST_SCRIPT: Final = 1 << 20  # bytes
LAST_WORDS: Final = 500  # characters of its stderr
LONGEST_REASON: Final = 1000  # characters of why it was not even started
FOLDER: Final = "/metric"
OUTPUT: Final = f"{FOLDER}/metric.json"
ARGUMENTS: Final = ("/script/metric.py", "-i", f"{FOLDER}/rewards.jsonl", "-o", OUTPUT)
PYTHON: Final = "/venv/bin/python"
PACKAGES: Final = f"/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
ALIKE: Final = {  # the same script over the same rewards gives the same numbers, on a machine of any size
    **ENVIRONMENT,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_SECRET_NAME: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)


class ScriptError(PluginError):
    """A script that gave no metric; ``kind`` says how, the text says it with the end of its stderr."""

    exit_code = 3

    def __init__(self, message: str, kind: Kind, said: str = "") -> None:
        super().__init__(f"{message}: {said}" if said else message)
        self.what, self.kind, self.said = message, kind, said  # what: the part that is the same every time


def run_script(
    script: Path | bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> dict[str, Any]:
    """The values a script computes from rewards, by name; `ScriptError` when it gives no object of them.

    InputError for a script that is not there, SandboxError where there can be no sandbox.
    """
    source = script if isinstance(script, bytes) else source_of(script)
    found = output_of(source, rewards, limits=limits, mechanism=mechanism)
    if not isinstance(found, dict):
        wrong = f'metric.json holds {_kind_of(found)}; expected an object such as {{"mean": 0.5}}'
        raise ScriptError(wrong, "no_object")
    return found


def output_of(
    source: bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> Any:
    """The JSON that the text of a script leads to, whatever it is, as Harbor takes it; else as `run_script`."""
    try:
        needed = packages(declared(source))
    except Unusable as error:
        raise ScriptError(clean(scrubbed(str(error)), LONGEST_REASON), "declaration") from None
    how = mechanism or sandbox()
    lines = "".join(f"{json.dumps(None if one is None else dict(one))}\n" for one in rewards)
    done = _launched(how, source, lines.encode(), needed, limits)
    report = BytesIO(done.report)
    exit_code = report.readline().strip() or b"-"
    size = report.readline().strip() or b"-"
    said = last_words(done.stderr)
    if done.stopped or exit_code == b"-":
        limit = f"{limits.memory_mb} MB of memory" if done.stopped == "memory" else f"{limits.seconds:g} s"
        raise ScriptError(f"it was stopped: it used up its {limit}", "stopped", said)
    if exit_code != b"0":
        raise ScriptError(f"it ended with {_ending(int(exit_code))}", "exit", said)
    if size == b"-":
        most = f"of at most {limits.output_bytes >> 20} MiB"
        raise ScriptError(f"it left no metric.json {most}; expected it at the path of -o", "no_output", said)
    try:
        return json.loads(report.read(int(size)))
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"metric.json is no JSON ({clean(str(error), 200)})", "no_json", said) from None


def sandbox() -> Mechanism:
    """The sandbox that scripts are run in; SandboxError with the reasons where there is none, for then none is run."""
    found = [attempt(name) for name in NAMES]
    reasons = [one for one in found if isinstance(one, str)]
    if len(reasons) == len(found):
        wrong = f"metric scripts are run in a sandbox, and none can be had here ({'; '.join(reasons)})"
        raise SandboxError(f"{wrong}; install bubblewrap, or allow user namespaces")
    return next(one for one in found if isinstance(one, Mechanism))


def source_of(script: Path) -> bytes:
    """The text of a script; InputError for what is no file, cannot be read or is too long to be one."""
    try:
        if not script.is_file():
            wrong = "is a directory" if script.is_dir() else "no such file"
            raise InputError.at(str(script), wrong, "expected a Python script such as metric.py")
        with script.open("rb") as file:
            source = file.read(LONGEST_SCRIPT + 1)
    except OSError as error:
        raise InputError.at(str(script), error.strerror or str(error), "expected a file you can read") from None
    if len(source) > LONGEST_SCRIPT:
        raise InputError.at(str(script), "is longer than 1 MiB", "expected a Python script such as metric.py")
    return source


def last_words(stderr: bytes) -> str:
    """The end of what a program said, on one line and safe to show: whole lines as far as they fit.

    >>> last_words(b"Traceback\\n  File\\nValueError: no \\x1b[31mreward\\n").encode("ascii", "replace")
    b'Traceback / File / ValueError: no ?[31mreward'
    """
    lines = [" ".join(line.split()) for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    kept: list[str] = []
    for line in reversed(lines):
        if sum(map(len, kept)) + len(line) > LAST_WORDS and kept:
            break
        kept.insert(0, line[-LAST_WORDS:])
    return clean(scrubbed(" / ".join(kept)), None)


def scrubbed(text: str) -> str:
    """The text without the values of variables that are called keys, tokens or passwords, and without users in URLs."""
    secrets = Secrets()
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name):
            secrets.add(value)
    return re.sub(r"(?<=://)[^/@\s]+(?=@)", HIDDEN, secrets.scrub(text))


def _launched(how: Mechanism, source: bytes, lines: bytes, needed: Path | None, limits: Limits) -> Launched:
    """Run a script in a sandbox that has an environment for Python of its own, in which are its packages alone."""
    configured = f"home = {Path(interpreter()).parent}\ninclude-system-site-packages = false\n".encode()
    shown = {ARGUMENTS[0]: source, ARGUMENTS[2]: lines, "/venv/pyvenv.cfg": configured}
    with TemporaryDirectory(prefix="calipers-") as inputs:
        entries: list[Entry] = view(limits.disk_mb, scratch=[FOLDER])
        for place, data in shown.items():
            file = Path(inputs, Path(place).name)
            file.write_bytes(data)
            file.chmod(0o444)
            entries.append(("bind", str(file), place))
        entries.append(("link", interpreter(), PYTHON))
        if needed is not None:
            entries.append(("bind", str(needed), PACKAGES))
        job = {
            "argv": [PYTHON, *ARGUMENTS],
            "environment": ALIKE,
            "folders": [],
            "folder": "/tmp",
            "collect": [OUTPUT],
        }
        done = launch(how, "program", job, entries, limits, seconds=limits.seconds)
    if not done.report and not done.stopped:
        raise SandboxError("the sandbox ended before the script did")
    return done


def _ending(code: int) -> str:
    with suppress(ValueError):
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
    return f"signal {-code}"


def _kind_of(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
