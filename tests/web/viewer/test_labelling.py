"""Blind labelling: hidden texts, the file of labels, undo, and the predicted width of the interval."""

import csv
import json
import math

import numpy as np
import pytest
from cli.running import ARITH, refused
from web.viewer.served import served

from calipers.analyses.judge_check import judge_check
from calipers.errors import InputError
from calipers.web.viewer.labelling import Labelling, width_factor
from calipers.web.viewer.library import sources

IDENTITY = {"tasks": "sha256:1", "judges": {"openai/judge": "here"}, "model": "m"}


def judged(path, rollouts=400, error=0.2, seed=0):
    """A log of a judge that errs, and the true label of each rollout."""
    rng = np.random.default_rng(seed)
    truth = {}
    with open(path, "w") as file:
        for number in range(rollouts):
            good = bool(rng.random() < 0.5)
            verdict = good if rng.random() > error else not good
            truth[f"t{number}"] = good
            row = {"task": f"t{number}", "sample": 0, "model": "SECRET-MODEL", "reward": int(verdict),
                   "prompt": f"question {number}", "completion": f"completion {number}", "answer": "SECRET-ANSWER",
                   "judge_reply": "SECRET-VERDICT", "usage": {"output_tokens": 77},
                   "metadata": {"target": f"reference {number}"}}  # fmt: skip
            file.write(json.dumps(row) + "\n")
    return truth


def labelling(path, labels, wanted=50, seed=0):
    [source], _ = sources([str(path)])
    return Labelling(source, wanted, str(labels), seed)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_verdict_and_all_that_would_give_it_away_is_hidden(tmp_path):
    judged(tmp_path / "log.jsonl")
    shown = json.dumps(labelling(tmp_path / "log.jsonl", tmp_path / "labels.csv").state())
    for word in ("SECRET", 'reward"', "0.0", "sample", "tokens", "77"):
        assert word not in shown
    assert "completion" in shown
    assert "reference" in shown


def test_labels_are_written_at_once_undone_and_gone_on_with(tmp_path):
    judged(tmp_path / "log.jsonl")
    path = tmp_path / "labels.csv"
    first = labelling(tmp_path / "log.jsonl", path)
    for position, label in enumerate([1, 0, "skip", 1]):
        first.put(position, label, "why, though?" if position == 1 else "")
        assert len(rows_of(path)) == position + 1
    first.put(3, 0)  # a double key press
    assert [row["label"] for row in rows_of(path)] == ["1", "0", "", "1"]
    assert rows_of(path)[1]["comment"] == "why, though?"
    first.undo()
    second = labelling(tmp_path / "log.jsonl", path)
    assert second.state()["position"] == 3
    assert second.order == first.order
    for _ in range(5):
        second.undo()
    assert rows_of(path) == []
    assert [name.name for name in tmp_path.iterdir() if name.suffix == ".part"] == []


def test_the_order_is_random_and_of_the_seed(tmp_path):
    judged(tmp_path / "log.jsonl")
    orders = [
        labelling(tmp_path / "log.jsonl", tmp_path / f"{at}.csv", seed=seed).order for at, seed in enumerate((0, 0, 1))
    ]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_judge_check_reads_the_labels_and_corrects_the_score(tmp_path):
    truth = judged(tmp_path / "log.jsonl")
    path = tmp_path / "labels.csv"
    state = labelling(tmp_path / "log.jsonl", path, wanted=120)
    names = [state.index.name(int(state.index.columns["task"][row])) for row in state.order]
    for position, name in enumerate(names):
        state.put(position, int(truth[name]))
    state.finish()
    result = state.state()["result"]
    check = judge_check(str(tmp_path / "log.jsonl"), str(path))
    score = check.groups[0].score
    assert result["rows"][0]["value"] == score.value
    assert score.interval[0] <= np.mean([*truth.values()]) <= score.interval[1]
    disagreements = sum(
        truth[row["task"]] != (each == 1)
        for row, each in zip(rows_of(path), _verdicts(tmp_path, rows_of(path)), strict=True)
    )
    assert len(result["disagreements"]) == disagreements


def _verdicts(folder, rows):
    by_task = {row["task"]: row["reward"] for row in map(json.loads, (folder / "log.jsonl").read_text().splitlines())}
    return [by_task[row["task"]] for row in rows]


def test_only_the_width_is_shown_before_the_end(tmp_path):
    truth = judged(tmp_path / "log.jsonl")
    state = labelling(tmp_path / "log.jsonl", tmp_path / "labels.csv")
    for position in range(20):
        name = state.index.name(int(state.index.columns["task"][state.order[position]]))
        state.put(position, int(truth[name]))
    shown = state.state()
    assert "result" not in shown
    score = judge_check(str(tmp_path / "log.jsonl"), str(tmp_path / "labels.csv")).groups[0].score
    assert shown["widths"]["bars"][0]["width"] == score.interval[1] - score.interval[0]
    assert shown["widths"]["sentence"].startswith("20 labels give the corrected score an interval ")
    assert f"{score.value:.3f}" not in json.dumps(shown)


def test_the_width_that_more_labels_are_said_to_give_is_the_one_they_give(tmp_path):
    """The predicted width is close to the mean width with 160 labels, over 12 simulations of a judge that errs."""
    truth = judged(tmp_path / "log.jsonl", 800)
    log = str(tmp_path / "log.jsonl")
    rng = np.random.default_rng(1)
    said, came = [], []
    for _ in range(12):
        names = rng.permutation([*truth])[:160]
        labels = [{"task": name, "sample": 0, "label": float(truth[name])} for name in names]
        few, many = (judge_check(log, some).groups[0] for some in (labels[:40], labels))
        widths = [check.score.interval[1] - check.score.interval[0] for check in (few, many)]
        said.append(widths[0] * width_factor(few, 40, 160))
        came.append(widths[1])
    assert math.isclose(np.mean(said), np.mean(came), rel_tol=0.1)


