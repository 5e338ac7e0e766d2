import json
import math
import random

import pytest
from gym import exported, plainly, put, row

import calipers
from calipers.errors import InputError, PluginError, UnknownName
from calipers.formats.source import BLOCK
from calipers.systems.nemo_gym.aggregate import (
    Hooks,
    aggregate,
    aggregate_agents,
    by_agent,
    reward_profile,
    stripped,
)
from calipers.systems.nemo_gym.collect.request import Materializing, materialize
from calipers.systems.nemo_gym.read import NEMO_GYM

NAN = math.nan


def same(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def drawn(seed):
    """Rows with all variations: gaps, types, keys that are also in usage, NaN, tasks of different sizes."""
    draw = random.Random(seed)
    anything = [1, 2.5, True, False, None, "7", [1], {"a": 1}, -3, 0.1, NAN, 1e100]
    rows = []
    for task in draw.sample(range(50), 8):
        for rollout in range(draw.randint(1, 5)):
            fields = {key: draw.choice(anything) for key in draw.sample("abcde", draw.randint(0, 5))}
            usage = {key: draw.choice(anything) for key in draw.sample("defg", draw.randint(0, 4))}
            response = draw.choice([{}, {"response": {"usage": usage}}, {"response": {"usage": None}}])
            rows.append(row(task, rollout, draw.choice([0.0, 1.0, 1, 0.25, None]), **fields, **response))
    return draw.sample(rows, len(rows))


@pytest.mark.parametrize("seed", range(40))
def test_every_statistic_is_what_its_definition_says(tmp_path, seed):
    rows = drawn(seed)
    expected = plainly(rows)
    found = aggregate(rows).to_dict()
    assert list(found["agent_metrics"]) == list(expected["pooled"])  # the names in the same order
    assert found["agent_metrics"] == same(expected["pooled"])
    groups = {group["_ng_task_index"]: group for group in found["group_level_metrics"]}
    assert list(groups) == sorted(expected["tasks"])
    for task, stats in expected["tasks"].items():
        assert {key: value for key, value in groups[task].items() if "/" in key} == same(stats)
        assert list(groups[task])[1 : 1 + len(stats)] == list(stats)
    (entry,) = exported(put(tmp_path / "rollouts.jsonl", *rows))  # the file, which is made by another path, agrees
    over_the_wire = json.loads(json.dumps(found).replace("NaN", "null"))
    assert {key: entry[key] for key in found} == over_the_wire


def test_the_table_shows_each_agents_pooled_numbers_with_intervals(tmp_path):
    rows = [
        row(task, n, float(n < task), agent="xy"[task % 2], tokens=10 * task) for task in range(8) for n in range(4)
    ]
    path = put(tmp_path / "rollouts.jsonl", *rows)
    result = calipers.score(path, dialect="nemo_gym")
    entries = exported(path)
    assert [group.agent for group in result.groups] == [entry["agent_ref"]["name"] for entry in entries] == ["x", "y"]
    for group, entry in zip(result.groups, entries):
        assert list(group.metrics) == [
            f"{name}/{key}" for name in ("mean", "max", "min", "median", "std") for key in ("reward", "tokens")
        ]
        for name, found in group.metrics.items():
            assert found.value == same(entry["agent_metrics"][name])
        assert group["mean/reward"].interval is not None
    asked = calipers.score(path, ["mean/tokens", "std/tokens"], dialect="nemo_gym").groups[1]
    assert asked["mean/tokens"].value == same(entries[1]["agent_metrics"]["mean/tokens"])


def test_the_same_file_natively_has_task_level_intervals(tmp_path):
    path = put(tmp_path / "rollouts.jsonl", *[row(task, n, float(n % 2)) for task in range(5) for n in range(4)])
    found = calipers.score(path, ["mean_reward", "pass@2"])
    assert found["mean_reward"].interval is not None
    assert found["pass@2"].tasks == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mean/nothing", "no column of numbers named 'nothing'"),
        ("pass@3", "no nemo_gym metric named 'pass@3'; it is a native name"),
        ("mean", "no nemo_gym metric named 'mean'"),
        ("mean/reward(column=x)", "metric 'mean/reward(column=x)': nemo_gym's metrics take no parameters"),
    ],
)
def test_what_is_no_metric_here(tmp_path, name, said):
    with pytest.raises(InputError) as caught:
        calipers.score(put(tmp_path / "rollouts.jsonl", row(0, 0)), name, dialect="nemo_gym")
    assert str(caught.value).startswith(said)


