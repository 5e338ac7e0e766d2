"""Rescoring a finished run: new rewards beside the old, changes, and errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from making import rollouts
from running.scene import MODEL, records, sums, weather

import calipers
from calipers.analyses.rescore import Rescoring, flips, outcome_counts, rejudge
from calipers.errors import Incomplete, InputError, SandboxError, VerifierError
from calipers.formats import Named
from calipers.isolate.launch import attempt
from calipers.names import VERIFIERS
from calipers.reports.terminal import render
from calipers.rollouts.record import CODE
from calipers.running import Job
from calipers.running.perform import perform
from calipers.verifiers import Verdict


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A benchmark, a run of it with gaps, and the same run without a judge."""
    home = tmp_path_factory.mktemp("made")
    benchmark = sums(home, 20)
    for name, silent in (("run", False), ("bare", True)):
        with weather("--share", "0.5", "--kinds", "500,null,refusal") as url:  # the same for both
            made = Job(benchmark, MODEL, samples=2, base_url=url, retries=0, out=home / name, predict_only=silent)
            perform(made)
    return home


@pytest.fixture
def home(made, tmp_path):
    """A copy of these files that a test may change."""
    for name in ("sums", "run", "bare"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


def again(home, **more):
    return rejudge(Rescoring(str(home / "run"), **{"benchmark": str(home / "sums"), **more}))


def written(found):
    return [json.loads(line) for line in Path(found.path).read_text().splitlines()]


def counts(found):
    return {flip.what: flip.count for flip in found.flips if flip.count}


def test_the_same_judge_says_the_same_and_the_log_stays_as_it_is(made):
    log = (made / "run" / "rollouts.jsonl").read_bytes()
    found = rejudge(Rescoring(str(made / "run")))  # benchmark and verifiers as the run recorded them
    assert (found.old, found.new, found.rollouts) == ("reward", "again", 40)
    assert counts(found) == {"the same": 40}
    assert found.after["mean_reward"].value == found.before["mean_reward"].value
    assert (made / "run" / "rollouts.jsonl").read_bytes() == log
    (made / "run" / "rescored-again.jsonl").unlink()


def test_without_a_sandbox_nothing_is_judged_again(home, monkeypatch):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(home))
    before = set(home.rglob("*"))
    try:
        with pytest.raises(SandboxError, match="bwrap is not installed"):
            again(home, verifier="test_sh", params={"test_sh": "true", "reward_from": "exit"})
    finally:
        attempt.cache_clear()
    assert set(home.rglob("*")) == before


def test_old_columns_stay_and_both_rewards_score_as_they_should(home):
    found = again(home, verifier="contains", filters=("last_number",), name="loose")
    old = {(row["task"], row["sample"]): row for row in records(home / "run")}
    for row in written(found):
        before = old[row["task"], row["sample"]]
        new = {key for key in row if key == "rewards" or key.startswith("loose_")}
        assert {key: value for key, value in row.items() if key not in new} == before
    score = calipers.score(found.path, "mean_reward")["mean_reward"]
    assert score.value == calipers.score(str(home / "run"), "mean_reward")["mean_reward"].value
    assert score.value == found.before["mean_reward"].value
    assert calipers.score(found.path, "mean_reward", reward="loose")["mean_reward"].value == pytest.approx(
        found.after["mean_reward"].value, abs=0
    )


def test_what_has_no_completion_keeps_its_outcome_and_stays_a_gap(home):
    found = again(home, verifier="contains")
    failed = {(row["task"], row["sample"]) for row in records(home / "run") if row["outcome"] == "client_failed"}
    assert failed
    gaps = [row for row in written(found) if (row["task"], row["sample"]) in failed]
    assert all(row["outcome"] == "client_failed" and "rewards" not in row for row in gaps)
    assert found.judged == 40 - len(failed)
    assert found.outcomes["client_failed"] == (len(failed), len(failed))


def test_completions_that_nobody_judged(home):
    found = rejudge(Rescoring(str(home / "bare"), benchmark=str(home / "sums")))
    true = calipers.score(str(home / "run"), "mean_reward")["mean_reward"].value
    assert (found.old, found.before) == (None, None)
    assert found.after["mean_reward"].value == true
    assert calipers.score(found.path, "mean_reward")["mean_reward"].value == true  # its only reward


