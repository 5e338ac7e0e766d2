"""A run that --until has stopped: the records in its folder, and what all readers of the folder make of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from forks import FORKS
from running.scene import records
from running.stopping import RULE, TASKS, job, model, stopped
from waiting import until

import calipers
from calipers.analyses.gate.gate import check_policy
from calipers.analyses.gate.requirement import NamedResult, Policy, parse
from calipers.analyses.plan_study import Chosen, from_pilots
from calipers.analyses.rescore import Rescoring, rejudge
from calipers.errors import CalipersError
from calipers.reports import terminal
from calipers.reports.result import document as document_of
from calipers.running.perform import perform

METRICS = ["mean_reward", "pass@1"]


def kept(folder: Path) -> dict[str, object]:
    return json.loads((folder / "stopped.json").read_text())


def document(folder: Path) -> dict[str, object]:
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a stopped run, which tests only read."""
    folder = tmp_path_factory.mktemp("stopped")
    report = stopped(folder)
    assert report.by_rule
    assert report.complete  # exit 0
    return folder


def test_the_stop_is_written_into_the_run(home):
    found, rows = kept(home / "run"), len(records(home / "run"))
    assert found["rule"] == RULE
    assert (found["metric"], found["side"]) == ("pass@1", "lower")
    assert (found["tasks"], found["planned_tasks"]) == (rows, TASKS)
    assert (found["rollouts"], found["planned_rollouts"]) == (rows, TASKS)
    assert (found["finished"], found["continued"], found["completed"]) == (True, False, False)
    assert 10 < rows < TASKS


def test_every_reader_reports_what_the_run_reported(home):
    said, result = document(home / "run"), calipers.score(home / "run", METRICS)
    assert result.digest == said["digest"]
    assert result.stopped == said["stopped"]
    assert said["stopped"].startswith(f"--until {RULE!r} stopped the run after ")
    estimate = result["pass@1"]
    assert estimate.method == "beta_mixture"
    assert estimate.interval[0] == pytest.approx(said["groups"][0]["metrics"]["pass@1"]["interval"][0], abs=0)
    assert said["groups"][0]["stopped"]["side"] == "lower"


def test_what_was_not_run_for_the_stop_is_no_gap_and_enters_no_bounds(home):
    ledger = calipers.score(home / "run", METRICS).groups[0].ledger
    rows = len(records(home / "run"))
    assert ledger.outcomes == {"scored": rows, "stopped_early": TASKS - rows}
    assert (ledger.planned, ledger.tasks, ledger.gaps, ledger.stopped_early) == (TASKS, TASKS, 0, TASKS - rows)
    for missing in ("gap", "zero", "fail"):
        estimate = calipers.score(home / "run", METRICS, missing=missing)["pass@1"]
        assert (estimate.bounds, estimate.undefined_tasks, estimate.tasks) == (None, 0, rows)


def test_slices_share_out_what_was_not_run(home):
    group = calipers.score(home / "run", METRICS, by="level").groups[0]
    parts = list(group.breakdowns["level"].values())
    for count in ("planned", "tasks", "scored", "stopped_early"):
        assert sum(getattr(part.ledger, count) for part in parts) == getattr(group.ledger, count)
    assert {part["pass@1"].method for part in parts} == {"beta_mixture"}


def test_the_page_says_that_the_value_is_biased_and_in_which_direction(home):
    page = " ".join(terminal.render(document_of(calipers.score(home / "run", "pass@1"))).split())
    assert "not run (stopped early), none missing" in page
    assert f"stopped early by --until {RULE!r}: the value of pass@1" in page
    assert "is too high on average" in page
    assert "unbiased" not in page


