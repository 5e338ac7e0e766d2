"""One trial without Harbor: an agent in a room, then the task's tests, with the files that Harbor writes.

The agents are the reference solution, nothing at all, and a command of the user's own. The tests leave rewards in a
file; several steps have theirs combined, and may have to reach a gate.
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from calipers.errors import CalipersError, InputError, nearest
from calipers.isolate.container import CommandResult, Container, ContainerError
from calipers.isolate.tamper_check import scripts
from calipers.systems.harbor.lent.dockerfile import EnvironmentPlan, furnish
from calipers.systems.harbor.lent.image import ImageError, build
from calipers.systems.harbor.task import (
    Artifact,
    Healthcheck,
    JudgeEnvironment,
    Network,
    StepSettings,
    TaskDirectory,
    agent_timeout,
    agent_user,
    judge_environment,
    network_policies,
    resolve_env,
    solution_script,
    uploaded,
    verifier_script,
    verifier_timeout,
    verifier_user,
)
from calipers.systems.harbor.trials.environment import BUILDER, COMMAND, MAIN, environment_plan, judge_plan
from calipers.systems.harbor.wire import Number, Rewards, finite

LOGS: Final = "/logs/agent"
NAMES: Final = ("oracle", "nop")
UNSOLVED: Final = "it has no solution for the oracle to run"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One piece of work for an agent: a task, or a step of it, in a room."""

    container: Container
    task: TaskDirectory
    step: StepSettings | None
    instruction: str
    workdir: str
    env: Mapping[str, str]
    timeout: float | None
    user: str | int | None


class ContainerAgent(Protocol):
    """Whoever works on a task inside a room."""

    @property
    def name(self) -> str:
        """What it is called in the job's papers."""
        ...

    @property
    def log(self) -> str:
        """The file of its logs that has what its command printed."""
        ...

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """How its command ended; None when it had nothing to run."""
        ...


@dataclass(frozen=True, slots=True)
class Oracle:
    """Runs the task's own solution. FileNotFoundError for a task without one."""

    name: str = "oracle"
    log: str = "oracle.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Bring the solution in and run it."""
        script = solution_script(turn.task, turn.step) or solution_script(turn.task)
        if script is None:
            raise FileNotFoundError(f"{turn.task.path / 'solution'}: {UNSOLVED}")
        bring(turn.container, turn.task, script.parent, "/solution", script)
        env = {**turn.env, **resolve_env(turn.task.config.solution.env, os.environ, "solution.env")}
        run = f"/solution/{script.name} 2>&1"
        ran = turn.container.run(run, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)
        if ran.code and not ran.timed_out:  # as in Harbor, what it solved is for the tests to say
            turn.container.run(f"echo {ran.code} > {LOGS}/exit-code.txt", cwd="/")
            return replace(ran, code=0)
        return ran


@dataclass(frozen=True, slots=True)
class Nop:
    """Does nothing: what a task gives to nobody is no measure of anyone."""

    name: str = "nop"
    log: str = "nop.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command of the user's, run in the room; it finds the instruction in the file ``$INSTRUCTION``."""

    line: str
    name: str = "command"
    log: str = "stdout.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Write the instruction down and run the command."""
        with TemporaryDirectory() as scratch:
            note = Path(scratch, "instruction.md")
            note.write_text(turn.instruction, encoding="utf-8")
            note.chmod(0o644)
            turn.container.put(note, f"{LOGS}/instruction.md")
        env = {**turn.env, "INSTRUCTION": f"{LOGS}/instruction.md"}
        return turn.container.run(self.line, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)


def unsolved(task: TaskDirectory) -> str | None:
    """Why the oracle cannot work on a task, or None: it needs the task's solution, or one for each of its steps.

    And the variables of this machine that the solution is given.
    """
    in_steps = bool(task.config.steps) and all(solution_script(task, step) for step in task.config.steps)
    if not solution_script(task) and not in_steps:
        return UNSOLVED
    try:
        resolve_env(task.config.solution.env, os.environ, "solution.env")
    except InputError as error:
        return str(error)
    return None


