"""Runs metric scripts, Harbor's ``metric.py``: reads their declarations (PEP 723), installs packages, uses a sandbox.

Also decides which scripts a scoring runs, and turns the values of a script into estimates.
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

from calipers.clients.secrets import HIDDEN, key_like
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
from calipers.typed import complete

_OPENING, _CLOSING = "# /// script", "# ///"
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][^\x00-\x1f\x7f]{0,999}")  # one line; not an option or a path
_CLAUSE: Final = re.compile(r"\s*(===|==|!=|~=|<=|>=|<|>)\s*(\d{1,9}(?:\.\d{1,9})*)(\.\*)?\s*")
_PYTHON_VERSION: Final = (*sys.version_info[:3],)


class Unusable(Exception):
    """A declaration that cannot be followed; the message says why and what is expected."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The packages that a script needs, and the date that excludes packages published later."""

    dependencies: tuple[str, ...] = ()
    exclude_newer: str | None = None


def declared(source: bytes) -> Declaration:
    """The declaration in a script; empty if the script has none, `Unusable` if it cannot be followed.

    >>> declared(b"# /// script\\n# dependencies = ['numpy>=2']\\n# ///\\n").dependencies
    ('numpy>=2',)
    """
    try:
        lines = [line.removesuffix("\r") for line in source.decode().split("\n")]
    except UnicodeDecodeError:
        raise Unusable("it is not text; expected Python in UTF-8") from None
    starts = [number for number, line in enumerate(lines) if line == _OPENING]
    if len(starts) > 1:
        raise Unusable(f"it has {len(starts)} blocks {_OPENING!r}; expected one")
    if not starts:
        return Declaration()
    try:
        table = tomllib.loads("\n".join(_block(lines[starts[0] + 1 :])))
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, or a number of thousands of digits
        raise Unusable(f"its block {_OPENING!r} is not valid TOML: {error}") from None
    _check_python(table.get("requires-python", ""))
    return Declaration(_dependencies(table.get("dependencies", [])), _exclude_newer(table))


def _block(lines: list[str]) -> list[str]:
    """The lines of a block without their comment signs; if several lines can close it, the last one does."""
    inside = list(takewhile(lambda line: line == "#" or line.startswith("# "), lines))
    if _CLOSING not in inside:
        raise Unusable(f"its block {_OPENING!r} does not end; expected the line {_CLOSING!r}")
    last = len(inside) - 1 - inside[::-1].index(_CLOSING)
    return [line[2:] for line in inside[:last]]


def _dependencies(requirements: Any) -> tuple[str, ...]:
    if not isinstance(requirements, list) or not all(isinstance(requirement, str) for requirement in requirements):
        raise Unusable("its dependencies are not a list of strings; expected a list such as ['numpy>=2']")
    for requirement in requirements:
        if not _REQUIREMENT.fullmatch(requirement):
            raise Unusable(f"its dependency {requirement[:80]!r} cannot be read; expected one such as 'numpy>=2'")
    return tuple(sorted(set(requirements)))


def _exclude_newer(table: dict[str, Any]) -> str | None:
    """The setting ``exclude-newer`` of uv; others are refused, because they can change where packages come from."""
    tool = table.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else {}
    others = sorted(settings.keys() - {"exclude-newer"}) if isinstance(settings, dict) else ["tool.uv"]
    if others:
        raise Unusable(f"its [tool.uv] sets {others[0]!r}; expected only exclude-newer")
    newest = settings.get("exclude-newer")
    return None if newest is None else str(newest)


def _check_python(requires: Any) -> None:
    """`Unusable` for a script that does not allow this Python version, in which it would run."""
    clauses = [clause for clause in requires.split(",") if clause.strip()] if isinstance(requires, str) else [""]
    for clause in clauses:
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise Unusable(f"its requires-python is {requires!r}; expected one such as '>=3.11'")
        if not _allowed(match[1], tuple(map(int, match[2].split("."))), match[3] is not None):
            version = ".".join(map(str, _PYTHON_VERSION))
            raise Unusable(
                f"it requires Python {requires}, but this is {version}; run Calipers with a Python version it allows"
            )


