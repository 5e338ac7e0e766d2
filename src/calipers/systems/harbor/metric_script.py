"""Metric scripts, Harbor's ``metric.py``: what one declares (PEP 723), its packages, and its run in the sandbox.

Then which scripts a scoring runs, and what they say about its groups: each value an estimate.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import msgspec
import numpy as np

from calipers.clients.secrets import HIDDEN, Secrets
from calipers.errors import InputError, PluginError
from calipers.isolate import Limits, Mechanism, SandboxError
from calipers.isolate.launch import ENVIRONMENT, Entry, Launched, interpreter, launch, read_report, view, working
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean
from calipers.rollouts.column import Bools
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate, Signature
from calipers.systems.harbor.wire import ADHOC, CONFIG, SCRIPT, JobScripts

_OPENS, _CLOSES = "# /// script", "# ///"
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][^\x00-\x1f\x7f]{0,999}")  # no option, no path, one line
_CLAUSE: Final = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)\s*(\d{1,9}(?:\.\d{1,9})*)(\.\*)?\s*")
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
        raise Unusable("it is not text; expected Python in UTF-8") from None
    starts = [number for number, line in enumerate(lines) if line == _OPENS]
    if len(starts) > 1:
        raise Unusable(f"it has {len(starts)} blocks {_OPENS!r}; expected one")
    if not starts:
        return Declaration()
    try:
        table = tomllib.loads("\n".join(_block(lines[starts[0] + 1 :])))
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, or a number of thousands of digits
        raise Unusable(f"its block {_OPENS!r} is not valid TOML: {error}") from None
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
        raise Unusable("its dependencies are not a list of strings; expected a list such as ['numpy>=2']")
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
        raise Unusable(f"its [tool.uv] sets {others[0]!r}; expected only exclude-newer")
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
            raise Unusable(
                f"it requires Python {wanted}, but this is {here}; run Calipers with a Python version it allows"
            )


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
            f"it declares {names}, which need uv to install, and uv is not installed; pip install 'calipers[harbor]'"
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
        raise Unusable(f"{folder.parent}: its dependencies cannot be stored there ({error.strerror})") from None
    if not folder.is_dir():
        raise Unusable(f"{folder}: its dependencies cannot be stored there; expected a folder")
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
LONGEST_STDERR: Final = 500  # characters of its stderr
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
        wrong = f'metric.json contains {_kind_of(values)}; expected an object such as {{"mean": 0.5}}'
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
    exit_code, files = (None, {}) if done.stopped else read_report(done.report, [OUTPUT])
    stderr = stderr_tail(done.stderr)
    if exit_code is None:
        limit = f"{limits.memory_mb} MB of memory" if done.stopped == "memory" else f"{limits.seconds:g} s"
        raise ScriptError(f"it was stopped: it reached its limit of {limit}", "stopped", stderr)
    if exit_code:
        raise ScriptError(f"it ended with {_ending(exit_code)}", "exit", stderr)
    if OUTPUT not in files:
        most = f"of at most {limits.output_bytes >> 20} MiB"
        raise ScriptError(f"it left no metric.json {most}; expected it at the path of -o", "no_output", stderr)
    try:
        return json.loads(files[OUTPUT])
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"metric.json is not JSON ({clean(str(error), 200)})", "no_json", stderr) from None


def sandbox() -> Mechanism:
    """The sandbox that scripts are run in; SandboxError with the reasons where there is none, for then none is run."""
    if isinstance(best := working(), Mechanism):
        return best
    wrong = f"metric scripts run in a sandbox, and no sandbox works on this machine ({best})"
    raise SandboxError(f"{wrong}; install bubblewrap, or allow user namespaces")


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


def stderr_tail(stderr: bytes) -> str:
    """The end of what a program said, on one line and safe to show: whole lines as far as they fit.

    >>> stderr_tail(b"Traceback\\n  File\\nValueError: no \\x1b[31mreward\\n").encode("ascii", "replace")
    b'Traceback / File / ValueError: no ?[31mreward'
    """
    lines = [" ".join(line.split()) for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    kept: list[str] = []
    for line in reversed(lines):
        if sum(map(len, kept)) + len(line) > LONGEST_STDERR and kept:
            break
        kept.insert(0, line[-LONGEST_STDERR:])
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
        job = {"argv": [PYTHON, *ARGUMENTS], "environment": ALIKE, "folders": [], "folder": "/tmp", "collect": [OUTPUT]}
        done = launch(how, "program", job, entries, limits, seconds=limits.seconds)
    if not done.report and not done.stopped:
        raise SandboxError("the sandbox ended before the script ended")
    return done


def _ending(code: int) -> str:
    with suppress(ValueError):
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
    return f"signal {-code}"


def _kind_of(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


LONGEST: Final = 64 << 20  # bytes

Datasets = frozenset[str | None] | None
"""The datasets that a script speaks about; None for all."""


def asked_scripts(source: Any, files: Any = (), *, trust: bool = False, reward: str | None = None) -> Scripts | None:
    """The scripts of a scoring, None when there are none; ``reward`` is the only one they are to see.

    InputError for a named script that is not there, or not trusted, SandboxError where there can be no sandbox.
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else files
    wanted: dict[Path, Datasets] = dict.fromkeys(_distinct_paths(map(Path, named)))
    if wanted and not trust:
        first = next(iter(wanted))
        raise InputError.at(str(first), "a metric script is code", "use --trust (trust=True) to run it in the sandbox")
    lying_there, notes = scripts_of_jobs(source)
    wanted |= {path: lying_there[path] for path in _distinct_paths([*wanted, *lying_there]) if path not in wanted}
    if not trust:
        notes += [
            f"{path}: comes with the dataset and is not run, because it is code; use --trust to run it"
            for path in wanted
        ]
        wanted = {}
    if not (wanted or notes):
        return None
    sources = [source_of(path) for path in wanted]
    if wanted:
        sandbox()  # or it is said before anything is read that there is none
    made = zip(distinct_names(wanted), sources, wanted.values(), strict=True)
    return Scripts([Script(*fields) for fields in made], notes, reward)


