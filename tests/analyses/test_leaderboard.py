"""Leaderboards: ranked models and tasks, ties, and laws that hold for all rewards."""

import json
import random
from itertools import combinations

import numpy as np
import pytest
from analyses.leaderboard_rows import MODELS, problem_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers.analyses.leaderboard import FINISHED
from calipers.errors import Incomplete, InputError
from calipers.stats.ranks import rank_sets, tie_bars


@pytest.fixture(scope="module")
def board():
    return calipers.leaderboard(problem_rows()).boards[0]


def rows_of(values, **more):
    """Rows of models by their rewards on tasks; None is a task that a model does not have."""
    return [
        {"task": f"t{task}", "model": model, "reward": reward, **more}
        for model, rewards in values.items()
        for task, reward in enumerate(rewards)
        if reward is not None
    ]


def spread(rate, tasks=60, step=7):
    """Rewards with this share of passes; the order of tasks is the same for all shares."""
    return [float((task * step) % tasks < rate * tasks) for task in range(tasks)]


def test_values_and_intervals_are_those_of_score(board):
    rows = problem_rows()
    for standing in board.places:
        alone = calipers.score([row for row in rows if row["model"] == standing.name])["mean_reward"]
        assert (standing.value, standing.interval) == (alone.value, alone.interval)


def test_ranks_ties_and_tiers_are_those_of_the_rank_sets(board):
    rows = problem_rows()
    by_model = {model: [row["reward"] for row in rows if row["model"] == model] for model in MODELS}
    assert sorted(MODELS) == sorted(standing.name for standing in board.places)
    sets = rank_sets(np.array([by_model[standing.name] for standing in board.places]))
    assert [standing.rank_set for standing in board.places] == list(zip(sets.low, sets.high, strict=True))
    for place, standing in enumerate(board.places):
        ties = [other.name for number, other in enumerate(board.places) if sets.tied[place, number]]
        assert standing.tied_with == [name for name in ties if name != standing.name]
    assert board.bars == tie_bars(sets.tied)
    assert board.ties == sum(len(standing.tied_with) for standing in board.places) / 2
    assert 0 < board.ties < len(board.pairs) == 136
    firsts = {standing.tier: standing for standing in reversed(board.places)}  # of each tier the first
    for standing in board.places:
        assert standing.name == firsts[standing.tier].name or standing.name in firsts[standing.tier].tied_with
        if standing.tier > 1 and standing is firsts[standing.tier]:
            assert standing.name not in firsts[standing.tier - 1].tied_with


def test_tied_models_have_overlapping_rank_sets_and_others_are_apart_in_the_right_order(board):
    for first, second in combinations(board.places, 2):
        (low, high), (other_low, other_high) = first.rank_set, second.rank_set
        if second.name in first.tied_with:
            assert max(low, other_low) <= min(high, other_high)
        assert first.value >= second.value
        assert low <= other_low
        assert high <= other_high


def test_pairs_say_what_the_ties_say(board):
    for pair in board.pairs:
        low, high = pair.interval
        assert low <= pair.difference <= high
        tied = pair.second in board[pair.first].tied_with
        assert pair.verdict == ("undecided" if tied else "better")
        assert (low < 0 < high) == tied
        assert pair.difference == pytest.approx(board[pair.first].value - board[pair.second].value)


def test_the_order_of_files_and_rows_changes_nothing(tmp_path):
    rows = problem_rows(tasks=150, models=list(MODELS)[:6])
    paths = []
    for model in list(MODELS)[:6]:
        paths.append(str(tmp_path / f"{model}.jsonl"))
        mine = [json.dumps(row) + "\n" for row in rows if row["model"] == model]
        (tmp_path / f"{model}.jsonl").write_text("".join(mine))
    first = calipers.leaderboard(*paths)
    for order in (paths[::-1], [*paths[3:], *paths[:3]]):
        assert calipers.leaderboard(*order).to_json() == first.to_json()
    whole = calipers.leaderboard(rows[::-1])
    assert whole.digest == first.digest
    renamed = calipers.leaderboard([{**row, "model": f"m-{row['model']}"} for row in rows])
    assert renamed.digest == first.digest


