"""Runs one trial without Harbor: the agent in a container, then the task's tests, with the files that Harbor writes.

If the tests give no verdict, it also finds out whether the agent is to blame: see `_Trial._try_twice`.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import msgspec

from calipers.errors import CalipersError
from calipers.isolate.container import Container, ContainerError
from calipers.isolate.tamper_check import scripts
from calipers.systems.harbor.lent.dockerfile import EnvironmentPlan, furnish
from calipers.systems.harbor.lent.image import ImageError, build
from calipers.systems.harbor.rewards import (
    JSON_FILE,
    TEXT_FILE,
    Graded,
    Unrewarded,
    misses_minimum,
    read_rewards,
    trial_rewards,
)
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
    verifier_script,
    verifier_timeout,
    verifier_user,
)
from calipers.systems.harbor.trials.agents import LOGS, AgentTurn, ContainerAgent, Nop, Oracle, copy_in
from calipers.systems.harbor.trials.environment import BUILDER, MAIN, environment_plan, judge_plan


class References:
    """The steps of each task that its tests can verify on a reference run; each task is run once.

    A task without steps has the single step None.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._verified_steps: dict[Path, frozenset[str | None]] = {}

    def of(self, task: Path, run: Callable[[], frozenset[str | None]]) -> frozenset[str | None]:
        """The verified steps of a task; ``run`` finds them at the first call."""
        with self._lock:
            lock = self._locks.setdefault(task, threading.Lock())
        with lock:
            if task not in self._verified_steps:
                self._verified_steps[task] = run()
            return self._verified_steps[task]


PUBLISHED: Final = "/logs/artifacts"
MANIFEST: Final = "manifest.json"


def unhealthy(
    container: Container,
    check: Healthcheck,
    workdir: str,
    env: Mapping[str, str],
    wait: Callable[[float], bool],
) -> str | None:
    """The reason why a container is not ready, once its healthcheck failed as often as allowed; None if it succeeds.

    Failures within the start period do not count. ``wait`` waits some seconds; it is True if all trials were ended.
    """
    started, failures = time.monotonic(), 0
    while True:
        result = container.run(check.command, cwd=workdir, env=env, timeout=check.timeout_sec)
        if result.code == 0 and not result.timed_out:
            return None
        early = time.monotonic() - started < check.start_period_sec
        failures += not early
        if failures >= max(1, check.retries):
            how = "timed out" if result.timed_out else f"ended with {result.code}"
            return f"the healthcheck failed {failures} times; the last {how}"
        if wait(check.start_interval_sec if early else check.interval_sec):
            return "the trial was ended before the healthcheck succeeded"


def save_artifacts(container: Container, named: Sequence[str | Artifact], folder: Path) -> list[tuple[str, Path]]:
    """Copy the published files and the artifacts that a task names out of a container, and write a manifest of them.

    Returns (path in the container, path here) of each artifact that was saved. It is saved below ``folder``, at its
    path in the container or at the task's ``destination``. An artifact that is missing, too large, or in another
    service than main does not fail the trial; the manifest records it as failed.
    """
    artifacts = [Artifact(artifact) if isinstance(artifact, str) else artifact for artifact in named]
    if container.run(f'[ -n "$(ls -A {PUBLISHED} 2>/dev/null)" ]', cwd="/").code == 0:
        artifacts = [Artifact(PUBLISHED), *artifacts]
    entries = [_save(container, artifact, folder) for artifact in artifacts]
    if entries:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=2))
    return [(entry["source"], folder / entry["destination"]) for entry in entries if entry["status"] == "ok"]