def check_ready(datasets: Iterable[str]) -> None:
    """SandboxError where a dataset among these brings a script, and no sandbox can be had for it.

    For runs that will score themselves: it is to be said before they begin, not when they are over.
    """
    from calipers.systems.harbor.dataset import metric_scripts

    for folder in map(Path, datasets):
        with suppress(InputError):  # what is wrong with a dataset is told by those who read it
            if folder.is_dir() and metric_scripts(folder):
                sandbox()


def scripts_of_jobs(source: Any) -> tuple[dict[Path, Datasets], list[str]]:
    """The scripts that belong to the jobs among some paths, each with its datasets; and what is wrong with others.

    A local dataset's ``metric.py`` speaks about that dataset, a job's own ``uv-script`` about all of the job's. What
    is no job, or cannot be read as one, has none: to complain is the readers' task.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    scripts: dict[Path, set[str | None]] = {}
    wrong: list[str] = []
    for job in (job for path in paths if isinstance(path, (str, os.PathLike)) for job in _jobs(path)):
        try:
            for script, datasets in _of(job):
                scripts.setdefault(script, set()).update(datasets)
        except InputError as error:
            wrong.append(f"{error}; no metric script of this dataset is run")
    return {script: frozenset(datasets) for script, datasets in scripts.items()}, list(dict.fromkeys(wrong))


def _distinct_paths(paths: Iterable[Path]) -> Iterable[Path]:
    """The paths without those that are another spelling of an earlier one."""
    first: dict[str, Path] = {}
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    return first.values()


def _jobs(path: str | os.PathLike[str]) -> Sequence[Path]:
    """The folders of jobs at a path: itself, or those in it."""
    folder = Path(path)
    if not folder.is_dir():
        return []
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(config.parent for config in folder.glob(f"*/{CONFIG}"))


def _of(job: Path) -> Iterator[tuple[Path, set[str | None]]]:
    try:
        if (job / CONFIG).stat().st_size > LONGEST:
            return
        config = msgspec.json.decode((job / CONFIG).read_bytes(), type=JobScripts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    names: set[str | None] = set()
    for dataset in config.datasets:
        name = dataset.name or os.path.basename(os.path.normpath(dataset.path or ""))
        names.add(name)
        if dataset.path and (folder := _place(job, dataset.path)) and folder.is_dir():
            from calipers.systems.harbor.dataset import metric_scripts

            for script in metric_scripts(folder):
                yield script, {name}
    for metric in config.metrics:
        path = metric.kwargs.get("script_path")
        if metric.type == SCRIPT and isinstance(path, str) and (script_path := _place(job, path)):
            yield script_path, names or {ADHOC, None}


def _place(job: Path, path: str) -> Path | None:
    """Where a path of a job's config leads: from the folder it was started in, which is here or above the job."""
    if "\0" in path:
        return None
    starts = (Path(), job.parent, job.parent.parent, job.absolute().parent.parent)  # a job lies in jobs/<name>
    return next((start / path for start in starts if (start / path).exists()), None)


