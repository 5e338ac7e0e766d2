import json

import pytest
from analyses.compare.writing import put, run

import calipers
from calipers.analyses.compare.document import document
from calipers.reports import markdown, terminal


def models(folder, tasks, samples=1):
    """Three runs; run n passes n + 1 of every four tasks in all their samples."""
    held = [{f"t{t}": [float(t % 4 <= place)] * samples for t in range(tasks)} for place in range(3)]
    return [run(folder / f"m{place}.jsonl", rewards, model=f"m{place}") for place, rewards in enumerate(held)]


def test_ranks_by_a_rate_over_samples_are_those_by_the_mean(tmp_path):
    """Both are the same number if every task has the same number of samples."""
    found = calipers.compare(*models(tmp_path, 12, 2), metric=["mean_reward", "pass_rate"])
    mean, rate = found.contests[0].ranks
    assert [place.value for place in rate.places] == pytest.approx([0.75, 0.5, 0.25])
    assert [(p.run, p.rank, p.ranks) for p in rate.places] == [(p.run, p.rank, p.ranks) for p in mean.places]


def test_few_tasks_have_no_ranks(tmp_path):
    """With four tasks all bootstrap draws may agree by chance, so there are no ranks."""
    (ranks,) = calipers.compare(*models(tmp_path, 4), metric="mean_reward").contests[0].ranks
    assert list(ranks.places) == []
    assert ranks.why == "4 are too few to draw ranks from: by chance all may point one way"


def test_a_stopped_run_has_no_ranks_and_is_no_winner(tmp_path):
    paths = models(tmp_path, 12)
    rewards = {f"t{task}": [1.0] for task in range(12)}
    last = run(tmp_path / "last.jsonl", rewards, model="last")
    with open(last, "a") as file:
        file.write(json.dumps({"task": "t99", "model": "last", "outcome": "stopped_early"}) + "\n")
    (ranks,) = calipers.compare(*paths, last, metric="mean_reward").contests[0].ranks
    assert (list(ranks.places), ranks.winner) == ([], None)
    assert ranks.why.startswith("a run was stopped by what it showed")


def rows(text):
    """Runs whose tasks pass or fail by the marks in the text."""
    return [[[int(mark)] for mark in row] for row in text.split()]


def test_rank_sets_hold_for_all_runs_at_once():
    """By all 4,096 sign flips, only the first run is significantly above the third."""
    found = calipers.compare(*rows("111111111011 101101101010 001000001000"), metric="mean_reward")
    (ranks,) = found.contests[0].ranks
    assert [(place.run, place.rank_set) for place in ranks.places] == [(0, (1, 2)), (1, (1, 3)), (2, (2, 3))]
    data = json.loads(found.to_json())["contests"][0]["ranks"][0]
    assert [place["rank_set"] for place in data["places"]] == [[1, 2], [1, 3], [2, 3]]
    assert data["winner"]["candidates"] == 3
    assert {"chance_best", "ranks"} <= set(data["places"][0])


def test_the_winner_knows_the_range_of_rewards():
    marks = "11111101101101110111 10110111101110110111 11011110101001111011"
    (ranks,) = calipers.compare(*rows(marks), metric="mean_reward").contests[0].ranks
    assert (ranks.winner.run, ranks.winner.observed, ranks.winner.candidates) == (0, 0.8, 3)
    assert ranks.winner.value == pytest.approx(0.7338, abs=0.002)
    assert ranks.winner.interval == pytest.approx((0.54, 0.9137), abs=0.006)
    wide = [[[20 * reward for reward in task] for task in run] for run in rows(marks)]
    (ranks,) = calipers.compare(*wide, metric="mean_reward").contests[0].ranks
    # without a range: Student's quantiles in the place of 2.384 and 1.96
    assert ranks.winner.interval == pytest.approx((20 * 0.5603, 20 * 0.9259), abs=0.16)


def test_the_winner_may_lose_more_than_was_seen_where_the_range_says_so():
    """The range of rewards starts at -1, so 0 is not the worst reward even if none is lower."""
    marks = rows("11111101101101110111 10110111101110110111 11011110101001111011")
    usual, wide = (
        calipers.compare(*marks, metric="mean_reward", range=ends).contests[0].ranks[0].winner.interval
        for ends in (None, (-1, 1))
    )
    assert wide[0] < usual[0]


