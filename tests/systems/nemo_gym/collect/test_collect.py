"""A collection from inputs to metrics, with real agent servers that fail in many ways."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from clients.weather import Forecast
from clients.weather import Server as Model
from systems.nemo_gym.agents import AgentServer, reward
from systems.nemo_gym.collect.gathering import agents, here, keys, put, rows, tasks

from calipers.errors import ClientError, InputError, SandboxError, UnknownName
from calipers.isolate.launch import attempt
from calipers.systems.nemo_gym.collect.collect import collect
from calipers.systems.nemo_gym.collect.loop import Files
from calipers.systems.nemo_gym.collect.request import Collecting, Materializing


def asked(folder, places, repeats=2, **more) -> Collecting:
    """A collection of six tasks into ``r.jsonl``."""
    given = more.pop("input", None) or tasks(folder)
    how = Materializing(num_repeats=repeats, **more.pop("how", {}))
    return Collecting(given, folder / "r.jsonl", places, how, **more)


def ledger(found) -> dict[str, int]:
    """The number of planned rollouts by outcome, over all agents."""
    return {word: count for group in found.result.groups for word, count in group.ledger.outcomes.items()}


def metrics(folder, name="r_aggregate_metrics.json"):
    return json.loads((folder / name).read_text())


def test_the_whole_flow_leaves_the_four_files(tmp_path):
    server = AgentServer()
    with agents(math=server) as places:
        found = collect(asked(tmp_path, places, repeats=3))
    assert found.complete
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "r.jsonl",
        "r_aggregate_metrics.json",
        "r_failures.jsonl",
        "r_materialized_inputs.jsonl",
        "tasks.jsonl",
    ]
    assert (tmp_path / "r_failures.jsonl").read_bytes() == b""
    planned = rows(tmp_path / "r_materialized_inputs.jsonl")
    made = rows(tmp_path / "r.jsonl")
    assert keys(tmp_path / "r.jsonl") == [(task, number) for task in range(6) for number in range(3)]
    assert sorted(map(json.dumps, server.runs)) == sorted(map(json.dumps, planned))  # posted whole
    assert [row["reward"] for row in made] == [reward(task, n) for task in range(6) for n in range(3)]
    assert made[0]["agent_ref"] == {"type": "responses_api_agents", "name": "math"}  # copied from the input
    (entry,) = metrics(tmp_path)
    assert list(entry) == ["agent_ref", "agent_metrics", "key_metrics", "group_level_metrics"]
    assert entry["agent_metrics"]["mean/reward"] == math.fsum(row["reward"] for row in made) / 18
    assert entry["agent_metrics"]["pass@k"] == 1.0  # the server's own hook ran
    assert found.result.groups[0].ledger.planned == 18
    named = ", ".join(f"{name} {value:.4g}" for name, value in entry["key_metrics"].items())
    assert found.headlines == (f"math: {named}",)


def test_what_an_agent_is_sent_to_aggregate_is_sorted_and_without_bulk(tmp_path):
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
    (sent,) = server.aggregations
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in sent] == keys(tmp_path / "r.jsonl")
    assert all("responses_create_params" not in row for row in sent)
    assert sent[0]["response"] == {"usage": {"input_tokens": 3, "output_tokens": 10}}


def test_both_ways_to_aggregate_write_the_same_bytes(tmp_path):
    with agents(math=AgentServer(metrics="plain")) as places:
        job = asked(tmp_path, places, repeats=4)
        collect(job)
        theirs = (tmp_path / "r_aggregate_metrics.json").read_bytes()
        collect(replace(job, local=True))
    assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == theirs


def test_an_agent_without_the_route_has_its_metrics_computed_here(tmp_path):
    server = AgentServer(metrics="absent")
    with agents(math=server) as places:
        found = collect(asked(tmp_path, places))
        theirs = (tmp_path / "r_aggregate_metrics.json").read_bytes()
        collect(asked(tmp_path, places, local=True))
    assert found.complete
    assert found.notes == ("agent math has no /aggregate_metrics; its metrics are computed here",)
    assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == theirs


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("broken", "HTTP 500: \"ZeroDivisionError('division by zero')\""),
        ("rubbish", "its answer has no group_level_metrics in the right shape"),
    ],
)
def test_a_failed_aggregation_loses_no_rollout_and_is_said(tmp_path, how, why):
    with agents(math=AgentServer(metrics=how)) as places:
        found = collect(asked(tmp_path, places, retries=0))
    assert not found.complete
    assert found.notes == (
        (f"agent math: /aggregate_metrics failed ({why}); the file contains the metrics computed here"),
    )
    assert "pass@k" not in metrics(tmp_path)[0]["agent_metrics"]
    assert len(rows(tmp_path / "r.jsonl")) == 12


def test_a_group_that_is_no_object_is_no_metric(tmp_path):
    class Odd(AgentServer):
        async def _aggregate(self, request):
            return web.json_response({"group_level_metrics": [None], "agent_metrics": {}, "key_metrics": {}})

    with agents(math=Odd()) as places:
        found = collect(asked(tmp_path, places, retries=0))
    assert (found.complete, "a group in its answer is not an object" in found.notes[0]) == (False, True)
    assert len(metrics(tmp_path)[0]["group_level_metrics"]) == 6


@pytest.mark.parametrize("local", [False, True])
def test_a_blank_line_in_the_rollouts_is_none(tmp_path, local):
    """Blank lines remain if a line was removed by hand, or if the file ends with CRLF."""
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
        first, *others = (tmp_path / "r.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "r.jsonl").write_bytes(b"".join([b"\n", *others, b"\r\n"]))  # one rollout is outstanding again
        found = collect(asked(tmp_path, places, local=local))
    assert (found.complete, len(server.runs)) == (True, 13)
    assert metrics(tmp_path)[0]["agent_metrics"]["mean/reward"] == found.result["mean_reward"].value
    assert json.loads(first)["_ng_task_index"] == 0


def test_two_agents_repeats_by_agent_and_seeds(tmp_path):
    lines = [
        json.loads(line) for agent in ("b", "a") for line in Path(tasks(tmp_path, 2, agent)).read_text().splitlines()
    ]
    given = put(tmp_path / "both.jsonl", *lines)
    first, second = AgentServer(), AgentServer(metrics="absent")
    with agents(a=first, b=second) as places:
        how = {"num_repeats_add_seed": True, "responses_create_params": {"temperature": 0.5}}
        found = collect(asked(tmp_path, places, {"a": 3, "_default": 1}, input=given, how=how))
    assert (len(first.runs), len(second.runs)) == (6, 2)
    # sorted by name, not by the time of completion
    assert [entry["agent_ref"]["name"] for entry in metrics(tmp_path)] == ["a", "b"]
    assert [group.agent for group in found.result.groups] == ["a", "b"]
    sent = first.runs[0]
    params = sent["responses_create_params"]
    assert (params["temperature"], json.loads(params["metadata"]["extra_body"])) == (
        0.5,
        {"seed": sent["_ng_rollout_index"]},
    )


@pytest.mark.parametrize("trouble", ["once500", "once503", "once429", "oncebad", "oncedrop"])
def test_what_passes_is_tried_again_and_leaves_no_trace(tmp_path, trouble):
    server = AgentServer({"2": trouble})
    with agents(math=server) as places:
        assert collect(asked(tmp_path, places)).complete
    assert server.tries["2:0"] == 2
    assert (tmp_path / "r_failures.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("trouble", "kind", "word", "tries", "said"),
    [
        # retried at most twice, because the agent itself fails
        ("500", "http_500", "client_failed", 3, "HTTP 500: \"ValueError('the verifier broke')\""),
        ("bad", "malformed", "client_failed", 4, "the response is not JSON"),
        ("list", "malformed", "client_failed", 4, "the response is not a JSON object"),
        # not retried, because the answer would be the same
        ("norewards", "malformed", "client_failed", 1, "there is no reward; expected a number"),
        # otherwise no aggregation would accept the file
        ("huge", "malformed", "client_failed", 1, "stamp needs more than 64 bits; expected a smaller integer"),
        ("failed", "judge_failed", "judge_failed", 1, "judge_failed"),  # the failure class from the agent
    ],
)
def test_a_rollout_that_fails_stops_nothing_else(tmp_path, trouble, kind, word, tries, said):
    server = AgentServer({"2": trouble})
    with agents(math=server) as places:
        found = collect(asked(tmp_path, places, retries=3))
        assert server.tries["2:0"] == tries
        assert ledger(found) == {"scored": 10, word: 2}
        assert not found.complete
        side = rows(tmp_path / "r_failures.jsonl")
        assert [row["_ng_failure_class"] for row in side] == [kind] * 2
        assert keys(tmp_path / "r_failures.jsonl") == [(2, 0), (2, 1)]
        assert "_ng_attempt_index" not in side[0]
        assert found.notes == (f"2 {word}: {said}",)
        (entry,) = metrics(tmp_path)  # the file is written from the successful rollouts
        assert [group["_ng_task_index"] for group in entry["group_level_metrics"]] == [0, 1, 3, 4, 5]

        server.troubles.clear()
        again = collect(asked(tmp_path, places, retries=3))
    assert again.complete
    assert ledger(again) == {"scored": 12}
    assert server.tries["0:0"] == 1  # successful rollouts are not requested again
    assert len(metrics(tmp_path)[0]["group_level_metrics"]) == 6


def test_a_rollout_is_given_up_after_three_failures_or_when_the_agent_says_so(tmp_path):
    server = AgentServer({"1": "500", "2": "terminal"})
    with agents(math=server) as places:
        job = asked(tmp_path, places, repeats=1, retries=0)
        for _ in range(5):
            found = collect(job)
    assert server.tries["1:0"] == 3
    assert server.tries["2:0"] == 1
    side = rows(tmp_path / "r_failures.jsonl")
    assert [row.get("_ng_attempt_index") for row in side] == [None, 1, 2, None]
    assert ledger(found) == {"scored": 4, "client_failed": 1, "judge_failed": 1}
    assert found.notes == (
        "2 rollouts are not retried: they failed 3 times, or permanently; raise "
        "$NEMO_GYM_MAX_ROLLOUT_ATTEMPTS to retry more often",
    )


@pytest.mark.parametrize(("value", "tries"), [("1", 1), ("5", 4), ("many", 3)])
def test_nemo_gyms_variable_says_how_often(tmp_path, monkeypatch, value, tries):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", value)
    server = AgentServer({"1": "500"})
    with agents(math=server) as places:
        notes = [collect(asked(tmp_path, places, repeats=1, retries=0)).notes for _ in range(4)]
    assert server.tries["1:0"] == tries
    said = "$NEMO_GYM_MAX_ROLLOUT_ATTEMPTS is 'many'; expected an integer >= 1, so 3 is used"
    assert (said in notes[0]) == (value == "many")


def test_a_killed_attempt_is_written_nowhere_and_made_again(tmp_path):
    with agents(math=AgentServer({"3": "killed"})) as places:
        first = collect(asked(tmp_path, places))
        assert ledger(first) == {"scored": 10, "not_run": 2}
        assert (tmp_path / "r_failures.jsonl").read_bytes() == b""
        again = collect(asked(tmp_path, places))
    assert "agent math: the agent asked not to store 2 rollouts; run the same command again" in "".join(first.notes)
    assert (again.complete, again.notes) == (True, ())


def test_an_agent_that_is_gone_stops_only_its_own_lane(tmp_path):
    lines = [line for agent in ("up", "down") for line in Path(tasks(tmp_path, 20, agent)).read_text().splitlines()]
    given = put(tmp_path / "both.jsonl", *lines)
    with agents(down=AgentServer()) as gone:
        pass
    with agents(up=AgentServer()) as places:
        found = collect(asked(tmp_path, {**places, **gone}, 1, input=given, retries=0))
        assert ledger(found) == {"not_run": 20, "scored": 20}
        assert not found.complete
        assert found.notes[0].startswith("agent down: cannot connect to 127.0.0.1:")
        # no agent was reachable, which is not a failure of a rollout
        assert (tmp_path / "r_failures.jsonl").read_bytes() == b""
        with agents(down=AgentServer()) as back:
            assert collect(asked(tmp_path, {**places, **back}, 1, input=given)).complete


def test_nobody_there_at_all_is_an_error_that_leaves_nothing(tmp_path):
    with agents(math=AgentServer()) as gone:
        pass
    with pytest.raises(ClientError, match=r"agent math: cannot connect .* connection refused; nothing was collected"):
        collect(replace(asked(tmp_path, gone), output=tmp_path / "new" / "r.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_the_plan_may_grow_and_never_shrinks(tmp_path):
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places, 2, how={"limit": 4}))
        assert len(server.runs) == 8
        assert collect(asked(tmp_path, places, 3)).complete
        assert len(server.runs) == 18  # only new rollouts
        narrow = collect(asked(tmp_path, places, 1))
    assert len(server.runs) == 18
    assert narrow.result.groups[0].ledger.planned == 18
    assert "12 rollouts that this command does not ask for stay planned" in narrow.notes[0]


def test_metrics_that_rollouts_to_come_make_wrong_are_taken_away(tmp_path):
    there = []
    with agents(math=AgentServer()) as places:
        collect(asked(tmp_path, places, 1))
        collect(asked(tmp_path, places, 2), lambda _: there.append((tmp_path / "r_aggregate_metrics.json").exists()))
    assert not any(there)
    assert metrics(tmp_path)[0]["group_level_metrics"][0]["num_rollouts"] == 2


def test_an_agent_of_an_earlier_plan_keeps_its_rows(tmp_path):
    both = [
        {"_ng_task_index": n, "agent_ref": {"name": name}, "responses_create_params": {}}
        for n, name in enumerate(["a", "b", "b"])
    ]
    first, second = AgentServer(metrics="plain"), AgentServer(metrics="plain")
    with agents(a=first, b=second) as places:
        collect(asked(tmp_path, places, 2, input=put(tmp_path / "both.jsonl", *both)))
        before = (tmp_path / "r_aggregate_metrics.json").read_bytes()
        only = put(tmp_path / "only.jsonl", both[0])
        found = collect(asked(tmp_path, {"a": places["a"]}, 2, input=only))
    assert found.complete
    assert "agent b is only in an earlier plan; its metrics are computed here" in found.notes
    assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == before


def test_a_failed_attempt_among_the_rollouts_is_no_rollout(tmp_path):
    server = AgentServer({"2": "terminal"}, metrics="plain")
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
        theirs = (tmp_path / "r_aggregate_metrics.json").read_bytes()
        with open(tmp_path / "r.jsonl", "ab") as file:  # a row as an older NeMo Gym may have written it
            file.write((tmp_path / "r_failures.jsonl").read_bytes())
        (tmp_path / "r_failures.jsonl").write_bytes(b"")
        for local in (False, True):
            found = collect(asked(tmp_path, places, local=local))
            assert ledger(found) == {"scored": 10, "judge_failed": 2}
            assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == theirs
    assert server.tries["2:0"] == 1


def test_a_rollout_that_failed_among_the_rollouts_is_made_again(tmp_path):
    with agents(math=AgentServer(metrics="plain")) as places:
        collect(asked(tmp_path, places))
        lines = (tmp_path / "r.jsonl").read_text().splitlines()
        failed = json.dumps({**json.loads(lines[0]), "_ng_failure_class": "timeout"})
        (tmp_path / "r.jsonl").write_text("\n".join([failed, *lines[1:], ""]))
        found = collect(asked(tmp_path, places))
    assert found.complete
    assert ledger(found) == {"scored": 12}


def test_another_collection_is_refused_and_overwrite_replaces_all_of_it(tmp_path):
    server = AgentServer({"1": "500"})
    with agents(math=server) as places:
        collect(asked(tmp_path, places, retries=0))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        other = asked(tmp_path, places, how={"responses_create_params": {"temperature": 1}})
        with pytest.raises(
            InputError, match=r"contains a different collection: rollout 0:0: .*temperature: nothing here, 1"
        ):
            collect(other)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        server.troubles.clear()
        assert collect(replace(other, overwrite=True)).complete
    assert (tmp_path / "r_failures.jsonl").read_bytes() == b""  # old failures would count against the new attempts
    assert rows(tmp_path / "r.jsonl")[0]["responses_create_params"]["temperature"] == 1


def test_what_is_overwritten_stays_until_an_agent_has_answered(tmp_path):
    with agents(math=AgentServer({"1": "500"})) as places:
        collect(asked(tmp_path, places, retries=0))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = asked(tmp_path, places, how={"responses_create_params": {"temperature": 1}}, retries=0)
    with pytest.raises(ClientError, match="nothing was collected"):
        collect(replace(other, overwrite=True))  # the agent is gone
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_a_killed_process_was_to_overwrite_is_there_again(tmp_path):
    """It stayed under another name, and the next --overwrite replaced parts of it."""
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        plan = [{**line, "other": 1} for line in rows(tmp_path / "r_materialized_inputs.jsonl")]
        killed = Files.open(tmp_path / "r.jsonl", plan, lambda data: data, overwrite=True)
        for log in killed._logs.values():
            log.shut()
        os.close(killed._lock)  # the process has ended without closing the collection
        assert (tmp_path / "r.jsonl").read_bytes() == b""
        found = collect(asked(tmp_path, places))
    assert (found.complete, len(server.runs)) == (True, 12)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pipe", "pipe: is not a regular file; expected a file, such as rollouts.jsonl"),
        ("taken.jsonl", "taken_failures.jsonl: is a directory; expected a file"),
        ("x" * 300, "cannot be written (File name too long); choose another --output"),
    ],
)
def test_an_output_that_is_no_file_is_refused(tmp_path, name, said, overwrite):
    """A device was replaced by a file, and a long name was an internal error."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "taken_failures.jsonl").mkdir()
    given = tasks(tmp_path, 2)
    before = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    with agents(math=AgentServer()) as places, pytest.raises(InputError) as caught:
        collect(Collecting(given, tmp_path / name, places, Materializing(), overwrite=overwrite))
    assert said in str(caught.value)
    assert {path.name: path.stat().st_mode for path in tmp_path.iterdir()} == before


