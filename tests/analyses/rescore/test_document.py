"""Every rollout goes exactly one way from one reward to the other."""

from __future__ import annotations

import numpy as np
import pytest
from making import rollouts

from calipers.analyses.rescore.rescore import flips, moved
from calipers.rollouts.record import CODE


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
    assert moved(before, after) == {"scored": (1, 2), "missing": (1, 0)}