@pytest.mark.parametrize(
    ("metrics", "more", "why"),
    [
        ("latency_p50", {}, "no confidence sequence is known for this metric"),
        ("time_per_task", {}, "a confidence sequence needs values of a known range"),
        ("bayes_pass@1", {}, "no confidence sequence is known for this metric"),
        ("pass@1", {"cluster": "level"}, "beta_mixture needs tasks that count alike, and no clusters"),
    ],
)
def test_a_metric_without_a_sequence_says_why_it_has_no_interval(home, metrics, more, why):
    estimate = calipers.score(home / "run", metrics, **more).groups[0].metrics[metrics]
    assert estimate.value is not None
    assert (estimate.interval, estimate.method) == (None, None)
    assert why in estimate.why


def test_an_interval_for_a_fixed_number_of_tasks_is_not_given_on_request_either(home):
    result = calipers.score(home / "run", "pass@1", interval="wilson")
    assert result["pass@1"].method == "beta_mixture"
    assert any(note.startswith("--interval wilson is for a fixed number of tasks") for note in result.notes)


def test_a_gate_answers_alike_for_the_folder_and_for_its_result(home):
    plain = calipers.score([[one["reward"]] for one in records(home / "run")], "pass@1")["pass@1"]
    sequence = calipers.score(home / "run", "pass@1")["pass@1"]
    between = (plain.interval[0] + sequence.interval[0]) / 2  # a value for which the two rules differ
    wanted = [parse(f"lower(pass@1) > {between}"), parse("pass@1 > 0.5")]
    found = []
    for path in (home / "run", home / "run" / "result.json"):
        answer = check_policy(Policy(wanted, [NamedResult("run", str(path))]))
        found.append(list(answer.checks))
        assert [check.word for check in answer.checks] == ["failed", "passed"]
        assert any("stopped the run after" in note for note in answer.notes)
        assert any("is too high on average" in note for note in answer.notes)
    assert found[0] == found[1]


def test_a_comparison_claims_nothing_by_a_test_for_a_fixed_number_of_tasks(home):
    other = perform(job(home, model=model(home, 0.3, "worse.py"), out=home / "worse"))
    assert other.complete
    found = calipers.compare(home / "run", home / "worse", metric=METRICS, margin=0.05)
    one = found["pass@1"]
    assert one.delta < -0.2
    assert (one.interval, one.p, one.p_holm, one.p_bh, one.p_equivalent, one.mcnemar) == (None,) * 6
    assert one.verdict == "undecided"
    assert "a test for a fixed number of tasks does not hold then" in one.sentence
    assert one.tasks == len(records(home / "run"))
    [pair] = found.contests[0].pairs
    assert any("the number of compared tasks depends on its results" in note for note in pair.notes)
    wanted = [parse(f"{end}(delta(pass@1)) >= -0.9") for end in ("lower", "upper")] + [parse("delta(pass@1) >= -0.9")]
    answer = check_policy(Policy(wanted, [NamedResult("run", str(home / "worse"), str(home / "run"))]))
    assert [check.word for check in answer.checks] == ["undefined", "undefined", "passed"]
    third = perform(job(home, model=model(home, 0.5, "third.py"), out=home / "third"))
    assert third.complete
    ranks = calipers.compare(home / "run", home / "worse", home / "third", metric="pass@1").contests[0].ranks
    assert [(one.places, one.corrected) for one in ranks] == [([], None)]
    assert calipers.compare(home / "worse", home / "third", metric="pass@1")["pass@1"].verdict == "better"


def test_curves_items_plans_and_a_new_judge_say_it_too(home):
    rows = len(records(home / "run"))
    curves = calipers.curve(home / "run")
    assert curves["pass@k"].points[0].interval == pytest.approx(
        calipers.score(home / "run", "pass@1")["pass@1"].interval, abs=1e-12
    )
    assert any("stopped the run after" in note for note in curves.groups[0].notes)
    assert any("too high on average" in note for note in curves.groups[0].notes)
    items = calipers.items(home / "run")
    assert len(items.tables[0].items) == rows
    assert any("stopped the run after" in note for note in items.tables[0].notes)
    known = from_pilots([str(home / "run")], Chosen(), None, paired=True)
    assert known.tasks == rows
    assert any("stopped the run after" in note and "too high on average" in note for note in known.notes)
    again = rejudge(Rescoring(str(home / "run"), "exact_match", name="again", out=str(home / "again.jsonl")))
    assert again.after["pass@1"].method == again.before["pass@1"].method == "beta_mixture"
    assert any("stopped the run after" in note for note in again.notes)
    file = calipers.score(home / "again.jsonl", "pass@1", reward="again")  # whose rows say that some were spared
    assert file["pass@1"].interval == calipers.score(home / "run", "pass@1")["pass@1"].interval
    assert file.groups[0].ledger.outcomes == {"scored": rows, "stopped_early": TASKS - rows}


