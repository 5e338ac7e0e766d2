"""``compare --anytime``: a verdict that is valid after every batch of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from analyses.compare.writing import pair_of, put, run
from formats.test_run_folder import record
from formats.test_run_folder import run as run_folder

import calipers
from calipers.errors import InputError
from calipers.stats.anytime import CONTRADICTED, NO_MEAN, NO_RANGE, UNEVEN, bets_of

BATCH = 20


def rows_of(tasks, rewards, **more):
    return [{"task": task, "reward": reward, **more} for task, reward in zip(tasks, rewards, strict=True)]


@pytest.fixture
def made():
    """Tasks in a random order, and the rewards of an old and of a better new run."""
    rng = np.random.default_rng(12)
    tasks = [str(task) for task in rng.permutation(400)]  # a table has them by size
    old = (rng.random(400) < 0.4).astype(float)
    return tasks, old, np.where(rng.random(400) < 0.2, 1.0, np.where(rng.random(400) < 0.08, 0.0, old))


def prefix_p(old, new, count):
    """The anytime p after a number of tasks, computed from all of them at once."""
    whole = bets_of(new - old).against(0.0)
    return min(1.0, float(np.exp(-whole[:count].max())))


@pytest.mark.parametrize("baseline", ["as it comes", "sorted", "grows too"])
def test_every_look_is_a_prefix_of_the_last(tmp_path, made, baseline):
    """The new run grows by batches; the old run has all tasks in another order, or grows too."""
    tasks, old, new = made
    before, after = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    rows = rows_of(tasks, old)
    put(before, *(sorted(rows, key=lambda row: row["task"]) if baseline == "sorted" else rows))
    words = []
    for count in range(BATCH, len(tasks) + 1, BATCH):
        if baseline == "grows too":
            put(before, *rows[:count][::-1])  # what order its own rows have does not matter
        put(after, *rows_of(tasks[:count], new[:count]))
        found = calipers.compare(before, after, metric="mean_reward", anytime=True)["mean_reward"]
        assert (found.tasks, found.method) == (count, "betting")
        assert found.p == pytest.approx(prefix_p(old, new, count), rel=1e-12)
        words.append(found.verdict)
    assert (words[0], words[-1]) == ("undecided", "better")
    assert words == sorted(words, reverse=True)  # undecided, and from some look on better


def test_batches_in_files_of_their_own(tmp_path, made):
    tasks, old, new = made
    parts = [put(tmp_path / f"{at}.jsonl", *rows_of(tasks[at:][:100], new[at:][:100])) for at in (0, 100)]
    before = put(tmp_path / "old.jsonl", *rows_of(tasks, old))
    found = calipers.compare(before, parts, metric="mean_reward", anytime=True)["mean_reward"]
    assert found.p == pytest.approx(prefix_p(old, new, 200), rel=1e-12)
    other = calipers.compare(before, parts[::-1], metric="mean_reward", anytime=True)["mean_reward"]
    assert other.delta == found.delta
    assert other.p != found.p  # another order, another sequence of bets


def test_one_file_with_both_runs(tmp_path, made):
    """The order of tasks is that of the second run's rows, independent of the first run."""
    tasks, old, new = made
    some = rows_of(tasks[::-1], old[::-1], model="a") + rows_of(tasks, new, model="b")
    found = calipers.compare(put(tmp_path / "both.jsonl", *some), metric="mean_reward", anytime=True)["mean_reward"]
    assert found.p == pytest.approx(prefix_p(old, new, len(tasks)), rel=1e-12)


def test_tables_are_in_order_as_they_are(made):
    _, old, new = made
    found = calipers.compare([[x] for x in old], [[x] for x in new], anytime=True)["mean_reward"]
    assert found.p == pytest.approx(prefix_p(old, new, len(old)), rel=1e-12)
    assert found.mcnemar is None  # its p holds for one look


@pytest.fixture
def folders(tmp_path):
    found = [tmp_path / "old", tmp_path / "new"]
    for folder in found:
        folder.mkdir()
    return found


