"""Rows of other systems: the rules for all of them, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from formats.given import refused, seen, written
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError, UnknownName
from calipers.formats import Named, lines
from calipers.formats.read import read
from calipers.names import FORMATS
from examples import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "formats"
FILES = {
    "verl": "verl/validation/0.jsonl",
    "verifiers": "prime_rl/rollouts/step_2/eval/all/traces.jsonl",
    "verifiers_v0": "verifiers_v0/results.jsonl",
    "skyrl": "skyrl/dumped_evals/global_step_20_evals/openai_gsm8k.jsonl",
    "nemo_rl": "nemo_rl/val_data_step0.jsonl",
    "open_instruct": "open_instruct/olmo_golden__1_rollouts_000000.jsonl",
    "tinker_eval": "tinker_cookbook/eval/gsm8k/trajectories.jsonl",
    "tinker_rl": "tinker_cookbook/iteration_000000/train_rollout_summaries.jsonl",
    "promptfoo": "promptfoo/results.jsonl",
    "openai_evals": "openai_evals/log_a.jsonl",
    "every_eval_ever": next(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("every_eval_ever/**/*.jsonl")),
}
WHOLE = {**FILES, "trl": "trl/completions/completions_00002.parquet", "promptfoo file": "promptfoo/results.json"}
LABELS = ("step", "split", "level", "info.level", "truncated", "metadata")
VERL: dict[str, Any] = {"input": "user\nQ?\nassistant\n", "output": "A", "gts": "4", "score": 1.0, "step": 3}
SUMMARY: dict[str, Any] = {"schema_version": 1, "group_idx": 0, "traj_idx": 0, "total_reward": 1.0}  # tinker's
TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r\n", b" ", b"\0", b"\xff", b"\\u", b"\\ud800", b"null"),
    *(b"true", b"NaN", b"-Infinity", b"1e400", b"-1", b"1" * 400, b'"task"', b'""', b"[[", b"{}", b"0.5"),
)
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(TOKENS) | st.binary(max_size=4))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def rows_of(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_every_line_based_system_is_damaged_here():
    systems = {name for name in FORMATS.entries if FORMATS.load(name).in_folders}
    assert systems == {*FILES, "trl"}


@pytest.mark.parametrize("name", FILES)
def test_content_says_whose_file_it_is(tmp_path, name):
    path = written(tmp_path, (GOLDEN / FILES[name]).read_bytes(), "file.txt")
    assert read([path])[1][0].format == name


@pytest.mark.parametrize("insist", [False, True])
@pytest.mark.parametrize("name", WHOLE)
@examples(25)
@given(changes=st.lists(EDIT, min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path_factory, name, insist, changes):
    content = (GOLDEN / WHOLE[name]).read_bytes()
    for where, length, put in changes:
        at = int(where * len(content))
        content = content[:at] + put + content[at + length :]
    path = written(tmp_path_factory.getbasetemp(), content, "damaged")
    columns = Named({}, format=name.split()[0] if insist else "")
    try:
        read([path], columns=columns, labels=LABELS)
    except InputError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", FILES)
@examples(25)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused_in_one_line(tmp_path_factory, name, data):
    """Type confusion: a number where a text should be, a list where an object should be, at any depth."""
    text = (GOLDEN / FILES[name]).read_text().splitlines()
    at = data.draw(st.integers(0, min(len(text) - 1, 3)))
    row = json.loads(text[at])
    inner, key = row, data.draw(st.sampled_from(sorted(row)))
    while isinstance(inner[key], (dict, list)) and inner[key] and data.draw(st.booleans()):
        inner = inner[key]
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    inner[key] = data.draw(JSON)
    text[at] = json.dumps(row)
    path = written(tmp_path_factory.getbasetemp(), "\n".join(text) + "\n", "confused")
    try:
        read([path], columns=Named({}, format=name), labels=LABELS)
    except InputError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_several_processes_read_is_the_same(tmp_path, monkeypatch, name):
    content = (GOLDEN / FILES[name]).read_bytes()
    path = written(tmp_path, content, Path(FILES[name]).name)
    alone = seen(read([path], labels=LABELS)[0])
    monkeypatch.setattr(lines, "WORTH_DIVIDING", 100)
    monkeypatch.setattr(lines, "processes", lambda: 2)
    assert seen(read([path], labels=LABELS)[0]) == alone


@pytest.mark.parametrize("name", sorted(FILES.keys() - {"tinker_rl"}))
def test_a_last_line_that_is_still_being_written(tmp_path, name):
    content = (GOLDEN / FILES[name]).read_bytes()
    path = written(tmp_path, content + content.splitlines()[-1][:-5], "torn")
    table = read([path])[0]
    note = "the last line is incomplete and is excluded: the file is still being written, or was cut off"
    assert f"{path}: {note}" in table.notes
    assert len(table) == len(read([written(tmp_path, content, "whole")])[0])
    torn_inside = written(tmp_path, content.splitlines()[0][:-5] + b"\n" + content, "inside")
    assert ":1: not JSON" in refused(torn_inside, columns=Named({}, format=name))


def test_nan_is_missing_and_said(tmp_path):
    rows = [VERL, {**VERL, "score": float("nan"), "output": "NaN, says the model: NaN"}]
    table = read([written(tmp_path, rows_of(*rows))])[0]
    assert [row["outcome"] for row in seen(table)] == ["scored", "missing"]
    assert any(note.endswith("1 value is NaN or infinite: missing, not 0") for note in table.notes)
    assert "NaN is not JSON" in refused(written(tmp_path, '{"task": "a", "reward": NaN}\n'))  # our own are strict


def test_a_nan_takes_no_text_from_its_row_nor_gives_it_to_another(tmp_path):
    rows = [{**VERL, "score": score, "output": f"said {n}"} for n, score in enumerate([0.0, float("nan"), 1.0])]
    path = written(tmp_path, rows_of(*rows))
    table, _ = read([path])
    texts = FORMATS.load("verl").texts(path, {}, frozenset(table.tasks))
    assert [(text.sample, bytes(text.completion)) for text in texts] == [(n, b'"said %d"' % n) for n in range(3)]


def test_the_same_prompt_with_another_gold_answer_is_another_task(tmp_path):
    path = written(tmp_path, rows_of(VERL, {**VERL, "gts": "5"}, {**VERL, "step": 4}, {**VERL, "uid": "u_0_0"}))
    assert len(read([path])[0].tasks) == 2


def test_the_number_that_the_system_reports_is_the_one_shown(tmp_path):
    path = written(tmp_path, rows_of({**VERL, "acc": 0, "reward": 7}))
    result = calipers.score(path)
    assert result["mean_reward"].value == 1.0
    assert "the reward is 'score'; --reward picks another: acc, reward" in result.notes
    assert calipers.score(path, reward="acc")["mean_reward"].value == 0.0


def test_a_text_that_is_a_number_is_one_in_a_column_of_numbers(tmp_path):
    path = written(tmp_path, rows_of({**VERL, "acc": 1, "pred": "4"}, {**VERL, "acc": "0.5", "score": "0.25"}))
    rows = seen(read([path])[0])
    assert [row["reward acc"] for row in rows] == [1.0, 0.5]
    assert [row["reward score"] for row in rows] == [1.0, 0.25]
    assert "reward pred" not in rows[0]


def test_an_id_that_appears_twice_is_refused_with_both_places(tmp_path):
    first = written(tmp_path, rows_of({**VERL, "request_id": "r1"}), "first.jsonl")
    second = written(tmp_path, rows_of(VERL, {**VERL, "request_id": "r1"}), "second.jsonl")
    assert refused(second, first).startswith(":1: the same rollout as")


def test_the_highest_output_of_a_session_wherever_it_is(tmp_path):
    rows = [{**VERL, "uid": f"u_0_{output}", "score": output / 10} for output in (9, 10, 0, 2)]
    assert [row["reward score"] for row in seen(read([written(tmp_path, rows_of(*rows))])[0])] == [1.0]


def test_the_texts_of_a_session_are_those_of_its_highest_output(tmp_path):
    uids = ["u_0_9", "u_0_10", "u_0_0", "u_0_2", "u_1_0", None]
    path = written(tmp_path, rows_of(*({**VERL, "uid": uid, "output": f"said in {uid}"} for uid in uids)))
    table, _ = read([path])
    texts = FORMATS.load("verl").texts(path, {}, frozenset(table.tasks))
    assert [(text.sample, text.completion) for text in texts] == [
        (n, msgspec.Raw(b'"said in %b"' % uid)) for n, uid in enumerate([b"u_0_10", b"u_1_0", b"None"])
    ]


def test_steps_by_number_and_as_one_set(tmp_path):
    for step in (2, 10):
        written(tmp_path, rows_of({**VERL, "step": step}, {**VERL, "step": step, "score": 0}), f"{step}.jsonl")
    table, inputs = read([str(tmp_path)])
    assert [Path(file.path).name for file in inputs] == ["2.jsonl", "10.jsonl"]
    assert [row["sample"] for row in seen(table)] == [0, 1, 2, 3]
    result = calipers.score(tmp_path)
    assert list(result.groups[0].breakdowns["step"]) == ["2", "10"]
    assert not result.groups[0].metrics  # a mean over a training run is not the score of any policy
    assert calipers.score(tmp_path, by="gts")["mean_reward"].value == 0.5
    asked = calipers.score(tmp_path, by=["step", "gts"])  # nor is it when the steps are asked for
    assert list(asked.groups[0].breakdowns) == ["step", "gts"]
    assert not asked.groups[0].metrics
    assert calipers.score(tmp_path, by="step").digest == result.digest


def test_a_gate_over_several_steps_asks_for_one_of_them():
    folder = GOLDEN / "verl" / "validation"
    with pytest.raises(UnknownName, match=r"its numbers are by step: mean_reward\[step=0\]"):
        calipers.gate(folder, require="mean_reward >= 0.3")
    assert calipers.gate(folder, require="mean_reward[step=40] >= 0.3").exit_code == 0


def test_training_and_evaluation_are_never_one_number():
    result = calipers.score(GOLDEN / "prime_rl" / "rollouts", by="step")
    solver = result.groups[1]
    assert list(solver.breakdowns) == ["split+step"]
    assert list(solver.breakdowns["split+step"]) == ["eval, 0", "eval, 2", "eval, 10", "train, 1", "train, 2"]
    assert not solver.metrics


def test_a_filtered_copy_is_not_read_beside_its_original():
    folder = GOLDEN / "prime_rl" / "rollouts" / "step_2" / "eval"
    table, inputs = read([str(folder)])
    assert [Path(file.path).parent.name for file in inputs] == ["all"]
    assert any("'effective'" in note for note in table.notes)
    alone = read([str(folder / "effective" / "traces.jsonl")])[0]
    assert any("its failures are not counted" in note for note in alone.notes)
    both = [str(folder / name / "traces.jsonl") for name in ("all", "effective")]
    assert "the same rollout as" in refused(*both)


def test_a_folder_of_several_formats_is_refused_file_by_file(tmp_path):
    written(tmp_path, rows_of(VERL), "1.jsonl")
    written(tmp_path, (GOLDEN / FILES["skyrl"]).read_bytes(), "2.jsonl")
    assert refused(str(tmp_path)).startswith(": has files of 2 formats: 1.jsonl is verl, 2.jsonl is skyrl; expected")
    table, inputs = read([str(tmp_path)], columns=Named({}, format="verl"))
    assert [file.format for file in inputs] == ["verl"]
    assert any("2.jsonl" in note for note in table.notes)


def test_a_folder_without_a_file_of_the_given_format_is_refused(tmp_path):
    written(tmp_path, rows_of(VERL), "1.jsonl")
    with pytest.raises(InputError, match="no file in it is of trl, the given --input-format; its files are of verl"):
        read([str(tmp_path)], columns=Named({}, format="trl"))


def test_a_file_that_two_formats_claim_is_refused_with_both_names(tmp_path):
    path = written(tmp_path, rows_of({**VERL, "input_prompt": "Q", "output_response": "A"}))
    assert refused(path) == ": is of a format that both skyrl and verl recognise; say which: --input-format NAME"
    assert read([path], columns=Named({}, format="verl"))[1][0].format == "verl"


def test_a_format_that_there_is_not(tmp_path):
    with pytest.raises(UnknownName, match=r"no format named 'verll'; did you mean 'verl'\?"):
        read([written(tmp_path, rows_of(VERL))], columns=Named({}, format="verll"))


def test_keys_that_the_user_names_are_read_as_plain_json_lines(tmp_path):
    path = written(tmp_path, rows_of(VERL))
    assert read([path], columns={"task": "input", "reward": "score"})[1][0].format == "jsonl"
    with pytest.raises(InputError, match="the field names of verl are known"):
        read([path], columns={"reward": "acc"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**VERL, "score": [1]}, ":1: score is a list; expected "),
        ({**VERL, "step": "x"}, ":1: step is text; expected an integer or null"),
        ({**SUMMARY, "traj_idx": 2**63}, ":1: traj_idx is out of range; expected an integer of 64 bits"),
        ({**SUMMARY, "traj_idx": -(2**64)}, ":1: traj_idx is out of range; expected an integer of 64 bits"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, row, message):
    assert refused(written(tmp_path, rows_of(row))).startswith(message)


def test_what_is_planned_and_not_there_is_not_run(tmp_path):
    lines_of = (GOLDEN / FILES["verifiers_v0"]).read_text().splitlines(keepends=True)
    written(tmp_path, (GOLDEN / "verifiers_v0" / "metadata.json").read_bytes(), "metadata.json")
    path = written(tmp_path, "".join(lines_of[:10]), "results.jsonl")
    table = read([path])[0]
    assert len(table) == 24
    assert sum(row["outcome"] == "not_run" for row in seen(table)) == 14


def test_any_name_of_an_agent_stands_for_episodes_without_a_trace(tmp_path):
    trace = {"id": "x", "agent": {"name": "a\0b", "config": {"model": "m"}}, "rewards": {"r": 1.0}}
    episodes = [{"task": {"key": "t"}, "traces": [trace]}, {"task": {"key": "u"}, "traces": [], "ok": False}]
    assert read([written(tmp_path, rows_of(*episodes))])[0].keys == [("a\0b", "m", None)]


def test_a_float_extra_of_trl_is_named_as_a_reward(tmp_path):
    frame = {"step": [1, 1], "prompt": ["a", "a"], "completion": ["x", "y"], "r": [1.0, None], "seconds": [0.5, 2.0]}
    path = str(tmp_path / "t.parquet")
    pl.DataFrame({**frame, "words": [3, 4], "advantage": [0.0, 0.0]}).write_parquet(path)
    table = read([path])[0]
    assert sorted(table.rewards) == ["r", "seconds"]
    assert any(note.startswith("rewards: r, seconds") for note in table.notes)
    assert "words" in table.columns


def test_promptfoo_columns_that_only_their_number_tells_apart(tmp_path):
    rows = [json.loads(line) for line in (GOLDEN / FILES["promptfoo"]).read_text().splitlines()]
    for row in rows:
        row["provider"] = {"id": "file://flaky.js"}
    table = read([written(tmp_path, rows_of(*rows))])[0]
    assert len(table.keys) == 4
    assert {model for _, model, _ in table.keys} == {f"file://flaky.js (column {at})" for at in range(4)}


def test_promptfoo_as_csv_is_refused_by_name():
    assert "is a table of promptfoo's as CSV" in refused(str(GOLDEN / "promptfoo" / "results.csv"))


def test_a_result_without_rollouts_is_refused():
    path = next(str(path) for path in GOLDEN.glob("every_eval_ever/**/*.json") if path.name != "expected.json")
    assert "is a result of Every Eval Ever, without rollouts" in refused(path)


def test_means_over_repeats_are_said():
    path = str(GOLDEN / FILES["every_eval_ever"])
    assert any("already averaged over repeats" in note for note in read([path])[0].notes)


def test_a_log_of_openai_evals_that_was_cut(tmp_path):
    text = (GOLDEN / FILES["openai_evals"]).read_text().splitlines(keepends=True)
    table = read([written(tmp_path, "".join(text[:-1]))])[0]
    assert any("there is no final report" in note for note in table.notes)
    only_sampled = read([written(tmp_path, "".join(text[:2]))])[0]
    assert [row["outcome"] for row in seen(only_sampled)] == ["missing"]


@pytest.mark.parametrize("name", ["skyrl", "verifiers_v0", "verl"])
def test_a_row_without_some_of_its_texts_is_converted(tmp_path, name):
    row = json.loads((GOLDEN / FILES[name]).read_text().splitlines()[0])
    kept = {"input_prompt", "output_response", "score", "example_id", "prompt", "completion", "reward"}
    kept |= {"input", "output", "step"}
    rows = [row, {key: value for key, value in row.items() if key in kept - {"output_response", "completion"}}]
    calipers.convert(written(tmp_path, rows_of(*rows)), tmp_path / "out.jsonl")
    assert len(read([str(tmp_path / "out.jsonl")])[0]) == 2


def test_logs_of_two_runs_of_openai_evals_in_one_file_are_refused(tmp_path):
    """The verdicts of both would be those of the last model."""
    logs = []
    for model in "mn":
        logs.append({"spec": {"completion_fns": [model], "eval_name": "e", "run_id": model}})
        logs.append({"run_id": model, "event_id": 0, "sample_id": "s", "type": "match", "data": {"correct": True}})
    message = refused(written(tmp_path, rows_of(*logs)))
    assert "has the logs of 2 runs (m on e, n on e); expected each in a file of its own" in message


def test_a_nan_in_the_first_row_hides_nothing(tmp_path):
    path = written(tmp_path, "\ufeff" + rows_of({**VERL, "score": float("nan")}, VERL).replace("\n", "\r\n"))
    table, inputs = read([path])
    assert (inputs[0].format, len(table)) == ("verl", 2)


def test_the_same_file_twice_is_refused(tmp_path):
    path = written(tmp_path, rows_of(VERL))
    assert refused(path, path) == f": appears twice, first as {path}; expected each file once"


def test_repeats_of_promptfoo_are_numbered_by_their_test_and_not_by_when_they_ended(tmp_path):
    text = (GOLDEN / FILES["promptfoo"]).read_text().splitlines(keepends=True)
    straight = seen(read([written(tmp_path, "".join(text))])[0])
    assert seen(read([written(tmp_path, "".join(reversed(text)))])[0]) == straight


def test_folders_of_verl_are_splits(tmp_path):
    for folder in ("rollouts", "validation"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, rows_of(VERL), "3.jsonl")
    result = calipers.score(tmp_path)
    assert list(result.groups[0].breakdowns["split+step"]) == ["rollouts, 3", "validation, 3"]


def test_steps_are_compared_task_by_task():
    folder = GOLDEN / "verl" / "validation"
    comparison = calipers.compare(folder / "0.jsonl", folder / "40.jsonl", metric="mean_reward", reward="acc")
    difference = comparison.evidences[0].compared
    assert (difference.value, difference.units) == (pytest.approx(0.4), 5)


def test_places_in_a_dataset_are_compared_by_their_prompts(tmp_path):
    """An example_id names another row after a shuffle with another seed."""
    text = (GOLDEN / FILES["verifiers_v0"]).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    other = rows_of(*({**row, "prompt": [{"role": "user", "content": f"other {row['example_id']}"}]} for row in rows))
    paths = [written(tmp_path, text, "a.jsonl"), written(tmp_path, other, "b.jsonl")]
    assert "the prompt differs in 6 of 6 common tasks" in str(calipers.compare(*paths))


@pytest.mark.parametrize("name", ["verl", "skyrl", "verifiers_v0", "tinker_eval"])
def test_texts_belong_to_the_rollouts_that_were_read(name):
    path = str(GOLDEN / FILES[name])
    table, _ = read([path])
    texts = list(FORMATS.load(name).texts(path, {}, frozenset(table.tasks)))
    of_texts = sorted((text.agent, text.model, text.dataset, text.task, text.sample) for text in texts)
    of_rows = sorted(
        (row.get("agent"), row.get("model"), row.get("dataset"), row["task"], row["sample"]) for row in seen(table)
    )
    assert of_texts == of_rows
    assert all((text.prompt and text.completion) or text.error for text in texts)


def test_a_token_without_a_score_is_a_gap_and_not_0(tmp_path):
    row = {"input_prompt": "p", "output_response": "r"}
    path = written(tmp_path, rows_of({**row, "score": [0, 1]}, {**row, "score": [float("nan"), 1]}))
    reward = calipers.score(path)["mean_reward"]
    assert (reward.value, reward.samples) == (1.0, 1)


@pytest.mark.parametrize(("error", "outcome"), [('""', "scored"), ("null", "scored"), ('"boom"', "client_failed")])
@pytest.mark.parametrize(
    "row",
    [
        '{"example_id": 1, "prompt": "p", "completion": "c", "reward": 1, "error": %s}',
        '{"schema_version": "0.3.0", "evaluation_id": "e", "sample_id": "1", "evaluation": {"score": 1}, "error": %s}',
    ],
)
def test_an_empty_error_is_none(tmp_path, row, error, outcome):
    path = tmp_path / "rows.jsonl"
    path.write_text(row % error + "\n")
    [group] = calipers.score(path).groups
    assert group.ledger.outcomes == {outcome: 1}


def test_a_comparison_over_several_steps_says_so():
    steps = str(GOLDEN / "verl" / "validation")
    zero, one = f"{steps}/0.jsonl", f"{steps}/40.jsonl"
    said = f"{steps}: its numbers are over several training steps, the score of no policy; give the file of one step"
    assert said in calipers.compare(steps, one, by="gts").notes  # a breakdown that is asked for
    assert calipers.compare(steps, one).primary == "mean_reward[step=40]"
    assert not any("training steps" in note for note in calipers.compare(zero, one).notes)
    for document in (calipers.curve(steps), calipers.items(steps)):
        assert said.removeprefix(f"{steps}: ") in document.notes


def test_verdicts_and_metrics_of_a_sample_of_openai_evals_are_put_together(tmp_path):
    def event(sample, kind, data):
        return {"run_id": "r", "event_id": 0, "sample_id": sample, "type": kind, "data": data}

    rows = [
        {"spec": {"completion_fns": ["m"], "eval_name": "e"}},
        *(event("a", "match", {"correct": True}), event("b", "error", {"type": "Timeout"})),
        *(event("a", "sampling", {"usage": {"prompt_tokens": 3}}), event("a", "match", {"correct": "yes"})),
        *(event("a", "metrics", {"f1": 0.5}), event("c", "error", {"type": "Late"}), event("a", "match", None)),
        *(event("a", "match", {"correct": 0.25}), event("c", "metrics", {"f1": 1}), event("b", "error", {})),
        event("a", "sampling", {"usage": {"prompt_tokens": 4}}),
    ]
    path = written(tmp_path, rows_of(*rows), "log.jsonl")
    table = read([path])[0]
    assert [float(value) for value in table.rewards["correct"].values[table.rewards["correct"].given]] == [1.0, 0.25]
    assert table.rewards["f1"].given.tolist() == [True, False, False, True]
    assert table.columns["input_tokens"].values[table.columns["input_tokens"].given].tolist() == [7.0]
    assert [row["outcome"] for row in seen(table)].count("client_failed") == 1  # b, but not c, which has a metric
    rows += [event("a", "metrics", {"correct": 1})]
    path = written(tmp_path, rows_of(*rows), "both.jsonl")
    wrong = "the metric correct is there, and match events of the same sample; expected one of them"
    assert refused(path) == f":13: {wrong}"


def test_scores_of_tokens_in_skyrl_are_summed_and_the_last_one_is_kept(tmp_path):
    row = {"input_prompt": "Q", "output_response": "A"}
    scores = [
        "[0.0, 0, 0.00, 0.5]",
        "[0.25, -0.5, null]",
        "[]",
        "[1]",
        "[null, 0.0]",
        "[0,0.0,null]",
        "0.75",
        "null",
        "true",
    ]
    text = "".join(json.dumps(row)[:-1] + f', "score": {score}}}\n' for score in scores)
    table = read([written(tmp_path, text)])[0]
    told = {}
    for name in ("score", "last_token_score"):
        column = table.rewards[name]
        told[name] = [value if there else None for value, there in zip(column.values, column.given, strict=True)]
    assert told["score"] == [0.5, None, None, 1.0, None, None, 0.75, None, 1.0]  # a token without a score is not 0
    assert told["last_token_score"] == [0.5, None, None, 1.0, 0.0, None, 0.75, None, 1.0]
    for wrong in ('"0.5"', '[0.0, "1"]', "[0.0, [1]]", "[0.0, true]", "[0, 1e999]", "1e999"):
        path = written(tmp_path, f'{text}{json.dumps(row)[:-1]}, "score": {wrong}}}\n', "wrong")
        assert refused(path).startswith(f":{len(scores) + 1}: ")


def test_an_empty_file_of_traces_has_the_rollouts_that_were_planned(tmp_path):
    path = written(tmp_path, "\n", "traces.jsonl")
    (tmp_path / "configs").mkdir()
    written(tmp_path, '{"num_tasks": 2, "num_rollouts": 3}', "configs/eval.json")
    assert calipers.score(path, input_format="verifiers").groups[0].ledger.outcomes == {"not_run": 6}


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_a_number_in_a_text_of_promptfoo_that_is_out_of_range_is_named(tmp_path, suffix):
    row = {
        "testIdx": 0,
        "promptIdx": 0,
        "provider": "p",
        "failureReason": 0,
        "success": True,
        "response": {"output": 0},
    }
    text = json.dumps({"evalId": "e", "results": {"results": [row]}} if suffix == "json" else row)
    path = written(tmp_path, text.replace('"output": 0', '"output": [1e999]'), f"r.{suffix}")
    assert calipers.score(path).groups[0].ledger.scored == 1
    with pytest.raises(InputError, match="a number is out of range; expected at most"):
        calipers.convert(path, str(tmp_path / "out.jsonl"))


@pytest.mark.parametrize("value", ["5", "true", "-0.5", "1e999"])
def test_a_text_that_is_a_number_is_text_in_a_record(tmp_path, value):
    row = json.dumps({**VERL, "input": "INPUT", "output": "OUTPUT"})
    path = written(tmp_path, row.replace('"INPUT"', value).replace('"OUTPUT"', value))
    calipers.convert(path, out := str(tmp_path / "out.jsonl"))
    assert calipers.score(out).digest == calipers.score(path).digest
    record = json.loads(Path(out).read_text())
    assert (record["prompt"], record["completion"]) == (value, value)


def test_infinite_rewards_of_trl_are_missing_and_noted(tmp_path):
    rewards = [1.0, float("inf"), float("nan"), -float("inf")]
    frame = {"step": [1] * 4, "prompt": [*"abcd"], "completion": [*"abcd"], "r": rewards, "advantage": [0.0] * 4}
    pl.DataFrame(frame).write_parquet(path := str(tmp_path / "completions_00001.parquet"))
    result = calipers.score(path)
    assert result.groups[0].ledger.outcomes == {"scored": 1, "missing": 3}
    assert f"{path}: 2 rewards are infinite: missing, not 0" in result.notes