def test_its_words():
    assert NEMO_GYM.metrics["max/output_tokens"] == "max(column=output_tokens)"
    assert [name in NEMO_GYM.metrics for name in ("std/a/b", "std/", "p90/x", "reward")] == [True, False, False, False]
    with pytest.raises(UnknownName):
        calipers.score([[1]], "mean/reward")


def test_usage_wins_in_the_statistics_even_where_it_says_nothing(tmp_path):
    rows = [row(0, 0, x=5, response={"usage": {"x": None}}), row(0, 1, x=7)]
    found = aggregate(rows).to_dict()
    assert found["agent_metrics"]["mean/x"] == 7
    # the row's own value is shown
    assert [info["x"] for info in found["group_level_metrics"][0]["rollout_infos"]] == [5, 7]


def test_whole_floats_are_indices():
    """The answer is the same as for integers; NeMo Gym itself accepts whole floats."""
    whole = [row(task, n, reward=task + n) for task in (3, 10) for n in (0, 1)]
    floats = [
        {**one, "_ng_task_index": float(one["_ng_task_index"]), "_ng_rollout_index": n % 2.0}
        for n, one in enumerate(whole)
    ]
    assert aggregate(floats).to_dict() == aggregate(whole).to_dict()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(0.0, 0), row(0, 0.0)], "_ng_task_index 0, _ng_rollout_index 0 appears twice"),
        ([row(0, 0), row(0, 0)], "_ng_task_index 0, _ng_rollout_index 0 appears twice"),
        ([row("a", 0), row("a", 0)], "_ng_task_index a, _ng_rollout_index 0 appears twice"),
        ([row(0, 0), 3], "row 2: it is not an object; expected one with _ng_task_index and _ng_rollout_index"),
        ([{**row(0, 0), "agent_ref": 3}], "row 1: agent_ref is 3; expected an object with a name"),
        ([row(0, 0), {"_ng_task_index": 0}], "row 2: no key '_ng_rollout_index'"),
        ([row(0, 0, response=None)], "row 1: response is null; expected an object, or no such key"),
        ([row(0, 0), row("b", 0)], "row 2: task indices are text in some rows"),
        ([row(0, 0, x=2**64)], "row 1: x is 18446744073709551616; expected an integer of at most 64 bits"),
        ([row(2**64, 0)], "row 1: _ng_task_index is 18446744073709551616"),
    ],
)
def test_rows_that_cannot_be_aggregated(rows, said):
    with pytest.raises(InputError) as caught:
        aggregate(rows)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("rows", "means"),
    [
        ([row(0, 0, x=math.inf), row(0, 1, x=1.0)], {"mean/reward": 1.0, "mean/x": math.inf}),  # NeMo Gym answers 500
        ([row(0, 0, ts=2**50), row(1, 0, ts=2**50)], {"mean/reward": 1.0, "mean/ts": 2.0**50}),
        ([row(0, 0, agent_name=3), row(0, 1, 0.0, agent_name=4)], {"mean/reward": 0.5, "mean/agent_name": 3.5}),
    ],
)
def test_its_quirks_are_answered(rows, means):
    assert aggregate(rows).key_metrics == means


def test_hooks_get_rows_by_task_and_what_they_return_is_laid_over():
    seen = []

    def compute_metrics(tasks):
        seen.append([[(one["_ng_task_index"], one["_ng_rollout_index"]) for one in task] for task in tasks])
        tasks[0][0]["reward"] = 99  # does not change statistics that are already computed
        extra = [{"_ng_task_index": 1, "level": "hard"}, {"_ng_task_index": 7, "level": "ghost"}]
        return {"mean/custom": 3, "per_task_metrics": extra}

    rows = [row(1, 1), row(0, 1), row(1, 0, 0.0)]
    found = aggregate(rows, Hooks(compute_metrics)).to_dict()
    assert seen == [[[(0, 1)], [(1, 1), (1, 0)]]]  # within a task, the order of the request
    assert found["key_metrics"] == {"mean/reward": same(2 / 3), "mean/custom": 3}
    assert [group.get("level") for group in found["group_level_metrics"]] == [None, "hard"]
    assert "per_task_metrics" not in found["agent_metrics"]
    assert rows[1]["reward"] == 1.0


@pytest.mark.parametrize("nothing", [None, [], {}, 0])
def test_a_hook_may_have_nothing_to_say_of_single_tasks(nothing):
    found = aggregate([row(0, 0)], Hooks(lambda tasks: {"n": 1, "per_task_metrics": nothing})).to_dict()
    assert found["agent_metrics"]["n"] == 1
    assert found["group_level_metrics"] == aggregate([row(0, 0)]).to_dict()["group_level_metrics"]


