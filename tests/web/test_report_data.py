import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import ARITH, lines

import calipers
from calipers.errors import InputError
from calipers.web.island import what_if_data, what_if_section
from calipers.web.report_data import (
    STATES,
    ManyData,
    PairData,
    RunData,
    ledger_parts,
    report_data,
    with_less_text,
    with_texts,
)

JOB = Path(__file__).parents[1] / "golden" / "harbor" / "job_small"
NEXT = ARITH.replace("arith.jsonl", "arith_next.jsonl")


def written(folder, *rows):
    """The path of a file of these rollouts."""
    return str(folder / lines(folder, *rows))


@pytest.fixture(scope="module")
def arith():
    return report_data([ARITH], by="difficulty")


def test_its_numbers_are_those_of_score(arith):
    result = calipers.score(ARITH, list(arith.group.metrics), by="difficulty")
    assert arith.result.digest == result.digest
    assert list(arith.group.metrics) == ["mean_reward", "pass@1", "pass@4", "pass^4"]  # at least 5 samples, so k is 4


def test_every_planned_rollout_is_in_exactly_one_part(arith):
    parts = ledger_parts(arith)
    assert sum(part.count for part in parts) == arith.group.ledger.planned == 320
    assert [(part.count, part.word) for part in parts] == [
        (135, "passed"),
        (146, "wrong"),
        (8, "refused"),
        (7, "truncated"),
        (7, "unparsed"),
        (12, "verifier failed"),
        (5, "client failed"),
    ]


def test_counts_of_tasks_agree_with_the_ledger(arith):
    tasks = arith.rollouts.tasks
    assert int(tasks.passed.sum()) == 135
    assert int(tasks.missing.sum()) == arith.group.ledger.gaps
    assert tasks.mean.kept().mean() == pytest.approx(arith.group["mean_reward"].value)


def test_texts_are_those_of_their_rollouts(arith):
    rolled = arith.rollouts
    with open(ARITH) as file:
        records = [json.loads(line) for line in file]
    said = {(record["task"], record["sample"]): record for record in records}
    assert len(rolled.texts) == 320  # five have an error and no completion
    for row, text in rolled.texts.items():
        record = said[rolled.table.tasks[int(rolled.table.task[row])], int(rolled.table.sample[row])]
        error = record.get("error")
        words = f"{error['kind']}: {error['message']}" if isinstance(error, dict) else error
        assert text.completion == record.get("completion")
        assert text.answer == record.get("answer")
        assert text.error == words
    assert not rolled.texts_cut


def test_a_small_budget_keeps_failures_first(arith):
    few = with_texts(arith, budget=4_000).rollouts
    assert 10 < len(few.texts) < 100
    assert few.texts_cut
    assert "passed" not in {STATES[few.states[row]] for row in few.texts}
    fewer = with_less_text(arith, 5_000).rollouts
    assert 0 < len(fewer.texts) < len(arith.rollouts.texts)


def test_the_later_attempt_has_the_say(tmp_path):
    path = written(
        tmp_path,
        {"task": "a", "sample": 0, "attempt": 1, "reward": 0, "completion": "first"},
        {"task": "a", "sample": 0, "attempt": 2, "reward": 1, "completion": "second"},
    )
    assert [text.completion for text in report_data([path]).rollouts.texts.values()] == ["second"]


def test_samples_that_are_numbered_over_several_files_have_their_own_texts(tmp_path):
    """Rows of verl have no sample numbers, so the numbers of each file begin at 0."""
    for file in "ab":
        row = {"input": "q", "output": file, "gts": "1", "score": float(file == "a"), "step": 0}
        (tmp_path / f"{file}.jsonl").write_text(json.dumps(row) + "\n")
    rolled = report_data([str(tmp_path)]).rollouts
    scores = rolled.table.rewards["score"].values
    assert {scores[row]: text.completion for row, text in rolled.texts.items()} == {1.0: "a", 0.0: "b"}


def test_texts_with_times_have_rows_only_where_every_trial_of_the_task_has_one():
    rolled = report_data([str(JOB)]).rollouts
    task = rolled.table.tasks.index("json-merge")  # one of its three trials has no text
    assert sorted(rolled.texts) == [row for row in range(18) if rolled.table.task[row] != task]


def test_a_long_text_is_cut_and_says_how_much(tmp_path):
    path = written(tmp_path, {"task": "a", "reward": 1, "completion": "x" * 5_000})
    (text,) = report_data([path]).rollouts.texts.values()
    assert text.completion.endswith("x\n[… 1,000 more characters]")


def test_a_truncated_rollout_with_a_reward_is_not_counted_as_0(tmp_path):
    rows = [
        {"task": "a", "sample": 0, "outcome": "truncated", "reward": 1},
        {"task": "a", "sample": 1, "outcome": "truncated"},
        {"task": "b", "sample": 0, "reward": 0},
    ]
    parts = ledger_parts(report_data([written(tmp_path, *rows)]))
    assert [(part.state, part.word) for part in parts] == [
        ("passed", "truncated, passed"),
        ("wrong", "wrong"),
        ("zero", "truncated"),
    ]


def test_graded_rewards_are_one_solid_part():
    run = report_data([[[0.2, 0.7], [1.0, 0.4]]])
    assert not run.outright
    assert [part.word for part in ledger_parts(run)] == ["scored"]
    assert report_data([[[0.2, 0.7], [0.3, 0.4]]]).group.metrics.keys() == {
        "mean_reward"
    }  # without a pass, there is no pass@k