def test_every_model_has_its_value_on_its_own_tasks_and_one_with_other_tasks_is_named():
    """One model with gaps removed the hard tasks from everybody."""
    values = {"a": spread(0.9), "b": spread(0.5), "c": [None] * 10 + spread(0.2)[10:] + [1.0] * 5}
    board = calipers.leaderboard(rows_of(values)).boards[0]
    assert (board.tasks, board.excluded_tasks) == (65, 5)
    for name, rewards in values.items():
        own = [reward for reward in rewards if reward is not None]
        assert board[name].value == pytest.approx(sum(own) / len(own))
    named = {remark.values["run"]: remark.values["own"] for remark in board.remarks if remark.code == "own_tasks"}
    assert named == {"a": 60, "b": 60, "c": 55}


def test_a_missing_rollout_takes_no_task_from_the_other_models():
    rows = rows_of({"a": spread(0.9), "b": spread(0.5)})
    rows[3] = {**rows[3], "reward": None, "outcome": "client_failed"}
    board = calipers.leaderboard(rows).boards[0]
    assert (board.tasks, board.excluded_tasks) == (60, 0)
    assert board["b"].value == pytest.approx(sum(spread(0.5)) / 60)
    assert (board["a"].missing, board["b"].missing) == (1, 0)


def test_missing_rollouts_that_decide_leave_nobody_first():
    """Two equal models, one of which lost half of its failures, which made it the first alone."""
    values = {"a": [1.0, 0.0] * 100, "b": [1.0, 0.0] * 100}
    rows = rows_of(values)
    lost = [row for row in rows if row["model"] == "b" and row["reward"] == 0][:60]
    for row in lost:
        row.update(reward=None, outcome="client_failed")
    board = calipers.leaderboard(rows).boards[0]
    assert [place.rank_set for place in board.places] == [(1, 2), (1, 2)]


def test_a_model_that_stops_at_its_first_pass_is_ranked_on_first_samples():
    rng = random.Random(5)
    rows = []
    for task in range(100):
        chance = rng.betavariate(1, 2)
        of_task = {"task": task, "model": "four"}
        rows += [{**of_task, "sample": sample, "reward": float(rng.random() < chance)} for sample in range(4)]
        for sample in range(4):
            passed = rng.random() < chance
            rows.append({"task": task, "sample": sample, "model": "stops", "reward": float(passed)})
            if passed:
                break
    board = calipers.leaderboard(rows).boards[0]
    assert board.compared_on == "first_samples"
    assert [remark.values["run"] for remark in board.remarks if remark.code == "stops_at_pass"] == ["stops"]
    assert {place.rank_set for place in board.places} == {(1, 2)}


def test_zero_counts_missing_rollouts_and_fail_refuses_them():
    rows = rows_of({"a": spread(0.9), "b": spread(0.5)})
    rows[3] = {**rows[3], "reward": None, "outcome": "client_failed"}
    zero = calipers.leaderboard(rows, missing="zero").boards[0]
    assert (zero.tasks, zero["a"].value) == (
        60,
        pytest.approx(calipers.score(rows[:60], missing="zero")["mean_reward"].value),
    )
    with pytest.raises(Incomplete, match=r"a: 1 of 60 rollouts is missing"):
        calipers.leaderboard(rows, missing="fail")


def test_every_dataset_has_its_own():
    rows = rows_of({"a": spread(0.9), "b": spread(0.5)}, dataset="x")
    rows += rows_of({"a": spread(0.2), "b": spread(0.8), "c": spread(0.5)}, dataset="y")
    rows += rows_of({"c": spread(0.2)}, dataset="z")
    report = calipers.leaderboard(rows)
    assert [(board.dataset, len(board.ranked)) for board in report.boards] == [("x", 2), ("y", 3)]
    assert report.boards[1].places[0].name == "b"
    assert report.notes == ["only one run is on z: it has no leaderboard"]


def test_runs_of_several_files_meet_by_dataset():
    """Files with one benchmark and model each, as runs write them, instead of one table."""
    sources = [
        rows_of({model: spread(rate)}, dataset=dataset) for dataset in "xy" for model, rate in (("a", 0.9), ("b", 0.4))
    ]
    report = calipers.leaderboard(*sources)
    assert [(board.dataset, [place.name for place in board.places]) for board in report.boards] == [
        ("x", ["a", "b"]),
        ("y", ["a", "b"]),
    ]


