"""Defects known from other tools, each shown to be absent here."""

import math
import statistics

import pytest
from making import GAP, rollouts

import calipers


def found(tasks, metric="mean_reward", **options):
    return calipers.score(tasks, metric, **options)[metric]


def test_pass_at_k_of_too_few_failures_is_undefined_not_one():  # lm-eval 0.5-dev, lighteval: n < k, c = 0 gives 1.0
    estimate = found([[0, 0]], "pass@3")
    assert (estimate.value, estimate.undefined_tasks) == (None, 1)


def test_the_share_that_must_pass_is_no_binary_product():  # lighteval: ceil(0.55 * 100) is 56
    tasks = [[1] * 55 + [0] * 45]
    assert found(tasks, "gpass@100(tau=0.55)").value == 1.0


def test_best_of_k_does_not_depend_on_the_order_of_samples():  # NeMo Gym: the maximum of the first k
    assert found([[0.1, 0.4, 0.4, 0.9]], "max@2").value == found([[0.9, 0.4, 0.4, 0.1]], "max@2").value
    assert found([[0.1, 0.4, 0.4, 0.9]], "max@2").value == pytest.approx(0.65)


def test_one_odd_task_does_not_switch_the_estimator_of_others():  # NeMo Gym: per task, silently
    plain, mixed = [[1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0.5, 0]]
    assert found(plain, "pass@2").value == found(mixed, "pass@2").value


def test_rows_without_a_sample_number_do_not_collide_across_tasks():  # NeMo Gym: both default to task 0, rollout 0
    table = rollouts({"task": "a", "reward": 1}, {"task": "b", "reward": 0})
    assert found(table).value == 0.5


@pytest.mark.parametrize("reward", [0, 1])
def test_data_that_merely_agree_are_not_certain(reward):  # inspect: a t interval of zero width at 0 % and 100 %
    low, high = found([[reward]] * 30).interval
    assert high - low > 0.1


def test_scoring_twice_gives_the_same_numbers():  # inspect: unseeded bootstrap metrics
    first, second = (calipers.score([[1, 0.3], [0.2], [0.9, 0.1]], "mean_reward") for _ in range(2))
    assert first.digest == second.digest


def test_one_cluster_is_no_standard_error_of_zero():  # inspect: clustered SE of one cluster is 0
    rows = [{"task": f"t{n}", "reward": n % 2, "metadata": {"book": "one"}} for n in range(10)]
    estimate = found(rollouts(*rows, labels=["book"]), cluster="book")
    assert (estimate.stderr, estimate.interval) == (None, None)
    assert estimate.why == "one cluster says nothing about others"


def test_half_right_is_no_pass_unless_asked():  # verifiers v0: threshold 0.5
    assert found([[0.5]], "pass@1").value == 0.0
    assert found([[0.5]], "pass@1(threshold=0.5)").value == 1.0


@pytest.mark.parametrize("k", [1, 3, 5, 7])
def test_k_is_not_only_a_power_of_two(k):  # verifiers v0, Harbor
    assert found([[1] + [0] * 7], f"pass@{k}").value == pytest.approx(k / 8)


def test_a_missing_reward_is_a_gap_and_not_a_zero():  # Harbor: None becomes 0
    estimate = found([[1, GAP], [0, 1]])
    assert estimate.value == 0.75
    assert estimate.bounds == (0.5, 0.75)


def test_numbers_in_one_row_share_one_denominator():  # Harbor: three denominators, none printed
    result = calipers.score([[1, GAP], [0, 1]], ["mean_reward", "pass_rate"])
    ledger = result.groups[0].ledger
    assert ledger.planned == ledger.scored + ledger.gaps == 4
    assert result["mean_reward"].samples == result["pass_rate"].samples == ledger.scored


def test_several_reward_keys_are_no_error():  # Harbor: the first, or a crash
    table = rollouts({"task": "a", "rewards": {"x": 1, "y": 0}})
    assert list(calipers.score(table, "mean_reward").groups[0].metrics) == [
        "mean_reward(reward=x)",
        "mean_reward(reward=y)",
    ]


def test_variance_divides_by_n_minus_1():  # HELM: population variance
    values = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]
    assert found([[v] for v in values]).stderr == pytest.approx(statistics.stdev(values) / math.sqrt(10))
    assert found([[v] for v in values]).stderr == pytest.approx(0.163299, abs=1e-6)


def test_pass_hat_k_needs_k_samples():  # EvSys: pass^3 of two passes is 1
    assert found([[1, 1]], "pass^3").value is None
    assert found([[1, 1]], "pass^3", dialect="evsys").value == 1.0  # its own word keeps its own meaning


def test_failures_do_not_raise_the_score_unseen():  # inspect#3707: 80/90 shown instead of 80/100
    done = [{"task": f"t{n}", "reward": int(n < 80)} for n in range(90)]
    lost = [{"task": f"t{n}", "outcome": "client_failed", "error": "503"} for n in range(90, 100)]
    result = calipers.score(rollouts(*done, *lost), "mean_reward")
    assert result["mean_reward"].value == pytest.approx(80 / 90)
    assert result["mean_reward"].bounds == (0.8, 0.9)
    assert result.groups[0].ledger.outcomes == {"scored": 90, "client_failed": 10}


def test_an_unparsed_answer_is_the_models_but_a_failed_judge_is_not():  # inspect#4026, NeMo Gym#1606
    rows = [{"task": "a", "outcome": "unparsed"}, {"task": "b", "outcome": "judge_failed"}, {"task": "c", "reward": 1}]
    estimate = found(rollouts(*rows))
    assert (estimate.value, estimate.samples) == (0.5, 2)


def test_runs_that_agree_do_not_make_the_tasks_certain():  # NeMo-Skills: the error across runs forgets the questions
    tasks = [[1] * 4] * 6 + [[0] * 4] * 4  # every run scores 0.6: their standard deviation is 0
    assert found(tasks).stderr == pytest.approx(statistics.stdev([1] * 6 + [0] * 4) / math.sqrt(10))


def test_a_ranking_says_how_sure_it_is():  # HELM: win rates without uncertainty
    runs = [2 * run for run in ([[1], [0], [1], [0]], [[1], [1], [0], [0]], [[1], [1], [1], [0]])]
    (ranks,) = calipers.compare(*runs, metric="mean_reward").contests[0].ranks
    assert all(place.ranks[0] < place.ranks[1] for place in ranks.places)
    assert sum(place.chance_best for place in ranks.places) == pytest.approx(1)


def test_an_improvement_can_be_significant():  # NeMo Evaluator: one-sided, so that only a drop can
    before, after = [[0]] * 10 + [[1]] * 30, [[1]] * 40
    assert calipers.compare(before, after, metric="mean_reward")["mean_reward"].verdict == "better"


def test_tasks_are_paired_by_name_and_not_by_place():  # NeMo Evaluator: by integer index
    before = rollouts(*({"task": f"t{n}", "reward": n % 2, "model": "a"} for n in range(20)))
    after = rollouts(*({"task": f"t{n}", "reward": n % 2, "model": "b"} for n in reversed(range(1, 20))))
    flips = calipers.compare(before, after, metric="mean_reward").contests[0].pairs[0].flips
    assert (flips.worse, flips.better, flips.same) == (0, 0, 19)