def test_of_two_entries_of_a_task_the_last_counts():
    """As in nemo_gym 0.4.0. An entry for task 1.0 means task 1, and does not rename it."""
    entries = [{"_ng_task_index": 1, "a": 1}, {"_ng_task_index": 1.0, "b": 2}]
    (group,) = aggregate([row(1, 0)], Hooks(lambda tasks: {"per_task_metrics": entries})).to_dict()[
        "group_level_metrics"
    ]
    assert (repr(group["_ng_task_index"]), "a" in group, group["b"]) == ("1", False, 2)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda tasks: None, "returned NoneType; expected a dict"),
        (lambda tasks: 1 / 0, "failed: ZeroDivisionError: division by zero"),
        (lambda tasks: {"a": object()}, "a hook returned a value that JSON cannot encode"),
        (lambda tasks: {"per_task_metrics": 3}, "per_task_metrics is int; expected a list of objects"),
    ],
)
def test_a_hook_that_fails(hook, said):
    with pytest.raises(PluginError, match=said):
        aggregate([row(0, 0)], Hooks(hook))


def test_no_rows_call_no_hook():
    assert aggregate([], Hooks(lambda tasks: 1 / 0)).to_dict() == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
    }


def test_rows_are_stripped_sorted_and_told_apart_by_agent():
    bulky = {
        "responses_create_params": {},
        "ng_trajectory": {},
        "ng_model_call_capture": {},
        "ng_agent_observations": {},
    }
    full = row(1, 0, **bulky, response={"id": "x", "usage": {"total_tokens": 3}})
    assert stripped(full) == row(1, 0, response={"usage": {"total_tokens": 3}})
    assert stripped(row(0, 0, response={"usage": {}})) == row(0, 0)
    agents = by_agent([full, row(0, 1, agent="b"), row(0, 0), row(5, 5, agent=None)])
    assert {
        name: [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in rows] for name, rows in agents.items()
    } == {
        "a": [(0, 0), (1, 0)],
        "b": [(0, 1)],
    }
    assert [agent for agent, _ in aggregate_agents({"b": [row(0, 0)], "a": [row(0, 0)]})] == ["a", "b"]
    with pytest.raises(InputError, match="task indices are text in some rows"):
        by_agent([row(0, 0), row("x", 0)])
    with pytest.raises(InputError, match="a row has no key '_ng_rollout_index'"):
        by_agent([{"_ng_task_index": 0}])
    with pytest.raises(InputError, match="agent_ref: it is 3; expected an object with a name"):
        by_agent([{**row(0, 0), "agent_ref": 3}])


def inputs(*tasks):
    return [
        {"_ng_task_index": t, "_ng_rollout_index": n, "agent_ref": {"name": "a"}, "q": t} for t in tasks for n in (0, 1)
    ]


@pytest.mark.parametrize(
    ("planned", "done", "said"),
    [
        (inputs(0), [row(0, 0)], "_ng_task_index 0, _ng_rollout_index 1 has no rollout"),
        (inputs(0, 1), [row(0, 0)], "_ng_task_index 0, _ng_rollout_index 1 and 2 more has no rollout"),
        (inputs(0), [row(0, 0), row(0, 0)], "rollout 2: _ng_task_index 0, _ng_rollout_index 0 appears twice"),
        (inputs(0) * 2, [row(0, 0)], "input 3: _ng_task_index 0, _ng_rollout_index 0 appears twice"),
        (inputs(0), [row(1, 0)], "_ng_task_index 1, _ng_rollout_index 0 has no input"),
        (inputs(0), [{"reward": 1}], "rollout 1: no key '_ng_task_index'; expected an integer or text"),
    ],
)
def test_a_profile_that_does_not_join(planned, done, said):
    with pytest.raises(InputError) as caught:
        reward_profile(planned, done)
    assert str(caught.value).startswith(said)


def test_a_partial_profile_counts_what_is_missing():
    found = reward_profile(inputs(0, 1), [row(0, 1), row(0, 0, 0.0)], allow_partial=True)
    (task,) = found.tasks  # a task without rollouts is left out, as in NeMo Gym
    assert (task["sample"], task["num_rollouts"], task["reward_profile_completion_pct"]) == (
        {"agent_ref": {"name": "a"}, "q": 0},
        2,
        100.0,
    )
    assert (found.completed, found.expected) == (2, 4)
    assert reward_profile(inputs(0), [], allow_partial=True).tasks == []


def lines(*rows):
    return [json.dumps({"responses_create_params": {"input": "q"}, **one}) for one in rows]


