import asyncio
import importlib
import sys
from types import ModuleType

import pytest
from gym import row

from calipers.compat.nemo_gym import base_resources_server, reward_profile
from calipers.compat.nemo_gym.lending import PARTS, activate, deactivate


@pytest.fixture(autouse=True)
def _nothing_lent():
    deactivate()
    yield
    deactivate()


def test_it_is_there_while_it_is_lent():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nemo_gym.reward_profile")
    assert activate() is activate() is True
    from nemo_gym.base_resources_server import SimpleResourcesServer

    assert SimpleResourcesServer is base_resources_server.SimpleResourcesServer
    deactivate()
    assert not {*PARTS} & {*sys.modules}


def test_what_is_not_lent_is_said():
    activate()
    with pytest.raises(ModuleNotFoundError, match=r"but not nemo_gym\.server_utils; install nemo_gym itself"):
        importlib.import_module("nemo_gym.server_utils")


def test_the_real_package_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "nemo_gym", ModuleType("nemo_gym"))
    assert activate() is False


@pytest.mark.parametrize("module", [base_resources_server, reward_profile])
def test_every_name_is_there(module):
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def test_a_server_answers_with_its_own_hooks():
    class Server(base_resources_server.SimpleResourcesServer):
        def compute_metrics(self, tasks):
            return {"n": len(tasks)}

    body = base_resources_server.AggregateMetricsRequest([row(0, 0), row(1, 0, 0.0)])
    found = asyncio.run(Server(config=None).aggregate_metrics(body))
    assert (found.agent_metrics["n"], found.key_metrics) == (2, {"mean/reward": 0.5})
    plain = asyncio.run(base_resources_server.SimpleResourcesServer().aggregate_metrics(body))
    assert "n" not in plain.agent_metrics
    session = asyncio.run(Server().seed_session(base_resources_server.BaseSeedSessionRequest(x=1)))
    assert session.model_dump() == {}


def test_the_profiler_joins_inputs_and_results():
    planned = [{"_ng_task_index": 0, "_ng_rollout_index": n, "agent_ref": {"name": "a"}, "q": "?"} for n in (0, 1)]
    groups, agents = reward_profile.RewardProfiler().profile_from_data(planned, [row(0, 1)])
    assert groups[0]["sample"] == {"agent_ref": {"name": "a"}, "q": "?"}
    assert groups[0]["missing_num_rollouts"] == 1
    assert agents[0]["agent_ref"] == {"name": "a"}
