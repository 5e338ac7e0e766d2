"""Trials with Harbor or in our own containers: an agent on a task, then the task's tests, and Harbor's own files.

This file has Harbor as an external program: it finds it, checks its version, and runs it with our modules.

Harbor has its own interpreter. The modules that it needs from us (`calipers.systems.harbor.lent`, and the container of
`calipers.isolate`) are copied into a folder that only this process has on its path, as the package
``calipers_harbor``.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from calipers.clients.secrets import key_like
from calipers.errors import HarborError, InputError
from calipers.systems.harbor.wire import decode_lenient

OLDEST: Final = (0, 25)
PATIENCE: Final = 30.0  # seconds for Harbor to stop its trials after a signal
LOOK_EVERY: Final = 0.5  # seconds between two checks of a job's progress
LAST_LINES: Final = 3  # lines of Harbor's output in an error message
ROOM: Final = "calipers_harbor.environment:RoomEnvironment"
CONTAINER: Final = ("container", "limits", "tamper_check")  # the modules of `isolate` that a container needs
CHAT: Final = "calipers_harbor.agent:ChatAgent"
CALLING: Final = "calipers_harbor.verifier:CallingVerifier"

Progress = Callable[[int, int], None]
"""Called with the number of finished trials and the number of all trials."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An installed Harbor."""

    program: str
    version: str


def find_engine() -> Engine:
    """The Harbor that ``CALIPERS_HARBOR`` names, else the one on the path. HarborError if it is absent or too old."""
    import subprocess

    name = os.environ.get("CALIPERS_HARBOR") or "harbor"
    program = shutil.which(name)
    if program is None:
        raise HarborError(f"there is no program {name!r}; install Harbor, or set CALIPERS_HARBOR to its path")
    try:
        answer = subprocess.run(_version(program), capture_output=True, text=True, timeout=60, env=clean_environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarborError(f"{program} does not answer ({error}); expected Harbor {_dotted(OLDEST)} or newer") from None
    match = re.fullmatch(r"(?:harbor\s+)?v?((\d+)\.(\d+)\S*)", answer.stdout.strip(), re.IGNORECASE)
    if answer.returncode or not match:
        first = (answer.stderr or answer.stdout).strip().partition("\n")[0][:120]
        raise HarborError(f"{program} --version prints {first!r}; expected Harbor {_dotted(OLDEST)} or newer")
    if (int(match[2]), int(match[3])) < OLDEST:
        raise HarborError(f"{program} is Harbor {match[1]}; expected {_dotted(OLDEST)} or newer")
    return Engine(program, match[1])


def _version(program: str) -> list[str]:
    """A command that prints Harbor's version, if possible with its interpreter, which is seconds faster."""
    if python := _interpreter(program):
        return [python, "-c", "from importlib.metadata import version; print(version('harbor'))"]
    return [program, "--version"]


def _interpreter(program: str) -> str | None:
    """The Python interpreter in the first line of a script; None if there is none."""
    with open(program, "rb") as file:
        first = file.readline(500).decode(errors="replace").strip()
    is_python = first.startswith("#!") and os.path.basename(first).startswith("python") and " " not in first
    return first[2:] if is_python else None


def refusals(engine: Engine, settings: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, str]:
    """Why Harbor would reject a task, by the task's path; ``settings`` are the agent and the environment.

    One such task makes Harbor stop the whole job. The result is empty if Harbor cannot be checked; the job then fails
    with Harbor's own message.
    """
    import subprocess

    python = _interpreter(engine.program)
    if python is None:
        return {}
    with TemporaryDirectory(prefix="calipers-harbor-") as scratch, lent() as lending:
        file = Path(scratch, "tasks.json")
        file.write_bytes(msgspec.json.encode({"settings": settings, "tasks": tasks}))
        path = [lending, *_agents_path({"agents": [settings["agent"]]})]
        command = [*_ending_with_us(), python, "-m", "calipers_harbor.refusals", str(file)]
        environment = clean_environment(PYTHONPATH=os.pathsep.join(path))
        answer = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=environment)
    try:
        refused = msgspec.json.decode(answer.stdout.strip().rpartition(b"\n")[2], type=dict[str, str])
    except msgspec.DecodeError:
        return {}
    secrets = key_like(os.environ)
    return {task: secrets.scrub(reason) for task, reason in refused.items()}