def test_datasets_of_different_names_are_one_leaderboard_with_a_note():
    report = calipers.leaderboard(rows_of({"a": spread(0.9)}, dataset="x"), rows_of({"b": spread(0.4)}, dataset="x v2"))
    assert report.boards[0].tasks == 60
    assert report.notes == ["the datasets have different names: 'x', 'x v2'"]


def test_a_finished_result_is_listed_without_a_rank(tmp_path):
    rows = rows_of({"a": spread(0.9), "b": spread(0.5)}, dataset="x")
    result = calipers.score(rows_of({"c": spread(0.7)}, dataset="x"))
    path = tmp_path / "result.json"
    path.write_text(result.to_json())
    for source in (path, str(path), result):
        board = calipers.leaderboard(rows, source).boards[0]
        assert [(place.name, place.place) for place in board.places] == [("a", 1), ("b", 2), ("c", None)]
        last = board["c"]
        assert (last.value, last.interval) == (result["mean_reward"].value, result["mean_reward"].interval)
        assert (last.rank_set, last.tied_with, last.why) == (None, (), FINISHED)
    other = calipers.leaderboard(rows, path, metric="pass@1").boards[0]["c"]
    assert (other.value, other.why) == (None, f"{FINISHED}; it has no pass@1")
    assert calipers.leaderboard(rows, path, confidence=0.9).boards[0]["c"].interval is None
    nobody = calipers.leaderboard(result, calipers.score(rows_of({"d": spread(0.1)}, dataset="x"))).boards[0]
    assert [place.place for place in nobody.places] == [None, None]
    assert nobody.why == FINISHED


def test_a_finished_result_on_a_dataset_of_another_name_is_listed_with_a_note():
    rows, result = rows_of({"a": spread(0.9), "b": spread(0.5)}, dataset="x"), rows_of({"c": spread(0.7)}, dataset="y")
    report = calipers.leaderboard(rows, calipers.score(result))
    assert [place.name for place in report.boards[0].places] == ["a", "b", "c"]
    assert report.notes == ["the datasets have different names: 'x', 'y'"]


def test_baseline_has_the_verdicts_of_all_pairs(board):
    name = board.places[6].name
    against = calipers.leaderboard(problem_rows(), baseline=name).boards[0]
    for standing in against.places:
        if standing.name == name:
            assert (standing.verdict, standing.difference) == ("baseline", None)
            continue
        low, high = standing.difference_interval
        tied = name in standing.tied_with
        assert standing.verdict == (
            "undecided" if tied else "better" if standing.value > against[name].value else "worse"
        )
        assert (low < 0 < high) == tied
    assert {standing.verdict for standing in against.places} == {"better", "worse", "undecided", "baseline"}


def test_lower_is_better_where_the_metric_says_so():
    rows = [{**row, "cost_usd": 2.0 - row["reward"]} for row in rows_of({"a": spread(0.9), "b": spread(0.4)})]
    report = calipers.leaderboard(rows, metric="cost_per_task", baseline="b")
    first, second = report.boards[0].places
    assert (first.name, first.verdict, first.place) == ("a", "better", 1)
    assert first.difference == pytest.approx(-0.5)
    assert first.difference_interval[1] < 0
    assert report.boards[0].winner.bias <= 0
    assert "lower is better" in str(report)
    assert (first.cost_usd, second.cost_usd) == (pytest.approx(66), pytest.approx(96))


def test_every_reward_has_its_own_unless_one_is_picked():
    rows = [
        {"task": f"t{task}", "model": model, "rewards": {"style": style[task], "truth": truth[task]}}
        for model, style, truth in (("a", spread(0.9), spread(0.2)), ("b", spread(0.3), spread(0.8)))
        for task in range(60)
    ]
    report = calipers.leaderboard(rows)
    firsts = {board.metric: board.places[0].name for board in report.boards}
    assert firsts == {"mean_reward(reward=style)": "a", "mean_reward(reward=truth)": "b"}
    assert [board.places[0].name for board in calipers.leaderboard(rows, reward="truth").boards] == ["b"]


