import gzip
import json
import math
import random

import pytest
from formats.given import refused, seen, written
from gym import exported, put, row

from calipers.formats import lines
from calipers.formats.read import begin, read
from calipers.rollouts.ledger import Ledger
from calipers.systems.nemo_gym.row_builder import from_records


def planned(task, rollout, agent="a"):
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": agent},
        "responses_create_params": {},
    }


def split_up(monkeypatch, processes=3):
    """Read every file like a large one, with several processes."""
    monkeypatch.setattr(lines, "WORTH_DIVIDING", 1)
    monkeypatch.setattr(lines, "processes", lambda: processes)


def test_a_row_as_a_rollout(tmp_path):
    usage = {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 1}}
    full = row(2, 1, True, f1=0.5, note="x", ok=False, parts={"a": 1}, response={"output": [], "usage": usage})
    table, (source,) = read([put(tmp_path / "rollouts.jsonl", full)])
    assert (source.format, source.rollouts) == ("nemo_gym", 1)
    assert seen(table) == [
        {"task": "2", "sample": 1, "outcome": "scored", "agent": "a", "reward reward": 1.0}
        | {"f1": 0.5, "ok": 0.0, "input_tokens": 7.0, "output_tokens": 3.0}
    ]


@pytest.mark.parametrize("first", [row(3, 0), row(3.0, 0.0)])
def test_whole_floats_are_indices(tmp_path, first):
    """NeMo Gym accepts 3.0 for 3, in the first block and in a later block."""
    rows = [first, row(3.0, 1.0), row(4, 0), row(4.0, 1)]
    path = put(tmp_path / "rollouts.jsonl", *rows)
    put(tmp_path / "rollouts_materialized_inputs.jsonl", *(planned(task, n) for task in (3.0, 4) for n in (0.0, 1, 2)))
    table, _ = read([path])
    assert sorted((one["task"], one["sample"], one["outcome"]) for one in seen(table)) == [
        *(("3", n, "not_run" if n == 2 else "scored") for n in range(3)),
        *(("4", n, "not_run" if n == 2 else "scored") for n in range(3)),
    ]
    found = from_records(rows)
    assert (found.task.tolist(), found.rollout.tolist()) == ([3, 3, 4, 4], [0, 1, 0, 1])


