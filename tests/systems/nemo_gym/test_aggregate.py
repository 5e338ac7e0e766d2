import json

import msgspec
import numpy as np
import pytest
from golden import vectors
from gym import put, row

from calipers.errors import InputError, PluginError
from calipers.formats.read import begin
from calipers.systems.nemo_gym import METRICS, ROLLOUT, TASK, aggregate, beside
from calipers.systems.nemo_gym.aggregate import aggregate_agents, encoded, entries_of, file_chunks, gym_table

WITHOUT_HOOKS = [
    one
    for one in vectors.nemo_gym(vectors.HERE / "nemo_gym")
    if one.kind == "collector" and one.content["expected_aggregate"] and not one.content.get("hooks_py_by_agent")
]


def written(path):
    kept = []
    begin([path], kept=kept)
    return b"".join(file_chunks(entries_of(gym_table(kept))))


@pytest.mark.parametrize("vector", WITHOUT_HOOKS, ids=[one.name for one in WITHOUT_HOOKS])
def test_the_file_byte_for_byte(tmp_path, vector):
    """The order of keys, integers and floats, indentation and the missing last newline are as NeMo Gym writes them."""
    path = put(tmp_path / "rollouts.jsonl", *vector.content["input_rollouts"])
    expected = sorted(vector.content["expected_aggregate"], key=lambda entry: entry["agent_ref"]["name"])
    assert written(path) == json.dumps(expected, indent=2, ensure_ascii=False).encode()


def test_many_groups_are_one_list(tmp_path, monkeypatch):
    path = put(tmp_path / "rollouts.jsonl", *[row(task, 0, note="ü\n") for task in range(25)])
    whole = written(path)
    monkeypatch.setattr(aggregate, "AT_ONCE", 4)
    assert written(path) == whole == json.dumps(json.loads(whole), indent=2, ensure_ascii=False).encode()


def test_an_agent_without_groups_is_still_a_file():
    (entry,) = json.loads(b"".join(file_chunks(aggregate_agents({"a": []}))))
    assert entry == {"agent_ref": {"name": "a"}, "agent_metrics": {}, "key_metrics": {}, "group_level_metrics": []}


@pytest.mark.parametrize("key", ['quo"te', "back\\slash", "new\nline", "ünï", "a/b", "rollout_id", "sample"])
def test_any_key_may_be_a_field(tmp_path, key):
    (entry,) = json.loads(written(put(tmp_path / "rollouts.jsonl", row(0, 0, **{key: 3}), row(0, 1))))
    assert entry["agent_metrics"][f"mean/{key}"] == 3
    assert entry["group_level_metrics"][0]["rollout_infos"][0][key] == 3


def test_a_reward_that_no_row_says_is_shown_as_null(tmp_path):
    (entry,) = json.loads(written(put(tmp_path / "rollouts.jsonl", row(0, 0, None), row(0, 1, None, x=1))))
    infos = entry["group_level_metrics"][0]["rollout_infos"]
    assert [info["reward"] for info in infos] == [None, None]


def test_the_keys_of_an_agent_do_not_depend_on_another_agent(tmp_path):
    """One agent has rewards in its rows, the other only in their usage: as in a request with only its own rows."""
    usage = {"n": 1, "reward": 0.5}
    rows = [row(0, 0, agent="a"), {TASK: 0, ROLLOUT: 0, "agent_ref": {"name": "b"}, "response": {"usage": usage}}]
    _, entry = json.loads(written(put(tmp_path / "rollouts.jsonl", *rows)))
    (info,) = aggregate.aggregate(rows[1:]).to_dict()["group_level_metrics"][0]["rollout_infos"]
    assert (
        list(entry["group_level_metrics"][0]["rollout_infos"][0]) == list(info) == ["rollout_id", TASK, ROLLOUT, *usage]
    )


def test_extremes_beyond_doubles_are_exact_where_every_key_is_an_integer():
    big = 2**53
    rows = [
        {TASK: 0, ROLLOUT: 0, "reward": True, "n": 3, "response": {"usage": {"n": big + 1}}},
        {TASK: 0, ROLLOUT: 1, "reward": False, "n": big + 3},
        {TASK: 1, ROLLOUT: 0, "reward": 0, "n": -big - 1},
    ]
    answer = aggregate.aggregate(rows).to_dict()
    sets = [answer["agent_metrics"], *answer["group_level_metrics"]]
    assert [(of["min/n"], of["max/n"]) for of in sets] == [
        (-big - 1, big + 3),
        (big + 1, big + 3),
        (-big - 1, -big - 1),
    ]
    assert answer["agent_metrics"]["max/reward"] == 1
    rows[1]["reward"] = 0.5  # one fraction turns all extremes into floats, as in NeMo Gym
    assert aggregate.aggregate(rows).agent_metrics["max/n"] == float(big + 3)


def test_names_replace_the_last_extension_only():
    assert beside("a/r.x.jsonl", METRICS) == "a/r.x_aggregate_metrics.json"
    assert beside("rollouts", METRICS) == "rollouts_aggregate_metrics.json"


def test_what_no_finite_number_is_null_and_numpys_double_is_a_number():
    assert msgspec.json.decode(encoded([float("nan"), float("inf"), np.float64(0.5)])) == [None, None, 0.5]
    with pytest.raises(PluginError, match="a hook returned a value that JSON cannot encode: int64 is not a JSON value"):
        encoded(np.int64(1))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(0, 0, agent=None)], "no rollout names its agent; expected agent_ref: {name: ...}"),
        ([{"task": "a", "reward": 1}], "contains no rollouts of NeMo Gym; expected its rollouts.jsonl"),
        ([row(0, 0, _ng_failure_class="x")], "no rollout names its agent"),
    ],
)
def test_what_has_no_file(tmp_path, rows, said):
    path = put(tmp_path / "rollouts.jsonl", *rows)
    with pytest.raises(InputError) as caught:
        written(path)
    assert str(caught.value).startswith(f"{path}: {said}")