def test_flips_are_named(tmp_path):
    suite, run = files(tmp_path, {"a": "4", "b": "5", "c": "6"}, [("a", "4!", 1), ("b", "is 5", 0), ("c", "6", 1)])
    found = rejudge(Rescoring(run, benchmark=suite, verifier="contains"))
    assert {flip.what: list(flip.which) for flip in found.flips if flip.count} == {
        "fail to pass": [("b", 0)],
        "the same": [],
    }
    assert found.headline() == "3 of 3 rollouts judged again, 1 changed"
    found = rejudge(Rescoring(run, benchmark=suite))
    assert {flip.what: list(flip.which) for flip in found.flips if flip.count} == {
        "pass to fail": [("a", 0)],
        "the same": [],
    }


class Moody:
    """A verifier that cannot judge everything, or nothing at all."""

    always = False

    async def verify(self, task, completion):
        if completion.text == "boom":
            raise VerifierError("no idea", outcome="judge_failed", blameless=True)
        if completion.text == "odd" or self.always:
            raise VerifierError("no score", outcome="judge_failed")
        if completion.text == "nan":
            return Verdict(float("nan"))
        return Verdict(0.5, rewards={"style": 0.25}, fields={"length": 3.0}, usage={"cost_usd": 0.01}, answer=["x"])


@pytest.fixture
def moody():
    VERIFIERS.add("moody", Moody)
    yield
    VERIFIERS.discard("moody")


@pytest.mark.usefixtures("moody")
def test_a_judge_that_fails_leaves_a_gap_and_says_why(tmp_path):
    rollouts = [("a", "boom", 1), ("b", "nan", 0), ("c", "fine", 1)]
    suite, run = files(tmp_path, dict.fromkeys("abc", "4"), rollouts)
    found = rejudge(Rescoring(run, benchmark=suite, verifier="moody"))
    boom, nan, fine = written(found)
    assert (boom["reward"], boom["moody_outcome"], boom["moody_error"]) == (1, "judge_failed", "no idea")
    assert (nan["moody_outcome"], nan["rewards"]) == ("broke_verifier", {"moody": 0.0})
    assert fine["rewards"] == {"moody": 0.5, "moody_style": 0.25}
    assert (fine["moody_length"], fine["moody_judge_cost_usd"], fine["moody_answer"]) == (3.0, 0.01, ["x"])
    assert counts(found) == {"number to gap": 1, "pass to fail": 1, "the same": 1}
    estimate = calipers.score(found.path, "mean_reward", reward="moody")["mean_reward"]
    assert (estimate.value, estimate.samples, estimate.bounds) == (0.25, 2, (0.5 / 3, 1.5 / 3))
    assert calipers.score(found.path, "mean_reward", reward="reward")["mean_reward"].value == 2 / 3


@pytest.mark.usefixtures("moody")
def test_why_there_is_no_verdict_is_told(tmp_path):
    suite, run = files(tmp_path, dict.fromkeys("abc", "4"), [("a", "boom", 1), ("b", "boom", 0), ("c", "fine", 1)])
    assert rejudge(Rescoring(run, benchmark=suite, verifier="moody")).notes == ["2 judge_failed: no idea"]


@pytest.mark.usefixtures("moody")
def test_an_answer_that_breaks_its_verifier_again_counts_zero(tmp_path):
    """The log is unchanged; in the rescore, an answer that no judge could read counts against the model."""
    rows = [("a", "odd", None), ("b", "fine", 1)]
    suite, run = files(tmp_path, dict.fromkeys("ab", "4"), rows, outcomes={"a": "verifier_failed"})
    found = rejudge(Rescoring(run, benchmark=suite, verifier="moody", reward="reward"))
    assert found.notes == ["1 broke_verifier: no score"]
    assert (found.before["mean_reward"].value, found.after["mean_reward"].value) == (1.0, 0.25)
    assert found.outcomes["broke_verifier"] == (0, 1)


@pytest.mark.usefixtures("moody")
def test_a_judge_that_fails_everywhere_is_no_reward_without_a_name(tmp_path, monkeypatch):
    """If the judge's server is down, the reason is reported and no empty file is written."""
    monkeypatch.setattr(Moody, "always", True)
    suite, run = files(tmp_path, dict.fromkeys("ab", "4"), [("a", "boom", 1), ("b", "fine", 0)])
    with pytest.raises(Incomplete) as caught:
        rejudge(Rescoring(run, benchmark=suite, verifier="moody"))
    why = "1 judge_failed: no idea; 1 judge_failed: no score"
    assert str(caught.value) == f"{run}: no completion could be verified, and nothing is written: {why}"
    assert not list(tmp_path.glob("*rescored*"))