def test_the_order_of_rows_changes_nothing(tmp_path):
    paths = models(tmp_path, 40, 2)
    digest = calipers.compare(*paths, metric=["mean_reward", "pass_rate"]).digest
    for path in paths:
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        put(tmp_path / path, *sorted(lines, key=lambda row: (-row["sample"], row["task"][::-1])))
    assert calipers.compare(*paths, metric=["mean_reward", "pass_rate"]).digest == digest


def test_clusters_have_one_sign(tmp_path):
    """Ten clusters of four equal tasks have the same ranks as ten tasks."""
    found = []
    for copies in (1, 4):
        paths = [
            put(
                tmp_path / f"m{place}.jsonl",
                *(
                    {"task": f"t{n}-{copy}", "sample": 0, "reward": float(n % 5 < limit), "model": f"m{place}"}
                    | {"metadata": {"book": n}}
                    for n in range(10)
                    for copy in range(copies)
                ),
            )
            for place, limit in enumerate((1, 3, 5))
        ]
        (ranks,) = calipers.compare(*paths, metric="mean_reward", cluster="book").contests[0].ranks
        found.append([(place.run, place.rank_set) for place in ranks.places])
    assert found[0] == found[1] == [(2, (1, 2)), (1, (1, 3)), (0, (2, 3))]


def test_pages_say_share_of_draws_and_how_many_were_looked_at(tmp_path):
    found = calipers.compare(*models(tmp_path, 40), metric="mean_reward")
    for text in (
        terminal.render(document(found, details=True), columns=1000),
        markdown.render(document(found, details=True)),
    ):
        plain = text.replace("\\", "").replace("&gt;", ">")
        assert "95 % rank set" in plain
        assert "m2 is best in >99.9 % of bootstrap draws of the tasks: this is not its" in plain
        assert "m2 is the best of 3 candidates, with 0.7500" in plain
        assert "optimism: if all 3 runs were equal" in plain
        assert "chance of being best" not in plain


def test_a_rate_over_uneven_samples_is_ranked_on_common_weights(tmp_path):
    paths = models(tmp_path, 12, 2)
    with open(paths[0], "a") as file:
        file.write(json.dumps({"task": "t0", "sample": 2, "reward": 1.0, "model": "m0"}) + "\n")
    ranks = {one.metric: one for one in calipers.compare(*paths, metric=["mean_reward", "pass_rate"]).contests[0].ranks}
    assert len(ranks["pass_rate"].places) == 3
    assert ranks["mean_reward"].winner.candidates == 3


def test_more_than_four_runs_show_ranks_first_and_pairs_when_asked(tmp_path):
    rates = {f"m{n}": {f"t{t}": [float(t * 7 % 60 < 10 * n)] for t in range(60)} for n in range(1, 6)}
    paths = [run(tmp_path / f"{name}.jsonl", rewards, model=name) for name, rewards in rates.items()]
    comparison = calipers.compare(*paths)
    short, whole = (terminal.render(document(comparison, pairs=pairs, details=True)) for pairs in (False, True))
    assert short.startswith("\nranks by mean_reward, pass_rate over 60 tasks that all runs have\n")
    assert "10 pairs: --pairs shows each" in short
    assert "m5 is better than m1" not in short
    assert whole.index("ranks by mean_reward, pass_rate") < whole.index("m5 is better than m1")
    assert short == terminal.render(document(comparison, details=True))
    assert len(comparison.rows()) == len(json.loads(comparison.to_json())["contests"][0]["pairs"]) * 2 == 20
    four = terminal.render(document(calipers.compare(*paths[:4]), details=True))
    assert four.index("m4 is better than m1") < four.index("ranks by mean_reward")
    against = terminal.render(document(calipers.compare(*paths, baseline="m1"), details=True))
    assert against.index("ranks by mean_reward") < against.index("m5 is better than m1")
    assert "--pairs" not in against


@pytest.mark.parametrize(
    ("equal", "sentence", "of_datasets"),
    [
        ("a", "a is first of 5.", "a is first on each of 2 datasets."),
        ("ab", "a and 1 other run share the best value of 5, and may", "No run alone is first on any of 2 datasets."),
        ("abc", "a and 2 other runs share the best value of 5, and", "No run alone is first on any of 2 datasets."),
    ],
)
def test_runs_with_the_best_value_share_the_first_place(equal, sentence, of_datasets):
    rewards = {model: [float(task < (40 if model in equal else 20)) for task in range(60)] for model in "abcde"}
    rows = [
        {"task": task, "model": model, "dataset": dataset, "reward": reward}
        for dataset in "xy"
        for model in "abcde"
        for task, reward in enumerate(rewards[model])
    ]
    one = calipers.compare([row for row in rows if row["dataset"] == "x"], metric="mean_reward")
    assert sentence in terminal.render(document(one))
    assert of_datasets in terminal.render(document(calipers.compare(rows, metric="mean_reward")))


