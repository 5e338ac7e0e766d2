"""A metric script, Harbor's ``metric.py``: what it declares (PEP 723), its packages, and its run in the sandbox."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from calipers.clients.secrets import HIDDEN, Secrets
from calipers.errors import InputError, PluginError
from calipers.isolate import Limits, Mechanism, SandboxError
from calipers.isolate.launch import Launched, attempt, launch
from calipers.isolate.namespaces import ENVIRONMENT, NAMES, Entry, interpreter, view
from calipers.reports.untrusted_text import clean

_OPENS, _CLOSES = "# /// script", "# ///"
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][^\x00-\x1f\x7f]{0,999}")  # no option, no path, one line
_CLAUSE: Final = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_HERE: Final = (*sys.version_info[:3],)


class Unusable(Exception):
    """A declaration that cannot be honoured here; its text says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a script needs: packages, and the day after which none may have been published."""

    dependencies: tuple[str, ...] = ()
    exclude_newer: str | None = None


def declared(source: bytes) -> Declaration:
    """The declaration in a script; an empty one when it has none, `Unusable` for one that cannot be honoured.

    >>> declared(b"# /// script\\n# dependencies = ['numpy>=2']\\n# ///\\n").dependencies
    ('numpy>=2',)
    """
    try:
        lines = [line.removesuffix("\r") for line in source.decode().split("\n")]
    except UnicodeDecodeError:
        raise Unusable("it is no text; expected Python in UTF-8") from None
    starts = [number for number, line in enumerate(lines) if line == _OPENS]
    if len(starts) > 1:
        raise Unusable(f"it has {len(starts)} blocks {_OPENS!r}; expected one")
    if not starts:
        return Declaration()
    try:
        table = tomllib.loads("\n".join(_block(lines[starts[0] + 1 :])))
    except tomllib.TOMLDecodeError as error:
        raise Unusable(f"its block {_OPENS!r} is no TOML: {error}") from None
    _check_python(table.get("requires-python", ""))
    return Declaration(_dependencies(table.get("dependencies", [])), _exclude_newer(table))


def _block(lines: list[str]) -> list[str]:
    """The lines of a block without their marks; of several that could close it, the last does."""
    inside = list(takewhile(lambda line: line == "#" or line.startswith("# "), lines))
    if _CLOSES not in inside:
        raise Unusable(f"its block {_OPENS!r} does not end; expected the line {_CLOSES!r}")
    last = len(inside) - 1 - inside[::-1].index(_CLOSES)
    return [line[2:] for line in inside[:last]]


def _dependencies(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(requirement, str) for requirement in given):
        raise Unusable("its dependencies are no list of texts; expected one such as ['numpy>=2']")
    for requirement in given:
        if not _REQUIREMENT.fullmatch(requirement):
            raise Unusable(f"its dependency {requirement[:80]!r} cannot be read; expected one such as 'numpy>=2'")
    return tuple(sorted(set(given)))


def _exclude_newer(table: dict[str, Any]) -> str | None:
    """The only setting of uv that is honoured; others would decide where code comes from."""
    tool = table.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else {}
    others = sorted(settings.keys() - {"exclude-newer"}) if isinstance(settings, dict) else ["tool.uv"]
    if others:
        raise Unusable(f"its [tool.uv] sets {others[0]!r}; expected exclude-newer alone")
    newest = settings.get("exclude-newer")
    return None if newest is None else str(newest)


def _check_python(wanted: Any) -> None:
    """Refuse a script that is not for the Python it would run in, which is this one."""
    clauses = [clause for clause in wanted.split(",") if clause.strip()] if isinstance(wanted, str) else [""]
    for clause in clauses:
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise Unusable(f"its requires-python is {wanted!r}; expected one such as '>=3.11'")
        if not _holds(match[1], tuple(map(int, match[2].split("."))), match[3] is not None):
            here = ".".join(map(str, _HERE))
            raise Unusable(f"it requires Python {wanted}, and this is {here}; run Calipers in a Python it allows")


def _holds(operator: str, wanted: tuple[int, ...], any_below: bool) -> bool:
    """Whether this Python is such a version, as far as numbers go: 3.11 means 3.11.0, but 3.11.* all of 3.11."""
    if operator == "~=":
        return wanted <= _HERE and _HERE[: len(wanted) - 1] == wanted[:-1]
    head = _HERE[: len(wanted)] if any_below else _HERE
    padded = wanted if any_below else (*wanted, *(0,) * (len(_HERE) - len(wanted)))
    return {
        "===": head == padded,
        "==": head == padded,
        "!=": head != padded,
        "<=": head <= padded,
        ">=": head >= padded,
        "<": head < padded,
        ">": head > padded,
    }[operator]


SECONDS: Final = 600.0  # for one installation
FORM: Final = 1  # rises when a folder is filled in another way


def packages(declaration: Declaration) -> Path | None:
    """The folder that holds what a script declares; None when it declares nothing, `Unusable` when it cannot be had."""
    if not declaration.dependencies:
        return None
    folder = cache() / _key(declaration)
    if folder.is_dir():
        return folder
    uv = find_uv()
    names = ", ".join(declaration.dependencies)
    if uv is None:
        raise Unusable(
            f"it declares {names}, which uv would install, and there is no uv; pip install 'calipers[harbor]'"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as beside:
            filled = Path(beside, "packages")
            filled.mkdir(mode=0o755)
            _install(uv, declaration, filled, beside)
            filled.chmod(0o755)  # the program in the sandbox is nobody, and reads it
            with suppress(OSError):  # somebody else was first, with the same
                filled.rename(folder)
    except OSError as error:
        raise Unusable(f"{folder.parent}: its dependencies cannot be kept there ({error.strerror})") from None
    if not folder.is_dir():
        raise Unusable(f"{folder}: its dependencies cannot be kept there; expected a folder")
    return folder


def find_uv() -> str | None:
    """The command uv: of the package installed beside us, else of the system; None where there is none."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv")