@pytest.mark.usefixtures("moody")
def test_a_reward_for_what_broke_its_verifier_once_is_not_hidden(tmp_path):
    """The old reward stays 0, and the new one counts."""
    rows = [("a", "fine", None), ("b", "odd", None), ("c", "boom", None)]
    suite, run = files(tmp_path, dict.fromkeys("abc", "4"), rows, outcomes=dict.fromkeys("abc", "broke_verifier"))
    found = rejudge(Rescoring(run, benchmark=suite, verifier="moody"))
    assert (found.after["mean_reward"].value, found.after["mean_reward"].samples) == (0.25, 2)
    for reward, value in (("moody", 0.25), ("reward", 0.0)):
        assert calipers.score(found.path, "mean_reward", reward=reward)["mean_reward"].value == value


@pytest.fixture
def odd(monkeypatch):
    """A user's verifier whose fields cannot be written as they are, or contain keys."""
    monkeypatch.setenv("SOME_API_KEY", "sk-12345678")

    class Odd:
        async def verify(self, task, completion):
            if completion.text == "boom":
                raise ValueError("half \ud800 of sk-12345678")
            return Verdict(1.0, answer="half \ud800", fields={"outcome": 0.5, "answer": 0.25})

    VERIFIERS.add("odd", Odd)
    yield
    VERIFIERS.discard("odd")


@pytest.mark.usefixtures("odd")
def test_whatever_a_verifier_says_can_be_written(tmp_path):
    suite, run = files(tmp_path, dict.fromkeys("ab", "4"), [("a", "boom", 1), ("b", "fine", 0)])
    boom, fine = written(rejudge(Rescoring(run, benchmark=suite, verifier="odd")))
    assert boom["odd_error"] == "verifier 'odd' failed: ValueError: half \ufffd of [secret]"
    assert (fine["odd_answer"], fine["odd_verifier_outcome"], fine["odd_verifier_answer"]) == ("half \ufffd", 0.5, 0.25)
    assert "odd_outcome" not in fine