BAD_INPUTS = [
    (['{"responses_create_params": {}}', "{"], "tasks.jsonl:2: not JSON"),
    (['{"responses_create_params": {}}', ""], "tasks.jsonl:2: the line is blank; expected one JSON object per line"),
    ([], "tasks.jsonl: no tasks; expected one JSON object per line"),
    (["[1]"], "tasks.jsonl:1: an input is not an object"),
    (['{"x": 1}'], "tasks.jsonl:1: responses_create_params is not an object"),
    (
        [
            '{"_ng_task_index": "a", "responses_create_params": {}}',
            '{"_ng_task_index": 1, "responses_create_params": {}}',
        ],
        "tasks.jsonl: task indices are text in some rows and numbers in others; expected only one of the two",
    ),
    (['{"_ng_task_index": 1.5, "responses_create_params": {}}'], "tasks.jsonl:1: _ng_task_index is 1.5; expected"),
    (
        ['{"_ng_task_index": 9223372036854775808, "responses_create_params": {}}'],
        "tasks.jsonl:1: _ng_task_index is 9223372036854775808; expected an integer or text of at most 64 bits",
    ),
]


@pytest.mark.parametrize(("lines", "said"), BAD_INPUTS)
def test_bad_inputs_are_refused_before_the_first_call(tmp_path, lines, said):
    given = put(tmp_path / "tasks.jsonl", *lines)
    server = AgentServer()
    with agents(math=server) as places, pytest.raises(InputError) as error:
        collect(asked(tmp_path, places, input=given, how={"agent_name": "math"}))
    assert said in str(error.value)
    assert server.runs == []
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_an_unknown_agent_says_the_nearest(tmp_path):
    with agents(math=AgentServer()) as places, pytest.raises(UnknownName, match="no agent named 'mathe'; did you mean"):
        collect(asked(tmp_path, places, input=tasks(tmp_path, 2, "mathe"), head=places["math"]))