def test_agents_are_groups_and_a_row_without_one_is_not_dropped(tmp_path):
    rows = [row(0, 0, agent="b"), row(0, 0, agent="a"), row(0, 0, agent=None), row(1, 0, agent="")]
    table, _ = read([put(tmp_path / "rollouts.jsonl", *rows)])
    assert [(group.keys[0][0], list(group.tasks)) for group in table.groups()] == [
        (None, ["0", "1"]),
        ("a", ["0"]),
        ("b", ["0"]),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([row(0, 0), row(0, 0)], ":2: task '0' sample 0 attempt 1 appears twice, first at"),
        (
            [row(0, 0), row("b", 0)],
            (":2: task indices are text in some rows and numbers in others; expected only one of the two"),
        ),
        (
            [row("b", 0), row(0, 0)],
            ":2: task indices are text in some rows and numbers in others; expected only one of the two",
        ),
        ([row(0, 0), row(0, 1, x=2**64)], ":2: x is 18446744073709551616; expected an integer of at most 64 bits"),
        ([row(0, 0, x=-(2**63) - 1)], ":1: x is -9223372036854775809; expected an integer of at most 64 bits"),
        ([row(0, n, x=10 ** (n * 400)) for n in range(2)], ":2: x is 1000000000"),  # beyond the range of floats
        ([row(2**63, 0)], ":1: _ng_task_index is 9223372036854775808; expected an integer or text of at most 64 bits"),
        ([row(0, 2**63)], ":1: _ng_rollout_index is 9223372036854775808; expected an integer of at most 64 bits"),
        ([row(0, 0), row(0, -1)], ":2: _ng_rollout_index is -1; expected an integer >= 0"),
        ([row(0, "0")], ':1: _ng_rollout_index is "0"; expected an integer'),
        ([row(1.5, 0)], ":1: _ng_task_index is 1.5; expected an integer or text"),
        ([row(1, 0), row(1, 1.5)], ":2: _ng_rollout_index is 1.5; expected an integer"),
        ([row(1.0, 0), row(1.0, 0.0)], ":2: task '1' sample 0 attempt 1 appears twice, first at"),
        ([row(1.0, 0), row("1.0", 0)], ":2: task indices are text in some rows and numbers in others"),
        ([row(1e30, 0)], ":1: _ng_task_index is 1000000000000000019884624838656; expected an integer or text of at"),
        ([row(True, 0)], ":1: _ng_task_index is true; expected an integer or text"),
        ([{"_ng_task_index": 0, "reward": 1}], ":1: no key '_ng_rollout_index'; expected an integer"),
        ([{"_ng_rollout_index": 0, "reward": 1}], ":1: no key '_ng_task_index'; expected an integer or text"),
        ([row(0, 0, response="x")], ':1: response is "x"; expected an object, or no such key'),
        ([row(0, 0, response={"usage": [1]})], ":1: response.usage is [1]; expected an object or null"),
        ([row(0, 0, agent=3)], ':1: agent_ref is {"name": 3}; expected an object with a name'),
        ([row(0, 0), "{oops"], ":2: not JSON (Expecting property name"),
        ([row(0, 0), "[1]"], ":2: a rollout is not an object; expected one JSON object per line"),
        ([json.dumps(row(0, 0)) + json.dumps(row(0, 1))], ":1: two values on one line"),
        ([row(0, 0), '{"_ng_task_index":0,"_ng_rollout_index":1,"x":"\\ud800"}'], ":2: half of a surrogate pair"),
        ([row(0, 0), '{"_ng_task_index":0,"_ng_rollout_index":1,"x":' + "9" * 5000 + "}"], ":2: a number is out of"),
        ([row(0, n, **{f"k{n}": 1}) for n in range(1001)], ":1000: the file has more than 1000 columns of numbers"),
        ([row(0, n, **{f"k{n}": "x"}) for n in range(4000)], ":3997: the file has more than 4000 different keys"),
    ],
)
def test_what_is_refused(tmp_path, lines, said):
    assert refused(put(tmp_path / "rollouts.jsonl", *lines)).startswith(said)


def test_numbers_that_are_no_json_are_read_as_python_writes_them(tmp_path):
    """NaN is a gap, because NeMo Gym writes it as null and leaves it out."""
    path = put(tmp_path / "rollouts.jsonl", row(0, 0, math.nan), row(0, 1, 1.0, x=math.inf), row(0, 2, 0.0))
    table, _ = read([path])
    assert [one["outcome"] for one in seen(table)] == ["missing", "scored", "scored"]
    assert [one.get("x") for one in seen(table)] == [None, math.inf, None]
    (entry,) = exported(path)
    infos = entry["group_level_metrics"][0]["rollout_infos"]
    assert [info["reward"] for info in infos] == [None, 1.0, 0.0]
    assert entry["key_metrics"]["mean/reward"] == 0.5


def test_what_a_line_taught_that_no_struct_can_say_holds_for_the_next_block(tmp_path):
    usage = [{"input_tokens": 1}, {"input_tokens": 2, "late": 5}, {"input_tokens": 3}]
    rows = [row(0, n, x=x, response={"usage": used}) for n, (x, used) in enumerate(zip([1, math.nan, 2], usage))]
    text = "\n".join(map(json.dumps, rows))  # without a final newline, the last line is a separate block
    table, _ = read([written(tmp_path, text, "rollouts.jsonl")])
    assert [one.get("input_tokens") for one in seen(table)] == [1, 2, 3]


