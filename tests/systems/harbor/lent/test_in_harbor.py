"""The environment, the agent, the verifier and the check of tasks in Harbor's interpreter, with Harbor's classes faked.

`tests/harbor` runs them in the real Harbor, where it is installed. Here, no other library exists in the interpreter.
"""

import asyncio
import json
import sys
from textwrap import dedent

import pytest
from rooms import needs_rooms
from running.loopback import chat_model

from calipers.systems.harbor.trials import lent
from calipers.systems.harbor.trials.via_harbor import answering

HARBOR = """
import asyncio, json, sys, types
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
root, url, socket = Path(sys.argv[2]), *sys.argv[3:5]

class NetworkMode(Enum):
    PUBLIC, NO_NETWORK = "public", "no-network"

class NetworkPolicy(SimpleNamespace): pass
class ExecResult(SimpleNamespace): pass
class EnvironmentCapabilities(SimpleNamespace): pass
class AgentContext(SimpleNamespace): pass
class VerifierResult(SimpleNamespace): pass
class VerifierOutputParseError(Exception): pass
class ApiError(Exception): pass

class BaseEnvironment:
    def __init__(self, environment_dir, trial_dir, mode=NetworkMode.PUBLIC):
        self.environment_dir, self.trial_paths = environment_dir, SimpleNamespace(trial_dir=trial_dir)
        unset = dict.fromkeys(("docker_image", "workdir", "memory_mb", "storage_mb"))
        self.task_env_config = SimpleNamespace(build_timeout_sec=60.0, **unset)
        self._network_policy, self._phase_network_policies = NetworkPolicy(network_mode=mode), []
        self._network_disabled = mode == NetworkMode.NO_NETWORK
        self._validate_definition()
    def _resolve_user(self, user): return user
    def _merge_env(self, env): return env

class BaseAgent:
    def __init__(self, logs_dir, model_name): self.logs_dir, self.model_name = logs_dir, model_name

class BaseVerifier:
    def __init__(self, trial_paths, task): self.trial_paths, self.task = trial_paths, task

class TrialConfig(SimpleNamespace):
    model_validate = classmethod(lambda cls, config: cls(**config))

class Trial:
    @classmethod
    async def create(cls, config):
        if "bad" in config.task["path"]:
            raise ExceptionGroup("two", [ValueError("no  such\\nimage"), KeyError("GPU")])
        return cls()

names = "AgentAuthenticationError AgentSafetyRefusalError ApiInternalServerError ApiRateLimitError"
errors = {name: type(name, (ApiError,), {}) for name in [*names.split(), "ModelNotFoundError"]}
for module, names in {
    "environments.base": {"BaseEnvironment": BaseEnvironment, "ExecResult": ExecResult},
    "environments.capabilities": {"EnvironmentCapabilities": EnvironmentCapabilities},
    "models.task.config": {"NetworkMode": NetworkMode, "NetworkPolicy": NetworkPolicy},
    "models.agent.context": {"AgentContext": AgentContext},
    "models.trial.config": {"TrialConfig": TrialConfig},
    "models.verifier.result": {"VerifierResult": VerifierResult},
    "agents.base": {"BaseAgent": BaseAgent},
    "agents.installed.base": {"ApiError": ApiError, **errors},
    "trial.trial": {"Trial": Trial},
    "verifier.base": {"BaseVerifier": BaseVerifier},
    "verifier.verifier": {"VerifierOutputParseError": VerifierOutputParseError},
}.items():
    parts = ["harbor", *module.split(".")]
    for depth in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(".".join(parts[:depth])))
    vars(sys.modules[".".join(parts)]).update(names)
"""