def test_a_check_of_the_judge_says_that_its_intervals_do_not_hold(home):
    rows = records(home / "run")
    lines = ["task,sample,label", *(f"{row['task']},0,{row['reward']:g}" for row in rows[:30])]
    (home / "labels.csv").write_text("\n".join(lines) + "\n")
    found = calipers.judge_check(home / "run", home / "labels.csv")
    assert [note for note in found.notes if "are not valid for a run that its results stopped" in note]
    assert not [note for note in found.notes if "beta_mixture" in note]


def test_a_run_beside_a_stopped_one_keeps_its_own_interval(home):
    perform(job(home, model=model(home, 0.4, "beside.py"), out=home / "beside", limit=200))
    both = calipers.score([home / "run", home / "beside"], "pass@1")
    methods = {group.model: group["pass@1"].method for group in both.groups}
    assert sorted(methods.values()) == ["beta_mixture", "wilson"]
    assert both.stopped.count("stopped the run after") == 1


def test_a_folder_of_an_earlier_version_is_known_by_its_result(tmp_path):
    report = stopped(tmp_path)
    (tmp_path / "run" / "stopped.json").unlink()
    said = document(tmp_path / "run")
    del said["groups"][0]["stopped"]
    (tmp_path / "run" / "result.json").write_text(json.dumps(said))
    found = calipers.score(tmp_path / "run", METRICS)
    assert found.digest == report.result.digest
    assert found.groups[0].stop == report.result.groups[0].stop
    answer = check_policy(Policy([parse("pass@1 > 0")], [NamedResult("run", str(tmp_path / "run" / "result.json"))]))
    assert any("is too high on average" in note for note in answer.notes)
    full = perform(job(tmp_path))
    assert full.complete
    assert full.result.stopped is None
    assert calipers.score(tmp_path / "run", METRICS)["pass@1"].method != "beta_mixture"


def test_continued_to_its_full_plan_it_is_a_fixed_sample_again(tmp_path):
    stopped(tmp_path)
    full = perform(job(tmp_path))
    assert full.complete
    whole = perform(job(tmp_path, out=tmp_path / "undisturbed"))
    assert full.result.digest == whole.result.digest
    assert "stopped" not in document(tmp_path / "run")
    found = calipers.score(tmp_path / "run", METRICS)
    assert (found.stopped, found["pass@1"].method) == (None, "wilson")
    assert found.groups[0].ledger.outcomes == {"scored": TASKS}
    more = perform(job(tmp_path, samples=2))  # a larger plan after that is like any other
    assert more.result["pass@1"].method == perform(job(tmp_path, samples=2)).result["pass@1"].method != "beta_mixture"
    assert kept(tmp_path / "run")["completed"]


def test_continued_to_anything_else_it_stays_a_sequence(tmp_path):
    stopped(tmp_path)
    rows = len(records(tmp_path / "run"))
    part = perform(job(tmp_path, limit=TASKS - 20))
    assert not part.complete  # the rollouts are now outstanding because of the limit
    assert part.result["pass@1"].method == "beta_mixture"
    assert "a later start did not complete the plan" in part.result.stopped
    ledger = part.result.groups[0].ledger
    assert ledger.stopped_early == 0
    assert ledger.gaps == ledger.outcomes["not_run"] > 0
    assert ledger.scored > rows
    grown = perform(job(tmp_path, samples=2))  # to the end of the larger plan
    assert grown.complete
    assert grown.result["pass@1"].method == "beta_mixture"
    assert len(records(tmp_path / "run")) == 2 * TASKS