def test_a_run_has_the_order_of_its_plan(made, folders):
    """Quick tasks come first in the log; tasks after the first unfinished one are not compared yet."""
    tasks, old, new = made
    tasks, old, new = tasks[:60], old[:60], new[:60]
    before = run_folder(folders[0], tasks, *(record(task, reward=x) for task, x in zip(tasks, old, strict=True)))
    logged = [record(task, reward=x, model="n") for task, x in zip(tasks, new, strict=True)]
    by_reward = sorted(logged, key=lambda row: -row["reward"])
    after = run_folder(folders[1], tasks, *by_reward, model="n")
    found = calipers.compare(before, after, metric="mean_reward", anytime=True)["mean_reward"]
    assert found.p == pytest.approx(prefix_p(old, new, 60), rel=1e-12)
    run_folder(folders[1], tasks, *(row for row in by_reward if row["task"] != tasks[25]), model="n")
    whole = calipers.compare(before, after, metric="mean_reward", anytime=True)
    assert whole["mean_reward"].tasks == 25
    assert whole["mean_reward"].p == pytest.approx(prefix_p(old, new, 25), rel=1e-12)
    said = "35 tasks excluded, from the first unfinished task on: finish the runs to include them"
    assert said in whole.contests[0].pairs[0].notes
    assert calipers.compare(before, after, metric="mean_reward")["mean_reward"].tasks == 59  # by a fixed test


def test_the_document_says_in_which_order(made, tmp_path):
    tasks, old, new = made
    paths = [put(tmp_path / f"{name}.jsonl", *rows_of(tasks, some)) for name, some in (("a", old), ("b", new))]
    found = calipers.compare(*paths, anytime=True)
    assert (found.test, found.to_dict()["order"]) == (
        "betting",
        "second run: its plan, when its tasks started, or their first rows",
    )
    plain = calipers.compare(*paths)
    assert plain.to_dict()["order"] is None
    # by a fixed test rows may stand in any order, and here they may not
    put(tmp_path / "b.jsonl", *rows_of(tasks, new)[::-1])
    assert calipers.compare(*paths).digest == plain.digest
    assert calipers.compare(*paths, anytime=True).digest != found.digest


def test_clusters_and_slices(tmp_path):
    rng = np.random.default_rng(3)
    first, second = pair_of(rng, 90, 1, 0.3)
    paths = []
    for name, side in (("a", first), ("b", second)):
        rows = [
            {"task": f"t{n}", "reward": task[0], "metadata": {"book": f"b{n // 3}", "hard": n % 2}}
            for n, task in enumerate(side)
        ]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    moved = (np.array(second) - np.array(first))[:, 0]
    clustered = calipers.compare(*paths, metric="mean_reward", cluster="book", anytime=True)["mean_reward"]
    assert clustered.units == 30
    assert clustered.p == pytest.approx(bets_of(moved, np.repeat(np.arange(30), 3)).p(0.0))
    pair = calipers.compare(*paths, metric="mean_reward", by="hard", anytime=True).contests[0].pairs[0]
    slices = {one.slice: one.p for one in pair.findings if one.by}
    assert slices == {name: pytest.approx(bets_of(moved[at::2]).p(0.0)) for name, at in (("0", 0), ("1", 1))}


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("mean_reward", None),
        ("pass@1", None),
        ("pass_rate", UNEVEN),
        ("solved_rate", None),
        ("cost_per_task", NO_RANGE),
        ("cost_per_solved", NO_MEAN),
        ("median(column=cost_usd)", NO_MEAN),
    ],
)
def test_what_has_no_sequence_says_why(tmp_path, metric, why):
    paths = []
    for name, rewards in (("a", [1, 0, 1, 0]), ("b", [1, 1, 1, 0])):
        rows = [
            {"task": f"t{n}", "sample": s, "reward": x, "cost_usd": 0.5 + n}
            for n, x in enumerate(rewards)
            for s in range(1 + n)
        ]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    found = calipers.compare(*paths, metric=metric, anytime=True)[metric]
    assert (found.method, found.why) == ("betting", why)
    assert (found.p is None) == (found.interval is None) == (why is not None)
    assert found.delta is not None
    if why:
        assert found.verdict == "undecided"
        assert why in found.sentence


