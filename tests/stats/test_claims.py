"""The one rule for every conclusion: reference values of the unseen losses, and the order of the reasons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calipers.stats.claims import Claim, Evidence, Unseen, claim, decide, p_of_claim, p_of_equivalence, unseen
from calipers.stats.paired import judged, paired, units_of

ONES = np.ones


def evidence_of(new, old, **more):
    difference = paired(np.asarray(new, float) - np.asarray(old, float), limits=(0.0, 1.0))
    return Evidence(difference, difference, **more)


@pytest.mark.parametrize(
    ("new", "old", "score"),
    [
        (ONES(30), np.full(30, 0.95), 1.256562),
        (ONES(100), np.full(100, 0.95), 2.294157),
        (np.repeat([1.0, 0.0], [49, 1]), np.full(50, 0.9), 1.885618),
        (np.repeat([1.0, 0.0], [60, 40]), np.repeat([0.5, 0.25], [60, 40]), 5.443311),
    ],
)
def test_the_score_against_unseen_losses_is_that_of_the_paper(new, old, score):
    for sign, first, second in ((1, new, old), (-1, old, new)):
        found = unseen(first, second, units_of(first - second), (0.0, 1.0))
        assert found.score == pytest.approx(score, abs=5e-7), sign


def test_the_score_does_not_depend_on_the_unit_of_the_rewards():
    new, old = np.repeat([100.0, 0.0], [60, 40]), np.repeat([50.0, 25.0], [60, 40])
    found = unseen(new, old, units_of(new - old), (0.0, 100.0))
    assert found.score == pytest.approx(5.443311, abs=5e-7)
    assert found.largest == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (np.repeat([1.0, 0.0], [20, 10]), np.repeat([1.0, 0.0], [15, 15])),  # both all or nothing
        (np.linspace(0.2, 0.9, 30), np.linspace(0.1, 0.8, 30)),  # both graded
        (np.repeat([1.0, 0.5], [26, 4]), np.repeat([1.0, 0.5], [24, 6])),  # not three times as many
    ],
)
def test_a_pair_that_is_not_lopsided_has_no_score(new, old):
    assert unseen(new, old, units_of(new - old), (0.0, 1.0)) is None


def test_without_a_range_a_steady_run_allows_no_claim():
    steady, wild = np.full(50, 1.0), np.random.default_rng(1).lognormal(1.5, 1.5, 50)
    assert unseen(wild, steady, units_of(wild - steady), None).score == -np.inf


def test_thirty_passes_against_a_steady_run_are_not_decided():
    new, old = ONES(30), np.full(30, 0.95)
    found = evidence_of(new, old, unseen=unseen(new, old, units_of(new - old), (0.0, 1.0)))
    decision = decide(found)
    assert (decision.word, decision.undecided_by, decision.as_observed) == ("undecided", "unseen_loss", "better")


def better_by(count, tasks=40):
    return np.repeat([1.0, 0.0], [count, tasks - count]), np.zeros(tasks)


def test_the_worst_filling_decides():
    seen, worst, best = (evidence_of(*better_by(count)).observed for count in (12, 2, 14))
    decision = decide(Evidence(seen, seen, (worst, best)))
    assert (decision.word, decision.undecided_by, decision.as_observed) == ("undecided", "missing", "better")
    assert decide(Evidence(seen, seen, (seen, best))).word == "better"


def test_missing_rollouts_of_unknown_effect_leave_it_undecided():
    assert decide(evidence_of(*better_by(12), unknown=True)).undecided_by == "missing"


def test_first_samples_decide_if_counts_follow_results():
    seen, first = evidence_of(*better_by(12)).observed, evidence_of(*better_by(2)).observed
    assert decide(Evidence(seen, first, counts=True)).undecided_by == "counts"
    assert decide(Evidence(first, seen, counts=True)).word == "better"  # decided by what is comparable
    assert decide(Evidence(first, first, counts=True)).undecided_by == "data"


def test_missing_is_named_before_counts():
    seen, worst, best = (evidence_of(*better_by(count)).observed for count in (12, 2, 14))
    assert decide(Evidence(seen, seen, (worst, best), counts=True)).undecided_by == "missing"


def test_equivalence_needs_both_fillings():
    new = np.zeros(400)
    same = evidence_of(new, new).observed
    lost = evidence_of(np.repeat([-1.0, 0.0], [40, 360]) + 0.0, new).observed
    assert decide(Evidence(same, same), margin=0.05).word == "equivalent"
    decision = decide(Evidence(same, same, (lost, same)), margin=0.05)
    assert (decision.word, decision.undecided_by, decision.as_observed) == ("undecided", "missing", "equivalent")


def test_lower_is_better_turns_the_word():
    assert decide(evidence_of(*better_by(12)), higher_is_better=False).word == "worse"


def test_a_claim_beyond_a_bound_reads_the_same_fillings():
    seen, worst, best = (evidence_of(*better_by(count)).observed for count in (24, 14, 26))
    found = Evidence(seen, seen, (worst, best))
    assert claim(found, above=True, level=0.025, bound=0.1).shown
    assert claim(found, above=True, level=0.025, bound=0.3).by == "missing"
    assert claim(replace(found, worst=None), above=True, level=0.025, bound=0.3).shown
    assert claim(found, above=True, level=0.025, bound=0.6).by == "data"


def test_a_difference_of_pooled_rates_must_hold_on_common_weights():
    large, small = evidence_of(*better_by(12)).observed, evidence_of(*better_by(2)).observed
    decision = decide(Evidence(large, large, weighted=small))
    assert (decision.word, decision.undecided_by, decision.as_observed) == ("undecided", "counts", "better")
    assert decide(Evidence(large, large, weighted=large)).word == "better"
    assert decide(Evidence(small, small, weighted=large)).undecided_by == "data"  # both are needed


def test_without_a_range_a_long_tail_against_the_claim_is_allowed_for():
    """Few log-normal values without a very large one seemed to have a lower mean than steadier values."""
    rng = np.random.default_rng(4)
    words = []
    for _ in range(60):
        new, old = 1 + 0.3 * rng.standard_normal(40), rng.lognormal(-1.125, 1.5, 40)  # both have the mean 1
        units = units_of(new - old)
        difference = judged(units, None, 0.95)
        words.append(decide(Evidence(difference, difference, unseen=unseen(new, old, units, None))))
    assert sum(word.as_observed == "better" for word in words) > 5
    assert sum(word.word == "better" for word in words) <= 2
    assert {word.undecided_by for word in words if word.as_observed == "better"} <= {"unseen_loss", None}


def test_the_score_against_a_tail_is_that_of_hall():
    differences = np.repeat([1.0, -3.0], [30, 10])
    residuals = differences / 40
    kappa = 3 * (residuals**3).sum() / (residuals**2).sum() ** 1.5
    shifted = differences + 0.5
    t = 0.5 / np.sqrt(40 / 39 * (residuals**2).sum() + (2.5 / 40 / 2) ** 2)
    expected = t + kappa / 3 * t**2 + kappa**2 / 27 * t**3 + kappa / 6
    base = np.tile([1.0, -1.0], 20)  # the runs are equally spread
    found = unseen(shifted + base, base, units_of(shifted), None)
    assert found.score == pytest.approx(expected)
    mirrored = unseen(base, shifted + base, units_of(-shifted), None)
    assert mirrored.score == pytest.approx(expected)
    assert unseen(base - shifted + 1, base, units_of(1 - shifted), None) is None  # the tail supports the claim


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_score_against_a_tail_has_no_scale(scale):
    new, old = np.linspace(0, 1, 30) ** 3, np.linspace(0.5, 0.6, 30)
    scores = [unseen(s * new, s * old, units_of(s * new - s * old), None).score for s in (1.0, scale)]
    assert scores[1] == pytest.approx(scores[0])


def test_a_claim_beyond_a_bound_allows_for_unseen_losses_beyond_it():
    """Thirty passes of a run that passes 95 % were shown to be more than 0.1 above a steady 0.85."""
    new, old = ONES(30), np.full(30, 0.85)
    units = units_of(new - old)
    found = evidence_of(new, old, unseen=unseen(new, old, units, (0.0, 1.0)))
    assert claim(found, above=True, level=0.025).shown
    assert claim(found, above=True, level=0.025, bound=0.1) == Claim(False, "unseen_loss", True)
    assert claim(found, above=True, level=0.025, bound=0.01).shown
    mirrored = evidence_of(old, new, unseen=unseen(old, new, units_of(old - new), (0.0, 1.0)))
    assert claim(mirrored, above=False, level=0.025, bound=-0.1) == Claim(False, "unseen_loss", True)
    assert found.unseen.beyond(0.05) == pytest.approx(np.sqrt(30 * 0.1 / 0.9))  # D - b over sqrt((L + b)(D - b)/T)


def test_a_score_against_a_tail_falls_with_the_bound():
    differences = np.repeat([1.0, -3.0], [30, 10]) + 0.5
    base = np.tile([1.0, -1.0], 20)
    found = unseen(differences + base, base, units_of(differences), None)
    scores = [found.beyond(bound) for bound in (0.0, 0.1, 0.3, 0.6)]
    assert scores == sorted(scores, reverse=True)


# --- the p of a claim, which families adjust


def random_evidence(draws):
    """Random evidence on two runs of a few tasks, with fillings, first samples and a lopsided pair now and then."""
    count = draws.integers(6, 40)
    differences = draws.choice([-1.0, 0.0, 0.0, 1.0, 1.0], count)
    observed = paired(differences, limits=(0.0, 1.0))
    compared = paired(differences[: count // 2 + 1], limits=(0.0, 1.0)) if draws.random() < 0.3 else observed
    worst = None
    if draws.random() < 0.6:
        lost = draws.random(count) < 0.1
        against, favour = (paired(np.where(lost, end, differences), limits=(0.0, 1.0)) for end in (-1.0, 1.0))
        worst = against, favour
    unseen = Unseen(float(draws.uniform(0, 4)), 1.0) if draws.random() < 0.3 else None
    weighted = paired(differences * 0.7, limits=(0.0, 1.0)) if draws.random() < 0.2 else None
    unknown, reader = (bool(draws.random() < 0.1) for _ in range(2))
    return Evidence(observed, compared, worst, unknown, False, weighted, unseen, reader)


@pytest.mark.parametrize("seed", range(300))
def test_the_p_of_a_claim_is_the_smallest_level_that_decides(seed):
    draws = np.random.default_rng(seed)
    evidence = random_evidence(draws)
    p = p_of_claim(evidence)
    for level in (0.001, 0.01, 0.05, 0.2, 0.6, 0.98):
        decided = decide(evidence, level=level).word in ("better", "worse")
        assert decided == (p is not None and p <= level)


@pytest.mark.parametrize("seed", range(150))
def test_the_p_of_equivalence_is_the_smallest_level_that_decides(seed):
    draws = np.random.default_rng(seed)
    evidence, margin = random_evidence(draws), float(draws.uniform(0.1, 0.9))
    p = p_of_equivalence(evidence, margin)
    for confidence in (0.5, 0.8, 0.95, 0.99):
        decided = decide(evidence, margin=margin, confidence=confidence).word == "equivalent"
        assert decided == (p is not None and p <= 1 - confidence)


def test_a_reader_that_disagrees_stops_every_claim_first():
    values = np.linspace(0.1, 0.3, 40)
    difference = paired(values, limits=(-1.0, 1.0))
    evidence = Evidence(difference, difference)
    assert decide(evidence).word == "better"
    doubtful = Evidence(difference, difference, unknown=True, counts=True, reader=True)
    for margin in (None, 0.5):
        decision = decide(doubtful, margin=margin)
        assert (decision.word, decision.undecided_by) == ("undecided", "reader")
    assert decide(doubtful).as_observed == "better"
    assert claim(doubtful, above=True, level=0.025).by == "reader"
    assert claim(doubtful, above=False, level=0.025).by == "reader"
    assert p_of_claim(replace(evidence, reader=True)) == p_of_equivalence(replace(evidence, reader=True), 0.5) == 1.0
    nothing = paired(np.zeros(40), limits=(-1.0, 1.0))
    assert decide(Evidence(nothing, nothing, reader=True)).undecided_by == "reader"