@pytest.mark.usefixtures("moody")
@pytest.mark.parametrize("outcome", ["truncated", "verifier_failed"])
def test_each_reward_contributes_what_it_would_alone(tmp_path, outcome):
    """The outcome of a record must hide neither the old reward nor the new one."""
    rows = [("a", "boom", None), ("b", "fine", None), ("c", "fine", 1)]
    suite, run = files(tmp_path, dict.fromkeys("abc", "4"), rows, outcomes={"a": outcome, "b": outcome})
    found = rejudge(Rescoring(run, benchmark=suite, verifier="moody", reward="reward"))
    own = calipers.score(run, "mean_reward")["mean_reward"]
    for reward, expected in (("reward", (own.value, own.samples)), ("moody", (0.5, 2))):
        score = calipers.score(found.path, "mean_reward", reward=reward)["mean_reward"]
        assert (score.value, score.samples) == expected, reward
    assert (found.before["mean_reward"].value, found.after["mean_reward"].value) == (own.value, 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_filter_that_finds_nothing_counts_zero_and_so_does_an_answer_that_stops_it(tmp_path):
    rollouts = [("a", "no number", 1), ("b", "5", 1), ("c", "a" * 60 + "!", 1)]
    suite, run = files(tmp_path, {"a": "4", "b": "5", "c": "6"}, rollouts)
    found = rejudge(Rescoring(run, benchmark=suite, filters=("last_number",)))
    assert [row.get("last_number-again_outcome") for row in written(found)] == ["unparsed", None, "unparsed"]
    assert found.after["mean_reward"].value == 1 / 3
    assert found.outcomes["unparsed"] == (0, 2)
    found = rejudge(Rescoring(run, benchmark=suite, filters=("regex=((?:a+)+$|5)",), name="slow"))
    assert [row.get("slow_outcome") for row in written(found)] == ["unparsed", None, "broke_verifier"]
    assert written(found)[2]["slow_blame"] == {"neutral": [True] * 3, "answer": [False] * 3}
    assert found.after["mean_reward"].value == 1 / 3


@pytest.mark.usefixtures("impatient")
def test_a_filter_that_runs_out_of_time_on_any_text_is_a_gap(tmp_path):
    suite, run = files(tmp_path, {"a": "a" * 60 + "!", "b": "5"}, [("a", "a" * 60 + "?", 1), ("b", "5", 1)])
    found = rejudge(Rescoring(run, benchmark=suite, filters=("regex=((?:a+)+$|5)",), name="slow"))
    assert [row.get("slow_outcome") for row in written(found)] == ["filter_timeout", None]
    assert written(found)[0]["slow_blame"] == {"neutral": [False, None, None], "answer": [None] * 3}


@pytest.mark.usefixtures("impatient")
def test_a_pattern_of_the_tasks_own_that_one_answer_stops_counts_zero(tmp_path):
    rows = [("a", "a" * 60 + "!", 1), ("b", "no", 1), ("c", "aa", 1)]
    suite, run = files(tmp_path, dict.fromkeys("abc", "^(?:a+)+$"), rows)
    found = rejudge(Rescoring(run, benchmark=suite, verifier="regex_match", name="slow"))
    assert [row.get("slow_outcome") for row in written(found)] == ["broke_verifier", None, None]
    assert found.after["mean_reward"].value == 1 / 3


@pytest.mark.parametrize("by", [(), ("error",)])
def test_what_was_lost_before_the_model_was_asked_stays_so(tmp_path, by):
    suite, run = files(tmp_path, {f"t{n:02}": "4" for n in range(30)}, [(f"t{n:02}", "is 4", 1) for n in range(29)])
    refused = {"kind": "http_429", "message": "busy", "before_answer": True}
    with open(run, "a") as file:
        file.write(json.dumps({"task": "t29", "outcome": "client_failed", "error": refused}) + "\n")
    found = rejudge(Rescoring(run, benchmark=suite, by=by))
    assert found.before.groups[0].ledger.not_filled == 1
    if not by:
        assert found.before.digest == calipers.score(run).digest


def test_rescoring_what_was_rescored(tmp_path):
    suite, run = files(tmp_path, {"a": "4", "b": "x"}, [("a", "is 4", 0), ("b", "", 0)])
    first = rejudge(Rescoring(run, benchmark=suite, verifier="contains"))
    second = rejudge(
        Rescoring(first.path, benchmark=suite, filters=("last_number",), name="n", out=str(tmp_path / "2"))
    )
    assert [row.get("rewards") for row in written(second)] == [{"contains": 1.0, "n": 1.0}, {"contains": 0.0, "n": 0.0}]
    third = rejudge(Rescoring(second.path, benchmark=suite, name="n", out=str(tmp_path / "3")))  # n anew
    assert [row["rewards"]["n"] for row in written(third)] == [0.0, 0.0]
    assert [row["n_answer"] for row in written(third) if "n_answer" in row] == ["is 4"]
    assert third.old == "reward"
    assert (
        rejudge(Rescoring(second.path, benchmark=suite, reward="contains", out=str(tmp_path / "4"))).old == "contains"
    )


def test_of_several_attempts_the_last_counts(tmp_path):
    suite, run = files(tmp_path, {"a": "4"}, [("a", "5", 0), ("a", "is 4", 0)])
    rows = [json.loads(line) for line in Path(run).read_text().splitlines()]
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps({**row, "sample": 0, "attempt": n}) + "\n\n" for n, row in enumerate(rows, 1))
    )
    found = rejudge(Rescoring(run, benchmark=suite, verifier="contains"))
    assert (found.rollouts, found.judged, counts(found)) == (1, 1, {"fail to pass": 1})


def test_slices_votes_and_what_was_planned(home):
    found = again(home, filters=("lower",), by=("level",), metrics=("maj@2", "pass@2"))
    assert set(found.after.groups[0].breakdowns["level"]) == {"easy", "hard"}
    assert found.after["maj@2"].value == found.before["maj@2"].value
    plan = json.loads((home / "run" / "plan.json").read_text())
    plan["samples"] = 3
    (home / "run" / "plan.json").write_text(json.dumps(plan))
    ledger = calipers.score(again(home).path, "mean_reward").groups[0].ledger
    assert (ledger.planned, ledger.outcomes["not_run"]) == (60, 20)


