import pytest
from making import rollouts

from calipers.rollouts.ledger import Ledger, contributed, joined_ledgers, lost_before_answer
from calipers.rollouts.record import FIRST_GAP, OUTCOMES, STOPPED_EARLY, Stop

OWN_DOING = ["refused", "truncated", "empty", "timed_out", "unparsed", "broke_verifier", "tampered"]


def test_outcomes_add_up_to_what_was_planned():
    table = rollouts(
        {"task": "a", "reward": 1},
        {"task": "b", "outcome": "refused"},
        {"task": "c"},
        {"task": "d", "outcome": "client_failed", "error": "503"},
    )
    ledger = Ledger.of(table)
    assert ledger.outcomes == {"scored": 1, "refused": 1, "client_failed": 1, "missing": 1}
    assert (ledger.planned, ledger.scored, ledger.gaps, ledger.tasks) == (4, 1, 2, 4)


def test_rollouts_that_were_asked_again_after_a_worker_was_lost_are_counted_beside_the_attempts():
    again = [{"task": "a", "reward": 1, "asked_again": 2}, {"task": "b", "reward": 0, "asked_again": 1}]
    ledger = Ledger.of(rollouts(*again, {"task": "c", "reward": 0, "asked_again": 0}, {"task": "d", "reward": 0}))
    assert (ledger.asked_again, ledger.attempts, ledger.planned) == (2, 4, 4)
    assert joined_ledgers([ledger, ledger], [(4, True), (4, True)]).asked_again == 4
    assert Ledger.of(rollouts({"task": "c", "reward": 0})).asked_again is None


@pytest.mark.parametrize("outcome", OUTCOMES[:STOPPED_EARLY])
def test_what_an_outcome_contributes(outcome):
    rewarded = rollouts({"task": "a", "outcome": outcome, "reward": 0.5})
    column = contributed(rewarded, "reward")
    if outcome in OUTCOMES[FIRST_GAP:]:
        assert not column.given.any()  # a gap, even with a reward
    else:  # the reward of a rollout that broke its verifier does not count
        assert column.values.tolist() == [0.0 if outcome in OWN_DOING[-2:] else 0.5]
    if outcome != "scored":
        column = contributed(rollouts({"task": "a", "outcome": outcome}), "reward")
        assert column.given.tolist() == [outcome in OWN_DOING]
        assert column.values.tolist() == [0.0]


REFUSED = {"outcome": "client_failed", "error": {"kind": "http_429", "message": "HTTP 429", "before_answer": True}}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (REFUSED, True),
        ({"outcome": "not_run"}, True),
        ({"outcome": "client_failed", "error": {"kind": "timeout", "message": "no answer within 60 s"}}, False),
        ({"outcome": "client_failed", "error": {"kind": "http_429", "message": "an older log"}}, False),
        ({"outcome": "client_failed", "error": {"before_answer": False}}, False),
        ({"outcome": "client_failed", "error": {"before_answer": 1}}, False),  # only true is true
        ({"outcome": "client_failed", "error": {"before_answer": "true"}}, False),
        ({"outcome": "client_failed", "error": {"inner": {"before_answer": True}}}, False),
        ({"outcome": "client_failed", "error": '"before_answer": true'}, False),
        ({"outcome": "client_failed", "error": None}, False),
        ({**REFUSED, "outcome": "judge_failed"}, False),  # there was an answer
        ({**REFUSED, "outcome": "cancelled"}, False),
        ({**REFUSED, "outcome": "scored", "reward": 1}, False),
    ],
)
def test_what_was_lost_before_the_model_was_asked(record, expected):
    table = rollouts({"task": "a", "reward": 1}, {"task": "b", **record}, {"task": "c", "outcome": "missing"})
    assert lost_before_answer(table).tolist() == [False, expected, False]


