"""Harbor's environment without a container engine: each trial in a `Container` of its own.

``harbor run -e calipers_harbor.environment:RoomEnvironment``. What ``environment/`` holds is copied to the working
directory, or an image built of it without an engine; a task that needs another image, compose, a graphics card or
another operating system is refused before its trial starts. Whatever the agent left running is ended before the tests
come in, so that no process of its own is there to write the reward (``--ek keep_processes=true`` for tasks that grade
a service which must go on running).
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
STREAMS = ("test-stdout.txt", "test-stderr.txt", "oracle.txt")  # into which Harbor leads what tests and solutions print


class RoomEnvironment(BaseEnvironment):
    """A trial's environment made of Linux namespaces and an overlay over this machine's own root."""

    def __init__(self, *args: Any, keep_processes: bool = False, **kwargs: Any) -> None:
        self._keep = keep_processes
        self._room: Container | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """What Harbor calls it."""
        return "calipers-room"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It can do without a network, and change that between two phases unless processes outlive them."""
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=not self._keep)

    @classmethod
    def preflight(cls) -> None:
        """End the job before it starts where there are no namespaces."""
        if wrong := lacking():
            raise SystemExit(f"calipers-room: {wrong}")

    def _validate_definition(self) -> None:
        recipe = self._recipe
        if wrong := recipe.declined or (unbuildable(recipe.image) if recipe.image else None):
            raise ValueError(f"{wrong}; a container engine can run it")

    async def start(self, force_build: bool) -> None:
        """Make the room; it sees neither the dataset nor the job."""
        task = next((folder for folder in self.environment_dir.parents if (folder / "task.toml").is_file()), None)
        dataset = (task or self.environment_dir.parent).parent  # a separate verifier's folder may be a step's tests
        hidden = [dataset, self.trial_paths.trial_dir.parent]
        wanted = self.task_env_config
        plan, layers = self._recipe, []
        if plan.image:
            builder = Builder(Container, ContainerError)
            layers = await asyncio.to_thread(build, plan.image, builder, wanted.build_timeout_sec)
            about = json.dumps({"image": plan.image.base.words})
            (self.trial_paths.trial_dir / "calipers.json").write_text(f"{about}\n")
        modes = [policy.network_mode for policy in (self._network_policy, *self._phase_network_policies)]
        self._room = Container(
            hidden=hidden,
            network=not self._network_disabled,
            switched=NetworkMode.NO_NETWORK in modes,
            memory=wanted.memory_mb,
            files=wanted.storage_mb,
            layers=layers,
        )
        await asyncio.to_thread(self._room.start)
        await asyncio.to_thread(furnish, self._room, self.environment_dir, plan)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Give the commands of the next phase what it may reach."""
        self._inside.connect(network_policy.network_mode == NetworkMode.PUBLIC)

    async def stop(self, delete: bool) -> None:
        """Leave nothing."""
        if self._room is not None:
            await asyncio.to_thread(self._room.stop)
            self._room = None

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        await asyncio.to_thread(self._inside.put, source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder holds in; before the tests come, the agent ends."""
        if target_dir.rstrip("/") == TESTS:
            await self._end_agent(scripts(Path(source_dir)))
        await asyncio.to_thread(self._inside.put, source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        await asyncio.to_thread(self._inside.take, source_path, target_path)
        cut_streams(Path(target_path).parent)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder holds out."""
        await asyncio.to_thread(self._inside.take, source_dir, target_dir)
        cut_streams(Path(target_dir))

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command; TimeoutError when its time is up."""
        recipe, named = self._recipe, self._resolve_user(user)
        merged = {**recipe.env, **(self._merge_env(env) or {})}
        ran = await asyncio.to_thread(
            self._inside.run,
            command,
            cwd=cwd or recipe.workdir,
            env=merged,
            user=recipe.user if named is None else named,
            timeout=timeout_sec,
        )
        if ran.timed_out:
            raise TimeoutError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(
            stdout=ran.stdout.decode(errors="replace"), stderr=ran.stderr.decode(errors="replace"), return_code=ran.code
        )

    @property
    def _inside(self) -> Container:
        if self._room is None:
            raise RuntimeError("the environment has not been started")
        return self._room

    @property
    def _recipe(self) -> EnvironmentPlan:
        wanted = self.task_env_config
        return read_environment(self.environment_dir, docker_image=wanted.docker_image, workdir=wanted.workdir)

    async def _end_agent(self, tests: list[str]) -> None:
        """End what the agent left running, and say what it was; OSError when it changed what is to judge it."""
        left = [] if self._keep else await asyncio.to_thread(self._inside.sweep)
        if left:
            path = self.trial_paths.trial_dir / "left-running.json"
            path.write_text(json.dumps(left, indent=2) + "\n")
        if changed := await asyncio.to_thread(self._inside.tampered, tests, self._recipe.env):
            path = self.trial_paths.trial_dir / "tampered.json"
            path.write_text(json.dumps(changed, indent=2) + "\n")
            (self.trial_paths.trial_dir / "calipers.json").write_text('{"outcome": "tampered"}\n')
            raise OSError(f"the agent changed {changed[0]}, which is part of its verifier")


def cut_streams(folder: Path) -> None:
    """Cut what commands printed into files at the limit that holds for what they print elsewhere."""
    for name in STREAMS:
        path = folder / name
        if path.is_file() and not path.is_symlink() and path.stat().st_size > MOST_HEARD:
            os.truncate(path, MOST_HEARD)


class Nowhere(BaseEnvironment):
    """The environment of a trial that needs none: a question, an answer, and a verdict given outside."""

    @staticmethod
    def type() -> str:
        """What Harbor calls it."""
        return "calipers-nowhere"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """There is no network where there is nothing."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        """Nothing is started."""

    async def stop(self, delete: bool) -> None:
        """Nothing is left."""

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Nothing can see it."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Nothing can see it."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """FileNotFoundError: there are no files."""
        raise FileNotFoundError(source_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """There are no files."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Every command is one that is not there."""
        return ExecResult(stdout="", stderr="there is no environment to run the command in", return_code=127)