def _save(container: Container, artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Copy an artifact out of a container; its entry in the manifest."""
    destination = os.path.normpath(artifact.destination or artifact.source.lstrip("/"))
    target = folder / destination
    entry = {
        "source": artifact.source,
        "destination": destination,
        "type": "file",
        "status": "failed",
        "service": artifact.service,
    }
    if artifact.service in (None, MAIN) and not destination.startswith(".."):
        with suppress(OSError, shutil.Error):
            container.take(artifact.source, target)
            _remove_matching(target, artifact.exclude)
            entry |= {"type": "directory" if target.is_dir() else "file", "status": "ok"}
    return {**entry, "exclude": list(artifact.exclude)}


def _remove_matching(folder: Path, patterns: Sequence[str]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True) if patterns and folder.is_dir() else ():
        names = (path.name, path.relative_to(folder).as_posix())
        if any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


T = TypeVar("T")
VERIFIER: Final = "/logs/verifier"
LARGEST: Final = 1 << 20  # bytes of a reward file
TESTS: Final = "/tests"
FINDING: Final = "calipers"
"""Our own key in a trial's result: who is to blame if there is no verdict, and how that was found out."""


class OpenContainers:
    """The containers in use. Closing them ends all running trials, and no new trial starts."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.references = References()
        self._lock = threading.Lock()
        self._containers: set[Container] = set()

    def add(self, container: Container) -> None:
        """Register a container before it is started; after `close` it cannot start."""
        with self._lock:
            self._containers.add(container)
            if self.closed.is_set():
                container.stop()

    def remove(self, container: Container) -> None:
        """Stop a container."""
        with self._lock:
            self._containers.discard(container)
        container.stop()

    def close(self) -> None:
        """Stop all containers and end all trials."""
        with self._lock:
            self.closed.set()
            for container in self._containers:
                container.stop()


class EndedTrial(Exception):
    """The premature end of a trial or a step: (Harbor's exception type, message)."""


class Tampered(EndedTrial):
    """The end of a trial whose agent changed part of its verifier."""


FAILED: Final = (EndedTrial, ContainerError, OSError)  # exceptions that prevent a verdict


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
    """Run one trial in its directory; returns the content of its ``result.json``, in Harbor's form.

    Its container is among ``containers`` while it runs. If there is no verdict, the key ``calipers`` says who is to
    blame and how that was found out; not for a ``reference``, which is the run that finds it out.
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
        with _phase(result, "environment_setup"):
            container = Container(
                hidden=[task.path.parent, *hidden],
                network=policies[0].environment == "public",
                switched=any("no-network" in modes for modes in policies),
                memory=task.config.environment.memory_mb,
                files=task.config.environment.storage_mb,
                layers=_layers(task, plan),
            )
            containers.add(container)
            container.start()
            furnish(container, task.path / "environment", plan)
        env = {**plan.env, **resolve_env(task.config.environment.env, os.environ, "environment.env")}
        check = task.config.environment.healthcheck
        if check and (reason := unhealthy(container, check, plan.workdir, env, containers.closed.wait)):
            raise EndedTrial("HealthcheckError", reason)
        shared = JudgeContainer(container, plan.workdir, env, user=plan.user, image=plan.image is not None)
        verifies = None if reference else partial(_verifies_reference, task, source, hidden, containers)
        trial = _Trial(shared, task, agent, folder, containers, [task.path.parent, *hidden], verifies)
        if task.config.steps:
            result["step_results"] = trial.run_steps()
            graded = [
                Graded(step["verifier_result"]["rewards"]) if step["verifier_result"] else None
                for step in result["step_results"]
            ]
            rewards = trial_rewards(graded, task.config.multi_step_reward_strategy)
            result["verifier_result"] = None if rewards is None else {"rewards": dict(rewards)}
        else:
            trial.run(result, None, task.instruction)
    except EndedTrial as error:
        result["exception_info"] = _failure(*error.args)
    except ContainerError as error:
        result["exception_info"] = _failure("EnvironmentStartTimeoutError", str(error))
    except (CalipersError, OSError) as error:
        result["exception_info"] = _failure(type(error).__name__, str(error))
    finally:
        if container is not None:
            containers.remove(container)
    image = {"image": plan.image.base.words} if plan.image else {}
    if finding := {**image, **(trial.finding if trial else {})}:
        result[FINDING] = finding
    result["finished_at"] = now()
    return result


def _layers(task: TaskDirectory, plan: EnvironmentPlan) -> list[Path]:
    """The folders of the image of a container; none if the container uses this machine's root."""
    try:
        return build(plan.image, BUILDER, task.config.environment.build_timeout_sec) if plan.image else []
    except ImageError as error:
        raise EndedTrial("ImageError", str(error)) from None


def _verifies_reference(
    task: TaskDirectory, source: str | None, hidden: list[Path], containers: OpenContainers, step: StepSettings | None
) -> bool:
    """Whether the task's tests give a verdict on a reference: the task's solution, or an agent that does nothing."""

    def run() -> frozenset[str | None]:
        solved = solution_script(task) or any(solution_script(task, step) for step in task.config.steps)
        agent: ContainerAgent = Oracle() if solved else Nop()
        with TemporaryDirectory(prefix="calipers-") as scratch:
            result = run_trial(task, agent, Path(scratch), source, hidden, containers, reference=True)
        steps = result["step_results"] or [{"step_name": None, "verifier_result": result["verifier_result"]}]
        return frozenset(step["step_name"] for step in steps if step["verifier_result"] is not None)

    return (step.name if step else None) in containers.references.of(task.path, run)


@dataclass(frozen=True, slots=True)
class JudgeContainer:
    """A container that tests run in: the agent's, or one for the tests alone."""

    container: Container
    workdir: str
    env: Mapping[str, str]
    bundled: bool = False  # whether it already contains the tests
    user: str | None = None  # the image's default user
    image: bool = False  # whether its root is an image rather than this machine's

    def user_for(self, requested: str | int | None) -> str | int | None:
        """The user for a command: the requested one, else the image's default user."""
        return self.user if requested is None else requested


@dataclass(slots=True)
class _Trial:
    """A trial while it runs: an agent in a container, and tests in the same one or in one of their own."""

    shared: JudgeContainer
    task: TaskDirectory
    agent: ContainerAgent
    folder: Path
    containers: OpenContainers
    hidden: list[Path]  # folders that no container can see
    verifies_reference: Callable[[StepSettings | None], bool] | None  # None for a reference itself
    artifacts: list[tuple[str, Path]] = field(default_factory=list)  # of the last step: see `save_artifacts`
    finding: dict[str, Any] = field(default_factory=dict)  # who is to blame for a failure, and how that was found out

    def run_steps(self) -> list[dict[str, Any]]:
        """Run the steps in order, until one ends without a verdict or misses its minimum reward."""
        results: list[dict[str, Any]] = []
        for step in self.task.config.steps:
            empty = dict.fromkeys(("agent_result", "verifier_result", "exception_info", "agent_execution", "verifier"))
            result: dict[str, Any] = {"step_name": step.name, **empty}
            self.run(result, step, self.task.steps[step.name])
            results.append(result)
            verified = result["verifier_result"]
            failed = verified is None and result["exception_info"]
            if failed or misses_minimum((verified or {}).get("rewards"), step.min_reward):
                break
        return results

    def run(self, result: dict[str, Any], step: StepSettings | None, instruction: str) -> None:
        """Run the agent and then the tests on a task or a step; exceptions are recorded in ``result``."""
        try:
            if step and step is self.task.config.steps[0]:
                self._prepare(step)
            elif step:  # an agent has already worked in this container
                self._try_twice(step, partial(self._prepare, step))
            try:
                self._run_agent(result, step, instruction)
            except EndedTrial as error:  # the agent's own failure: the tests run anyway
                result["exception_info"] = _failure(*error.args)
            self._collect(step)
            named = (*self.task.config.artifacts, *(step.artifacts if step else ()))
            self.artifacts = save_artifacts(self.shared.container, named, self._path("artifacts", step))
            with _phase(result, "verifier"):
                result["verifier_result"] = {"rewards": self._verify(step)}
        except EndedTrial as error:
            result["exception_info"] = result["exception_info"] or _failure(*error.args)
        except FileNotFoundError as error:
            result["exception_info"] = _failure("FileNotFoundError", str(error))

    def _prepare(self, step: StepSettings) -> None:
        """Remove the tests and logs of the step before, copy the step's files in, and wait until it is healthy."""
        self.shared.container.run(f"rm -rf {TESTS} {VERIFIER}/* {LOGS}/*", cwd="/")
        folder = self.task.step_path(step) / "workdir"
        if folder.is_dir():
            copy_in(self.shared.container, self.task, folder, self.shared.workdir)
        if (folder / "setup.sh").is_file():
            user = self.shared.user_for(agent_user(self.task, step))
            setup = self.shared.container.run("bash setup.sh", cwd=self.shared.workdir, env=self.shared.env, user=user)
            if setup.code:
                stderr = setup.stderr.decode(errors="replace").strip()[-500:]
                raise EndedTrial("RuntimeError", f"setup.sh of step {step.name!r} ended with {setup.code}: {stderr}")
        space = len(self.task.steps[step.name].encode()) + (1 << 12)
        if self.shared.container.run(f"head -c {space} /dev/zero > {LOGS}/.space; rm {LOGS}/.space", cwd="/").stderr:
            raise OSError(f"the room has no space left for the instruction of step {step.name!r}")
        if step.healthcheck:
            wait = self.containers.closed.wait
            if reason := unhealthy(self.shared.container, step.healthcheck, self.shared.workdir, self.shared.env, wait):
                raise EndedTrial("HealthcheckError", reason)

    def _run_agent(self, result: dict[str, Any], step: StepSettings | None, instruction: str) -> None:
        limit = agent_timeout(self.task, step)
        user = self.shared.user_for(agent_user(self.task, step))
        turn = AgentTurn(
            self.shared.container, self.task, step, instruction, self.shared.workdir, self.shared.env, limit, user
        )
        policies = network_policies(self.task.config, step)
        with _phase(result, "agent_execution"), self._network(policies.agent, policies.environment):
            command = self.agent.work(turn)
        folder = self._save_logs(LOGS, "agent", step)
        if command is None:
            return
        if not (folder / self.agent.log).exists():  # otherwise the agent wrote this file itself
            _write_stream(folder / self.agent.log, command.stdout)
        if command.timed_out:
            raise EndedTrial("AgentTimeoutError", f"the agent did not finish within {limit:g} s")
        if command.code:
            stderr = command.stderr.decode(errors="replace").strip()[-500:]
            raise EndedTrial("NonZeroAgentExitCodeError", f"the agent ended with {command.code}: {stderr}")

    @contextmanager
    def _network(self, phase: Network, environment: Network) -> Iterator[None]:
        """Give a phase its network access, and afterwards restore that of the environment."""
        self.shared.container.connect(phase == "public")
        try:
            yield
        finally:
            self.shared.container.connect(environment == "public")

    def _collect(self, step: StepSettings | None) -> None:
        """Run the task's collect commands before the verification; failures are only recorded in a file."""
        hooks = (*self.task.config.verifier.collect, *(step.verifier.collect if step else ()))
        failures = []
        for hook in hooks:
            limit = hook.timeout_sec
            result = self.shared.container.run(
                hook.command, cwd=self.shared.workdir, env=self.shared.env, user=hook.user, timeout=limit
            )
            if result.timed_out or result.code:
                how = f"took longer than {limit:g} s" if result.timed_out else f"ended with {result.code}"
                failures.append(f"{hook.command!r} {how}")
        if failures:
            self._write_lines("collect-failed", failures)

    def _verify(self, step: StepSettings | None) -> dict[str, int | float]:
        """The rewards from the tests. If the tests fail, `_try_twice` finds out whether the agent is to blame."""
        if left := self.shared.container.sweep():  # processes that the agent left running
            self._write_lines("left-running", left)
        judge = judge_environment(self.task, step)
        if judge:
            return self._try_twice(step, partial(self._run_tests_apart, judge, step))
        checks = [partial(self._check_unchanged, step)]  # only before the first run: the tests may install programs

        def attempt() -> dict[str, int | float]:
            while checks:
                checks.pop()()
            policies = network_policies(self.task.config, step)
            with self._network(policies.verifier, policies.environment):
                return self._run_tests(step, self.shared)

        return self._try_twice(step, attempt)

    def _try_twice(self, step: StepSettings | None, attempt: Callable[[], T]) -> T:
        """The result of an attempt, which is repeated if it fails although the tests verify a reference.

        If it fails again, the agent is to blame: the outcome is ``broke_verifier``.
        """
        try:
            return attempt()
        except FAILED as error:
            if self.verifies_reference is None or isinstance(error, FileNotFoundError):
                raise
            self.finding = {"reference": "judged" if self.verifies_reference(step) else "failed", "tries": 1}
            if self.finding["reference"] == "failed":
                raise
            if isinstance(error, Tampered):
                self.finding["outcome"] = "tampered"
                raise
        self.finding["tries"] = 2
        try:
            return attempt()
        except FAILED:
            self.finding["outcome"] = "broke_verifier"
            raise

    def _check_unchanged(self, step: StepSettings | None) -> None:
        """Tampered if the agent changed a program that the tests use."""
        folders = dict.fromkeys((self.task.path / "tests", verifier_script(self.task, step).parent))
        tests = [text for folder in folders for text in scripts(folder)]
        if changed := self.shared.container.tampered(tests, self.shared.env):
            self._write_lines("tampered", changed)
            raise Tampered("VerifierRuntimeError", f"the agent changed {changed[0]}, which is part of its verifier")

    def _run_tests_apart(self, judge: JudgeEnvironment, step: StepSettings | None) -> dict[str, int | float]:
        """The rewards from tests in a container of their own, into which only the agent's artifacts are copied."""
        plan, settings = judge_plan(judge), judge.settings
        network = network_policies(self.task.config, step).verifier == "public"
        container = Container(
            hidden=self.hidden,
            network=network,
            memory=settings.memory_mb,
            files=settings.storage_mb,
            layers=_layers(self.task, plan),
        )
        self.containers.add(container)
        try:
            container.start()
            furnish(container, judge.folder, plan)
            for source, saved in self.artifacts:
                if saved.is_dir() and source.strip("/"):  # files that this container has there are not the agent's
                    container.run(f"find {shlex.quote(source)} -mindepth 1 -delete", cwd="/")
                container.put(saved, source)
            env = {**plan.env, **resolve_env(settings.env, os.environ, "verifier.environment.env")}
            image = plan.image is not None
            own = JudgeContainer(container, plan.workdir, env, judge.bundled, plan.user, image)
            return self._run_tests(step, own)
        finally:
            self.containers.remove(container)

    def _run_tests(self, step: StepSettings | None, judge: JudgeContainer) -> dict[str, int | float]:
        container, task = judge.container, self.task
        emptied = VERIFIER if judge.bundled else f"{VERIFIER} {TESTS}"
        container.run(f"rm -rf {emptied}; mkdir -p {emptied}; chmod 777 {VERIFIER}", cwd="/")
        script = verifier_script(task, step)
        for folder in () if judge.bundled else dict.fromkeys((task.path / "tests", script.parent)):
            if folder.is_dir():
                copy_in(container, task, folder, TESTS, script)
        variables = {**task.config.verifier.env, **(step.verifier.env if step else {})}
        env = {**judge.env, **resolve_env(variables, os.environ, "verifier.env")}
        if judge.image:
            container.drop_bytecode()
        else:  # this machine's bytecode must not be removed, and may be of another Python
            env["PYTHONPYCACHEPREFIX"] = "/tmp/.pyc"
        limit = verifier_timeout(task, step)
        if judge.bundled:
            container.run(f"chmod +x {TESTS}/{script.name}", cwd="/")
        user = judge.user_for(verifier_user(task, step))
        tests = container.run(f"{TESTS}/{script.name} 2>&1", cwd=judge.workdir, env=env, user=user, timeout=limit)
        container.sweep()  # so that no process can write a reward after the tests
        folder = self._save_logs(VERIFIER, "verifier", step, container)
        _write_stream(folder / "test-stdout.txt", tests.stdout)
        if tests.timed_out:
            raise EndedTrial("VerifierTimeoutError", f"the tests did not finish within {limit:g} s")
        files = {name: _read(folder / name) for name in (JSON_FILE, TEXT_FILE) if (folder / name).is_file()}
        rewards = read_rewards(files)
        if isinstance(rewards, Unrewarded):
            raise EndedTrial(rewards.kind, rewards.why)
        return rewards

    def _save_logs(self, source: str, name: str, step: StepSettings | None, container: Container | None = None) -> Path:
        """Copy a folder of logs from a container into the trial's directory."""
        target = self._path(name, step)
        target.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, shutil.Error):
            (container or self.shared.container).take(source, target)
        return target

    def _path(self, name: str, step: StepSettings | None) -> Path:
        return self.folder / "steps" / step.name / name if step else self.folder / name

    def _write_lines(self, name: str, lines: list[str]) -> None:
        """Add lines to one of the trial's own files, after those of earlier steps."""
        with open(self.folder / f"{name}.txt", "a", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{line}\n" for line in lines)


@contextmanager
def _phase(result: dict[str, Any], name: str) -> Iterator[None]:
    """Record the start and end of a part of a trial in its result."""
    result[name] = {"started_at": now(), "finished_at": None}
    try:
        yield
    finally:
        result[name]["finished_at"] = now()


def _write_stream(path: Path, stream: bytes) -> None:
    """Write a command's output, which the container has cut at its limit, to a file."""
    with suppress(OSError):  # if the trial left a folder with this name, the folder is kept
        path.write_bytes(stream)


def _read(path: Path) -> bytes:
    if path.is_symlink():
        return b"a link"  # not a number
    with path.open("rb") as file:
        return file.read(LARGEST)


def _failure(kind: str, message: str) -> dict[str, str]:
    return {"exception_type": kind, "exception_message": message, "exception_traceback": "", "occurred_at": now()}


def now() -> str:
    """The current time, as Harbor writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