@pytest.mark.parametrize("label", [2, -1, "yes", None, True, 0.5, [1]])
def test_no_other_label_is_taken(tmp_path, label):
    judged(tmp_path / "log.jsonl", 20)
    state = labelling(tmp_path / "log.jsonl", tmp_path / "labels.csv")
    with pytest.raises(InputError, match="expected 1, 0 or skip"):
        state.put(0, label)
    assert rows_of(tmp_path / "labels.csv") == []


def run_folder(folder, identity):
    folder.mkdir(exist_ok=True)
    judged(folder / "rollouts.jsonl", 30)
    plan = {
        "schema": "calipers.plan/1",
        "identity": identity,
        "samples": 1,
        "tasks": [{"task": f"t{n}"} for n in range(30)],
    }
    (folder / "plan.json").write_text(json.dumps(plan))


@pytest.mark.parametrize("changed", [{"judges": {"openai/other": "here"}}, {"tasks": "sha256:2"}])
def test_labels_expire_when_the_judge_or_the_rubric_changes(tmp_path, changed):
    run_folder(tmp_path / "run", IDENTITY)
    path = tmp_path / "labels.csv"
    state = labelling(tmp_path / "run", path, wanted=20)
    for position in range(20):
        state.put(position, position % 2)
    assert judge_check(str(tmp_path / "run"), str(path)).groups[0].labelled == 20
    run_folder(tmp_path / "run", {**IDENTITY, "model": "another model is judged alike"})
    assert judge_check(str(tmp_path / "run"), str(path)).groups[0].labelled == 20
    run_folder(tmp_path / "run", {**IDENTITY, **changed})
    with pytest.raises(InputError, match=r"labels.csv:2: the label is bound to another judge or rubric"):
        judge_check(str(tmp_path / "run"), str(path))
    with pytest.raises(InputError, match="bound to another judge or rubric"):
        labelling(tmp_path / "run", path, wanted=20)


def test_a_file_of_other_labels_is_not_overwritten(tmp_path):
    judged(tmp_path / "log.jsonl", 20)
    path = tmp_path / "labels.csv"
    path.write_text("task,sample,label\nt1,0,1\n")
    with pytest.raises(InputError, match=r"labels.csv:2"):
        labelling(tmp_path / "log.jsonl", path)
    assert path.read_text() == "task,sample,label\nt1,0,1\n"


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        (lambda text: text.replace(",1,", ",yes,", 1), r":2: label is 'yes'; expected 1, 0 or nothing"),
        (lambda text: text.replace(",1,", ",nan,", 1), r":2: label is 'nan'; expected 1, 0 or nothing"),
        (lambda text: text + text.splitlines()[1] + "\n", r":5: is not the rollout that this labelling has here"),
    ],
)
def test_a_file_that_was_edited_is_refused_by_its_line(tmp_path, edit, wrong):
    judged(tmp_path / "log.jsonl")
    path = tmp_path / "labels.csv"
    first = labelling(tmp_path / "log.jsonl", path, wanted=3)
    for position in range(3):
        first.put(position, 1)
    path.write_text(edit(path.read_text()))
    with pytest.raises(InputError, match=wrong):
        labelling(tmp_path / "log.jsonl", path, wanted=3)


def test_a_file_that_a_spreadsheet_has_saved_is_gone_on_with(tmp_path):
    judged(tmp_path / "log.jsonl")
    path = tmp_path / "labels.csv"
    labelling(tmp_path / "log.jsonl", path).put(0, 1)
    path.write_text(path.read_text().replace("\n", "\r\n"), encoding="utf-8-sig", newline="")
    assert labelling(tmp_path / "log.jsonl", path).state()["position"] == 1


def test_nothing_but_labels_is_served_until_the_end(tmp_path):
    judged(tmp_path / "log.jsonl", 60)
    state = labelling(tmp_path / "log.jsonl", tmp_path / "labels.csv", wanted=12)

    async def check(client):
        run = state.source.id
        for path in ("/api/runs", f"/api/run/{run}/rollouts", f"/run/{run}", f"/report/{run}", "/events"):
            assert "SECRET" not in await client.get(path, 403)
        await client.get("/", 303)
        assert "SECRET" not in json.dumps(await client.get("/api/label"))
        await client.post("/api/label", {"label": 1, "position": 0}, 403, origin=None)  # a form on another site
        await client.post("/api/label", {"label": 1, "position": 0}, 403, origin="http://calipers.invalid")
        await client.post("/api/label", [], 400)
        await client.post("/api/label", {"label": 1, "position": math.inf}, 400)
        assert rows_of(tmp_path / "labels.csv") == []
        for position in range(12):
            shown = await client.post("/api/label", {"label": position % 2, "position": position})
        assert shown["position"] == 12
        assert (await client.post("/api/label/undo", {}))["position"] == 11
        assert (await client.post("/api/label/finish", {}))["result"]["sentence"]
        await client.get(f"/api/run/{run}/rollouts")
        await client.post("/api/label", {"label": 1, "position": 11}, 400)

    served([str(tmp_path / "log.jsonl")], check, state)


def test_a_file_for_labels_needs_a_number_of_labels(tmp_path):
    for option, value in (("--labels", "x.csv"), ("--seed", "1")):
        said = refused("view", ARITH, option, value, cwd=tmp_path)
        assert f"{option}: is for blind labelling; add --label N, the number of rollouts to label" in said