MOST_VALUES: Final = 1000
LONGEST_NAME: Final = 200
TRIAL_TIME: Final = "trial_s"  # the column that only a finished trial has
ONCE: Final = "a metric script is run once, over all rewards"


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the groups it speaks about: those of these datasets, or all."""

    label: str
    source: bytes
    datasets: Datasets


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of one scoring: called with a result, it adds what they say; `failed` tells what went wrong."""

    scripts: Sequence[Script]
    notes: Sequence[str]  # of scripts that were found and not run
    reward: str | None  # the only reward they are given
    failed: list[str] = field(default_factory=list)

    def __call__(self, result: Result, rollouts: Rollouts) -> Result:
        """The result with the values of every script in its groups."""
        groups = [self._added(group, part) for group, part in zip(result.groups, rollouts.groups(), strict=True)]
        left = len(rollouts) - int(np.count_nonzero(finished(rollouts)))
        unseen = [f"not run: {left:,} of {len(rollouts):,} rollouts; metric scripts get the others"] if left else []
        notes = [*result.notes, *self.notes, *(unseen if self.scripts else ()), *self.failed]
        return replace(result, groups=groups, notes=notes, failed=self.failed)

    def _added(self, group: Group, part: Rollouts) -> Group:
        estimates: dict[str, Estimate] = {}
        for script in self.scripts:
            if script.datasets is not None and group.dataset not in script.datasets:
                continue
            try:
                values = _checked(run_script(script.source, rewards_of(part, self.reward)))
                estimates |= {
                    f"{script.label}:{name}": _estimate(script, name, value, part) for name, value in values.items()
                }
            except ScriptError as error:
                title = f" ({group.title})" if group.title else ""
                self.failed.append(f"{script.label}{title}: {error}")
                estimates[script.label] = _estimate(script, "", error, part)
        return replace(group, metrics={**group.metrics, **estimates})


def rewards_of(part: Rollouts, only: str | None = None) -> Iterator[Rewards]:
    """The rewards of each finished rollout of a group, in the order of tasks and samples, as Harbor hands them over.

    They are what was recorded, whatever the outcome: a script sees the reward beside an exception too. None for a
    rollout without any, whoever is to blame. One that was never finished is left out.
    """
    seen = finished(part)
    columns = {key: column.take(seen) for key, column in sorted(part.rewards.items()) if only in (None, key)}
    values = {key: (column.values.tolist(), column.given.tolist()) for key, column in columns.items()}
    for row in range(int(np.count_nonzero(seen))):
        yield {key: numbers[row] for key, (numbers, given) in values.items() if given[row]} or None


def finished(part: Rollouts) -> Bools:
    """Which rollouts are finished, [R]: all that were run; a trial of Harbor's, also when no verifier was."""
    timed = part.columns.get(TRIAL_TIME)
    was_run: Bools = part.outcome != CODE["not_run"]
    return was_run if timed is None else was_run | timed.given


def distinct_names(wanted: Mapping[Path, Datasets]) -> list[str]:
    """The name of each script, with as many of its folders as it takes to tell it from all it could meet in a group.

    >>> distinct_names({Path("a/metric.py"): None, Path("b/metric.py"): None, Path("b/f1.py"): None})
    ['a/metric.py', 'b/metric.py', 'f1.py']
    """
    parts = {path: path.absolute().parts for path in wanted}
    names = []
    for path, mine in wanted.items():
        others = [
            other for other, its in wanted.items() if other != path and (mine is None or its is None or mine & its)
        ]
        depths = range(1, len(parts[path]))
        alone = (depth for depth in depths if all(parts[other][-depth:] != parts[path][-depth:] for other in others))
        names.append("/".join(parts[path][-next(alone, len(parts[path])) :]))
    return names


def _checked(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, if their names can stand in a result."""
    if len(values) > MOST_VALUES:
        raise ScriptError(f"metric.json has {len(values):,} values; expected at most {MOST_VALUES:,}", "no_object")
    for name in values:
        if len(name) > LONGEST_NAME or not name.isprintable():
            wrong = f"metric.json names a value {clean(name)!r}"
            raise ScriptError(f"{wrong}; expected at most {LONGEST_NAME} characters that can be shown", "no_object")
    return values


def _estimate(script: Script, name: str, result: Any, part: Rollouts) -> Estimate:
    """One value of a script, or why there is none; without an interval."""
    seen = finished(part)
    tasks = int(np.count_nonzero(part.by_task.count(seen)))
    value, why = _number(result)
    sha256 = hashlib.sha256(script.source).hexdigest()
    return Estimate(
        value=value,
        stderr=None,
        interval=None,
        method=None,
        tasks=tasks,
        samples=int(np.count_nonzero(seen)),
        undefined_tasks=len(part.tasks) - tasks,
        bounds=None,
        higher_is_better=None,
        why=why,
        made=Signature("metric_script", settings=(*((name,) if name else ()), f"sha256:{sha256[:16]}", "gaps:null")),
    )


def _number(result: Any) -> tuple[float | None, str]:
    """A value as a number, and why it has no interval, or is none."""
    if isinstance(result, ScriptError):
        return None, result.what
    if isinstance(result, (bool, int, float)):
        try:
            number = float(result) + 0.0
        except OverflowError:
            return None, "the script gave a number too large to be shown"
        return number, ONCE if math.isfinite(number) else f"the script gave {number}"
    if isinstance(result, str):
        return None, f"the script gave the text {clean(result)!r}"
    return None, f"the script gave {_kind_of(result)}"
