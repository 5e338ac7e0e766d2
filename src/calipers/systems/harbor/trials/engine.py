"""Harbor as an external program: finding it, checking its version, and running it with our modules.

Harbor lives in an interpreter of its own. What it needs of ours (`calipers.systems.harbor.lent`, and of
`calipers.isolate` the container) is copied into a folder that only that one process has on its path, under the name
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

from calipers.clients.secrets import Secrets
from calipers.errors import HarborError

OLDEST: Final = (0, 25)
PATIENCE: Final = 30.0  # seconds Harbor has to stop its trials once it is told to
LOOK_EVERY: Final = 0.5  # seconds between two looks at how far a job is
LAST_LINES: Final = 3  # of what Harbor printed before it gave up
ROOM: Final = "calipers_harbor.environment:RoomEnvironment"
CONTAINER: Final = ("container", "limits", "namespaces", "tamper_check")  # the files of `isolate` that make one
CHAT: Final = "calipers_harbor.agent:ChatAgent"
CALLING: Final = "calipers_harbor.verifier:CallingVerifier"

Progress = Callable[[int, int], None]
"""Told how many trials have ended, and of how many."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A Harbor that can be run."""

    program: str
    version: str


def find_engine() -> Engine:
    """The Harbor that ``CALIPERS_HARBOR`` names, else the one on the path. HarborError for none, or too old a one."""
    import subprocess

    wanted = os.environ.get("CALIPERS_HARBOR") or "harbor"
    program = shutil.which(wanted)
    if program is None:
        raise HarborError(f"there is no program {wanted!r}; install Harbor, or set CALIPERS_HARBOR to its path")
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
    """A command that prints Harbor's version: by its interpreter where the program names one, seconds faster."""
    if python := _interpreter(program):
        return [python, "-c", "from importlib.metadata import version; print(version('harbor'))"]
    return [program, "--version"]


def _interpreter(program: str) -> str | None:
    """The interpreter that a program of Python names in its first line; None where it names none."""
    with open(program, "rb") as file:
        first = file.readline(500).decode(errors="replace").strip()
    named = first.startswith("#!") and os.path.basename(first).startswith("python") and " " not in first
    return first[2:] if named else None


def refusals(engine: Engine, settings: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, str]:
    """Why Harbor would not begin with a task, by the task's path; ``settings`` are the agent and the environment.

    Harbor ends a job over one such task. None is named where Harbor cannot be asked: then it says so itself.
    """
    import subprocess

    python = _interpreter(engine.program)
    if python is None:
        return {}
    with TemporaryDirectory(prefix="calipers-harbor-") as scratch, lent() as lending:
        file = Path(scratch, "tasks.json")
        file.write_bytes(msgspec.json.encode({"settings": settings, "tasks": tasks}))
        path = [lending, *_agents_path({"agents": [settings["agent"]]})]
        command = [*_mortal(), python, "-m", "calipers_harbor.refusals", str(file)]
        environment = clean_environment(PYTHONPATH=os.pathsep.join(path))
        answer = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=environment)
    try:
        refused = msgspec.json.decode(answer.stdout.strip().rpartition(b"\n")[2], type=dict[str, str])
    except msgspec.DecodeError:
        return {}
    return {task: _secrets().scrub(reason) for task, reason in refused.items()}


async def run_job(engine: Engine, config: Mapping[str, Any], progress: Progress = lambda done, planned: None) -> Path:
    """Run a job as Harbor is configured; its directory once it has ended.

    HarborError with Harbor's last words when it leaves no finished job. Whoever stops waiting stops the job:
    Harbor is told to cancel its trials, and ended when it does not.
    """
    job = Path(config["jobs_dir"], config["job_name"])
    with TemporaryDirectory(prefix="calipers-harbor-") as scratch, lent() as lending:
        file, log = Path(scratch, "job.json"), Path(scratch, "harbor.log")
        file.write_bytes(msgspec.json.encode(config))
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(*_mortal(), engine.program, "run", "-c", str(file), "--yes", "--quiet"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=clean_environment(
                    PYTHONPATH=os.pathsep.join([lending, *_agents_path(config)]), **_logins(config, scratch)
                ),
                start_new_session=True,  # Ctrl-C is ours to hear, and to pass on
            )
        try:
            while not await _ended(process, LOOK_EVERY):
                progress(*how_far(job))
        finally:
            await _stopped(process)
        progress(*how_far(job))
        if process.returncode or not finished(job):
            words = _secrets().scrub(_log_tail(log.read_text(errors="replace")))
            raise HarborError(f"Harbor exited with {process.returncode} without a finished job; its output: {words}")
    return job


def _logins(config: Mapping[str, Any], scratch: str) -> dict[str, str]:
    """Where Podman finds its logins: Harbor names Docker's file to it, and Podman fails where that is not there."""
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
    """Where an agent of the user's own may lie: PYTHONPATH as they set it, which is nobody else's business."""
    paths = [str(agent.get("import_path") or "") for agent in config.get("agents", ())]
    foreign = any(path and not path.startswith("calipers_harbor.") for path in paths)
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder] if foreign else []


def _mortal() -> list[str]:
    """A command's beginning that ends it with us, however we end: two Harbors at one job would spoil it."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _log_tail(log: str) -> str:
    """The last lines of a log that say something: Harbor draws a traceback with boxes around it."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and line.strip()[0] not in "│╭╰┃┏┗━─"]
    return " / ".join(lines[-LAST_LINES:]) or "nothing"


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.wait()), seconds)
    return process.returncode is not None


async def _stopped(process: asyncio.subprocess.Process) -> None:
    for number, patience in ((signal.SIGINT, PATIENCE), (signal.SIGKILL, PATIENCE)):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        await _ended(process, patience)


def how_far(job: Path) -> tuple[int, int]:
    """(trials that have ended, trials planned) as a job's own paper says; (0, 0) while there is none to read."""
    result = read_json(job / "result.json")
    try:
        return int(result["stats"]["n_completed_trials"]), int(result["n_total_trials"])
    except (KeyError, TypeError, ValueError):
        return 0, 0


def finished(job: Path) -> bool:
    """Whether a job's own paper says that it came to its end."""
    result = read_json(job / "result.json")
    return isinstance(result, dict) and bool(result.get("finished_at"))


def read_json(path: Path) -> Any:
    """What a file holds; None where that is no JSON, as of a file that a kill has cut off."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@contextmanager
def lent() -> Iterator[str]:
    """A folder with our half of the work and nothing else, for another interpreter's path."""
    with (
        TemporaryDirectory(prefix="calipers-lent-") as folder,
        as_file(files("calipers.systems.harbor.lent")) as side,
        as_file(files("calipers.isolate")) as isolate,
    ):
        package = Path(folder, "calipers_harbor")
        shutil.copytree(side, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "isolate").mkdir()
        for name in CONTAINER:
            shutil.copy(isolate / f"{name}.py", package / "isolate")
        yield folder


def clean_environment(**more: str) -> dict[str, str]:
    """Our environment without what would lead another interpreter to our libraries, and without telemetry."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    ours = os.path.dirname(sys.executable) if sys.prefix != sys.base_prefix else None
    path = [folder for folder in kept.get("PATH", "").split(os.pathsep) if folder != ours]
    quiet = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # nothing is sent, nothing fetched
    return {**quiet, **kept, "PATH": os.pathsep.join(path), **more}


def _secrets() -> Secrets:
    secrets = Secrets()
    for name, value in os.environ.items():
        if name.upper().endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")):
            secrets.add(value)
    return secrets


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