@pytest.mark.parametrize("samples", [1, 3, 8])
def test_k_is_a_power_of_two_that_every_task_has(samples):
    metrics = list(report_data([[[1] * samples, [0] * samples]]).group.metrics)
    ks = {1: [], 3: ["pass@2", "pass^2"], 8: ["pass@8", "pass^8"]}
    assert metrics == ["mean_reward", "pass@1", *ks[samples]]


def test_a_result_has_its_numbers_and_no_rollouts(tmp_path, arith):
    path = tmp_path / "result.json"
    path.write_text(arith.result.to_json())
    run = report_data([str(path)])
    assert isinstance(run, RunData)
    assert run.rollouts is None
    assert run.result.digest == arith.result.digest
    assert [(part.state, part.count) for part in ledger_parts(run)] == [
        ("scored", 281), ("zero", 8), ("zero", 7), ("zero", 7), ("missing", 12), ("missing", 5),
    ]  # fmt: skip


def test_two_runs_of_one_dataset_are_a_pair():
    data = report_data([ARITH, NEXT])
    assert isinstance(data, PairData)
    assert (data.first.name, data.second.name) == ("tiny-calculator", "next-calculator")
    assert data.comparison["mean_reward"].as_observed == "better"


def test_three_are_many():
    rows = [
        {"task": f"t{task}", "model": model, "dataset": "d", "reward": float(task % size > 0)}
        for task in range(40)
        for model, size in (("a", 2), ("b", 3), ("c", 5))
    ]
    data = report_data([rows], texts=False)
    assert isinstance(data, ManyData)
    assert [run.name for run in data.runs] == ["a", "b", "c"]
    assert [place.name for place in data.ranking.boards[0].places] == ["c", "b", "a"]


def test_a_comparison_stands_alone(tmp_path):
    path = tmp_path / "comparison.json"
    path.write_text(calipers.compare(ARITH, NEXT).to_json())
    data = report_data([str(path)])
    assert isinstance(data, PairData)
    assert data.first is data.second is None
    with pytest.raises(InputError, match="a comparison beside other inputs; expected it alone"):
        report_data([str(path), ARITH])


def test_a_document_of_another_kind_has_no_report(tmp_path):
    path = tmp_path / "curves.json"
    path.write_text(calipers.curve(ARITH).to_json())
    with pytest.raises(InputError, match=r"curves\.json: a Curves has no report; expected rollouts, a result"):
        report_data([str(path)])


def test_missing_rollouts_stay_missing_whatever_they_count_as():
    run = report_data([ARITH], missing="zero")
    assert int((run.rollouts.states == STATES.index("missing")).sum()) == 17
    assert run.group["mean_reward"].value == pytest.approx(0.421875)
    tasks = run.rollouts.tasks
    assert np.diff(run.rollouts.table.by_task.starts).tolist() == (tasks.given + tasks.missing).tolist()


@pytest.fixture
def six(tmp_path):
    """Runs of six models from weak to strong; only the weak ones solve t1, and none solves t2."""
    paths = []
    for model in range(6):
        rows = [
            {"task": f"t{t}", "sample": s, "model": f"m{model}", "dataset": "d", "reward": reward}
            for t in range(30)
            for s in range(4)
            for reward in [float(model < 3) if t == 1 else 0.0 if t == 2 else float((t * 7 + s) % 6 < model)]
        ]
        path = tmp_path / f"m{model}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(str(path))
    return paths


def test_what_items_finds_to_contradict_the_rest_is_flagged(six, tmp_path):
    (tmp_path / "items.json").write_text(calipers.items(*six).to_json())
    run = report_data([six[5]], flag=tmp_path / "items.json")
    assert run.flagged == ["t1"]  # t2 is only hard
    assert what_if_data(run)["flagged"] == [[run.rollouts.tasks.ids.index("t1"), "t1"]]
    pair = report_data(six[4:], flag=tmp_path / "items.json")
    assert [task for _, task in what_if_data(pair)["flagged"]] == ["t1"]
    assert "1 task is flagged by" in what_if_section(pair, what_if_data(pair)).body


def test_wrong_verdicts_of_a_selftest_and_lines_of_ids_are_flags(six, tmp_path):
    flags = tmp_path / "flags"
    gold = {"what": "gold", "wrong": ["t3"], "failed": [["t4", "no verdict"]]}
    flags.write_text(json.dumps({"selftest": {"probes": [gold, {"what": "empty", "failed": [["t5", "none"]]}]}}))
    assert report_data([six[0]], flag=flags).flagged == ["t3", "t4"]
    flags.write_text("t9\n\nanother\nt8\n")
    assert report_data([six[0]], flag=flags).flagged == ["t8", "t9"]
    report = calipers.report(six[0], flag=flags)
    assert report.notes == [f"1 of 3 tasks in {flags} are not in these rollouts"]
    flags.write_text(calipers.items(six[0]).to_json())  # one run cannot contradict others
    assert calipers.report(six[0], flag=flags).notes == [f"{flags} flags no task"]


@pytest.mark.parametrize(
    ("text", "runs", "wrong"),
    [
        ("nobody's\n", 1, 'no task in these rollouts named "nobody\'s"'),
        ("\n", 1, "flags no task; expected ids of tasks, one a line"),
        (b"\xff\xfe", 1, "is not UTF-8"),
        ("t1\n", 3, "--flag: the page has no What if; expected the rollouts of one run"),
    ],
)
def test_flags_that_say_nothing_are_told(six, tmp_path, text, runs, wrong):
    (tmp_path / "flags").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        report_data(six[:runs], flag=tmp_path / "flags")
    assert wrong in str(error.value)