def bring(container: Container, task: TaskDirectory, folder: Path, target: str, script: Path | None = None) -> None:
    """Copy what of a task's folder an environment is given to a place in the room; ``script`` is made executable."""
    with TemporaryDirectory() as scratch:
        for path in uploaded(task.path, folder):
            copy = Path(scratch, path.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            if script and path.name == script.name and path.parent == folder:
                copy.chmod(copy.stat().st_mode | 0o111)
        Path(scratch).chmod(0o755)
        container.put(scratch, target)


def find_agent(spec: str) -> ContainerAgent:
    """The agent that ``oracle``, ``nop`` or ``command:LINE`` names; InputError for one that only Harbor has."""
    if spec == "oracle":
        return Oracle()
    if spec == "nop":
        return Nop()
    if spec.startswith(COMMAND):
        if not spec.removeprefix(COMMAND).strip():
            raise InputError.at("--agent", f"{spec!r} has no command", "expected command:LINE, as a shell reads it")
        return Command(spec.removeprefix(COMMAND).strip())
    close = f" (did you mean {' or '.join(map(repr, nearest(spec, NAMES)))}?)" if nearest(spec, NAMES) else ""
    raise InputError.at(
        "--agent",
        f"{spec!r} is not an agent that works without Harbor{close}",
        "expected oracle, nop or command:LINE, or install Harbor, on the PATH or in CALIPERS_HARBOR",
    )


REWARD: Final = "reward"
JSON_FILE: Final = "reward.json"
TEXT_FILE: Final = "reward.txt"
EMPTY: Final = "RewardFileEmptyError"
ABSENT: Final = "RewardFileNotFoundError"
UNREADABLE: Final = "VerifierOutputParseError"
NO_MAP: Final = "ValidationError"


@dataclass(frozen=True, slots=True)
class Unrewarded:
    """Why there are no rewards: the exception that Harbor records, and what is wrong."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Graded:
    """A step whose verifier came to an end; it may have given no rewards all the same."""

    rewards: Rewards | None


def read_rewards(files: Mapping[str, bytes]) -> dict[str, Number] | Unrewarded:
    """The rewards that tests left in the verifier's folder, by file name.

    ``reward.json`` alone is read where it exists, whatever is in it; else ``reward.txt``, whose number is
    called ``reward``. Integers stay integers, true and false are 1.0 and 0.0, an empty object is no fault.

    >>> read_rewards({"reward.txt": b" 0.25 "}), read_rewards({"reward.json": b'{"a": 1, "b": true}'})
    ({'reward': 0.25}, {'a': 1, 'b': 1.0})
    """
    name = next((name for name in (JSON_FILE, TEXT_FILE) if name in files), None)
    if name is None:
        return Unrewarded(ABSENT, f"there is neither {JSON_FILE} nor {TEXT_FILE}")
    if not files[name]:
        return Unrewarded(EMPTY, f"{name} is empty")
    return _from_json(files[name]) if name == JSON_FILE else _from_text(files[name])


def _from_text(raw: bytes) -> dict[str, Number] | Unrewarded:
    try:
        value = float(raw.decode())
    except ValueError:
        return Unrewarded(UNREADABLE, f"{TEXT_FILE} contains no number")
    if not math.isfinite(value):
        return Unrewarded(UNREADABLE, f"{TEXT_FILE} contains {value}; expected a finite number")
    return {REWARD: value}


def _from_json(raw: bytes) -> dict[str, Number] | Unrewarded:
    try:
        rewards = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Unrewarded(UNREADABLE, f"{JSON_FILE} cannot be read: {error}")
    if not isinstance(rewards, dict):
        kind = NO_MAP if finite(rewards) else UNREADABLE
        return Unrewarded(kind, f'{JSON_FILE} contains no object; expected one such as {{"reward": 1}}')
    for name, value in rewards.items():
        if not finite(value):
            return Unrewarded(UNREADABLE, f"{JSON_FILE}: {name} is {value!r}; expected a finite number")
    return {name: float(value) if isinstance(value, bool) else value for name, value in rewards.items()}


def trial_rewards(
    steps: Sequence[Graded | None], strategy: Literal["mean", "final"] | str | None = None
) -> Rewards | None:
    """The rewards of a trial from those of the steps it came to, None for a step that was not graded.

    ``mean``, which is meant where nothing is said: each reward's mean over the graded steps, 0 where a step
    lacks it; no rewards where no step has any. ``final``: what the last step was given, as it is.

    >>> trial_rewards([Graded({"reward": 1}), None, Graded(None)])
    {'reward': 0.5}
    """
    if strategy == "final":
        last = steps[-1] if steps else None
        return last.rewards if last else None
    if strategy not in (None, "mean"):
        raise InputError(f"the strategy is {strategy!r}; expected 'mean' or 'final'")
    graded = [step.rewards or {} for step in steps if step is not None]
    names = dict.fromkeys(name for rewards in graded for name in rewards)
    return {name: math.fsum(rewards.get(name, 0) for rewards in graded) / len(graded) for name in names} or None


def below(rewards: Rewards | None, least: Number | Rewards | None) -> bool:
    """Whether a step's rewards miss its ``min_reward``: a number is of ``reward``, a map is of each of its names.

    A reward that is not there misses whatever is asked of it; nothing asked is never missed.

    >>> below({"reward": 0.5}, 0.5), below({"acc": 1.0}, 0.0)
    (False, True)
    """
    gates = {} if least is None else least if isinstance(least, Mapping) else {REWARD: least}
    return any((rewards or {}).get(name, -math.inf) < gate for name, gate in gates.items())


class References:
    """Which steps of tasks are judged on a reference, None for a task without any; each task is asked once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._judged_steps: dict[Path, frozenset[str | None]] = {}

    def of(self, task: Path, judged: Callable[[], frozenset[str | None]]) -> frozenset[str | None]:
        """What is known of a task, or is found out now."""
        with self._lock:
            lock = self._locks.setdefault(task, threading.Lock())
        with lock:
            if task not in self._judged_steps:
                self._judged_steps[task] = judged()
            return self._judged_steps[task]


PUBLISHED: Final = "/logs/artifacts"
MANIFEST: Final = "manifest.json"


def unhealthy(
    container: Container,
    check: Healthcheck,
    workdir: str,
    env: Mapping[str, str],
    ended: Callable[[float], bool],
) -> str | None:
    """Why a room is not ready, once its task's check failed as often as allowed; None when it succeeded.

    What fails within the start period does not count. ``ended`` waits, and says whether all trials are ended.
    """
    begun, failed = time.monotonic(), 0
    while True:
        ran = container.run(check.command, cwd=workdir, env=env, timeout=check.timeout_sec)
        if ran.code == 0 and not ran.timed_out:
            return None
        early = time.monotonic() - begun < check.start_period_sec
        failed += not early
        if failed >= max(1, check.retries):
            how = "timed out" if ran.timed_out else f"ended with {ran.code}"
            return f"the healthcheck failed {failed} times; the last {how}"
        if ended(check.start_interval_sec if early else check.interval_sec):
            return "the trial was ended before the healthcheck succeeded"


def keep_artifacts(container: Container, wanted: Sequence[str | Artifact], folder: Path) -> list[tuple[str, Path]]:
    """Bring out what the agent published and what the task names, and write down what became of each.

    What was kept: (its path inside, its path here).

    A file is kept where its path inside says, below ``folder``, or where the task wants it. One that is not there,
    or is too large, or belongs to a container that a room has not, is no failure of the trial: the manifest says so.
    """
    artifacts = [Artifact(artifact) if isinstance(artifact, str) else artifact for artifact in wanted]
    if container.run(f'[ -n "$(ls -A {PUBLISHED} 2>/dev/null)" ]', cwd="/").code == 0:
        artifacts = [Artifact(PUBLISHED), *artifacts]
    kept = [_kept(container, artifact, folder) for artifact in artifacts]
    if kept:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2))
    return [(entry["source"], folder / entry["destination"]) for entry in kept if entry["status"] == "ok"]