ROOM = """
from calipers_harbor.environment import Nowhere, RoomEnvironment

async def main():
    task, trial = root / "task", root / "job" / "trial"
    environment = RoomEnvironment(task / "environment", trial)
    RoomEnvironment.preflight()
    await environment.start(False)
    seen = await environment.exec(f"cat hello.txt; pwd; ls {task}; echo $MINE", env={"MINE": "set"})
    await environment._apply_network_policy(NetworkPolicy(network_mode=NetworkMode.PUBLIC))
    try:
        await environment.exec("sleep 600", timeout_sec=0.1)
    except TimeoutError as error:
        late = str(error)
    await environment.exec("sleep 600 >/dev/null 2>&1 &")
    await environment.upload_file(root / "note.txt", "/app/note.txt")
    await environment.upload_dir(task / "tests", "/tests")
    judged = await environment.exec("sh /tests/test.sh")
    await environment.download_dir("/logs/verifier", trial / "verifier")
    await environment.download_file("/app/note.txt", root / "back.txt")
    await environment.stop(True)
    nothing = await Nowhere(task / "environment", trial).exec("true")
    return {
        "seen": seen.stdout, "errors": seen.stderr, "late": late, "code": judged.return_code,
        "reward": (trial / "verifier" / "reward.txt").read_text(), "back": (root / "back.txt").read_text(),
        "left": json.loads((trial / "left-running.json").read_text()), "nothing": nothing.return_code,
    }
"""

ANSWER = """
from calipers_harbor.agent import ChatAgent
from calipers_harbor.refusals import refusals
from calipers_harbor.verifier import CallingVerifier

class Environment:
    async def upload_file(self, source, target): self.files = {target: source.read_text()}

async def main():
    environment, context = Environment(), AgentContext()
    agent = ChatAgent(logs_dir=root / "agent", model_name="openai/m", server=url)
    await agent.setup(environment)
    await agent.run("2 + 3", environment, context)
    paths, task = SimpleNamespace(agent_dir=root / "agent"), SimpleNamespace(paths=SimpleNamespace(task_dir=root / "t"))
    verifier = CallingVerifier(socket=socket, trial_paths=paths, task=task)
    try:
        verdict = (await verifier.verify()).rewards
    except VerifierOutputParseError as error:
        verdict = str(error)
    refused = await refusals({"agent": {}}, ["/good", "/bad"])
    return {"files": environment.files, "tokens": context.n_input_tokens, "verdict": verdict, "refused": refused}
"""

PRINT = """
print(json.dumps(asyncio.run(main())))
foreign = {"calipers", "msgspec", "numpy"}
assert not foreign & {name.partition(".")[0] for name in sys.modules}
"""


async def in_harbor(program, root, url="", judges=None):
    """The value that a program's ``main`` returns, in an interpreter without any installed library."""
    with lent() as folder:
        async with answering(judges or {}) as socket:
            code = HARBOR + dedent(program) + PRINT
            command = (sys.executable, "-I", "-S", "-c", code, folder, str(root), url, socket)
            process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
            out, error = await process.communicate()
    assert (process.returncode, error.decode()) == (0, "")
    return json.loads(out)


@needs_rooms
def test_a_room_from_start_to_stop(tmp_path):
    for name, text in {
        "task/task.toml": "",
        "task/environment/hello.txt": "hello\n",
        "task/tests/test.sh": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt\n",
        "note.txt": "noted",
        "job/trial/config.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = asyncio.run(in_harbor(ROOM, tmp_path))
    assert found["seen"] == "hello\n/app\nset\n"
    assert "task" in found["errors"]  # the dataset is hidden
    assert found["late"] == "Command timed out after 0.1 seconds"
    assert (found["code"], found["reward"], found["back"], found["nothing"]) == (0, "1\n", "noted", 127)
    assert len(found["left"]) == 1  # what the agent left running has ended before the tests
    assert "sleep 600" in found["left"][0]


def test_a_question_its_answer_and_the_reward_from_outside(tmp_path):
    with chat_model(lambda text: f"{text} = 5") as url:
        found = asyncio.run(in_harbor(ANSWER, tmp_path, url, {"t": lambda text: float(text.endswith("5"))}))
    assert found["files"] == {"/logs/agent/completion.txt": "2 + 3 = 5"}
    assert (found["tokens"], found["verdict"]) == (5, {"reward": 1.0})
    assert found["refused"] == {"/bad": "ValueError: no such image; KeyError: 'GPU'"}


@pytest.mark.parametrize(
    ("judge", "said"),
    [(lambda text: float("nan"), "the reward is nan"), (lambda text: 1 / 0, "ZeroDivisionError: division by zero")],
)
def test_a_verdict_that_is_none(tmp_path, judge, said):
    with chat_model(lambda text: "5") as url:
        assert asyncio.run(in_harbor(ANSWER, tmp_path, url, {"t": judge}))["verdict"] == said