def _allowed(operator: str, required: tuple[int, ...], wildcard: bool) -> bool:
    """Whether a clause allows this Python version; 3.11 means 3.11.0, but with a wildcard (3.11.*) any 3.11."""
    version: tuple[int, ...] = _PYTHON_VERSION
    if operator == "~=":
        return required <= version and version[: len(required) - 1] == required[:-1]
    if wildcard:
        version = version[: len(required)]
    else:
        required = (*required, *(0,) * (len(version) - len(required)))
    return {
        "===": version == required,
        "==": version == required,
        "!=": version != required,
        "<=": version <= required,
        ">=": version >= required,
        "<": version < required,
        ">": version > required,
    }[operator]


SECONDS: Final = 600.0  # for one installation
FORM: Final = 1  # increases when the content of a folder of packages changes


def packages(declaration: Declaration) -> Path | None:
    """The folder with the packages that a script declares, installed if it does not exist.

    None if the script declares no packages, `Unusable` if they cannot be installed.
    """
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
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as scratch:
            installed = Path(scratch, "packages")
            installed.mkdir(mode=0o755)
            _install(uv, declaration, installed, scratch)
            installed.chmod(0o755)  # the script runs as the user nobody, who must be able to read it
            with suppress(OSError):  # another process has just stored the same packages
                installed.rename(folder)
    except OSError as error:
        raise Unusable(f"{folder.parent}: its dependencies cannot be stored there ({error.strerror})") from None
    if not folder.is_dir():
        raise Unusable(f"{folder}: its dependencies cannot be stored there; expected a folder")
    return folder


def find_uv() -> str | None:
    """The path of uv: of the installed Python package, else on the PATH; None if neither exists."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv")


def cache() -> Path:
    """The cache folder for the packages of scripts."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "calipers" / "scripts"


def _key(declaration: Declaration) -> str:
    facts = [FORM, declaration.dependencies, declaration.exclude_newer, sys.implementation.cache_tag]
    return hashlib.sha256(json.dumps([*facts, platform.machine(), platform.libc_ver()[0]]).encode()).hexdigest()[:32]