@pytest.mark.parametrize(
    ("rows", "how", "said"),
    [
        (["{oops"], {}, "input:1: not JSON"),
        (["[]"], {}, "input:1: an input is not an object"),
        ([*lines({}), " "], {"agent_name": "a"}, "input:2: the line is blank"),
        (['{"x": 1}'], {"agent_name": "a"}, "input:1: responses_create_params is not an object"),
        (lines({}, {"agent_ref": {"name": "b"}}, {}), {}, "input: no agent for line 1, 3; expected agent_ref"),
        (lines({}), {"agent_name": "a", "num_repeats": {"b": 2}}, "no number of repeats for agent a"),
        (lines({}), {"agent_name": "a", "num_repeats": 0}, "the number of repeats is 0; expected an integer >= 1"),
        (lines({}), {"agent_name": "a", "num_repeats": True}, "the number of repeats is True"),
        (lines({}), {"agent_name": "a", "prompt": {"user": "{x}"}}, "input:1: it already has an input"),
        (['{"x": 1}'], {"agent_name": "a", "prompt": {"user": "{y}"}}, "input:1: the prompt template needs 'y'"),
        (
            ['{"responses_create_params": {"metadata": {"extra_body": "no"}}}'],
            {"agent_name": "a", "num_repeats_add_seed": True},
            "input: metadata.extra_body is not a JSON object",
        ),
        (
            ['{"responses_create_params": {"metadata": "no"}}'],
            {"agent_name": "a", "num_repeats_add_seed": True},
            "input: responses_create_params.metadata is not an object",
        ),
        (['{"x": 1}'], {"agent_name": "a", "prompt": {"user": "{x.y}"}}, "input:1: the prompt template needs 'int'"),
        (
            ['{"x": 1}'],
            {"agent_name": "a", "prompt": {"user": "{x[0]}"}},
            "input:1: the prompt template needs 'int'",
        ),
        (['{"x": "\\ud83d"}'], {"agent_name": "a"}, "input:1: half of a surrogate pair appears alone"),
        (
            [b'{"x": 1}', b'{"x": "\xe9"}'],
            {"agent_name": "a", "prompt": {"user": "?"}},
            "input:2: byte 8 of the line is",
        ),
        (
            lines({}, {"_ng_task_index": [1]}),
            {"agent_name": "a"},
            "input:2: _ng_task_index is [1]; expected an integer",
        ),
        (lines({"_ng_task_index": None}), {"agent_name": "a"}, "input:1: _ng_task_index is null; expected an integer"),
    ],
)
def test_inputs_that_cannot_be_planned(rows, how, said):
    with pytest.raises(InputError) as caught:
        materialize(rows, Materializing(**how))
    assert str(caught.value).startswith(said)


def test_whole_pairs_and_other_writing_come_through_as_they_are():
    line = '{"responses_create_params": {"input": "\\ud83d\\ude00 \\\\ud83d é"}}'
    (found,) = materialize([line.encode()], Materializing(agent_name="a"))
    assert found["responses_create_params"]["input"] == "\U0001f600 \\ud83d é"


def test_a_prompt_template_fills_the_input():
    prompt = {"system": "Be brief.", "user": "{x} + {y}?"}
    (found,) = materialize(['{"x": 1, "y": 2}'], Materializing(agent_name="a", prompt=prompt))
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 2?"}]
    assert found["responses_create_params"]["input"] == said


def test_repeats_for_an_unknown_agent_are_worth_a_warning():
    with pytest.warns(UserWarning, match="repeats are given for agent 'z', which no input names"):
        materialize(lines({}), Materializing(agent_name="a", num_repeats={"a": 1, "z": 2}))


def test_many_blocks_of_lines_are_one_table(tmp_path):
    """Keys and types of values that first appear in a later block, lines for the slow parser, and gaps."""
    rows = [{**one, "_ng_task_index": 50 * seed + one["_ng_task_index"]} for seed in range(120) for one in drawn(seed)]
    late = [{f"late{n // 700}": n} if n % 700 > 690 else {} for n in range(len(rows))]
    rows = [{**one, "text": "x" * 200, **more} for one, more in zip(rows, late)]
    (entry,) = exported(put(tmp_path / "rollouts.jsonl", *rows))
    assert (tmp_path / "rollouts.jsonl").stat().st_size > 5 * BLOCK
    found = json.loads(json.dumps(aggregate(rows).to_dict()).replace("NaN", "null"))
    assert {key: entry[key] for key in found} == found
    assert list(entry["agent_metrics"]) == list(found["agent_metrics"])
