"""The reader of inspect's logs: logs that inspect 0.3.285 wrote, and small made ones for one question each."""

import json
import math

import pytest
from systems.inspect.made import LOGS, archive, header, sample, whole

import calipers
from calipers.formats.read import read
from calipers.systems.inspect import texts

NAN = math.nan


def ledger(path):
    (group,) = calipers.score(path).groups
    return group.ledger


@pytest.mark.parametrize("name", ["one_scorer.eval", "three_scorers.eval", "three_scorers.json"])
def test_a_log_that_inspect_wrote(name):
    (group,) = calipers.score(LOGS / name, by="level", reward="match").groups
    assert (group.dataset, group.model, group.agent) == ("sums", "mockllm/model", None)
    assert (group.ledger.planned, group.ledger.planned_from, group.ledger.tasks) == (10, "plan", 5)
    assert group.ledger.outcomes == {"scored": 6, "truncated": 2, "timed_out": 1, "client_failed": 1}
    assert group.ledger.exceptions == {"RuntimeError": 1}
    # s1 right twice, 2 wrong twice, s3 right once and failed once, s4 right once and out of time once, s5 wrong
    assert group["mean_reward"].value == pytest.approx((1 + 0 + 1 + 0.5 + 0) / 5)
    assert group["mean_reward"].bounds == pytest.approx((0.4, 0.5))
    assert group["pass_rate"].value == pytest.approx(4 / 9)
    assert set(group.breakdowns["level"]) == {"easy", "hard"}
    assert group.totals["input_tokens"] == 80  # the two samples that called no model report no usage
    assert group.totals["cost_usd"] == 4.0


def test_several_scorers_are_several_rewards():
    (group,) = calipers.score(LOGS / "three_scorers.eval", "mean_reward").groups
    assert {name: one.value for name, one in group.metrics.items()} == pytest.approx(
        {
            "mean_reward(reward=match)": 0.5,
            "mean_reward(reward=rubric.helpful)": 0.25,
            "mean_reward(reward=rubric.short)": 0.8,
            "mean_reward(reward=unsure)": 0.75,  # as inspect's own mean, without samples on which its grader failed
        }
    )
    assert group["mean_reward(reward=unsure)"].undefined_tasks == 1


def test_the_archive_and_the_single_file_are_the_same_result():
    results = [calipers.score(LOGS / name, by="level") for name in ("three_scorers.eval", "three_scorers.json")]
    assert results[0].digest == results[1].digest


def test_the_mean_is_inspects_where_nothing_is_missing():
    theirs = json.loads((LOGS / "three_scorers.json").read_text())["results"]["scores"]
    (short,) = [one for one in theirs if one["name"] == "short"]
    ours = calipers.score(LOGS / "three_scorers.json", "mean_reward(reward=rubric.short)")
    assert ours["mean_reward(reward=rubric.short)"].value == short["metrics"]["mean"]["value"]


@pytest.mark.parametrize(
    ("value", "worth"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        (0.3, 0.3),
        (True, 1.0),
        ("0.25", 0.25),
        ("yes", 1.0),
        (-2, -2.0),
    ],
)
def test_what_a_value_is_worth(tmp_path, value, worth):
    path = whole(tmp_path, header(["a", "b"]), sample("a", value), sample("b", value))
    assert calipers.score(path)["mean_reward"].value == worth


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({}, "missing"),
        ({"value": NAN}, "missing"),  # inspect's value of an unscored sample
        ({"value": "perhaps"}, "verifier_failed"),  # a grade that cannot be parsed is not a wrong answer
        ({"error": {"message": "OSError('x')"}}, "client_failed"),
        # a score despite an error counts, as score_on_error intends
        ({"error": {"message": "OSError('x')"}, "value": "I"}, "scored"),
        ({"limit": {"type": "time", "limit": 1}}, "timed_out"),
        ({"limit": {"type": "working", "limit": 1}}, "timed_out"),
        ({"limit": {"type": "token", "limit": 1}}, "truncated"),
        ({"limit": {"type": "message", "limit": 1}, "value": "C"}, "truncated"),  # a truncated sample keeps its score
        ({"limit": {"type": "operator", "limit": 1}}, "cancelled"),
        ({"limit": {"type": "operator", "limit": 1}, "value": "C"}, "scored"),
        ({"output": {"choices": [{"stop_reason": "content_filter"}]}, "value": "I"}, "refused"),
        ({"output": {"choices": [{"stop_reason": "max_tokens"}]}}, "truncated"),
        ({"output": {"choices": [{"stop_reason": "stop"}]}, "value": "C"}, "scored"),
        ({"invalidation": {"author": "me"}, "value": "C"}, "cancelled"),  # a user has invalidated it
    ],
)
def test_what_became_of_a_sample(tmp_path, more, outcome):
    value = more.pop("value", None)
    path = whole(tmp_path, header(["a", "b"]), sample("a", value, **more), sample("b", "C"))
    found = ledger(path).outcomes
    assert found == ({"scored": 2} if outcome == "scored" else {"scored": 1, outcome: 1})


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("refusal", "refused"),
        ("no_response", "empty"),
        ("invalid_response_format", "unparsed"),
        ("grader_failed", "judge_failed"),
        ("scoring_failed", "verifier_failed"),
        ("something of one's own", "missing"),
    ],
)
@pytest.mark.parametrize("older", [False, True])
def test_why_a_sample_is_unscored(tmp_path, reason, outcome, older):
    said = {"metadata": {"unscored_reason": reason}} if older else {"reason": reason}
    lost = {**sample("a"), "scores": {"match": {"value": NAN, **said}}}
    assert ledger(whole(tmp_path, header(["a", "b"]), lost, sample("b", "C"))).outcomes == {"scored": 1, outcome: 1}


