import asyncio

from gym import row

from calipers.systems.nemo_gym.lent import base_resources_server, reward_profile


class Server(base_resources_server.SimpleResourcesServer):
    async def verify(self, body):
        raise AssertionError("nobody asks")


class Counting(Server):
    def compute_metrics(self, tasks):
        return {"n": len(tasks)}


def made(kind):
    return kind(config=base_resources_server.BaseResourcesServerConfig(), server_client=None)


def test_a_server_answers_with_its_own_hooks():
    body = base_resources_server.AggregateMetricsRequest(verify_responses=[row(0, 0), row(1, 0, 0.0)])
    found = asyncio.run(made(Counting).aggregate_metrics(body))
    assert (found.agent_metrics["n"], found.key_metrics) == (2, {"mean/reward": 0.5})
    plain = asyncio.run(made(Server).aggregate_metrics(body))
    assert "n" not in plain.agent_metrics
    session = asyncio.run(made(Server).seed_session(base_resources_server.BaseSeedSessionRequest(x=1)))
    assert session.model_dump() == {}


def test_the_profiler_joins_inputs_and_results():
    planned = [{"_ng_task_index": 0, "_ng_rollout_index": n, "agent_ref": {"name": "a"}, "q": "?"} for n in (0, 1)]
    profiler = reward_profile.RewardProfiler()
    groups, agents = profiler.profile_from_data(planned, [row(0, 1)], allow_partial_rollouts=True)
    assert groups[0]["sample"] == {"agent_ref": {"name": "a"}, "q": "?"}
    assert groups[0]["missing_num_rollouts"] == 1
    assert agents[0]["agent_ref"] == {"name": "a"}
