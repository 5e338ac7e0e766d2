import json
import os
from pathlib import Path

import pytest
from cli.running import calipers, refused
from gym import put, row

ROWS = [
    row(task, n, reward, agent="math_simple_agent")
    for task, rewards in enumerate([(1.0,) * 4, (0.0,) * 4, (1.0, 1.0, 0.0, 0.0)])
    for n, reward in enumerate(rewards)
]
FILE = "rollouts_aggregate_metrics.json"

PAGE = """
from nemo_gym.base_resources_server import (
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)


class MathServer(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        # ... verification logic ...
        pass

    def compute_metrics(self, tasks):
        n_tasks = len(tasks)
        # pass@k: fraction of tasks where at least one rollout got reward=1
        pass_at_k = sum(
            1 for rollouts in tasks if any(r["reward"] >= 1.0 for r in rollouts)
        ) / n_tasks

        # pass@1 (average of per-task mean rewards)
        pass_at_1 = sum(
            sum(r["reward"] for r in rollouts) / len(rollouts)
            for rollouts in tasks
        ) / n_tasks

        return {"pass@k": pass_at_k, "pass@1": pass_at_1}

    def get_key_metrics(self, agent_metrics):
        return {
            k: agent_metrics[k]
            for k in ("pass@k", "pass@1")
            if k in agent_metrics
        }
"""
"""The class of NeMo Gym's Aggregate Metrics page, as printed."""

BROKEN = {
    "raises": 'class Server:\n    def compute_metrics(self, tasks):\n        return tasks[0][0]["no_such_key"]\n',
    "none": "class Server:\n    def compute_metrics(self, tasks):\n        return None\n",
    "rubbish": "class Server:\n    def compute_metrics(self, tasks):\n        return {'x': object()}\n",
    "import": "import no_such_module\n",
    "syntax": "class Server(\n",
    "hookless": "class Server:\n    pass\n",
    "nothing": "x = 1\n",
    "abstract": "import abc\nclass Server(abc.ABC):\n    @abc.abstractmethod\n    def get_key_metrics(self, m): ...\n",
}

SAID = {
    "raises": "broken.py:3: compute_metrics failed: KeyError: 'no_such_key'",
    "none": "broken.py: compute_metrics returned NoneType; expected a dict",
    "rubbish": "a hook returned a value that JSON cannot encode: object is not a JSON value",
    "import": "broken.py:1: ModuleNotFoundError: No module named 'no_such_module'",
    "syntax": "broken.py:1: it is not valid Python: ",
    "hookless": "broken.py: Server has no hook; expected compute_metrics or get_key_metrics",
    "nothing": "no class in broken.py named 'Server'; known: (none)",
    "abstract": "broken.py: Server cannot be created: ",
}


@pytest.fixture
def here(tmp_path):
    put(tmp_path / "rollouts.jsonl", *ROWS)
    (tmp_path / "app.py").write_text(PAGE)
    return tmp_path


def test_the_pages_example(here):
    done = calipers("score", "rollouts.jsonl", "--export", "nemo_gym", "--hooks", "app.py:MathServer", cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "note: math_simple_agent: pass@k 0.6667, pass@1 0.5\n"
    (entry,) = json.loads((here / FILE).read_text())
    shown = {key: round(value, 3) for key, value in entry["agent_metrics"].items()}
    assert shown == {
        "mean/reward": 0.5,
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 0.5,
        "std/reward": 0.522,
        "pass@k": 0.667,
        "pass@1": 0.5,
    }
    assert list(entry["key_metrics"]) == ["pass@k", "pass@1"]
    assert [group["std/reward"] for group in entry["group_level_metrics"]] == [0.0, 0.0, pytest.approx(0.577, abs=1e-3)]


def test_the_table_is_the_same_with_and_without_the_file(here):
    plain = calipers("score", "rollouts.jsonl", "--dialect", "nemo_gym", cwd=here)
    both = calipers("score", "rollouts.jsonl", "--dialect", "nemo_gym", "--export", "nemo_gym", cwd=here)
    assert (both.stdout, both.stderr) == (plain.stdout, "")
    assert sorted(os.listdir(here)) == ["app.py", "rollouts.jsonl", FILE]


def test_a_file_that_is_there_is_replaced_only_by_force(here):
    (here / FILE).write_text("what was there before")
    said = refused("score", "rollouts.jsonl", "--export", "nemo_gym", cwd=here)
    assert said == f"{FILE}: already exists; --force replaces it"
    assert (here / FILE).read_text() == "what was there before"
    assert calipers("score", "rollouts.jsonl", "--export", "nemo_gym", "--force", cwd=here).returncode == 0
    assert json.loads((here / FILE).read_text())[0]["agent_ref"] == {"name": "math_simple_agent"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_hook_that_fails_leaves_no_file(here, name):
    (here / "broken.py").write_text(BROKEN[name])
    said = refused("score", "rollouts.jsonl", "--export", "nemo_gym", "--hooks", "broken.py:Server", cwd=here)
    assert said.startswith(SAID[name])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--export", "lm_evl"], "no system to export to named 'lm_evl'; known: every_eval_ever, harbor, "),
        (["--export", "nemo_gm"], "no system to export to named 'nemo_gm'; did you mean 'nemo_gym' or"),
        (["--export", "nemo_gym="], "--export: 'nemo_gym=' has no file name; expected nemo_gym, or nemo_gym=PATH"),
        (["--export", "nemo_gym=no/such.json"], "no/such.json: there is no folder 'no'; create it first"),
        (["--export", "nemo_gym=rollouts.jsonl"], "rollouts.jsonl: is one of the files to be read"),
        (["--hooks", "app.py:MathServer"], "--hooks: nothing is exported; add --export nemo_gym"),
        (["--force"], "--force: nothing is exported; add --export nemo_gym"),
        (
            ["--export", "nemo_gym_profile", "--hooks", "app.py:MathServer"],
            "--hooks: nemo_gym_profile has none; expected",
        ),
        (["--export", "nemo_gym", "--hooks", "app.py"], "--hooks: 'app.py' cannot be read; expected FILE:CLASS"),
        (["--export", "nemo_gym", "--hooks", "no.py:X"], "no.py: No such file or directory; expected FILE:CLASS"),
        (["--export", "nemo_gym", "--hooks", "app.py:MathServr"], "no class in app.py named 'MathServr'; did you mean"),
        (
            ["--export", "nemo_gym", "--metric", "mean/reward"],
            "no metric named 'mean/reward'; it is a name of --dialect",
        ),
        (
            ["app.py", "--export", "nemo_gym"],
            ("--export nemo_gym: there is more than one file, or none, to write beside; name it"),
        ),
    ],
)
def test_what_cannot_be_exported_is_one_line(here, arguments, said):
    assert refused("score", "rollouts.jsonl", *arguments, cwd=here).startswith(said)