class TestDenominators:
    """Complaints of inspect's users: failures that are left out of the denominator, or become wrong answers."""

    def test_errors_do_not_raise_the_accuracy(self, tmp_path):
        """With 80 right of 90 scored of 100 planned samples, 80/90 alone would hide ten missing samples."""
        names = [f"s{number}" for number in range(100)]
        good = [sample(name, "C" if place < 80 else "I") for place, name in enumerate(names[:90])]
        bad = [sample(name, error={"message": "TimeoutError()"}) for name in names[90:]]
        path = archive(tmp_path, header(names), *good, *bad)
        (group,) = calipers.score(path).groups
        assert (group.ledger.planned, group.ledger.gaps) == (100, 10)
        assert group["mean_reward"].value == pytest.approx(80 / 90)
        assert group["mean_reward"].bounds == pytest.approx((0.80, 0.90))
        # errors count as wrong answers only on request
        assert calipers.score(path, missing="zero")["mean_reward"].value == pytest.approx(0.80)

    def test_samples_that_vanished_from_the_log_are_not_run(self, tmp_path):
        names = [f"s{number}" for number in range(10)]
        path = archive(tmp_path, header(names, epochs=2), *(sample(name, "C") for name in names[:9]))
        found = ledger(path)
        assert (found.planned, found.tasks, found.outcomes) == (20, 10, {"scored": 9, "not_run": 11})

    def test_an_older_log_names_no_samples_and_still_has_a_count(self, tmp_path):
        found = ledger(archive(tmp_path, header(5), sample(1, "C"), sample(2, "I")))
        assert (found.planned, found.tasks, found.outcomes) == (5, 5, {"scored": 2, "not_run": 3})

    @pytest.mark.parametrize(("limit", "planned"), [(3, 3), ([1, 4], 3), (50, 5), (None, 5)])
    def test_what_a_limit_left_out_was_not_planned(self, tmp_path, limit, planned):
        head = header(5)
        head["eval"]["config"]["limit"] = limit
        assert ledger(archive(tmp_path, head, sample(1, "C"), sample(2, "I"))).planned == planned

    def test_nan_and_null_stay_gaps_and_the_mean_stays_a_share(self, tmp_path):
        names = ["a", "b", "c", "d"]
        lost = {**sample("d"), "scores": {"match": {"value": None}}}
        path = whole(tmp_path, header(names), sample("a", "C"), sample("b", "C"), sample("c", NAN), lost)
        (group,) = calipers.score(path).groups
        assert group.ledger.outcomes == {"scored": 2, "missing": 2}
        assert (group["mean_reward"].value, group["mean_reward"].bounds) == (1.0, (0.5, 1.0))

    def test_a_score_on_an_error_counts(self, tmp_path):
        failed = sample("b", 0.0, error={"message": "ValueError('x')"})
        path = whole(tmp_path, header(["a", "b"]), sample("a", 1.0), failed)
        assert calipers.score(path)["mean_reward"].value == 0.5

    def test_a_grade_that_did_not_parse_is_said(self, tmp_path):
        path = whole(tmp_path, header(["a", "b"]), sample("a", "C"), sample("b", "GRADE: ???"))
        result = calipers.score(path)
        assert result["mean_reward"].value == 1.0
        unread, missing = result.notes
        assert unread == (
            f"{path}: 1 sample has a value of 'match' that is neither a "
            "grade nor a number: it counts as missing, not as 0"
        )
        assert missing.startswith("warning: 50")


def test_a_run_that_was_cut_off(tmp_path):
    head = {**header(["a", "b"]), "status": "started"}
    result = calipers.score(archive(tmp_path, head, sample("a", "C")))
    assert result.notes[0].endswith("the run is not finished: it is still running, or it was interrupted")
    assert result.groups[0].ledger.outcomes == {"scored": 1, "not_run": 1}


def test_a_run_that_failed_says_why(tmp_path):
    head = {**header(["a", "b"]), "status": "error", "error": {"message": "no money left"}}
    assert "ended with 'error' (no money left)" in calipers.score(whole(tmp_path, head, sample("a", "C"))).notes[0]


def test_a_solver_is_the_agent_and_a_sample_rewritten_counts_once(tmp_path):
    head = header(["a"])
    head["eval"]["solver"] = "react"
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path, head, sample("a", "I"), sample("a", "C"))
    (group,) = calipers.score(path).groups
    assert (group.agent, group.ledger.planned, group["mean_reward"].value) == ("react", 1, 1.0)


def test_answers_vote(tmp_path):
    scores = [{"match": {"value": value, "answer": answer}} for value, answer in (("C", "4"), ("C", "4"), ("I", "5"))]
    runs = [{**sample("a", epoch=number), "scores": held} for number, held in enumerate(scores, 1)]
    assert calipers.score(whole(tmp_path, header(["a"], 3), *runs), "maj@3")["maj@3"].value == 1.0


def test_the_format_is_found_and_the_file_hashed():
    _, (source,) = read([str(LOGS / "one_scorer.eval")])
    assert (source.format, source.rollouts, len(source.sha256)) == ("inspect", 10, 64)


@pytest.mark.parametrize("name", ["three_scorers.eval", "three_scorers.json"])
def test_what_the_samples_say(name):
    said = {(one.task, one.sample): one for one in texts(str(LOGS / name), {}, ())}
    assert len(said) == 10
    assert said["s5", 0][:3] == (None, "mockllm/model", "sums")
    assert (said["s5", 0].prompt, said["s5", 0].answer) == ("6+6", "about 12 or 13")
    assert (said["s3", 0].prompt, said["s3", 0].answer) == ("4+4", None)  # it failed before the model answered