def _install(uv: str, declaration: Declaration, folder: Path, cwd: str) -> None:
    """Install the packages into a folder with uv, which runs in ``cwd`` so that it reads no settings of a dataset."""
    newest = [f"--exclude-newer={declaration.exclude_newer}"] if declaration.exclude_newer else []
    command = [uv, "pip", "install", "--quiet", "--no-progress", "--color=never", f"--python={interpreter()}"]
    command += ["--no-build", "--link-mode=copy", "--compile-bytecode", f"--target={folder}", *newest]
    try:
        process = subprocess.run(
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
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip()
        raise Unusable(f"its dependencies cannot be installed from wheels (uv: {' '.join(message.split())})")


Rewards = Mapping[str, float] | None
"""The rewards of one rollout by name; None if it has none."""

Kind = Literal["exit", "stopped", "no_output", "no_json", "no_object", "declaration"]

LIMITS: Final = Limits(seconds=60.0, memory_mb=2048)
LONGEST_SCRIPT: Final = 1 << 20  # bytes
LONGEST_STDERR: Final = 500  # characters of a script's stderr in a message
LONGEST_REASON: Final = 1000  # characters of the reason why a script could not be started
FOLDER: Final = "/metric"
OUTPUT: Final = f"{FOLDER}/metric.json"
ARGUMENTS: Final = ("/script/metric.py", "-i", f"{FOLDER}/rewards.jsonl", "-o", OUTPUT)
PYTHON: Final = "/venv/bin/python"
PACKAGES: Final = f"/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
REPRODUCIBLE: Final = {  # the same rewards give the same numbers on every machine, however many cores it has
    **ENVIRONMENT,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class ScriptError(PluginError):
    """A script that failed to compute a metric; the text includes the end of its stderr."""

    exit_code = 3

    def __init__(self, message: str, kind: Kind, stderr: str = "") -> None:
        super().__init__(f"{message}: {stderr}" if stderr else message)
        self.message, self.kind = message, kind  # without stderr, which can differ between runs


def run_script(
    script: Path | bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> dict[str, Any]:
    """The values that a script computes from rewards, by name; `ScriptError` if its output is not such an object.

    InputError if the script does not exist, SandboxError if no sandbox works on this machine.
    """
    source = script if isinstance(script, bytes) else source_of(script)
    values = output_of(source, rewards, limits=limits, mechanism=mechanism)
    if not isinstance(values, dict):
        message = f'metric.json contains {_type_name(values)}; expected an object such as {{"mean": 0.5}}'
        raise ScriptError(message, "no_object")
    return values


def output_of(
    source: bytes, rewards: Iterable[Rewards], *, limits: Limits = LIMITS, mechanism: Mechanism | None = None
) -> Any:
    """The JSON value that a script writes, of any type; Harbor accepts any. Errors as in `run_script`."""
    try:
        package_folder = packages(declared(source))
    except Unusable as error:
        raise ScriptError(clean(scrubbed(str(error)), LONGEST_REASON), "declaration") from None
    lines = "".join(f"{json.dumps(None if trial is None else dict(trial))}\n" for trial in rewards)
    launched = _launch(mechanism or sandbox(), source, lines.encode(), package_folder, limits)
    exit_code, files = (None, {}) if launched.stopped else read_report(launched.report, [OUTPUT])
    stderr = stderr_tail(launched.stderr)
    if exit_code is None:
        limit = f"{limits.memory_mb} MB of memory" if launched.stopped == "memory" else f"{limits.seconds:g} s"
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
    """The sandbox that scripts run in; SandboxError with the reasons if none works on this machine."""
    if isinstance(best := working(), Mechanism):
        return best
    message = f"metric scripts run in a sandbox, and no sandbox works on this machine ({best})"
    raise SandboxError(f"{message}; install bubblewrap, or allow user namespaces")


def source_of(script: Path) -> bytes:
    """The source of a script; InputError if it is not a file, cannot be read, or is too long."""
    try:
        if not script.is_file():
            message = "is a directory" if script.is_dir() else "no such file"
            raise InputError.at(str(script), message, "expected a Python script such as metric.py")
        with script.open("rb") as file:
            source = file.read(LONGEST_SCRIPT + 1)
    except OSError as error:
        raise InputError.at(str(script), error.strerror or str(error), "expected a file you can read") from None
    if len(source) > LONGEST_SCRIPT:
        raise InputError.at(str(script), "is longer than 1 MiB", "expected a Python script such as metric.py")
    return source


def stderr_tail(stderr: bytes) -> str:
    """The last lines of a program's stderr that fit, joined to one line that is safe to print.

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
    """The text without user names in URLs and without the values of variables named like keys, tokens or passwords."""
    return re.sub(r"(?<=://)[^/@\s]+(?=@)", HIDDEN, key_like(os.environ).scrub(text))


def _launch(mechanism: Mechanism, source: bytes, lines: bytes, packages: Path | None, limits: Limits) -> Launched:
    """Run a script in a sandbox, in a virtual environment that contains only the script's packages."""
    pyvenv = f"home = {Path(interpreter()).parent}\ninclude-system-site-packages = false\n".encode()
    files = {ARGUMENTS[0]: source, ARGUMENTS[2]: lines, "/venv/pyvenv.cfg": pyvenv}
    with TemporaryDirectory(prefix="calipers-") as inputs:
        entries: list[Entry] = view(limits.disk_mb, scratch=[FOLDER])
        for path, data in files.items():
            file = Path(inputs, Path(path).name)
            file.write_bytes(data)
            file.chmod(0o444)
            entries.append(("bind", str(file), path))
        entries.append(("link", interpreter(), PYTHON))
        if packages is not None:
            entries.append(("bind", str(packages), PACKAGES))
        job = {
            "argv": [PYTHON, *ARGUMENTS],
            "environment": REPRODUCIBLE,
            "folders": [],
            "folder": "/tmp",
            "collect": [OUTPUT],
        }
        launched = launch(mechanism, "program", job, entries, limits, seconds=limits.seconds)
    if not launched.report and not launched.stopped:
        raise SandboxError("the sandbox ended before the script ended")
    return launched


def _ending(code: int) -> str:
    with suppress(ValueError):
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
    return f"signal {-code}"


def _type_name(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


LARGEST_CONFIG: Final = 64 << 20  # bytes

Datasets = frozenset[str | None] | None
"""The datasets that a script applies to; None means all."""


def requested_scripts(
    source: Any, files: Any = (), *, trust: bool = False, reward: str | None = None
) -> Scripts | None:
    """The scripts of a scoring; None if there are none. If ``reward`` is set, they get only that reward.

    InputError for a named script that does not exist or is not trusted, SandboxError if no sandbox works.
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else files
    scripts: dict[Path, Datasets] = dict.fromkeys(_distinct_paths(map(Path, named)))
    if scripts and not trust:
        first = next(iter(scripts))
        raise InputError.at(str(first), "a metric script is code", "use --trust (trust=True) to run it in the sandbox")
    of_jobs, notes = scripts_of_jobs(source)
    scripts |= {path: of_jobs[path] for path in _distinct_paths([*scripts, *of_jobs]) if path not in scripts}
    if not trust:
        notes += [
            f"{path}: comes with the dataset and is not run, because it is code; use --trust to run it"
            for path in scripts
        ]
        scripts = {}
    if not (scripts or notes):
        return None
    sources = [source_of(path) for path in scripts]
    if scripts:
        sandbox()  # fails now, not after everything is read
    labelled = zip(distinct_names(scripts), sources, scripts.values(), strict=True)
    return Scripts([Script(*fields) for fields in labelled], notes, reward)


def check_ready(datasets: Iterable[str]) -> None:
    """SandboxError if any of these datasets has a script and no sandbox works.

    For runs that are scored afterwards, so that the error comes before the run.
    """
    from calipers.systems.harbor.dataset import metric_scripts

    for folder in map(Path, datasets):
        with suppress(InputError):  # reading the dataset reports its errors
            if os.path.isdir(folder) and metric_scripts(folder):
                sandbox()


def scripts_of_jobs(source: Any) -> tuple[dict[Path, Datasets], list[str]]:
    """The scripts of the jobs among the paths, each with its datasets, and notes on scripts that cannot be used.

    The ``metric.py`` of a local dataset applies to that dataset, a job's own ``uv-script`` to all datasets of the job.
    A path that is not a readable job has no scripts; reading it reports its errors.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    scripts: dict[Path, set[str | None]] = {}
    notes: list[str] = []
    for job in (job for path in paths if isinstance(path, (str, os.PathLike)) for job in _jobs(path)):
        try:
            for script, datasets in _job_scripts(job):
                scripts.setdefault(script, set()).update(datasets)
        except InputError as error:
            notes.append(f"{error}; no metric script of this dataset is run")
    return {script: frozenset(datasets) for script, datasets in scripts.items()}, list(dict.fromkeys(notes))


def _distinct_paths(paths: Iterable[Path]) -> Iterable[Path]:
    """The paths without those that lead to the same file as an earlier one."""
    first: dict[str, Path] = {}
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    return first.values()


def _jobs(path: str | os.PathLike[str]) -> Sequence[Path]:
    """The folders of jobs at a path: the path itself, or its subfolders."""
    folder = Path(path)
    if not os.path.isdir(folder):
        return []
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(config.parent for config in folder.glob(f"*/{CONFIG}"))


def _job_scripts(job: Path) -> Iterator[tuple[Path, set[str | None]]]:
    """The scripts that a job's ``config.json`` leads to, each with the datasets that it applies to."""
    try:
        if (job / CONFIG).stat().st_size > LARGEST_CONFIG:
            return
        config = msgspec.json.decode((job / CONFIG).read_bytes(), type=complete(JobScripts))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    names: set[str | None] = set()
    for dataset in config.datasets:
        name = dataset.name or os.path.basename(os.path.normpath(dataset.path or ""))
        names.add(name)
        if dataset.path and (folder := _existing(job, dataset.path)) and folder.is_dir():
            from calipers.systems.harbor.dataset import metric_scripts

            for script in metric_scripts(folder):
                yield script, {name}
    for metric in config.metrics:
        path = metric.kwargs.get("script_path")
        if metric.type == SCRIPT and isinstance(path, str) and (script_path := _existing(job, path)):
            yield script_path, names or {ADHOC, None}


def _existing(job: Path, path: str) -> Path | None:
    """A path in a job's config, relative to the current folder or one above the job; None if it exists in neither.

    The config does not say in which folder the job was started.
    """
    starts = (Path(), job.parent, job.parent.parent, job.absolute().parent.parent)  # a job is in jobs/<name>
    return next((start / path for start in starts if os.path.exists(start / path)), None)


MOST_VALUES: Final = 1000  # of one script
LONGEST_NAME: Final = 200  # characters
TRIAL_TIME: Final = "trial_s"  # the column that only finished trials have
ONCE: Final = "a metric script is run once, over all rewards"


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the datasets whose groups it applies to."""

    label: str
    source: bytes
    datasets: Datasets


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of one scoring; calling it with a result runs them and adds their values to the result."""

    scripts: Sequence[Script]
    notes: Sequence[str]  # on scripts that are not run
    reward: str | None  # the only reward that the scripts get; None for all
    failed: list[str] = field(default_factory=list)  # errors of scripts that failed

    def __call__(self, result: Result, rollouts: Rollouts) -> Result:
        """The result with the values of every script added to its groups."""
        groups = [self._with_values(group, part) for group, part in zip(result.groups, rollouts.groups(), strict=True)]
        not_run = len(rollouts) - int(np.count_nonzero(finished(rollouts)))
        notes = [*result.notes, *self.notes]
        if self.scripts and not_run:
            notes.append(f"not run: {not_run:,} of {len(rollouts):,} rollouts; metric scripts get the others")
        return replace(result, groups=groups, notes=[*notes, *self.failed], failed=self.failed)

    def _with_values(self, group: Group, part: Rollouts) -> Group:
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
    """The rewards of each finished rollout of a group, in the order of tasks and samples, as Harbor passes them.

    Rewards are passed on whatever the outcome, so a script also gets the reward of a trial with an exception. A
    rollout without rewards is None, whatever the cause. A rollout that did not finish is left out.
    """
    rows = finished(part)
    columns = {key: column.take(rows) for key, column in sorted(part.rewards.items()) if only in (None, key)}
    values = {key: (column.values.tolist(), column.given.tolist()) for key, column in columns.items()}
    for row in range(int(np.count_nonzero(rows))):
        yield {key: numbers[row] for key, (numbers, given) in values.items() if given[row]} or None


def finished(part: Rollouts) -> Bools:
    """Whether each rollout finished, [R]: it was run, or is a Harbor trial that ended without verification."""
    timed = part.columns.get(TRIAL_TIME)
    was_run: Bools = part.outcome != CODE["not_run"]
    return was_run if timed is None else was_run | timed.given


def distinct_names(scripts: Mapping[Path, Datasets]) -> list[str]:
    """The name of each script, with as many parent folders as are needed to make names in the same group distinct.

    >>> distinct_names({Path("a/metric.py"): None, Path("b/metric.py"): None, Path("b/f1.py"): None})
    ['a/metric.py', 'b/metric.py', 'f1.py']
    """
    names = []
    for path, datasets in scripts.items():
        parts = path.absolute().parts
        others = [
            other.absolute().parts
            for other, others_datasets in scripts.items()
            if other != path and (datasets is None or others_datasets is None or datasets & others_datasets)
        ]
        unique = (n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others))
        names.append("/".join(parts[-next(unique, len(parts)) :]))
    return names


def _checked(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values; ScriptError if there are none or too many, or if a name is too long or not printable."""
    if not values:
        raise ScriptError('metric.json has no values; expected an object such as {"mean": 0.5}', "no_object")
    if len(values) > MOST_VALUES:
        raise ScriptError(f"metric.json has {len(values):,} values; expected at most {MOST_VALUES:,}", "no_object")
    for name in values:
        if len(name) > LONGEST_NAME or not name.isprintable():
            message = f"metric.json names a value {clean(name)!r}"
            raise ScriptError(f"{message}; expected at most {LONGEST_NAME} characters that can be shown", "no_object")
    return values


def _estimate(script: Script, name: str, result: Any, part: Rollouts) -> Estimate:
    """The estimate for one value of a script, or for its error; it has no interval."""
    used = finished(part)
    tasks = int(np.count_nonzero(part.by_task.count(used)))
    value, why = _number(result)
    sha256 = hashlib.sha256(script.source).hexdigest()
    return Estimate(
        value=value,
        stderr=None,
        interval=None,
        method=None,
        tasks=tasks,
        samples=int(np.count_nonzero(used)),
        undefined_tasks=len(part.tasks) - tasks,
        bounds=None,
        higher_is_better=None,
        why=why,
        made=Signature("metric_script", settings=(*((name,) if name else ()), f"sha256:{sha256[:16]}", "gaps:null")),
    )


def _number(result: Any) -> tuple[float | None, str]:
    """The number in a script's value, and the reason why it has no interval or is not a number."""
    if isinstance(result, ScriptError):
        return None, result.message
    if isinstance(result, (bool, int, float)):
        try:
            number = float(result) + 0.0
        except OverflowError:
            return None, "the script gave a number too large to be shown"
        return number, ONCE if math.isfinite(number) else f"the script gave {number}"
    if isinstance(result, str):
        return None, f"the script gave the text {clean(result)!r}"
    return None, f"the script gave {_type_name(result)}"