def test_other_rollouts_have_no_such_file(tmp_path):
    put(tmp_path / "native.jsonl", {"task": "a", "reward": 1})
    said = refused("score", "native.jsonl", "--export", "nemo_gym", cwd=tmp_path)
    assert said.startswith("native.jsonl: contains no rollouts of NeMo Gym")


def test_shards_and_standard_input_need_a_name(here):
    put(here / "more.jsonl", *[row(9, n) for n in range(2)])
    done = calipers("score", "rollouts.jsonl", "more.jsonl", "--export", "nemo_gym=all.json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert [entry["agent_ref"]["name"] for entry in json.loads((here / "all.json").read_text())] == [
        "a",
        "math_simple_agent",
    ]
    text = (here / "rollouts.jsonl").read_text()
    done = calipers("score", "-", "--export", "nemo_gym=piped.json", cwd=here, stdin=text)
    assert done.returncode == 0, done.stderr
    assert "--export nemo_gym: there is more than one file" in refused(
        "score", "-", "--export", "nemo_gym", cwd=here, stdin=text
    )


def test_a_device_is_written_not_replaced(here):
    done = calipers("score", "rollouts.jsonl", "--export", "nemo_gym=/dev/null", cwd=here)
    assert done.returncode == 0, done.stderr
    assert not os.path.isfile("/dev/null")


GOLDEN = Path(__file__).parents[1] / "golden" / "nemo_gym" / "profile"


def test_the_reward_profile_as_its_own_two_files(tmp_path):
    """A vector's inputs and rollouts, through the command: the lines that NeMo Gym writes."""
    case = json.loads((GOLDEN / "r01_profile_complete.json").read_text())
    for name, key in (("r.jsonl", "input_rollouts"), ("r_materialized_inputs.jsonl", "input_materialized")):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in case[key]))
    done = calipers("score", "r.jsonl", "--export", "nemo_gym_profile", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "planned rollouts exist" in done.stderr
    expected = case["expected_aggregate"]
    found = [json.loads(line) for line in (tmp_path / "r_reward_profiling.jsonl").read_text().splitlines()]
    for one, wanted in zip(found, expected["reward_profiling_jsonl"], strict=True):
        assert list(one) == list(wanted)
        numbers = {key: value for key, value in wanted.items() if isinstance(value, float)}
        assert {key: one[key] for key in numbers} == pytest.approx(numbers, rel=1e-12)
    agents = json.loads((tmp_path / "r_agent_metrics.json").read_text())
    assert [list(agent) for agent in agents] == [list(agent) for agent in expected["agent_metrics_json"]]
    again = refused("score", "r.jsonl", "--export", "nemo_gym_profile", cwd=tmp_path)
    assert "already exists; --force replaces it" in again
    (tmp_path / "r_materialized_inputs.jsonl").unlink()
    assert "does not exist" in refused("score", "r.jsonl", "--export", "nemo_gym_profile", "--force", cwd=tmp_path)
