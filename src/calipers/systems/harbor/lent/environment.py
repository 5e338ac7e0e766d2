"""A Harbor environment without a container engine: each trial runs in its own `Container`.

``harbor run -e calipers_harbor.environment:RoomEnvironment``. The files in ``environment/`` are copied to the working
directory, or an image is built from them without an engine. A task that needs another image, compose, a GPU or another
operating system is refused before its trial starts. All processes that the agent left running are stopped before the
tests are copied in, so that none of them can write the reward (``--ek keep_processes=true`` keeps them, for tasks that
grade a running service).
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from calipers_harbor.dockerfile import EnvironmentPlan, furnish, read_environment
from calipers_harbor.image import Builder, build, unbuildable
from calipers_harbor.isolate.container import MOST_HEARD, Container, ContainerError, lacking
from calipers_harbor.isolate.tamper_check import scripts
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy

TESTS = "/tests"
STREAMS = ("test-stdout.txt", "test-stderr.txt", "oracle.txt")  # Harbor's files for the output of tests and solutions


class RoomEnvironment(BaseEnvironment):
    """A trial's environment made of Linux namespaces and an overlay over this machine's root or a built image."""

    def __init__(self, *args: Any, keep_processes: bool = False, **kwargs: Any) -> None:
        self._keep = keep_processes
        self._room: Container | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """The environment's name in Harbor."""
        return "calipers-room"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It can disable the network, and change that between two phases unless processes keep running."""
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=not self._keep)

    @classmethod
    def preflight(cls) -> None:
        """End the job before it starts if this machine has no namespaces."""
        if reason := lacking():
            raise SystemExit(f"calipers-room: {reason}")

    def _validate_definition(self) -> None:
        plan = self._room_plan
        if reason := plan.declined or (unbuildable(plan.image) if plan.image else None):
            raise ValueError(f"{reason}; a container engine can run it")

    async def start(self, force_build: bool) -> None:
        """Start the container, which can see neither the dataset nor the job."""
        task = next((folder for folder in self.environment_dir.parents if (folder / "task.toml").is_file()), None)
        dataset = (task or self.environment_dir.parent).parent  # a separate verifier's folder may be a step's tests
        hidden = [dataset, self.trial_paths.trial_dir.parent]
        settings = self.task_env_config
        plan, layers = self._room_plan, []
        if plan.image:
            builder = Builder(Container, ContainerError)
            layers = await asyncio.to_thread(build, plan.image, builder, settings.build_timeout_sec)
            finding = json.dumps({"image": plan.image.base.words})
            (self.trial_paths.trial_dir / "calipers.json").write_text(f"{finding}\n")
        modes = [policy.network_mode for policy in (self._network_policy, *self._phase_network_policies)]
        self._room = Container(
            hidden=hidden,
            network=not self._network_disabled,
            switched=NetworkMode.NO_NETWORK in modes,
            memory=settings.memory_mb,
            files=settings.storage_mb,
            layers=layers,
        )
        await asyncio.to_thread(self._room.start)
        await asyncio.to_thread(furnish, self._room, self.environment_dir, plan)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Connect or disconnect the network for the commands of the next phase."""
        self._started_room.connect(network_policy.network_mode == NetworkMode.PUBLIC)

    async def stop(self, delete: bool) -> None:
        """Stop the container and remove its files."""
        if self._room is not None:
            await asyncio.to_thread(self._room.stop)
            self._room = None

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the container."""
        await asyncio.to_thread(self._started_room.put, source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a folder into the container; before the tests, the agent's processes are stopped."""
        if target_dir.rstrip("/") == TESTS:
            await self._end_agent(scripts(Path(source_dir)))
        await asyncio.to_thread(self._started_room.put, source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the container."""
        await asyncio.to_thread(self._started_room.take, source_path, target_path)
        cut_streams(Path(target_path).parent)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a folder out of the container."""
        await asyncio.to_thread(self._started_room.take, source_dir, target_dir)
        cut_streams(Path(target_dir))

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command; TimeoutError if it exceeds its time limit."""
        plan, resolved_user = self._room_plan, self._resolve_user(user)
        result = await asyncio.to_thread(
            self._started_room.run,
            command,
            cwd=cwd or plan.workdir,
            env={**plan.env, **(self._merge_env(env) or {})},
            user=plan.user if resolved_user is None else resolved_user,
            timeout=timeout_sec,
        )
        if result.timed_out:
            raise TimeoutError(f"Command timed out after {timeout_sec} seconds")
        stdout, stderr = (stream.decode(errors="replace") for stream in (result.stdout, result.stderr))
        return ExecResult(stdout=stdout, stderr=stderr, return_code=result.code)

    @property
    def _started_room(self) -> Container:
        if self._room is None:
            raise RuntimeError("the environment has not been started")
        return self._room

    @property
    def _room_plan(self) -> EnvironmentPlan:
        settings = self.task_env_config
        return read_environment(self.environment_dir, docker_image=settings.docker_image, workdir=settings.workdir)

    async def _end_agent(self, tests: list[str]) -> None:
        """Stop and record the processes that the agent left running; OSError if it changed part of its verifier."""
        left = [] if self._keep else await asyncio.to_thread(self._started_room.sweep)
        if left:
            path = self.trial_paths.trial_dir / "left-running.json"
            path.write_text(json.dumps(left, indent=2) + "\n")
        if changed := await asyncio.to_thread(self._started_room.tampered, tests, self._room_plan.env):
            path = self.trial_paths.trial_dir / "tampered.json"
            path.write_text(json.dumps(changed, indent=2) + "\n")
            (self.trial_paths.trial_dir / "calipers.json").write_text('{"outcome": "tampered"}\n')
            raise OSError(f"the agent changed {changed[0]}, which is part of its verifier")


def cut_streams(folder: Path) -> None:
    """Truncate the output files in a folder to the limit for a command's output."""
    for name in STREAMS:
        path = folder / name
        if path.is_file() and not path.is_symlink() and path.stat().st_size > MOST_HEARD:
            os.truncate(path, MOST_HEARD)


class Nowhere(BaseEnvironment):
    """The environment of a trial that needs none, because it is one request whose reward is computed outside."""

    @staticmethod
    def type() -> str:
        """The environment's name in Harbor."""
        return "calipers-nowhere"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It has no network."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        """Do nothing."""

    async def stop(self, delete: bool) -> None:
        """Do nothing."""

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Do nothing: no command can read the file."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Do nothing: no command can read the files."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Raise FileNotFoundError, because there are no files."""
        raise FileNotFoundError(source_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Do nothing, because there are no files."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Return exit code 127, as a shell does for a command that does not exist."""
        return ExecResult(stdout="", stderr="there is no environment to run the command in", return_code=127)