def _kept(container: Container, artifact: Artifact, folder: Path) -> dict[str, Any]:
    inner = os.path.normpath(artifact.destination or artifact.source.lstrip("/"))
    target = folder / inner
    entry = {
        "source": artifact.source,
        "destination": inner,
        "type": "file",
        "status": "failed",
        "service": artifact.service,
    }
    if artifact.service in (None, MAIN) and not inner.startswith(".."):
        try:
            container.take(artifact.source, target)
            _drop(target, artifact.exclude)
            entry |= {"type": "directory" if target.is_dir() else "file", "status": "ok"}
        except (OSError, shutil.Error):
            pass  # the entry says so
    return {**entry, "exclude": list(artifact.exclude)}


def _drop(folder: Path, patterns: Sequence[str]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True) if patterns and folder.is_dir() else ():
        names = (path.name, path.relative_to(folder).as_posix())
        if any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


T = TypeVar("T")
VERIFIER: Final = "/logs/verifier"
LARGEST: Final = 1 << 20  # bytes of a reward file
TESTS: Final = "/tests"
BLAME: Final = "calipers"
"""The key of a trial's paper that is ours: whose failure it is that there is no verdict, and how that was found out."""


class OpenContainers:
    """The rooms in use. Once they are closed, every trial at work ends, and none that comes later begins."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self.references = References()
        self._lock = threading.Lock()
        self._containers: set[Container] = set()

    @property
    def closed(self) -> bool:
        """Whether all trials were ended."""
        return self._closed.is_set()

    def ended(self, seconds: float) -> bool:
        """Wait for so long, or until all trials are ended; whether they are."""
        return self._closed.wait(seconds)

    def admit(self, container: Container) -> None:
        """Count a room in before it is started; after closing time it will not start."""
        with self._lock:
            self._containers.add(container)
            if self.closed:
                container.stop()

    def leave(self, container: Container) -> None:
        """End a room."""
        with self._lock:
            self._containers.discard(container)
        container.stop()

    def close(self) -> None:
        """End them all."""
        with self._lock:
            self._closed.set()
            for container in self._containers:
                container.stop()


class EndedTrial(Exception):
    """What ended a trial or a step before its time: (Harbor's name for it, what happened)."""


class Tampered(EndedTrial):
    """A verdict that there cannot be, as the agent changed what is to judge it."""


FAILED: Final = (EndedTrial, ContainerError, OSError)  # what keeps tests from a verdict


def run_trial(
    task: TaskDirectory,
    agent: ContainerAgent,
    folder: Path,
    source: str | None,
    hidden: list[Path],
    containers: OpenContainers,
    *,
    reference: bool = False,
) -> dict[str, Any]:
    """Run one trial into its directory; the content of its ``result.json``, in Harbor's form.

    Its room is one of ``rooms`` while it lasts. Where there is no verdict, ``calipers`` in it says how it was found out
    whose failure that is; of a ``reference``, which is run to find that out, it does not.
    """
    result: dict[str, Any] = {
        "task_name": task.name,
        "trial_name": folder.name,
        "source": source,
        "task_id": {"path": str(task.path)},
        "task_checksum": task.digest.removeprefix("sha256:"),
        "agent_info": {"name": agent.name, "version": "1", "model_info": None},
        **dict.fromkeys(("agent_result", "verifier_result", "exception_info", "step_results")),
        **dict.fromkeys(("environment_setup", "agent_setup", "agent_execution", "verifier")),
        "started_at": now(),
    }
    plan = environment_plan(task)
    policies = [network_policies(task.config, step) for step in task.config.steps or (None,)]
    trial = container = None
    try:
        with _Phase(result, "environment_setup"):
            container = Container(
                hidden=[task.path.parent, *hidden],
                network=policies[0].environment == "public",
                switched=any("no-network" in modes for modes in policies),
                memory=task.config.environment.memory_mb,
                files=task.config.environment.storage_mb,
                layers=_layers(task, plan),
            )
            containers.admit(container)
            container.start()
            furnish(container, task.path / "environment", plan)
        env = {**plan.env, **resolve_env(task.config.environment.env, os.environ, "environment.env")}
        check = task.config.environment.healthcheck
        if check and (wrong := unhealthy(container, check, plan.workdir, env, containers.ended)):
            raise EndedTrial("HealthcheckError", wrong)
        room = JudgeRoom(container, plan.workdir, env, user=plan.user, image=plan.image is not None)
        trial = _Trial(room, task, agent, folder, containers)
        trial.hidden = [task.path.parent, *hidden]
        if not reference:
            trial.works = partial(_works, task, source, hidden, containers)
        if task.config.steps:
            result["step_results"] = trial.steps()
            graded = [
                Graded(step["verifier_result"]["rewards"]) if step["verifier_result"] else None
                for step in result["step_results"]
            ]
            rewards = trial_rewards(graded, task.config.multi_step_reward_strategy)
            result["verifier_result"] = None if rewards is None else {"rewards": dict(rewards)}
        else:
            trial.once(result, None, task.instruction)
    except EndedTrial as ended:
        result["exception_info"] = _failure(*ended.args)
    except ContainerError as error:
        result["exception_info"] = _failure("EnvironmentStartTimeoutError", str(error))
    except (CalipersError, OSError) as error:
        result["exception_info"] = _failure(type(error).__name__, str(error))
    finally:
        if container is not None:
            containers.leave(container)
    about = {"image": plan.image.base.words} if plan.image else {}
    if about or (trial is not None and trial.blamed is not None):
        result[BLAME] = {**about, **((trial and trial.blamed) or {})}
    result["finished_at"] = now()
    return result


def _layers(task: TaskDirectory, plan: EnvironmentPlan) -> list[Path]:
    """The folders of the image that a room is made of; none where it is made of the machine's own."""
    try:
        return build(plan.image, BUILDER, task.config.environment.build_timeout_sec) if plan.image else []
    except ImageError as error:
        raise EndedTrial("ImageError", str(error)) from None


def _works(
    task: TaskDirectory, source: str | None, hidden: list[Path], containers: OpenContainers, step: StepSettings | None
) -> bool:
    """Whether the task's tests judge its own solution, or where it has none, nothing at all; found out once."""

    def judged() -> frozenset[str | None]:
        solved = solution_script(task) or any(solution_script(task, step) for step in task.config.steps)
        agent: ContainerAgent = Oracle() if solved else Nop()
        with TemporaryDirectory(prefix="calipers-") as scratch:
            result = run_trial(task, agent, Path(scratch), source, hidden, containers, reference=True)
        steps = result["step_results"] or [{"step_name": None, "verifier_result": result["verifier_result"]}]
        return frozenset(step["step_name"] for step in steps if step["verifier_result"] is not None)

    return (step.name if step else None) in containers.references.of(task.path, judged)


@dataclass(frozen=True, slots=True)
class JudgeRoom:
    """Where a verdict is given: the agent's own room, or one that only the tests have."""

    container: Container
    workdir: str
    env: Mapping[str, str]
    bundled: bool = False  # whether the tests lie in it already
    user: str | None = None  # who runs a command that names nobody: the image's own user
    image: bool = False  # whether its root is an image and not this machine's

    def user_of(self, named: str | int | None) -> str | int | None:
        """Who a command is run as: whoever is named, else the image's own user."""
        return self.user if named is None else named


class _Trial:
    """An agent in a room, and a judge in the same or in one of its own."""

    def __init__(
        self, room: JudgeRoom, task: TaskDirectory, agent: ContainerAgent, folder: Path, containers: OpenContainers
    ) -> None:
        self._room, self._container, self._task, self._agent = room, room.container, task, agent
        self._root, self._workdir, self._env = folder, room.workdir, dict(room.env)
        self._containers = containers
        self._kept: list[tuple[str, Path]] = []  # the artifacts of the last work: (path inside, path here)
        self.hidden: list[Path] = []  # from every room
        self.works: Callable[[StepSettings | None], bool] | None = None  # whether the tests judge a reference
        self.blamed: dict[str, Any] | None = None  # how it was found out whose failure it is

    def steps(self) -> list[dict[str, Any]]:
        """Each step in turn, until one ends without a verdict or misses its gate."""
        done: list[dict[str, Any]] = []
        for step in self._task.config.steps:
            empty = dict.fromkeys(("agent_result", "verifier_result", "exception_info", "agent_execution", "verifier"))
            result: dict[str, Any] = {"step_name": step.name, **empty}
            self.once(result, step, self._task.steps[step.name])
            done.append(result)
            verified = result["verifier_result"]
            if (verified is None and result["exception_info"]) or below(
                (verified or {}).get("rewards"), step.min_reward
            ):
                break
        return done

    def once(self, result: dict[str, Any], step: StepSettings | None, instruction: str) -> None:
        """The agent's work, then the verdict; what went wrong stands in the paper."""
        try:
            if step and step is self._task.config.steps[0]:
                self._prepare(step)
            elif step:  # in a room that an agent has worked in
                self._twice(step, partial(self._prepare, step))
            try:
                self._work(result, step, instruction)
            except EndedTrial as ended:  # the agent's own fault: it is judged all the same
                result["exception_info"] = _failure(*ended.args)
            self._collect(step)
            wanted = (*self._task.config.artifacts, *(step.artifacts if step else ()))
            self._kept = keep_artifacts(self._container, wanted, self._folder("artifacts", step))
            with _Phase(result, "verifier"):
                result["verifier_result"] = {"rewards": self._verdict(step)}
        except EndedTrial as ended:
            result["exception_info"] = result["exception_info"] or _failure(*ended.args)
        except FileNotFoundError as error:
            result["exception_info"] = _failure("FileNotFoundError", str(error))

    def _prepare(self, step: StepSettings) -> None:
        """What a step finds: nothing of the judge of the one before, its own files, and a room that is ready."""
        self._container.run(f"rm -rf {TESTS} {VERIFIER}/* /logs/agent/*", cwd="/")
        folder = self._task.path / "steps" / step.name / "workdir"
        if folder.is_dir():
            bring(self._container, self._task, folder, self._workdir)
        if (folder / "setup.sh").is_file():
            user = self._room.user_of(agent_user(self._task, step))
            ran = self._container.run("bash setup.sh", cwd=self._workdir, env=self._env, user=user)
            if ran.code:
                stderr = ran.stderr.decode(errors="replace").strip()[-500:]
                raise EndedTrial("RuntimeError", f"setup.sh of step {step.name!r} ended with {ran.code}: {stderr}")
        space = len(self._task.steps[step.name].encode()) + (1 << 12)
        if self._container.run(
            f"head -c {space} /dev/zero > /logs/agent/.space; rm /logs/agent/.space", cwd="/"
        ).stderr:
            raise OSError(f"the room has no space left for the instruction of step {step.name!r}")
        if step.healthcheck:
            ended = self._containers.ended
            if wrong := unhealthy(self._container, step.healthcheck, self._workdir, self._env, ended):
                raise EndedTrial("HealthcheckError", wrong)

    def _work(self, result: dict[str, Any], step: StepSettings | None, instruction: str) -> None:
        limit = agent_timeout(self._task, step)
        user = self._room.user_of(agent_user(self._task, step))
        turn = AgentTurn(self._container, self._task, step, instruction, self._workdir, self._env, limit, user)
        policies = network_policies(self._task.config, step)
        with _Phase(result, "agent_execution"), self._network(policies.agent, policies.environment):
            ran = self._agent.work(turn)
        folder = self._keep("/logs/agent", "agent", step)
        if ran is None:
            return
        if not (folder / self._agent.log).exists():  # else it is what the agent itself left
            _write_stream(folder / self._agent.log, ran.stdout)
        if ran.timed_out:
            raise EndedTrial("AgentTimeoutError", f"the agent did not finish within {limit:g} s")
        if ran.code:
            stderr = ran.stderr.decode(errors="replace").strip()[-500:]
            raise EndedTrial("NonZeroAgentExitCodeError", f"the agent ended with {ran.code}: {stderr}")

    @contextmanager
    def _network(self, phase: Network, environment: Network) -> Iterator[None]:
        """What a phase may reach while it lasts; after it, what the environment may."""
        self._container.connect(phase == "public")
        try:
            yield
        finally:
            self._container.connect(environment == "public")

    def _collect(self, step: StepSettings | None) -> None:
        """What the task has saved before it is judged, while all still runs; what fails is noted, and no failure."""
        hooks = (*self._task.config.verifier.collect, *(step.verifier.collect if step else ()))
        failed = []
        for hook in hooks:
            limit = hook.timeout_sec
            ran = self._container.run(hook.command, cwd=self._workdir, env=self._env, user=hook.user, timeout=limit)
            if ran.timed_out or ran.code:
                how = f"took longer than {limit:g} s" if ran.timed_out else f"ended with {ran.code}"
                failed.append(f"{hook.command!r} {how}")
        if failed:
            self._note("collect-failed", failed)

    def _verdict(self, step: StepSettings | None) -> dict[str, int | float]:
        """The rewards. Where there are none, the agent is to blame if the tests judge a reference, and twice not it."""
        self._clear()
        judge = judge_environment(self._task, step)
        if judge:
            return self._twice(step, partial(self._judged_apart, judge, step))
        checks = [partial(self._unchanged, step)]  # once: the tests may install what they like

        def judged() -> dict[str, int | float]:
            while checks:
                checks.pop()()
            policies = network_policies(self._task.config, step)
            with self._network(policies.verifier, policies.environment):
                return self._judged(step, self._room)

        return self._twice(step, judged)

    def _twice(self, step: StepSettings | None, attempt: Callable[[], T]) -> T:
        """What an attempt comes to. Where it fails twice, and a reference gets past it, the agent is to blame."""
        try:
            return attempt()
        except FAILED as failed:
            if self.works is None or isinstance(failed, FileNotFoundError):
                raise
            self.blamed = {"reference": "judged" if self.works(step) else "failed", "tries": 1}
            if self.blamed["reference"] == "failed":
                raise
            if isinstance(failed, Tampered):
                self.blamed["outcome"] = "tampered"
                raise
        self.blamed["tries"] = 2
        try:
            return attempt()
        except FAILED:
            self.blamed["outcome"] = "broke_verifier"
            raise

    def _clear(self) -> None:
        """End what the agent left running."""
        if left := self._container.sweep():
            self._note("left-running", left)

    def _unchanged(self, step: StepSettings | None) -> None:
        """Tampered where the agent changed what is to judge it."""
        folders = dict.fromkeys((self._task.path / "tests", verifier_script(self._task, step).parent))
        tests = [text for folder in folders for text in scripts(folder)]
        if changed := self._container.tampered(tests, self._env):
            self._note("tampered", changed)
            raise Tampered("VerifierRuntimeError", f"the agent changed {changed[0]}, which is part of its verifier")

    def _judged_apart(self, judge: JudgeEnvironment, step: StepSettings | None) -> dict[str, int | float]:
        """The rewards of tests in a room of their own, which has of the agent's work its artifacts alone."""
        plan, settings = judge_plan(judge), judge.settings
        network = network_policies(self._task.config, step).verifier == "public"
        container = Container(
            hidden=self.hidden,
            network=network,
            memory=settings.memory_mb,
            files=settings.storage_mb,
            layers=_layers(self._task, plan),
        )
        self._containers.admit(container)
        try:
            container.start()
            furnish(container, judge.folder, plan)
            for source, kept in self._kept:
                if kept.is_dir() and source.strip("/"):  # whatever of it the tests' own room has is not the agent's
                    container.run(f"find {shlex.quote(source)} -mindepth 1 -delete", cwd="/")
                container.put(kept, source)
            env = {**plan.env, **resolve_env(settings.env, os.environ, "verifier.environment.env")}
            image = plan.image is not None
            return self._judged(step, JudgeRoom(container, plan.workdir, env, judge.bundled, plan.user, image))
        finally:
            self._containers.leave(container)

    def _judged(self, step: StepSettings | None, room: JudgeRoom) -> dict[str, int | float]:
        container, task = room.container, self._task
        emptied = VERIFIER if room.bundled else f"{VERIFIER} {TESTS}"
        container.run(f"rm -rf {emptied}; mkdir -p {emptied}; chmod 777 {VERIFIER}", cwd="/")
        script = verifier_script(task, step)
        for folder in () if room.bundled else dict.fromkeys((task.path / "tests", script.parent)):
            if folder.is_dir():
                bring(container, task, folder, TESTS, script)
        wanted = {**task.config.verifier.env, **(step.verifier.env if step else {})}
        env = {**room.env, **resolve_env(wanted, os.environ, "verifier.env")}
        if room.image:
            container.drop_bytecode()
        else:  # the machine's own is not ours to remove, and may be another Python's
            env["PYTHONPYCACHEPREFIX"] = "/tmp/.pyc"
        limit = verifier_timeout(task, step)
        if room.bundled:
            container.run(f"chmod +x {TESTS}/{script.name}", cwd="/")
        run = f"{TESTS}/{script.name} 2>&1"
        user = room.user_of(verifier_user(task, step))
        ran = container.run(run, cwd=room.workdir, env=env, user=user, timeout=limit)
        container.sweep()  # nobody is left to write a reward after the tests have
        folder = self._keep(VERIFIER, "verifier", step, container)
        _write_stream(folder / "test-stdout.txt", ran.stdout)
        if ran.timed_out:
            raise EndedTrial("VerifierTimeoutError", f"the tests did not finish within {limit:g} s")
        files = {name: _read(folder / name) for name in ("reward.json", "reward.txt") if (folder / name).is_file()}
        rewards = read_rewards(files)
        if isinstance(rewards, Unrewarded):
            raise EndedTrial(rewards.kind, rewards.why)
        return rewards

    def _keep(self, inside: str, name: str, step: StepSettings | None, container: Container | None = None) -> Path:
        """Bring a folder of logs out of the room, into the trial's directory."""
        target = self._folder(name, step)
        target.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, shutil.Error):
            (container or self._container).take(inside, target)
        return target

    def _folder(self, name: str, step: StepSettings | None) -> Path:
        return self._root / "steps" / step.name / name if step else self._root / name

    def _note(self, name: str, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        (self._root / f"{name}.txt").write_text(text, encoding="utf-8", errors="replace")


class _Phase:
    """A part of a trial: its beginning and its end, written into the paper under its name."""

    def __init__(self, result: dict[str, Any], name: str) -> None:
        self._result, self._name = result, name

    def __enter__(self) -> None:
        self._result[self._name] = {"started_at": now(), "finished_at": None}

    def __exit__(self, *_: object) -> None:
        self._result[self._name]["finished_at"] = now()


def _write_stream(path: Path, stream: bytes) -> None:
    """Keep what a command printed, which its container has cut at the limit."""
    with suppress(OSError):  # a folder of that name stays: it is what the trial left
        path.write_bytes(stream)


def _read(path: Path) -> bytes:
    if path.is_symlink():
        return b"a link"  # which is no number
    with path.open("rb") as file:
        return file.read(LARGEST)


def _failure(kind: str, message: str) -> dict[str, str]:
    about = {"exception_type": kind, "exception_message": message, "exception_traceback": ""}
    return {**about, "occurred_at": now()}


def now() -> str:
    """This moment, as Harbor writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
