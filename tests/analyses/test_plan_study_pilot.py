"""What a pilot says, alone and with a second one."""

import json
from pathlib import Path

import numpy as np
import pytest

from calipers.analyses.plan_study import Chosen, StudyRequest, from_pilots, plan, study
from calipers.errors import InputError
from calipers.reports.terminal import render


def written(folder, name, tasks, **more):
    """A run in a folder: rewards by task; its path."""
    rows = [
        {"task": str(task), "sample": sample, "reward": reward, **more}
        for task, rewards in enumerate(tasks)
        for sample, reward in enumerate(rewards)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def pilots(*paths, correlation=None, paired=True, **chosen):
    return from_pilots(paths, Chosen(**chosen), correlation, paired=paired)


def test_costs_whose_mean_is_no_number_are_no_price(tmp_path):
    assert pilots(written(tmp_path, "a", [[1, 0], [0, 1]], cost_usd=1e308)).cost is None


def test_the_parts_come_back(tmp_path):
    """Chances uniform on [0, 1]: a variance of 1/12 between tasks, 1/6 of one sample."""
    rng = np.random.default_rng(3)
    chances = rng.uniform(0, 1, 4000)
    runs = [written(tmp_path, name, (rng.random((4000, 3)) < chances[:, None]).astype(float).tolist()) for name in "ab"]
    alone = pilots(runs[0])
    assert (alone.parts.tasks, alone.parts.sampling) == pytest.approx((1 / 12, 1 / 6), rel=0.05)
    assert alone.pair.tasks == pytest.approx(2 / 12, rel=0.05)  # it is assumed to be 0, and that is said
    assert "it is assumed to be 0" in alone.notes[0]
    assert alone.pilot.interval(float("inf")) == pytest.approx((2 / 12, 2 / 12), rel=0.15)
    both = pilots(*runs)
    assert both.pair.tasks == pytest.approx(0.0, abs=0.005)  # both find the same tasks hard
    assert both.correlation == pytest.approx(1.0, abs=0.05)
    assert (both.pair.first, both.pair.second) == pytest.approx((1 / 6, 1 / 6), rel=0.05)
    low, high = both.pilot.interval(float("inf"))
    assert -0.01 < low < 0 < high < 0.01
    apart = pilots(*runs, paired=False)
    assert apart.pair.tasks == pytest.approx(2 / 12, rel=0.05)
    assert apart.pilot.interval(float("inf")) == pytest.approx((2 / 12, 2 / 12), rel=0.15)


def by_source(folder, name, rewards, sources):
    """A run whose tasks carry the source they come from."""
    rows = [
        {"task": str(task), "sample": sample, "reward": float(reward), "metadata": {"source": f"s{source}"}}
        for task, (some, source) in enumerate(zip(rewards, sources, strict=True))
        for sample, reward in enumerate(some)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_clusters_are_in_the_variance(tmp_path):
    """Differences of 0.02 by cluster and 0.02 by task: a correlation of 0.5, so 0.04 (1 + 9/2) for clusters of 10."""
    rng = np.random.default_rng(5)
    sources = np.repeat(np.arange(2000), 10)
    sway = rng.choice([-(0.02**0.5), 0.02**0.5], 2000)[sources] + rng.choice([-(0.02**0.5), 0.02**0.5], 20_000)
    chances = np.full(20_000, 0.4), 0.45 + sway
    runs = [
        by_source(tmp_path, name, (rng.random((20_000, 2)) < chance[:, None]).astype(float), sources)
        for name, chance in zip("ab", chances, strict=True)
    ]
    found = pilots(*runs, cluster="source")
    assert found.pair.tasks == pytest.approx(0.04 * 5.5, rel=0.1)
    assert pilots(*runs).pair.tasks == pytest.approx(0.04, rel=0.1)
    assert (found.pair.first, found.pair.second) == pytest.approx((0.2075, 0.24), rel=0.05)
    assert (found.clustered.count, found.clustered.tasks_per_cluster, found.tasks) == (2000, 10.0, 20_000)
    whole = 0.04 + (0.2075 + 0.24) / 2
    assert found.clustered.design_effect == pytest.approx((whole + 0.04 * 4.5) / whole, rel=0.1)
    assert "2,000 clusters by source" in found.source
    low, high = found.pilot.interval(float("inf"))
    assert low < 0.04 * 5.5 < high < 1.3 * low
    assert len(found.pilot.squares) == 2000
    alone = pilots(runs[1], cluster="source")
    assert alone.pair.tasks == pytest.approx(2 * 0.04 * 5.5, rel=0.1)  # no correlation of the runs is assumed
    assert pilots(*runs, cluster="source", paired=False).pair.tasks == pytest.approx(0.04 * 5.5, rel=0.1)


def test_clusters_without_repeats(tmp_path):
    """Two clusters of two, 1 1 and 0 0: a squared standard error of 1/4 over clusters, 1/12 over tasks."""
    path = by_source(tmp_path, "a", [[1], [1], [0], [0]], [0, 0, 1, 1])
    found = pilots(path, cluster="source", correlation=0.5)
    assert (found.pair.tasks, found.pair.divided) == (pytest.approx(4 * 1 / 4), False)
    assert found.clustered.design_effect == pytest.approx(3)
    assert pilots(path, correlation=0.5).pair.tasks == pytest.approx(4 * 1 / 12)


def test_clusters_that_say_nothing(tmp_path):
    one = by_source(tmp_path, "a", [[1], [0]], [0, 0])
    other = by_source(tmp_path, "b", [[1, 0], [0, 1]], [0, 1])
    for paths in ([one], [one, one]):
        with pytest.raises(InputError, match=r"at least two clusters are needed; expected .*two clusters"):
            pilots(*paths, cluster="source")
    with pytest.raises(InputError, match="--cluster sauce: task '0' has no 'sauce'"):
        pilots(one, cluster="sauce")
    with pytest.raises(InputError, match="at least two clusters are needed"):
        pilots(one, other, cluster="source")  # the first run's clusters count, as in a comparison
    said = pilots(other, one, cluster="source").notes
    assert "the runs do not agree on 'source': the clusters of the first run are used" in said


def test_flips_are_measured_in_accuracy(tmp_path):
    """100 discordant of 1000 pairs show 2.8 points: a share of all tasks, not of those that differ."""
    before = [[float(n % 2 == 0)] for n in range(1000)]
    after = [[1 - one[0]] if n < 100 else one for n, one in enumerate(before)]
    known = pilots(written(tmp_path, "a", before), written(tmp_path, "b", after))
    have = study(known, StudyRequest()).have
    assert have.smallest == pytest.approx(0.0280, abs=0.0003)


def test_pairs_are_made_by_name_and_not_by_place(tmp_path):
    rewards = [[float(n < 10)] for n in range(20)]
    first = written(tmp_path, "a", rewards)
    rows = [{"task": str(n), "reward": one[0]} for n, one in enumerate(rewards)][::-1]
    second = tmp_path / "b.jsonl"
    second.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"task": "more", "reward": 1}]))
    found = pilots(first, str(second))
    assert (found.tasks, found.pair.tasks) == (20, 0.0)