def test_votes_are_those_of_the_new_answers(tmp_path):
    texts = ["A or B", "B or A", "C or A"]
    suite, run = files(tmp_path, {"a": "A"}, [("a", text, 0) for text in texts], own=True)
    found = rejudge(Rescoring(run, benchmark=suite, filters=("regex_last=[A-C]",), metrics=("maj@3",)))
    assert (found.before["maj@3"].value, found.after["maj@3"].value) == (0.0, 1.0)


def test_another_benchmark_is_refused_unless_it_is_named(home):
    changed = (home / "sums" / "tasks.jsonl").read_text().replace('"expected": "0"', '"expected": "1"')
    (home / "sums" / "tasks.jsonl").write_text(changed)
    found = again(home)
    assert found.notes == [f"{home / 'sums'} has other tasks than the run; they were used anyway"]
    plan = json.loads((home / "run" / "plan.json").read_text())
    plan["settings"]["benchmark"]["value"] = str(home / "sums")
    (home / "run" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match=r"other tasks than the run; calipers rescore .* --benchmark .* uses them"):
        rejudge(Rescoring(str(home / "run")))
    plan["settings"]["benchmark"]["value"] = str(home / "gone")
    (home / "run" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="its benchmark cannot be found"):
        rejudge(Rescoring(str(home / "run")))


class Elsewhere:
    """A verifier whose verdict depends on more than the completion."""

    rerunnable = False

    async def verify(self, task, completion):
        raise AssertionError("it may not be asked")


def test_what_is_not_safe_to_run_again_is_refused(tmp_path):
    suite, run = files(tmp_path, {"a": "4"}, [("a", "4", 1)])
    VERIFIERS.add("elsewhere", Elsewhere)
    try:
        with pytest.raises(InputError, match="verifier 'elsewhere': its verdict depends on more than the completion"):
            rejudge(Rescoring(run, benchmark=suite, verifier="elsewhere"))
    finally:
        VERIFIERS.discard("elsewhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.jsonl", "suite.jsonl"]


@pytest.mark.parametrize(
    ("row", "more", "said"),
    [
        ({"completion": None}, {}, "no rollout has a completion; expected a log with completions in it"),
        ({"task": "z"}, {}, "task 'z': is not in the benchmark; give the benchmark of the run"),
        ({}, {"verifier": "exct_match"}, "no verifier named 'exct_match'; did you mean 'exact_match'"),
        ({}, {"verifier": "contains", "params": {"x": 1}}, "task 'a': no param of contains named 'x'"),
        ({"task": "b"}, {"verifier": "contains"}, "task 'b': target is None; contains needs a text to look for"),
        ({"sample": -1}, {}, "r.jsonl:1: sample is -1; expected an integer >= 0"),
        ({"reward": "high"}, {}, 'r.jsonl:1: reward is "high"; expected a number or null'),
        ({"outcome": "scored", "reward": None}, {}, "r.jsonl:1: outcome is 'scored' but there is no reward"),
        (
            {"rewards": {"p": 1, "q": 0}, "reward": None},
            {},
            "--reward: there are several rewards: p, q; name the one to compare with",
        ),
        ({}, {"reward": "p"}, "--reward: no rollout has a reward 'p'; known: reward"),
        ({}, {"metrics": ("tokens_per_task",)}, "--metric: tokens_per_task does not read a reward"),
        ({}, {"name": "reward"}, "--name: 'reward' cannot be the name of a reward"),
        ({}, {"name": "a/b"}, "--name: 'a/b' cannot be the name of a reward"),
        ({}, {"out": "no/such"}, "no/such: there is no folder 'no'; create it first"),
        ({}, {"scores": "x.csv"}, "--scores: does not go with --benchmark; give one or the other"),
        ({}, {"columns": {"task": "id"}}, "--columns: there is no file of scores; expected --scores FILE"),
        ({}, {"columns": Named({}, {"yes": 1.0})}, "--truth: there is no file of scores; expected --scores FILE"),
        ({}, {"columns": Named({}, format="native")}, "--input-format: there is no file of scores; expected --scores"),
        ({}, {"concurrency": 0}, "--concurrency: is 0; expected an integer >= 1"),
    ],
)
def test_what_cannot_be_and_leaves_nothing_behind(tmp_path, row, more, said):
    suite, run = files(tmp_path, {"a": "4", "b": None}, [("a", "4", 1)])
    (tmp_path / "r.jsonl").write_text(json.dumps({**json.loads(Path(run).read_text()), **row}) + "\n")
    with pytest.raises(InputError) as caught:
        rejudge(Rescoring(run, **{"benchmark": suite, **more}))
    assert said in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.jsonl", "suite.jsonl"]