def test_rollouts_lost_before_the_model_was_asked_stay_so_in_parts_of_a_table():
    table = rollouts(*({"task": f"t{n}", **(REFUSED if n % 3 else {"reward": 1})} for n in range(9)))
    assert lost_before_answer(table).sum() == 6
    assert lost_before_answer(table.where(table.task >= 4)).tolist() == [True, True, False, True, True]
    models = [{"task": "a", "model": "m", **REFUSED}, {"task": "a", "model": "n", "outcome": "client_failed"}]
    assert [lost_before_answer(group).tolist() for group in rollouts(*models).groups()] == [[True], [False]]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([REFUSED, REFUSED], True),
        # the answer may have ended the first attempt, and that the server was gone later says nothing about it
        ([{"outcome": "client_failed", "error": {"kind": "timeout", "message": "no answer"}}, REFUSED], False),
        ([{"outcome": "judge_failed"}, REFUSED], False),
        ([REFUSED, {"outcome": "client_failed"}], False),
        ([REFUSED, {"reward": 0}], False),
    ],
)
def test_of_several_attempts_all_were_lost_before_the_model_was_asked(attempts, expected):
    rows = [{"task": "a", "attempt": number, **row} for number, row in enumerate(attempts, 1)]
    table = rollouts({"task": "b", **REFUSED}, *rows)
    assert lost_before_answer(table).tolist() == [expected, True]


def test_a_task_that_a_stopping_rule_spared_the_run_is_counted_in_the_ledger_alone():
    spared = [{"task": "c", "sample": 1, "outcome": "stopped_early"}, {"task": "d", "outcome": "stopped_early"}]
    table = rollouts({"task": "a", "reward": 1}, {"task": "b"}, {"task": "c", "reward": 0}, *spared)
    assert table.tasks == ["a", "b"]  # c was begun but not finished; the rule looks at whole tasks
    assert contributed(table, "reward").given.tolist() == [True, False]
    ledger = Ledger.of(table)
    assert ledger.outcomes == {"scored": 2, "missing": 1, "stopped_early": 2}
    assert (ledger.planned, ledger.tasks, ledger.gaps, ledger.stopped_early) == (5, 4, 1, 2)
    assert table.stop == Stop()  # such rows say that a rule stopped the run, and not which


def test_each_group_has_its_own_part_of_what_was_spared():
    rows = [{"task": task, "model": model, "reward": 1} for task in "ab" for model in "mn"]
    rows += [{"task": task, "model": "n", "outcome": "stopped_early"} for task in "cde"]
    first, second = rollouts(*rows).groups()
    assert (Ledger.of(first).planned, Ledger.of(second).planned) == (2, 5)
    assert (first.stop, second.stop) == (None, Stop())
    assert (Ledger.of(first).stopped_early, Ledger.of(second).stopped_early) == (0, 3)


def test_a_reward_alone_is_scored_and_nothing_alone_is_missing():
    table = rollouts({"task": "a", "reward": 0}, {"task": "b", "reward": None}, {"task": "c", "reward": True})
    assert Ledger.of(table).outcomes == {"scored": 2, "missing": 1}


def test_a_reward_key_some_rollouts_lack_is_a_gap_there():
    table = rollouts({"task": "a", "rewards": {"f": 1, "g": 0.25}}, {"task": "b", "rewards": {"f": 0}})
    assert contributed(table, "g").given.tolist() == [True, False]


def test_attempts_are_counted_where_they_were_made():
    rows = [{"task": task, "sample": s, "model": m, "reward": 1} for task in "ab" for s in range(2) for m in ("m", "n")]
    again = [{"task": "b", "sample": 1, "model": "n", "reward": 0, "attempt": n} for n in (2, 3)]
    first, second = rollouts(*rows, *again).groups()
    assert (Ledger.of(first).attempts, Ledger.of(second).attempts) == (4, 6)
    assert Ledger.of(second.where(second.task == 0)).attempts == 2


def test_a_reward_of_other_datasets_is_not_0_where_the_model_failed():
    sums = [{"task": "a", "outcome": "unparsed", "rewards": {"match": 1}, "dataset": "sums"}]
    choices = [
        {"task": "a", "rewards": {"acc": 1}, "dataset": "choices"},
        {"task": "b", "outcome": "refused", "dataset": "choices"},  # acc is its dataset's reward, so this is 0
    ]
    lost = [{"task": "a", "outcome": "refused", "dataset": "lost"}]  # a dataset without any reward says nothing
    table = rollouts(*sums, *choices, *lost)
    assert table.elsewhere == {"acc": {"sums"}, "match": {"choices"}}
    by_dataset = {group.keys[0][2]: group for group in table.groups()}
    given = {
        name: [contributed(group, key).given.tolist() for key in ("acc", "match")] for name, group in by_dataset.items()
    }
    assert given == {
        "sums": [[False], [True]],
        "choices": [[True, True], [False, False]],
        "lost": [[True], [True]],
    }
    assert contributed(table, "acc").given.sum() == 3