def test_clusters_are_units():
    rows = [{**row, "page": int(row["task"][1:]) // 4} for row in rows_of({"a": spread(0.7), "b": spread(0.4)})]
    plain, clustered = (calipers.leaderboard(rows, cluster=key).boards[0] for key in (None, "page"))
    assert plain["a"].interval != clustered["a"].interval
    assert plain.pairs[0].interval != clustered.pairs[0].interval


@pytest.mark.parametrize(
    ("sources", "more", "message"),
    [
        (
            [rows_of({"a": spread(0.5)})],
            {},
            r"a is the only model; expected two or more \(calipers score reports one\)",
        ),
        ([], {}, "nothing to compare"),
        (
            [rows_of({"a": [1, 0], "b": [None, None, 1, 0]})],
            {},
            r"a \('t0', 't1', ...\) and b \('t2', 't3', ...\) have no task in common; expected models on the same",
        ),
        (
            [rows_of({"a": [1, 0], "b": [0, 1]})],
            {"metric": "latency_p50"},
            r"metric 'latency_p50' is no mean over tasks; expected one, such as --metric mean_reward",
        ),
        ([rows_of({"a": [1, 0], "b": [0, 1]})], {"metric": "mean_rewrad"}, "did you mean 'mean_reward'"),
        (
            [rows_of({"alpha": [1, 0], "b": [0, 1]})],
            {"baseline": "alpah"},
            "no model named 'alpah'; did you mean 'alpha'",
        ),
        ([rows_of({"a": [1, 0], "b": [0, 1]})], {"reward": "score"}, "no reward named 'score'"),
    ],
)
def test_what_cannot_be_ranked_is_refused(sources, more, message):
    with pytest.raises(InputError, match=message):
        calipers.leaderboard(*sources, **more)


def test_too_few_tasks_leave_the_values_and_say_why():
    board = calipers.leaderboard(rows_of({"a": [1, 1, 1], "b": [0, 1, 0]})).boards[0]
    assert [(place.name, place.place, place.value) for place in board.places] == [("a", None, 1.0), ("b", None, 1 / 3)]
    assert board.why == "3 are too few to draw ranks from: by chance all may point one way"
    assert (board.bars, board.pairs, board.winner) == ((), (), None)


MATRIX = st.integers(2, 6).flatmap(
    lambda runs: st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=runs, max_size=runs), min_size=8, max_size=30
    )
)


@settings(max_examples=40, deadline=None)
@given(MATRIX)
def test_laws_of_any_leaderboard(tasks):
    values = {f"m{run}": [float(row[run]) for row in tasks] for run in range(len(tasks[0]))}
    board = calipers.leaderboard(rows_of(values)).boards[0]
    assert {place.name: place.value for place in board.places} == pytest.approx(
        {name: sum(rewards) / len(rewards) for name, rewards in values.items()}
    )
    names = [place.name for place in board.places]
    ties = {name: {name, *board[name].tied_with} for name in names}
    for first, second in combinations(board.places, 2):
        assert (second.name in ties[first.name]) == (first.name in ties[second.name])
        if second.name in ties[first.name]:
            low, high = max(first.rank_set[0], second.rank_set[0]), min(first.rank_set[1], second.rank_set[1])
            assert low <= high
    assert list(board.bars) == stretches(len(names), lambda a, b: names[b] in ties[names[a]])
    for standing in board.places:
        assert standing.rank_set[0] <= standing.place <= standing.rank_set[1]
        assert len(standing.tied_with) == standing.rank_set[1] - standing.rank_set[0]


def stretches(count, tied):
    """The longest ranges in which all pairs are tied, by brute force."""
    every = [
        (first, last)
        for first in range(count)
        for last in range(first + 1, count)
        if all(tied(a, b) for a, b in combinations(range(first, last + 1), 2))
    ]
    return sorted(bar for bar in every if not any(a <= bar[0] and bar[1] <= b and (a, b) != bar for a, b in every))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 9).flatmap(
        lambda count: st.tuples(st.just(count), st.sets(st.sampled_from(list(combinations(range(count), 2)))))
    )
)
def test_bars_are_exactly_the_maximal_stretches_of_ties(drawn):
    count, pairs = drawn
    tied = np.eye(count, dtype=bool)
    for a, b in pairs:
        tied[a, b] = tied[b, a] = True
    assert tie_bars(tied) == stretches(count, lambda a, b: bool(tied[a, b]))