def test_rollouts_of_something_else_are_not_touched(tmp_path):
    put(tmp_path / "r.jsonl", {"task": "a", "reward": 1})
    before = (tmp_path / "r.jsonl").read_bytes()
    with (
        agents(math=AgentServer()) as places,
        pytest.raises(InputError, match="contains rollouts, but there is no r_mat"),
    ):
        collect(asked(tmp_path, places))
    assert (tmp_path / "r.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"_ng_task_index": 99, "_ng_rollout_index": 0}, "r.jsonl:13: rollout 99:0 was never planned"),
        ({"_ng_task_index": 1, "_ng_rollout_index": 1}, "r.jsonl:13: rollout 1:1 also appears in an earlier line"),
        ({"reward": 1}, "r.jsonl:13: is not a rollout"),
    ],
)
def test_a_file_of_rollouts_that_somebody_has_changed_is_refused(tmp_path, extra, said):
    with agents(math=AgentServer()) as places:
        collect(asked(tmp_path, places))
        with open(tmp_path / "r.jsonl", "a") as file:
            file.write(json.dumps(extra) + "\n")
        with pytest.raises(InputError, match=said):
            collect(asked(tmp_path, places))


PLANNED = {"_ng_task_index": 9, "_ng_rollout_index": 0, "agent_ref": {"name": "math"}, "responses_create_params": {}}