async def run_job(engine: Engine, config: Mapping[str, Any], progress: Progress = lambda done, planned: None) -> Path:
    """Run a job with this configuration of Harbor; returns its directory.

    HarborError with Harbor's last output if the job did not finish. If this coroutine is cancelled, Harbor gets a
    signal to cancel its trials, and is killed if it does not stop.
    """
    job = Path(config["jobs_dir"], config["job_name"])
    with TemporaryDirectory(prefix="calipers-harbor-") as scratch, lent() as lending:
        file, log = Path(scratch, "job.json"), Path(scratch, "harbor.log")
        file.write_bytes(msgspec.json.encode(config))
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(*_ending_with_us(), engine.program, "run", "-c", str(file), "--yes", "--quiet"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=clean_environment(
                    PYTHONPATH=os.pathsep.join([lending, *_agents_path(config)]), **_logins(config, scratch)
                ),
                start_new_session=True,  # we handle Ctrl-C and pass it on
            )
        try:
            while not await _ended(process, LOOK_EVERY):
                progress(*trial_counts(job))
        finally:
            await _stop(process)
        progress(*trial_counts(job))
        if process.returncode or not finished(job):
            output = key_like(os.environ).scrub(_log_tail(log.read_text(errors="replace")))
            raise HarborError(f"Harbor exited with {process.returncode} without a finished job; its output: {output}")
    return job


def _logins(config: Mapping[str, Any], scratch: str) -> dict[str, str]:
    """Podman's login file: Harbor passes Docker's file, and Podman fails if it does not exist."""
    docker = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker", "config.json")
    podman = (config.get("environment") or {}).get("type") == "podman"
    if not podman or os.environ.get("REGISTRY_AUTH_FILE") or docker.is_file():
        return {}
    file = Path(os.environ.get("XDG_RUNTIME_DIR") or scratch, "containers", "auth.json")  # of podman login
    if not file.is_file():
        file = Path(scratch, "auth.json")
        file.write_text("{}")
    return {"REGISTRY_AUTH_FILE": str(file)}


def _agents_path(config: Mapping[str, Any]) -> list[str]:
    """The user's PYTHONPATH, where their own agent may be; only such an agent gets it."""
    paths = [str(agent.get("import_path") or "") for agent in config.get("agents", ())]
    foreign = any(path and not path.startswith("calipers_harbor.") for path in paths)
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder] if foreign else []


def _ending_with_us() -> list[str]:
    """A command prefix that ends Harbor with our process: two Harbor processes on one job would damage it."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _log_tail(log: str) -> str:
    """The last lines of a log, without the boxes that Harbor draws around a traceback."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and line.strip()[0] not in "│╭╰┃┏┗━─"]
    return " / ".join(lines[-LAST_LINES:]) or "nothing"


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait some seconds for a process to end; whether it did."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.wait()), seconds)
    return process.returncode is not None


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a process that still runs: with an interrupt, then by killing it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        await _ended(process, PATIENCE)


def trial_counts(job: Path) -> tuple[int, int]:
    """(finished trials, planned trials) from a job's ``result.json``; (0, 0) while it cannot be read."""
    result = read_json(job / "result.json")
    try:
        return int(result["stats"]["n_completed_trials"]), int(result["n_total_trials"])
    except (KeyError, TypeError, ValueError):
        return 0, 0


def finished(job: Path) -> bool:
    """Whether a job's ``result.json`` says that it finished."""
    result = read_json(job / "result.json")
    return isinstance(result, dict) and bool(result.get("finished_at"))


def read_json(path: Path) -> Any:
    """The JSON value in a file; None if it is not valid JSON, for example if it was cut off by a kill."""
    try:
        return decode_lenient(path.read_bytes(), object)
    except (OSError, ValueError, RecursionError):
        return None


def read_config(job: Path) -> dict[str, Any]:
    """The configuration of a job; InputError if its file is cut off or damaged."""
    path = job / "config.json"
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("n_attempts", 1), int):
        expected = f"expected the file as it was written; remove {job} to run its trials again"
        raise InputError.at(str(path), "is not a job's configuration", expected)
    return config


@contextmanager
def lent() -> Iterator[str]:
    """A temporary folder for the path of Harbor's interpreter, with the modules that Harbor needs from us."""
    with (
        TemporaryDirectory(prefix="calipers-lent-") as folder,
        as_file(files("calipers.systems.harbor.lent")) as modules,
        as_file(files("calipers.isolate")) as isolate,
    ):
        package = Path(folder, "calipers_harbor")
        shutil.copytree(modules, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "isolate").mkdir()
        for name in CONTAINER:
            shutil.copy(isolate / f"{name}.py", package / "isolate")
        shutil.copytree(
            isolate / "inside", package / "isolate" / "inside", ignore=shutil.ignore_patterns("__pycache__")
        )
        yield folder


def clean_environment(**more: str) -> dict[str, str]:
    """Our environment variables without those that lead to our libraries, and without telemetry."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    ours = os.path.dirname(sys.executable) if sys.prefix != sys.base_prefix else None
    path = [folder for folder in kept.get("PATH", "").split(os.pathsep) if folder != ours]
    quiet = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # no telemetry, no download
    return {**quiet, **kept, "PATH": os.pathsep.join(path), **more}


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