def cache() -> Path:
    """Where the packages of scripts are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "calipers" / "scripts"


def _key(declaration: Declaration) -> str:
    about = [FORM, declaration.dependencies, declaration.exclude_newer, sys.implementation.cache_tag]
    return hashlib.sha256(json.dumps([*about, platform.machine(), platform.libc_ver()[0]]).encode()).hexdigest()[:32]


def _install(uv: str, declaration: Declaration, folder: Path, cwd: str) -> None:
    """Have uv fill a folder. It runs in a folder of ours: a dataset's settings for uv are none of the user's."""
    newest = [f"--exclude-newer={declaration.exclude_newer}"] if declaration.exclude_newer else []
    command = [uv, "pip", "install", "--quiet", "--no-progress", "--color=never", f"--python={interpreter()}"]
    command += ["--no-build", "--link-mode=copy", "--compile-bytecode", f"--target={folder}", *newest]
    try:
        done = subprocess.run(
            [*command, "--", *declaration.dependencies],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            umask=0o022,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"its dependencies were not installed within {SECONDS:g} s") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise Unusable(f"its dependencies cannot be installed from wheels (uv: {' '.join(message.split())})")


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

    def __init__(self, message: str, kind: Kind, stderr: str = "") -> None:
        super().__init__(f"{message}: {stderr}" if stderr else message)
        self.what, self.kind, self.said = message, kind, stderr  # what: the part that is the same every time


def run_script(
    script: Path | bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> dict[str, Any]:
    """The values a script computes from rewards, by name; `ScriptError` when it gives no object of them.

    InputError for a script that is not there, SandboxError where there can be no sandbox.
    """
    source = script if isinstance(script, bytes) else source_of(script)
    values = output_of(source, rewards, limits=limits, mechanism=mechanism)
    if not isinstance(values, dict):
        wrong = f'metric.json holds {_kind_of(values)}; expected an object such as {{"mean": 0.5}}'
        raise ScriptError(wrong, "no_object")
    return values


def output_of(
    source: bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> Any:
    """The JSON that the text of a script leads to, whatever it is, as Harbor takes it; else as `run_script`."""
    try:
        needed = packages(declared(source))
    except Unusable as error:
        raise ScriptError(clean(scrubbed(str(error)), LONGEST_REASON), "declaration") from None
    how = mechanism or sandbox()
    lines = "".join(f"{json.dumps(None if trial is None else dict(trial))}\n" for trial in rewards)
    done = _launched(how, source, lines.encode(), needed, limits)
    report = BytesIO(done.report)
    exit_code = report.readline().strip() or b"-"
    size = report.readline().strip() or b"-"
    stderr = last_words(done.stderr)
    if done.stopped or exit_code == b"-":
        limit = f"{limits.memory_mb} MB of memory" if done.stopped == "memory" else f"{limits.seconds:g} s"
        raise ScriptError(f"it was stopped: it used up its {limit}", "stopped", stderr)
    if exit_code != b"0":
        raise ScriptError(f"it ended with {_ending(int(exit_code))}", "exit", stderr)
    if size == b"-":
        most = f"of at most {limits.output_bytes >> 20} MiB"
        raise ScriptError(f"it left no metric.json {most}; expected it at the path of -o", "no_output", stderr)
    try:
        return json.loads(report.read(int(size)))
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"metric.json is no JSON ({clean(str(error), 200)})", "no_json", stderr) from None


def sandbox() -> Mechanism:
    """The sandbox that scripts are run in; SandboxError with the reasons where there is none, for then none is run."""
    attempts = [attempt(name) for name in NAMES]
    reasons = [result for result in attempts if isinstance(result, str)]
    if len(reasons) == len(attempts):
        wrong = f"metric scripts are run in a sandbox, and none can be had here ({'; '.join(reasons)})"
        raise SandboxError(f"{wrong}; install bubblewrap, or allow user namespaces")
    return next(result for result in attempts if isinstance(result, Mechanism))


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
        for path, data in shown.items():
            file = Path(inputs, Path(path).name)
            file.write_bytes(data)
            file.chmod(0o444)
            entries.append(("bind", str(file), path))
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