@pytest.mark.parametrize(
    "changed",
    [
        {"agent_ref": "math"},
        {"agent_ref": None},
        {"_ng_task_index": [9]},
        {"_ng_task_index": None},
        {"_ng_rollout_index": "a"},
        {"_ng_rollout_index": 0.5},
        {"_ng_rollout_index": -1},
        {"responses_create_params": None},
    ],
)
def test_a_plan_that_somebody_has_changed_is_refused(tmp_path, changed):
    """Some of these lines ended as an internal error; others only after the agents had been called for them."""
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
        calls = len(server.runs)
        with open(tmp_path / "r_materialized_inputs.jsonl", "a") as file:
            file.write(json.dumps({**PLANNED, **changed}) + "\n")
        with pytest.raises(InputError, match=r"r_materialized_inputs.jsonl:13: is not a planned rollout; fix the line"):
            collect(asked(tmp_path, places))
    assert len(server.runs) == calls


def test_text_indices_are_not_added_to_a_plan_of_numbers(tmp_path):
    """They were collected, and then none of the rollouts could be read: their indices were of two kinds."""
    server = AgentServer()
    with agents(math=server) as places:
        collect(asked(tmp_path, places))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        text = put(tmp_path / "text.jsonl", {**PLANNED, "_ng_task_index": "9"})
        with pytest.raises(InputError, match=r"r.jsonl: contains a different collection: task indices are text"):
            collect(asked(tmp_path, places, input=text))
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("torn", [b'{"_ng_task_index": 3, "_ng_rol', b'{"_ng_task_index": 3', b"\0\0\0\0\n"])
@pytest.mark.parametrize("name", ["r.jsonl", "r_failures.jsonl"])
def test_a_torn_last_line_is_made_again(tmp_path, torn, name):
    with agents(math=AgentServer({"2": "500"})) as places:
        collect(asked(tmp_path, places, retries=0))
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: whole[:-1].rfind(b"\n") + 1] + torn)
        found = collect(asked(tmp_path, places, retries=0))
    assert f"{tmp_path / name}: the last line was truncated by a crash; its rollout runs again" in found.notes
    assert keys(tmp_path / "r.jsonl") == [(task, n) for task in (0, 1, 3, 4, 5) for n in range(2)]