def test_what_is_no_run(tmp_path):
    suite, run = files(tmp_path, {"a": "4"}, [("a", "4", 1)])
    (tmp_path / "r.csv").write_text("task,reward\na,1\n")
    (tmp_path / "empty").mkdir()
    for path, said in [
        ("nowhere", "no such file"),
        ("empty", "is not a run folder: it has no plan.json"),
        ("r.csv", "is csv; expected a run folder, or JSON Lines"),
    ]:
        with pytest.raises(InputError, match=said):
            rejudge(Rescoring(str(tmp_path / path), benchmark=suite))
    with pytest.raises(InputError, match="does not name its benchmark"):
        rejudge(Rescoring(run))
    with pytest.raises(InputError, match="is the input file"):
        rejudge(Rescoring(run, benchmark=suite, out=run))
    (tmp_path / "r.jsonl").write_text('{"task": "a"}\n{"task":\n')
    with pytest.raises(InputError, match=r"r\.jsonl:2: is not a rollout"):
        rejudge(Rescoring(run, benchmark=suite))
    (tmp_path / "r.jsonl").write_text('{"task": "a"}\n{"id": "b"}\n')
    with pytest.raises(InputError, match=r"r\.jsonl:2: no key 'task'; expected one rollout per line, as in a run's"):
        rejudge(Rescoring(run, benchmark=suite))
    (tmp_path / "r.jsonl").write_text('{"task":"a","completion":"4","reward":1}\n' * 2)
    with pytest.raises(InputError, match=r"r\.jsonl:2: task 'a' sample 0 attempt 1 appears twice"):
        rejudge(Rescoring(run, benchmark=suite))


SCORES = {
    "csv": "id,n,human\na,0,0.5\na,1,1\nz,0,1\n",
    "jsonl": '{"id":"a","n":0,"human":0.5}\n{"id":"a","n":1,"human":1}\n{"id":"z","n":0,"human":1}\n',
}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_scores_of_somebody_else(tmp_path, kind):
    _, run = files(tmp_path, {"a": "4", "b": "4"}, [("a", "4", 1), ("a", "5", 0), ("b", "4", 1)])
    path = tmp_path / f"people.{kind}"
    if kind == "parquet":
        import io

        import polars as pl

        pl.read_csv(io.StringIO(SCORES["csv"])).write_parquet(path)
    else:
        path.write_text(SCORES[kind])
    columns = {"task": "id", "sample": "n", "reward": "human"}
    found = rejudge(Rescoring(run, scores=str(path), columns=columns))
    assert (found.new, found.judged) == ("people", 2)
    assert [row.get("rewards") for row in written(found)] == [{"people": 0.5}, {"people": 1.0}, None]
    assert counts(found) == {"pass to fail": 1, "fail to pass": 1, "number to gap": 1}
    assert found.notes == [
        f"{path}: 1 rollout without a score in it: the new reward is missing",
        f"{path}: 1 score not used: the run has no such rollout",
    ]


def test_a_score_for_what_never_came_is_not_used(tmp_path):
    _, run = files(tmp_path, {}, [("a", "4", 1), ("b", None, None)], outcomes={"b": "client_failed"})
    (tmp_path / "s.jsonl").write_text('{"task":"a","reward":1}\n{"task":"b","reward":0}\n')
    found = rejudge(Rescoring(run, scores=str(tmp_path / "s.jsonl")))
    assert found.notes == [f"{tmp_path / 's.jsonl'}: 1 score not used: the rollout has no completion"]
    assert found.after["mean_reward"].value == 1.0
    (tmp_path / "s.jsonl").write_text('{"task":"z","reward":1}\n')
    with pytest.raises(InputError, match="has no score for any rollout of the run"):
        rejudge(Rescoring(run, scores=str(tmp_path / "s.jsonl")))


