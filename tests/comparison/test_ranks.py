import pytest
from comparison.writing import run

import calipers


def models(folder, tasks, samples=1):
    """Three runs, of which the n-th passes n + 1 of every four tasks in all their samples."""
    held = [{f"t{t}": [float(t % 4 <= place)] * samples for t in range(tasks)} for place in range(3)]
    return [run(folder / f"m{place}.jsonl", rewards, model=f"m{place}") for place, rewards in enumerate(held)]


def test_ranks_by_a_rate_over_samples_are_those_by_the_mean(tmp_path):
    """Where every task has as many samples both are the same number."""
    found = calipers.compare(*models(tmp_path, 12, 2), metric=["mean_reward", "pass_rate"])
    mean, rate = found.contests[0].ranks
    assert [place.value for place in rate.places] == pytest.approx([0.75, 0.5, 0.25])
    assert [(p.run, p.rank, p.ranks) for p in rate.places] == [(p.run, p.rank, p.ranks) for p in mean.places]


def test_few_tasks_have_no_ranks(tmp_path):
    """Of four tasks every draw might say the same, and a run be the best beyond doubt by nothing."""
    (ranks,) = calipers.compare(*models(tmp_path, 4), metric="mean_reward").contests[0].ranks
    assert list(ranks.places) == []
    assert ranks.why == "4 are too few to draw ranks from: by chance all may point one way"