def test_a_second_process_is_turned_away(tmp_path):
    with agents(math=AgentServer()) as places:
        job = asked(tmp_path, places)
        collect(job)
        planned = rows(tmp_path / "r_materialized_inputs.jsonl")
        files = Files.open(tmp_path / "r.jsonl", planned, lambda data: data, overwrite=False)
        with pytest.raises(InputError, match="another process is collecting into it; wait for it"):
            collect(job)
        files.close()
        assert collect(job).complete


def test_the_key_of_a_model_is_in_no_file(tmp_path, monkeypatch):
    """An agent may echo a key, for example if it logs its environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretkey")
    given = tasks(tmp_path, 2, echo="Bearer sk-verysecretkey", level="sk-verysecretkey")
    with agents(math=AgentServer()) as places:
        found = collect(asked(tmp_path, places, input=given))
        # the same collection, although the key was removed from the plan on disk
        assert collect(asked(tmp_path, places, input=given)).complete
    assert found.complete
    for path in tmp_path.glob("r*"):
        assert b"verysecret" not in path.read_bytes()
    assert rows(tmp_path / "r.jsonl")[0]["level"] == "[secret]"


def test_the_built_in_agent_and_a_verifier_need_no_agent_server(tmp_path):
    model = Model(Forecast(share=0.2, kinds=("500", "malformed", "429")))
    with here(model):
        found = collect(
            asked(
                tmp_path,
                {"simple_agent": "openai/any"},
                how={"num_repeats_add_seed": True, "agent_name": "simple_agent", "limit": 4},
                input=tasks(tmp_path, 4, None),
                base_url=model.url,
                verifier="exact_match",
            )
        )
    assert found.complete
    for made in rows(tmp_path / "r.jsonl"):
        task, number = made["_ng_task_index"], made["_ng_rollout_index"]
        text, _ = model.forecast.truth(f"What is {task} + {task * 7}?", number)
        assert made["response"]["output"][0]["content"][0]["text"] == text
        assert made["reward"] == float(text == str(task * 8))


def test_half_a_character_of_a_model_in_user_code_is_replaced(tmp_path):
    """It ended the collection with an internal error, and so did each resumption."""
    (tmp_path / "model.py").write_text("def answer(messages):\n    return '8 \\ud800'\n")
    agent = {"math": f"python/{tmp_path / 'model.py'}:answer"}
    found = collect(asked(tmp_path, agent, verifier="contains"))
    assert found.complete
    texts = {line["response"]["output"][0]["content"][0]["text"] for line in rows(tmp_path / "r.jsonl")}
    assert texts == {"8 \N{REPLACEMENT CHARACTER}"}


def test_a_second_model_in_one_collection_is_told(tmp_path):
    """Its rollouts were mixed with those of the first without a word."""

    def made(repeats, **agent):
        return collect(asked(tmp_path, agent, repeats, base_url=model.url, verifier="exact_match")).notes

    model = Model(Forecast(0))
    with here(model):
        assert made(1, math="openai/one") == made(1, math="openai/one") == ()
        (note,) = made(2, math="openai/other")
    said = "6 rollouts of agent math are from openai/one, and further ones from openai/other; choose another --output"
    assert said in note
    with agents(math=AgentServer()) as places:
        assert collect(asked(tmp_path, places, 2)).notes == ()  # the models of a server are its own affair


def test_without_a_sandbox_no_model_is_asked(tmp_path, monkeypatch):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    model = Model(Forecast(0))
    tests = [{"input": "", "output": "1"}]
    given = put(tmp_path / "tasks.jsonl", {"responses_create_params": {"input": "?"}, "target": tests})
    try:
        with here(model):
            simple = {"input": given, "base_url": model.url, "how": {"agent_name": "simple_agent"}}
            wanted = asked(tmp_path, {"simple_agent": "openai/any"}, verifier="python_tests", **simple)
            with pytest.raises(SandboxError, match="bwrap is not installed"):
                collect(wanted)
    finally:
        attempt.cache_clear()
    assert model.calls == []


def test_tasks_without_a_target_are_told(tmp_path):
    """Otherwise their rewards would silently be 0, for example if the file's key is ``answer``."""
    lines = [{"responses_create_params": {"input": "?"}, name: "4"} for name in ("answer", "expected", "label")]
    model = Model(Forecast(0))
    with here(model):
        given = put(tmp_path / "tasks.jsonl", *lines)
        simple = {"input": given, "base_url": model.url, "how": {"agent_name": "simple_agent"}}
        found = collect(asked(tmp_path, {"simple_agent": "openai/any"}, verifier="exact_match", **simple))
    said = "2 tasks without target, expected_answer or expected; exact_match compares the answers with empty text"
    assert found.notes == (f"{given}: {said}",)


def test_a_collection_that_could_not_begin_takes_nothing_from_the_next_process(tmp_path):
    """Once the lock is free, another process may begin the same collection, and its files must not be removed."""
    path = tmp_path / "new" / "r.jsonl"
    plan = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "math"}}]
    others: list[Files] = []

    class Left(Files):
        def close(self):
            super().close()
            if not others:
                others.append(Files.open(path, plan, lambda data: data, overwrite=False))

    Left.open(path, plan, lambda data: data, overwrite=False).abandon()
    others[0].close()
    assert path.exists()
    assert rows(path.with_name("r_materialized_inputs.jsonl")) == plan