def test_equally_many_rewards_of_different_rollouts_are_told(tmp_path):
    _, run = files(tmp_path, {}, [("a", "4", 1), ("b", "4", None), ("c", "4", 0)], outcomes={"b": "judge_failed"})
    (tmp_path / "s.jsonl").write_text('{"task":"b","reward":1}\n{"task":"c","reward":0}\n')
    found = rejudge(Rescoring(run, scores=str(tmp_path / "s.jsonl")))
    assert counts(found) == {"number to gap": 1, "gap to number": 1, "the same": 1}
    assert render(found.page()).count("not every rollout has both rewards") == 1
    assert "partly between different\n  rollouts" in render(found.page(), columns=80)


def files(folder, targets, rollouts, outcomes=None, own=False):
    """A benchmark of exact matches and a file of rollouts (task, completion, reward), samples counted up."""
    suite, run = folder / "suite.jsonl", folder / "r.jsonl"
    rows = [
        {
            "task_id": task,
            "instruction": f"Say {target}.",
            "verifier": {"kind": "in_process", "fn_name": "exact_match", "expected": target},
        }
        for task, target in targets.items()
    ]
    suite.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen, lines = [], []
    for task, completion, reward in rollouts:
        record = {"task": task, "sample": seen.count(task), "completion": completion, "reward": reward}
        record |= {"outcome": outcomes[task]} if outcomes and task in outcomes else {}
        record |= {"answer": completion} if own else {}
        lines.append({key: value for key, value in record.items() if value is not None})
        seen.append(task)
    run.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(suite), str(run)


def test_lines_of_every_kind(tmp_path):
    """A byte order mark, blank lines, carriage returns, spaces around a record, and no newline at the end."""
    suite, run = files(tmp_path, {"a": "4", "7": "5"}, [])
    rows = [
        '{"task":"a","completion":"4","reward":1,"rewards":null}\r',
        "",
        '  {"task":7, "completion": "x", "reward":0}  ',
        "\t",
    ]
    (tmp_path / "r.jsonl").write_text("\ufeff" + "\n".join([*rows, '{"task":"a","sample":1,"outcome":"not_run"}']))
    found = rejudge(Rescoring(run, benchmark=suite))
    assert [row.get("rewards") for row in written(found)] == [{"again": 1.0}, {"again": 0.0}, None]
    (tmp_path / "r.jsonl").write_text("\n".join([*rows, '{"task":"a","reward":1} {"task":"a"}']))
    with pytest.raises(InputError, match=r"r\.jsonl:5: is not a rollout"):
        rejudge(Rescoring(run, benchmark=suite))


def test_more_than_fits_into_one_batch(tmp_path):
    count = 3000
    rollouts = [("a", f"{'so ' * 200} #### {i % 2}", i % 2) for i in range(count)]
    suite, run = files(tmp_path, {"a": "1"}, rollouts)
    found = rejudge(Rescoring(run, benchmark=suite, filters=("regex=#### ([0-9]+)",)))
    assert Path(run).stat().st_size > 1 << 20
    assert counts(found) == {"the same": count}
    assert [row["sample"] for row in written(found)] == list(range(count))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (1, 0, "pass to fail"),
        (1, 0.999, "pass to fail"),  # just below the threshold is a fail
        (0, 1, "fail to pass"),
        (0, 0.5, "other reward"),
        (1, 2, "other reward"),  # both pass
        (1, None, "number to gap"),
        (None, 0, "gap to number"),
        (1, 1, "the same"),
        (0, -0.0, "the same"),
    ],
)
def test_one_rollout(old, new, what):
    given = {key: value for key, value in (("old", old), ("new", new)) if value is not None}
    table = rollouts({"task": "t", "rewards": given, "sample": 7}, {"task": "u", "rewards": {"old": 1, "new": 1}})
    found = {flip.what: flip for flip in flips(table, "old", "new")}
    assert sum(flip.count for flip in found.values()) == 2
    assert found[what].count == (2 if what == "the same" else 1)
    assert list(found[what].which) == ([] if what == "the same" else [("t", 7)])


def test_without_an_old_reward_every_number_is_new():
    table = rollouts({"task": "t", "rewards": {"new": 1}}, {"task": "u", "outcome": "client_failed"})
    assert {flip.what: flip.count for flip in flips(table, None, "new") if flip.count} == {
        "gap to number": 1,
        "the same": 1,  # a gap then, a gap now
    }


def test_outcomes_before_and_after():
    before, after = (
        np.array([CODE[word] for word in words]) for words in (["scored", "missing"], ["scored", "scored"])
    )
    assert outcome_counts(before, after) == {"scored": (1, 2), "missing": (1, 0)}