def test_only_this_format_takes_them(tmp_path):
    assert (
        refused(written(tmp_path, '{"task": "a", "reward": NaN}\n'))
        == ":1: NaN is not JSON; expected a finite number or null"
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_key_may_be_new_in_any_row_and_of_any_kind(tmp_path, packed):
    rows = [row(0, n, x=value) for n, value in enumerate([None, "text", 3, 2.5, [1], {"y": 1}, True])]
    rows += [row(1, 0, "1.0", late=9), row(1, 1, None)]
    text = "".join(json.dumps(one) + "\n" for one in rows).encode()
    table, _ = read([written(tmp_path, gzip.compress(text) if packed else text, "rollouts.x")])
    assert [one.get("x") for one in seen(table)] == [None, None, 3, 2.5, None, None, 1, None, None]
    assert [one.get("late") for one in seen(table)] == [None] * 7 + [9, None]
    assert [one["outcome"] for one in seen(table)][7:] == ["missing", "missing"]  # a text is not a reward


def test_byte_order_mark_returns_and_blank_lines(tmp_path):
    text = "\ufeff" + json.dumps(row(0, 0)) + "\r\n\r\n" + json.dumps(row(1, 0)) + "\r\n  \n{oops"
    assert refused(written(tmp_path, text)).startswith(":5: not JSON")
    table, _ = read([written(tmp_path, text.removesuffix("{oops"))])
    assert list(table.tasks) == ["0", "1"]


def test_the_layout_of_files_does_not_matter(tmp_path, monkeypatch):
    """The same rows in one file, in shards, shuffled, or read by three processes give the same metrics file."""
    draw = random.Random(0)
    keys = ["f1", "steps", "ok", "with space"]
    rows = [
        row(
            n % 40,
            n // 40,
            draw.random(),
            agent="ab"[n % 40 % 2],
            **{key: draw.choice([1, 0.5, True]) for key in keys[: n % 5]},
        )
        for n in range(400)
    ]
    expected = exported(put(tmp_path / "all.jsonl", *rows))
    shuffled = draw.sample(rows, len(rows))
    assert exported(put(tmp_path / "shuffled.jsonl", *shuffled)) == expected
    shards = [put(tmp_path / f"shard{n}.jsonl", *shuffled[n::3]) for n in range(3)]
    assert exported(*shards) == expected
    split_up(monkeypatch)
    assert exported(str(tmp_path / "shuffled.jsonl")) == expected


@pytest.mark.parametrize("bad", [1, 150, 299])
def test_lines_are_counted_across_the_borders_of_processes(tmp_path, monkeypatch, bad):
    split_up(monkeypatch)
    lines = [row(n, 0) if n != bad else row(n, "x") for n in range(300)]
    assert refused(put(tmp_path / "rollouts.jsonl", *lines)).startswith(f":{bad + 1}: _ng_rollout_index is ")


def test_a_range_that_a_dead_process_left_is_read_here(tmp_path, monkeypatch):
    path = put(tmp_path / "rollouts.jsonl", *[row(n, 0) for n in range(50)])
    expected = exported(path)
    split_up(monkeypatch)
    monkeypatch.setattr(lines, "_CHILD", "raise SystemExit(9)")
    assert exported(path) == expected


def test_what_lies_beside_says_what_was_planned_and_what_failed(tmp_path):
    path = put(tmp_path / "run.x.jsonl", row(0, 0), row(0, 1, 0.0), row(1, 0))
    lost = [row(1, 0, 0.0), row(1, 1, 0.0), row(1, 1, 0.0), row(2, 0, 0.0)]
    words = ["timeout", "timeout", "judge_failed", "verifier_error"]
    failed = [{**one, "_ng_failure_class": word} for one, word in zip(lost, words)]
    put(tmp_path / "run.x_failures.jsonl", *failed)
    put(tmp_path / "run.x_materialized_inputs.jsonl", *[planned(task, n) for task in range(4) for n in range(2)])
    table, (source,) = read([path])
    ledger = Ledger.of(table)
    assert (ledger.planned, ledger.planned_from, ledger.tasks, source.rollouts) == (8, "materialized_inputs", 4, 3)
    assert ledger.outcomes == {"scored": 3, "verifier_failed": 1, "judge_failed": 1, "not_run": 3}
    assert ledger.attempts == 10  # a rollout that failed and then succeeded has two attempts
    assert {one["task"] for one in seen(table)} == {"0", "1", "2", "3"}  # the task that never ran is included
    (entry,) = exported(path)
    # NeMo Gym's own file does not change
    assert [group["_ng_task_index"] for group in entry["group_level_metrics"]] == [0, 1]
    named = [path, *(str(tmp_path / f"run.x{word}") for word in ("_failures.jsonl", "_materialized_inputs.jsonl"))]
    assert seen(read(named)[0]) == seen(table)  # a glob also matches the companions


def test_a_rollout_without_an_agent_has_that_of_its_plan(tmp_path):
    """The first versions of NeMo Gym wrote no agents into rollouts, only into the plan."""
    path = put(tmp_path / "run.jsonl", row(0, 0, agent=None), row(1, 0, 0.5, agent=None), row(2, 0, agent="c"))
    plan = [planned(0, 0), planned(1, 0, agent="b"), planned(1, 1, agent="b"), planned(2, 0, agent="c")]
    put(tmp_path / "run_materialized_inputs.jsonl", *plan)
    table, _ = read([path])
    assert (Ledger.of(table).planned, Ledger.of(table).outcomes) == (4, {"scored": 3, "not_run": 1})
    assert [(group.keys[0][0], list(group.tasks)) for group in table.groups()] == [
        ("a", ["0"]),
        ("b", ["1"]),
        ("c", ["2"]),
    ]
    assert [entry["agent_ref"]["name"] for entry in exported(path)] == ["a", "b", "c"]
    # ambiguous: the plan has two agents
    put(tmp_path / "run_materialized_inputs.jsonl", *plan, planned(0, 0, agent="b"))
    assert [group.keys[0][0] for group in read([path])[0].groups()] == [None, "a", "b", "c"]


def test_other_files_with_such_names_are_read(tmp_path):
    first = put(tmp_path / "a.jsonl", {"task": "x", "reward": 1})
    second = put(tmp_path / "a_failures.jsonl", {"task": "y", "reward": 0})
    assert list(read([first, second])[0].tasks) == ["x", "y"]
    assert refused(first, put(tmp_path / "a_failures.jsonl")) == ": no rollouts; expected at least one"


def test_a_plan_without_any_success_is_a_set_of_gaps(tmp_path):
    path = put(tmp_path / "run.jsonl")
    put(tmp_path / "run_materialized_inputs.jsonl", planned(0, 0), planned("1", 0, agent="b"))
    table, _ = read([path])
    assert [one["outcome"] for one in seen(table)] == ["not_run", "not_run"]
    assert refused(put(tmp_path / "alone.jsonl")) == ": no rollouts; expected at least one"


@pytest.mark.parametrize("line", ["{oops", "{}", '{"_ng_task_index": 0, "_ng_rollout_index": -1}'])
def test_a_bad_line_beside_is_named(tmp_path, line):
    path = put(tmp_path / "run.jsonl", row(0, 0))
    put(tmp_path / "run_failures.jsonl", planned(0, 0), line)
    with pytest.raises(ValueError, match=r"run_failures\.jsonl:2: "):
        read([path])


def test_a_failure_in_the_main_file_is_kept_apart(tmp_path):
    """NeMo Gym 0.5 would have written it to the sidecar; 0.4 averaged it."""
    bad = [row(0, 1, 0.0, x=5, _ng_failure_class="timeout"), row(0, 2, 0.0, _ng_no_persist=True)]
    path = put(tmp_path / "rollouts.jsonl", row(0, 0), *bad)
    table, _ = read([path])
    assert [one["outcome"] for one in seen(table)] == ["scored", "client_failed", "cancelled"]
    assert "x" not in table.columns
    (entry,) = exported(path)
    assert entry["key_metrics"] == {"mean/reward": 1.0}


@pytest.mark.parametrize("beside", [False, True])
def test_a_failure_in_the_main_file_is_an_attempt_at_its_rollout(tmp_path, beside):
    """It was the same attempt twice, so that a collection resumed after it could not be read."""
    lost = row(0, 0, 0.0, _ng_failure_class="timeout")
    path = put(tmp_path / "rollouts.jsonl", lost, lost, row(0, 0), row(0, 1, 0.0))
    if beside:
        put(tmp_path / "rollouts_failures.jsonl", lost)
    table, _ = read([path])
    ledger = Ledger.of(table)
    assert (ledger.planned, ledger.outcomes, ledger.attempts) == (2, {"scored": 2}, 4 + beside)


def test_a_failure_without_an_agent_has_that_of_its_plan(tmp_path):
    """It was counted once in a group without a name, and once more as not run."""
    path = put(tmp_path / "run.jsonl", row(0, 0, agent=None))
    put(tmp_path / "run_failures.jsonl", row(1, 0, agent=None, _ng_failure_class="timeout"))
    put(tmp_path / "run_materialized_inputs.jsonl", planned(0, 0), planned(1, 0))
    (group,) = read([path])[0].groups()
    assert (group.keys[0][0], Ledger.of(group).outcomes) == ("a", {"scored": 1, "client_failed": 1})


def test_values_to_slice_by_and_answers_to_vote_on(tmp_path):
    rows = [row(0, 0, level="easy", final="4", info={"deep": {"er": 1}}), row(0, 1, 0.0, level=2, final=None)]
    path = put(tmp_path / "rollouts.jsonl", *rows)
    table, _ = read([path], columns={"answer": "final"}, labels=["level", "info.deep.er", "answer"])
    first, second = seen(table)
    assert (first["label level"], first["label metadata.info.deep.er"], first["label answer"]) == ("easy", "1", "4")
    assert second["label level"] == "2"
    assert second["level"] == 2.0  # the label is also a numeric column
    with pytest.raises(ValueError, match="--columns: sample has a fixed key in NeMo Gym's rollouts"):
        read([path], columns={"sample": "level"})


def test_integers_beyond_doubles_stay_exact(tmp_path):
    (entry,) = exported(put(tmp_path / "rollouts.jsonl", row(0, 0, t=2**63 + 1), row(0, 1, t=3)))
    infos = entry["group_level_metrics"][0]["rollout_infos"]
    assert [info["t"] for info in infos] == [2**63 + 1, 3]


def test_rows_in_memory_are_the_rows_of_a_file(tmp_path):
    rows = [row(1, 0, x=1), row(0, 1, None, y=2.5, response={"usage": {"x": None, "z": True}}), row(0, 0, "s")]
    kept = []
    begin([put(tmp_path / "rollouts.jsonl", *rows)], kept=kept)
    (part,) = kept
    for name in ("task", "rollout", "agent", "aside"):
        assert getattr(part.gym, name).tolist() == getattr(from_records(rows), name).tolist()
    for table in ("top", "usage"):
        one, other = getattr(part.gym, table), getattr(from_records(rows), table)
        assert one.keys() == other.keys()
        for key in one:
            for name in ("values", "given", "integer", "present"):
                assert getattr(one[key], name).tolist() == getattr(other[key], name).tolist()
            assert one[key].odd == other[key].odd


def test_a_number_of_a_kind_of_its_own_is_a_number():
    class Count(int):
        """A subclass of int or float, as numpy's numbers and enumerations are."""

    cells = from_records([{**row(0, n), "own": Count(n)} for n in range(3)]).top["own"]
    assert (cells.values.tolist(), cells.given.all(), cells.integer.all()) == ([0.0, 1.0, 2.0], True, True)