REPLICATES = 400


@pytest.mark.parametrize(("runs", "tasks"), [(8, 60), (4, 25)])
def test_equal_models_are_seldom_told_apart(runs, tasks):
    """With models that are alike, the chance that any pair is claimed to differ is at most 5 %, and so the chance that
    an interval of a pair misses 0; counted in 400 replicates, with three standard errors for luck."""
    rng = np.random.default_rng(11)
    claims = 0
    for _ in range(REPLICATES):
        chances = rng.random(tasks)
        values = (rng.random((runs, tasks)) < chances).astype(float)
        sets = rank_sets(values)
        apart = not sets.tied.all()
        means = values.mean(axis=1)
        ends = [sets.interval(a, b, means[a] - means[b]) for a, b in combinations(range(runs), 2)]
        missed = any(pair is not None and not pair[0] <= 0 <= pair[1] for pair in ends)
        assert missed <= apart
        claims += apart
    assert claims / REPLICATES <= 0.05 + 3 * (0.05 * 0.95 / REPLICATES) ** 0.5


def test_intervals_of_all_pairs_hold_at_once():
    """Models that differ: all intervals contain the true differences in about 95 of 100 replicates."""
    rng = np.random.default_rng(12)
    runs, tasks, held = 6, 80, 0
    skills = np.linspace(-0.1, 0.1, runs)[:, None]
    for _ in range(REPLICATES):
        chances = np.clip(0.2 + 0.6 * rng.random(tasks) + skills, 0, 1)
        values = (rng.random((runs, tasks)) < chances).astype(float)
        sets, means = rank_sets(values), values.mean(axis=1)
        pairs = combinations(range(runs), 2)
        held += all(
            low <= float(skills[a, 0] - skills[b, 0]) <= high
            for a, b in pairs
            for low, high in [sets.interval(a, b, means[a] - means[b])]
        )
    assert held / REPLICATES >= 0.95 - 3 * (0.05 * 0.95 / REPLICATES) ** 0.5


@pytest.mark.parametrize("seed", [24, 26, 31])  # the rank sets of these depend on the order in which runs are looked at
def test_compare_and_leaderboard_have_the_same_ranks(seed):
    draw = np.random.default_rng(seed)
    rewards = (draw.random((5, 60)) < np.linspace(0.3, 0.7, 5)[:, None]).astype(float)
    rows = rows_of({f"m{run}": list(map(float, of_run)) for run, of_run in enumerate(rewards)})
    board = calipers.leaderboard(rows).boards[0]
    (ranks,) = calipers.compare(rows, metrics="mean_reward").contests[0].ranks
    assert {f"m{place.run}": place.rank_set for place in ranks.places} == {
        place.name: place.rank_set for place in board.places
    }
    assert (ranks.winner.interval, ranks.winner.bias, ranks.optimism) == (
        board.winner.interval,
        board.winner.bias,
        board.optimism,
    )
    means = sorted(range(5), key=lambda run: -rewards[run].mean())
    assert rank_sets(rewards).low[means].tolist() != rank_sets(rewards[means]).low.tolist() or (
        rank_sets(rewards).high[means].tolist() != rank_sets(rewards[means]).high.tolist()
    )  # the rank sets of runs as they are given would differ


def test_a_cost_that_is_no_finite_number_is_not_shown():
    """The sum of two prices of 1e308 ended the document as a bug."""
    rows = [
        {"model": model, "task": task, "sample": sample, "reward": sample, "cost_usd": 1e308}
        for model in "ab"
        for task in "pqr"
        for sample in (0, 1)
    ]
    found = calipers.leaderboard(rows)
    assert [standing["cost_usd"] for standing in json.loads(found.to_json())["boards"][0]["places"]] == [None, None]
    assert "the cost of a is not a finite number, so it is not shown" in found.notes