def test_the_cost_of_a_rollout_is_the_pilots(tmp_path):
    path = written(tmp_path, "a", [[1, 0], [0, 1], [1, 1]], usage={"cost_usd": 0.25})
    found = study(pilots(path), StudyRequest(budget=10.0))
    assert found.price_per_sample == 0.25
    assert found.have.price == 3 * 2 * 2 * 0.25


def test_a_page_fits_into_80_columns(tmp_path, monkeypatch):
    """The table of the available tasks was 93 wide."""
    monkeypatch.chdir(tmp_path)  # a path that is longer than a line is not broken
    samples = [[float(sample == 3) for sample in range(4)] for _ in range(40)]
    page = plan(written(Path(), "a", samples), detect=0.05, price_per_sample=0.01, budget=20.0).page()
    narrow, wide = render(page, columns=80), render(page, columns=100)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "  95 % range of the smallest difference: 0.0000 to 0.1632\n" in narrow
    assert "smallest difference        95 % range  power to show 0.0500\n" in wide


def test_a_pilot_without_variance_plans_nothing(tmp_path):
    path = written(tmp_path, "a", [[1, 1], [1, 1], [1, 1]])
    with pytest.raises(InputError, match="the rewards have no variance"):
        study(pilots(path), StudyRequest(detect=0.1))


def test_gaps_are_left_out_or_zero(tmp_path):
    path = written(tmp_path, "a", [[1, None], [1, 1], [1, 1]])
    assert pilots(path).pair.of(1) == 0
    assert pilots(path, missing="zero").pair.of(1) > 0


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([[1]], "a pilot of two tasks or more"),
        ([[None], [None]], "no rollout has a reward"),
    ],
)
def test_a_pilot_that_says_nothing(tmp_path, tasks, said):
    with pytest.raises(InputError, match=said):
        pilots(written(tmp_path, "a", tasks))


def test_pilots_that_do_not_fit(tmp_path):
    first, second = written(tmp_path, "a", [[1], [0]]), tmp_path / "b.jsonl"
    second.write_text('{"task": "x", "reward": 1}\n{"task": "y", "reward": 0}\n')
    with pytest.raises(InputError, match="no task in common"):
        pilots(first, str(second))
    with pytest.raises(InputError, match="two pilots already determine it"):
        pilots(first, first, correlation=0.5)


def test_one_group_must_be_meant(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"task": str(n), "model": model, "reward": n % 2} for n in range(4) for model in ("one", "two")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="has 2 groups"):
        pilots(str(path))
    assert pilots(str(path), model="one").tasks == 4
    with pytest.raises(InputError, match="named 'thre'"):
        pilots(str(path), model="thre")


def test_a_run_is_no_second_pilot_of_itself(tmp_path):
    """Its differences from itself have no variance between tasks, so that a plan asked for a handful of tasks."""
    path = written(tmp_path, "run", [[1, 0], [0, 0], [1, 1]])
    with pytest.raises(InputError, match=r"run\.jsonl: is given twice; expected two different runs"):
        plan(path, path, detect=0.1)


@pytest.mark.parametrize("name", ["reward", "agent", "model", "dataset"])
def test_without_a_pilot_there_is_nothing_to_choose_from(name):
    with pytest.raises(InputError, match=f"^--{name}: there are no rollouts to choose from; add a PILOT run"):
        plan(baseline_rate=0.5, detect=0.1, **{name: "x"})