def test_a_stop_after_fewer_samples_counts_whole_tasks(tmp_path):
    stopped(tmp_path)
    begun = {row["task"] for row in records(tmp_path / "run")}
    again = stopped(tmp_path, samples=2, until="width(pass@1) < 0.4")
    assert again.complete
    rows = records(tmp_path / "run")
    both = {row["task"] for row in rows if row["sample"] == 1}
    estimate = again.result["pass@1"]
    assert (estimate.tasks, estimate.samples, estimate.undefined_tasks) == (len(both), 2 * len(both), 0)
    assert kept(tmp_path / "run")["rule"] == "width(pass@1) < 0.4"
    assert again.result.groups[0].ledger.scored == len(rows) >= len(begun) + len(both)


def test_the_same_command_again_asks_nothing_and_says_the_same(tmp_path):
    first = stopped(tmp_path)
    rows = records(tmp_path / "run")
    again = perform(job(tmp_path, until=RULE))
    assert again.complete
    assert again.result.digest == first.result.digest
    assert records(tmp_path / "run") == rows
    fewer = perform(job(tmp_path, limit=2))  # both tasks were run before, or are run now
    assert fewer.result["pass@1"].method == "beta_mixture"


def test_a_run_that_is_killed_after_the_rule_was_reached_was_stopped_all_the_same(tmp_path):
    (tmp_path / "hangs").write_text("60")  # calls after these never end, so that the run cannot either
    spec, rule = model(tmp_path, 1.0), "lower(pass@1) > 0.87"
    job(tmp_path, model=spec)  # which makes the tasks
    with FORKS.begin((str(tmp_path), spec, rule), tmp_path, dict(os.environ), "running.stopping") as life:
        stop = tmp_path / "run" / "stopped.json"
        until(lambda: stop.exists() or life.poll() is not None, "the file of the stop")
        assert life.poll() is None
        life.kill()
    assert not kept(tmp_path / "run")["finished"]
    assert not (tmp_path / "run" / "result.json").exists()
    found = calipers.score(tmp_path / "run", METRICS)
    assert found["pass@1"].method == "beta_mixture"
    ledger = found.groups[0].ledger
    assert ledger.outcomes == {"scored": 60, "stopped_early": TASKS - 60}
    lines = (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "rollouts.jsonl").write_text("".join(lines[:55] + lines[56:]))  # lost in flight
    held = calipers.score(tmp_path / "run", METRICS).groups[0].ledger
    assert held.outcomes == {"scored": 59, "not_run": 1, "stopped_early": TASKS - 60}
    assert held.gaps == 1
    (tmp_path / "hangs").unlink()
    done = perform(job(tmp_path, model=spec, until=rule))  # completes the tasks that were begun, and begins none
    assert done.complete
    assert len(records(tmp_path / "run")) == 60
    assert kept(tmp_path / "run")["finished"]
    assert done.result.groups[0].ledger.outcomes == {"scored": 60, "stopped_early": TASKS - 60}
    assert done.result.digest == calipers.score(tmp_path / "run", METRICS).digest


def test_a_start_that_cannot_begin_leaves_the_stop_as_it_was(tmp_path):
    spec = "openai/nobody"
    (tmp_path / "run").mkdir()
    report = stopped(tmp_path, out=tmp_path / "made")
    assert report.complete
    plan = (tmp_path / "made" / "plan.json").read_text().replace(report.job.model, spec)
    (tmp_path / "run" / "plan.json").write_text(plan)
    for name in ("rollouts.jsonl", "stopped.json"):
        (tmp_path / "run" / name).write_text((tmp_path / "made" / name).read_text().replace(report.job.model, spec))
    before = (tmp_path / "run" / "stopped.json").read_bytes()
    with pytest.raises(CalipersError, match="no other request was sent"):
        perform(job(tmp_path, model=spec, base_url="http://127.0.0.1:9/v1", retries=0, same_model=True))
    assert (tmp_path / "run" / "stopped.json").read_bytes() == before