def test_the_short_page_of_more_than_four_runs_is_their_ranks(tmp_path):
    rates = {f"m{n}": {f"t{t}": [float(t * 7 % 60 < 10 * n)] for t in range(60)} for n in range(1, 6)}
    paths = [run(tmp_path / f"{name}.jsonl", rewards, model=name) for name, rewards in rates.items()]
    page = terminal.render(document(calipers.compare(*paths))).splitlines()
    assert " ".join(page[0].split()) == "5 runs mean_reward, 60 common tasks, 95 % confidence"
    assert page[1:3] == ["m5 is first of 5.", "10 of 10 differences are decided."]
    assert page[4].split() == ["#", "run", "value", "may", "rank"]
    ranked = [[f"{6 - n}", f"m{n}", f"{n / 6:.3f}", f"{6 - n}"] for n in range(5, 0, -1)]
    assert [line.split() for line in page[6:11]] == ranked
    assert "Every pair: --pairs. Which models are tied: calipers leaderboard" in page
    against = terminal.render(document(calipers.compare(*paths, baseline="m1")))
    assert "E − A" in against


def test_more_than_four_runs_on_several_datasets_show_the_ranks_on_each(tmp_path):
    paths = []
    for dataset, shift in (("sums", 0), ("products", 1), ("small", 2)):
        for n in range(1, 3 if dataset == "small" else 6):
            rewards = {f"{dataset}{t}": [float(t * 7 % 60 < 10 * n + shift)] for t in range(60)}
            name = f"m{n}"
            paths.append(run(tmp_path / f"{dataset}-{name}.jsonl", rewards, model=name, dataset=dataset))
    comparison = calipers.compare(*paths)
    assert [contest.dataset for contest in comparison.contests] == ["sums", "products", "small"]
    assert [run.name for run in comparison.contests[1].runs] == ["m1", "m2", "m3", "m4", "m5"]
    page = terminal.render(document(comparison)).splitlines()
    assert " ".join(page[0].split()) == "2 datasets, 5 runs mean_reward, 95 % confidence"
    assert page[1:3] == ["m5 is first on each of 2 datasets.", "20 of 20 differences are decided."]
    assert page[6] == "sums"
    assert [line.split()[:2] for line in page[7:12]] == [[f"{6 - n}", f"m{n}"] for n in range(5, 0, -1)]
    assert page[12] == "products"
    assert "Without ranks: small (--details)" in page
    assert len(page) <= 25
    every = terminal.render(document(comparison, pairs=True))
    assert "m5 is better than m1" in every


def test_a_dataset_that_one_run_alone_names_may_be_the_same_under_another_name(tmp_path):
    rewards = {f"t{t}": [float(t % 3 > 0)] for t in range(30)}
    names = ("old", "old", "new")
    paths = [run(tmp_path / f"{n}.jsonl", rewards, model=f"m{n}", dataset=name) for n, name in enumerate(names)]
    comparison = calipers.compare(*paths)
    assert len(comparison.contests) == 1
    assert comparison.notes[0] == "the datasets have different names: 'old', 'new'"


def test_many_runs_without_ranks_show_their_pairs(tmp_path):
    rates = {f"m{n}": {f"t{t}": [float(t < n)] for t in range(4)} for n in range(5)}
    paths = [run(tmp_path / f"{name}.jsonl", rewards, model=name) for name, rewards in rates.items()]
    page = terminal.render(document(calipers.compare(*paths), details=True))
    assert "4 common tasks" in page
    assert "no ranks: 4 tasks or clusters are too few" in page


def test_rewards_whose_sum_overflows_have_no_ranks():
    signs = {"a": 1.0, "b": -1.0, "c": 1.0}
    table = [{"model": m, "task": str(t), "reward": 1e308 * sign} for m, sign in signs.items() for t in range(20)]
    comparison, board, tasks = calipers.compare(table), calipers.leaderboard(table), calipers.items(table, threshold=1)
    why = "the values are too large for their spread to be a number"
    assert (comparison.contests[0].ranks[0].why, board.boards[0].why) == (why, why)
    for report in (comparison, board, tasks):
        json.dumps(report.to_dict(), allow_nan=False)
