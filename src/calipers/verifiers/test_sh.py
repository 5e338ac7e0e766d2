"""A test script that verifies the completion in the sandbox: EvSys' `e2b` kind, and Harbor's ``tests/test.sh``.

The script and all processes that it starts share one sandbox, so code that it takes from the completion can write the
reward itself: the verifier is marked `forgeable`. But when the reward is read, no process is running any more, and no
test has been changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.isolate import Limits, Ran, run
from calipers.isolate.launch import apart_here, check_input_path
from calipers.tasks import Task
from calipers.verifiers import Verdict, check_names, check_number, fault, is_number
from calipers.verifiers.reasoning import of_answer
from calipers.verifiers.workers import sandboxed

PARAMS: Final = (
    "test_sh",
    "test_state_py",
    "dockerfile",
    "files",
    "sha256",
    "reward_from",
    "keys",
    "range",
    "seconds",
    "memory_mb",
)
COMPLETION: Final = "input/completion.txt"
SCRIPT: Final = "tests/test.sh"
STATE: Final = "tests/test_state.py"
FOLDERS: Final = ("/logs/verifier", "/app")
REWARD_TXT: Final = "/logs/verifier/reward.txt"
REWARD_JSON: Final = "/logs/verifier/reward.json"
CANNOT_START: Final = (126, 127)
SECONDS: Final = 60.0


class ShellTest:
    """Reward from a test script: from ``/logs/verifier/reward.json`` or ``reward.txt``, or from its exit status.

    The script is ``/tests/test.sh``; it is given the path of the completion. A reward that is no number within
    ``range``, or under a key that is not among ``keys``, is no reward: `verifier_failed`.
    """

    name = "test_sh"
    rerunnable = True
    several_rewards = True  # as many as it has keys
    forgeable = True

    def check(self, task: Task) -> None:
        """Refuse a task without a script, with an image to be built, or with tests that are not the ones hashed."""
        check_names(task, PARAMS)
        check_number(task, "seconds", least=0.1)
        check_number(task, "memory_mb", least=32)
        params = task.params
        if not isinstance(params.get("test_sh"), str) or not params["test_sh"].strip():
            raise fault(task, "test_sh is missing", "expected the text of a shell script")
        files = params.get("files", {})
        if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in (*files, *files.values())):
            raise fault(task, "files cannot be read", 'expected an object such as {"tests/data.json": "{}"}')
        for name in files:
            try:
                check_input_path(name, FOLDERS)
            except InputError as error:
                raise InputError(f"task {task.id!r}: {error}") from error
        if not isinstance(params.get("test_state_py") or "", str):
            raise fault(task, f"test_state_py is {params['test_state_py']!r:.60}", "expected the text of a Python file")
        built = [line.split()[0] for line in str(params.get("dockerfile") or "").splitlines() if line.strip()]
        built = [word for word in built if not word.startswith("#") and word.upper() not in ("FROM", "WORKDIR")]
        if built:
            raise fault(task, f"dockerfile has {built[0]}", "expected only FROM and WORKDIR, because no image is built")
        if params.get("reward_from", "file") not in ("file", "exit"):
            raise fault(task, f"reward_from is {params['reward_from']!r}", "expected 'file' or 'exit'")
        low, high = _range(task)
        if not (is_number(low) and is_number(high) and low <= high):
            raise fault(task, f"range is {params['range']!r}", "expected two numbers, such as [0, 1]")
        keys = params.get("keys", ["reward"])
        if not isinstance(keys, (list, tuple)) or not keys or not all(isinstance(key, str) for key in keys):
            raise fault(task, f"keys is {keys!r}", 'expected a list of names, such as ["reward"]')
        if params.get("sha256", digest(task)) != digest(task):
            raise fault(task, "the tests do not match their sha256", f"expected {digest(task)}")

    def gold(self, task: Task) -> None:
        """No answer is known to pass, as it depends on the script."""

    def ready(self) -> None:
        """SandboxError with the reasons if scripts cannot be run here."""
        apart_here()

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        try:
            self.check(task)  # also compares the hash of the tests again
        except InputError as error:
            raise VerifierError(str(error)) from error
        script = task.params["test_sh"]
        files = {**files_of(task), COMPLETION: completion.text.encode(errors="replace")}
        limits = Limits(
            seconds=float(task.params.get("seconds", SECONDS)), memory_mb=int(task.params.get("memory_mb", 1024))
        )
        argv = [*([] if script.startswith("#!") else ["/bin/sh"]), f"/{SCRIPT}", f"/{COMPLETION}"]
        collect = (REWARD_JSON, REWARD_TXT)
        ran = await sandboxed(
            lambda stop: run(argv, files=files, folders=FOLDERS, collect=collect, limits=limits, stop=stop)
        )
        if ran.stopped:
            raise VerifierError(f"test.sh was stopped: it reached its {ran.stopped} limit")
        if task.params.get("reward_from") == "exit":
            if ran.exit_code in CANNOT_START:
                raise VerifierError(f"test.sh could not be run: {_last_line(ran)}")
            return Verdict(float(ran.exit_code == 0))
        rewards = read_rewards(ran.files, task.params.get("keys", ["reward"]), _range(task), _last_line(ran))
        return Verdict(rewards.get("reward"), rewards=rewards if rewards.keys() != {"reward"} else {})


def files_of(task: Task) -> dict[str, bytes]:
    """The files of the tests, by their path in the sandbox."""
    state = task.params.get("test_state_py")
    files = {**task.params.get("files", {}), SCRIPT: task.params["test_sh"], **({STATE: state} if state else {})}
    return {name: text.encode(errors="replace") for name, text in files.items()}


def digest(task: Task) -> str:
    """The SHA-256 hash of the paths and contents of the tests, in the order of the paths."""
    hasher = hashlib.sha256()
    for name, data in sorted(files_of(task).items()):
        hasher.update(f"{name}\0{len(data)}\0".encode() + data)
    return hasher.hexdigest()


def read_rewards(
    files: Mapping[str, bytes], keys: list[str], bounds: tuple[float, float], last_line: str = ""
) -> dict[str, float]:
    """The rewards in `reward.json`, or if it does not exist in `reward.txt`; VerifierError for invalid rewards.

    >>> read_rewards({"/logs/verifier/reward.txt": b" 1.0 "}, ["reward"], (0, 1))
    {'reward': 1.0}
    """
    if REWARD_JSON in files:
        try:
            values = json.loads(files[REWARD_JSON], object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise VerifierError(f"reward.json cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise VerifierError('reward.json contains no object; expected one such as {"reward": 1}')
    elif REWARD_TXT in files:
        try:
            values = {"reward": float(files[REWARD_TXT].decode())}
        except ValueError as error:
            raise VerifierError("reward.txt contains no number") from error
    else:
        raise VerifierError("test.sh left neither reward.json nor reward.txt" + (f": {last_line}" if last_line else ""))
    if values.keys() != set(keys):
        raise VerifierError(f"rewards are {', '.join(sorted(values)) or 'none'}; expected {', '.join(sorted(keys))}")
    rewards = {}
    for key, value in values.items():
        if not isinstance(value, (bool, int, float)) or not math.isfinite(value) or not bounds[0] <= value <= bounds[1]:
            raise VerifierError(f"{key} is {value!r}; expected a number from {bounds[0]:g} to {bounds[1]:g}")
        rewards[key] = float(value)
    return rewards


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as a dict; ValueError for a repeated key, as neither of two rewards would be the reward."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key appears twice")
    return content


def _range(task: Task) -> tuple[Any, Any]:
    given = task.params.get("range", (0, 1))
    return (given[0], given[1]) if isinstance(given, (list, tuple)) and len(given) == 2 else (None, None)


def _last_line(ran: Ran) -> str:
    lines = (ran.stderr or ran.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


TEST_SH: Final = ShellTest()