def test_a_rate_over_even_samples_is_a_mean_over_tasks():
    rng = np.random.default_rng(4)
    first, second = pair_of(rng, 40, 3, 0.2)
    found = calipers.compare(first, second, metric=["mean_reward", "pass_rate"], anytime=True)
    assert found["pass_rate"].p == pytest.approx(found["mean_reward"].p)
    assert found["pass_rate"].interval == pytest.approx(found["mean_reward"].interval, abs=1e-8)


def test_rewards_without_a_range_are_refused():
    found = calipers.compare([[3.0], [-1.0], [2.0]], [[1.0], [4.0], [2.5]], anytime=True)["mean_reward"]
    assert (found.p, found.interval, found.why) == (None, None, NO_RANGE)


def test_an_order_by_results_is_found_out():
    """A file sorted by reward is not in random order; nothing is claimed."""
    first, second = [[0.0]] * 40 + [[1.0]] * 400, [[1.0]] * 40 + [[0.0]] * 400
    found = calipers.compare(first, second, anytime=True)["mean_reward"]
    assert (found.verdict, found.why) == ("undecided", CONTRADICTED)


def test_a_margin_may_be_asked_at_every_look():
    rng = np.random.default_rng(8)
    same = rng.random(300)
    moved = np.clip(same + rng.choice([-0.02, 0.02], 300), 0, 1)
    found = calipers.compare([[x] for x in same], [[x] for x in moved], margin=0.1, anytime=True)["mean_reward"]
    assert (found.verdict, found.p_equivalent < 0.05, found.p_not_worse < 0.05) == ("equivalent", True, True)
    assert -0.1 < found.interval[0] < found.interval[1] < 0.1


def test_another_test_beside_it_is_refused():
    with pytest.raises(InputError, match="--anytime is a test itself; expected no --test strict with it"):
        calipers.compare([[1], [0]], [[1], [1]], test="strict", anytime=True)


def test_no_ranks_where_one_may_look_again(tmp_path):
    """Ranks are valid only for a single look at the data."""
    rng = np.random.default_rng(9)
    names = ("a", "b", "c")
    paths = [
        run(tmp_path / f"{name}.jsonl", {f"t{n}": [float(rng.random() < 0.5)] for n in range(30)}, model=name)
        for name in names
    ]
    contest = calipers.compare(*paths, anytime=True).contests[0]
    assert (len(contest.pairs), contest.ranks) == (3, ())
    assert calipers.compare(*paths).contests[0].ranks


def test_below_the_primary_question_line_and_interval_agree(tmp_path, made):
    """The interval of a slice is adjusted like its p: the sequence is computed at Sidak's confidence."""
    tasks, old, new = made
    paths = []
    for name, some in (("a", old), ("b", new)):
        rows = rows_of(tasks, some)
        for row in rows:
            row["metadata"] = {"third": int(row["task"]) % 3}
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    found = calipers.compare(*paths, metric="mean_reward", by="third", anytime=True)
    primary, *slices = found.contests[0].pairs[0].findings
    assert (primary.role, primary.confidence, len(slices)) == ("primary", 0.95, 3)
    for one in slices:
        assert one.confidence == pytest.approx(0.95 ** (1 / 3))
        low, high = one.interval
        assert (low < 0 < high) == (one.p_adjusted > 0.05)


def test_missing_rollouts_have_bounds_at_every_look(tmp_path, made):
    """Missing rollouts are filled in both ways, and the anytime test uses the filled tasks."""
    tasks, old, new = made
    rows = rows_of(tasks, new)
    for row in rows[::40]:
        row["reward"] = None
    before, after = put(tmp_path / "a.jsonl", *rows_of(tasks, old)), put(tmp_path / "b.jsonl", *rows)
    found = calipers.compare(before, after, metric="mean_reward", anytime=True)["mean_reward"]
    assert (found.missing, found.verdict, found.worst_verdict) == ((0, 10), "better", "better")
    lowest, highest = found.bounds
    filled = np.where(np.arange(400) % 40 == 0, 0.0, new)
    assert lowest == pytest.approx((filled - old).mean())
    assert lowest < found.delta < highest
    assert found.tipping.most == 10
