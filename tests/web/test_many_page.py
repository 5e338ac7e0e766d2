import json
import random
import re
from importlib.resources import files

import pytest

from calipers.analyses.leaderboard.document import LANES, lanes_of
from calipers.analyses.leaderboard.leaderboard import leaderboard
from calipers.analyses.matrix.document import answer
from calipers.analyses.matrix.matrix import matrix
from calipers.reports.sentences import of_leaderboard
from calipers.web.board import board_table, pairs_section
from calipers.web.gather import gather
from calipers.web.many_page import many_page
from calipers.web.page import html
from calipers.web.report import report
from calipers.web.suite import SuiteDifference, answer_of, number, of_leaderboards, of_matrix, suite_table

CALCULATORS = str(files("calipers") / "examples" / "calculators.csv")


def words(markup):
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", markup))


@pytest.fixture(scope="module")
def board():
    return leaderboard(CALCULATORS).boards[0]


def rows(models, datasets=(("easy", 0.8), ("hard", 0.3)), tasks=40):
    rng = random.Random(1)
    return [
        {"task": f"{dataset}-{t}", "dataset": dataset, "model": model, "reward": rng.random() < level + 0.1 * place}
        for dataset, level in datasets
        for t in range(tasks)
        for place, model in enumerate(models)
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"tied": 0, "ties": 18, "pairs": 136, "group": (5, 8)},
            "m is first of 17. Its lead is decided. 18 of 136 pairs are ties; ranks 5 to 8 are one group.",
        ),
        ({"tied": 3, "ties": 18, "pairs": 136}, "m leads 17 models, tied with 3 of them. 18 of 136 pairs are ties."),
        (
            {"tied": 0, "ties": 1, "pairs": 136, "group": (2, 3)},
            "m is first of 17. Its lead is decided. 1 of 136 pairs is a tie.",
        ),
        (
            {"tied": 16, "ties": 136, "pairs": 136, "group": (1, 17)},
            "m leads 17 models, tied with all others. 136 of 136 pairs are ties.",
        ),
    ],
)
def test_the_sentence_of_a_leaderboard(given, said):
    assert str(of_leaderboard("m", 17, **given)) == said


def test_two_models_need_no_count_of_pairs():
    assert str(of_leaderboard("m", 2, tied=0, ties=0, pairs=1)) == "m is first of 2. Its lead is decided."
    assert (
        str(of_leaderboard("m", 2, tied=1, ties=1, pairs=1))
        == "m leads 2 models, tied with the other. The only pair is a tie."
    )


def test_the_table_of_a_leaderboard_has_ties_ranks_and_its_reading(board):
    table = board_table(board, 0.95)
    assert table.count('class="tie"') == 6  # bars 2-3, 3-4 and 5-6, in two rows each
    assert 'aria-label="tied with slide-rule, adder-3b"' in table
    assert "all 7 statements true together with 95\N{NO-BREAK SPACE}% confidence" in table
    assert re.findall(r'class="may">([^<]*)<', table)[1:] == [
        "1",
        "2 to 3",
        "2 to 4",
        "3 to 4",
        "5 to 6",
        "5 to 6",
        "7",
    ]


def test_every_pair_is_decided_or_hollow(board):
    section = pairs_section(board, 0.95)
    assert section.body.count('class="tie"') == 3
    assert section.body.count('class="won') == 18
    assert "All 21 statements hold together" in section.note[1]


def test_a_page_of_models_has_each_run_folded():
    page = html(many_page(gather([CALCULATORS])))
    assert page.count('<details class="folded">') == 7
    assert "It was picked as the best of 7 on these tasks, so expect" in words(page)


def test_a_leaderboard_from_a_document_has_no_runs(tmp_path):
    (tmp_path / "board.json").write_text(leaderboard(CALCULATORS).to_json())
    page = report(str(tmp_path / "board.json")).html
    assert "abacus is first of 7." in page
    assert 'class="folded"' not in page


def test_too_many_lanes_are_counted_instead():
    tasks = 60  # each model solves two tasks more than the next: neighbours are tied, and far ones are not
    made = [
        {"task": f"t{t}", "model": f"m{place:02}", "reward": t < tasks - 2 * place}
        for t in range(tasks)
        for place in range(30)
    ]
    board = leaderboard(made).boards[0]
    assert len(lanes_of(board.bars)) > LANES
    table = words(board_table(board, 0.95))
    assert "The left column counts the models that this benchmark cannot tell apart." in table
    assert f"with {len(board.places[0].tied_with)}" in table


def test_a_suite_has_a_row_for_each_benchmark_and_the_mean():
    data = gather([rows(["a", "b"])])
    suite = of_leaderboards(data.leaderboard, data.runs)
    assert [row.title for row in suite.rows] == ["easy", "hard"]
    assert suite.models == ["a", "b"]
    for row in suite.rows:
        assert row.difference.delta == pytest.approx(row.cells["b"].value - row.cells["a"].value)
    values = [row.cells["a"].value for row in suite.rows]
    assert suite.mean.cells["a"].value == pytest.approx(sum(values) / 2)
    table = words(suite_table(suite))
    assert ("Mean of two" in table, "Missing" in table, "not recorded" in table) == (True, True, True)
    assert answer_of(suite).sentence == "Two models on two benchmarks."


def test_the_report_of_several_benchmarks_says_what_the_matrix_says(tmp_path):
    data = gather([rows(["a", "b"])])
    found = matrix(rows(["a", "b"]))
    suite = of_matrix(data.matrix)
    (pair,) = found.mean.pairs
    assert suite.mean.difference == SuiteDifference(pair.delta, pair.interval, pair.verdict)
    assert [row.difference.verdict for row in suite.rows] == [row.pairs[0].verdict for row in found.benchmarks]
    assert suite.mean.cells["a"].interval == found.mean.cells[0].interval
    page = many_page(data)
    assert page.title == answer(found).sentence
    assert "the mean is one test of its own" in words(suite_table(suite))
    (tmp_path / "matrix.json").write_text(found.to_json())
    again = report(str(tmp_path / "matrix.json"))
    assert again.title == page.title
    assert "calipers compare" not in again.html  # a table has no path to compute it again from


def test_a_folder_of_runs_is_a_set_of_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    for place, row in enumerate([rows(["a"]), rows(["b"])]):
        text = "".join(json.dumps(each) + "\n" for each in row)
        (tmp_path / "runs" / f"{place}.jsonl").write_text(text)
    page = report(str(tmp_path / "runs"))
    assert page.title == report(*map(str, sorted((tmp_path / "runs").iterdir()))).title
    assert "--models a,b --metric mean_reward" in page.html


def test_three_models_have_no_difference_and_a_bar_under_ties():
    data = gather([rows(["a", "b", "c"])])
    suite = of_leaderboards(data.leaderboard, data.runs)
    assert {row.difference for row in suite.rows} == {None}
    assert "B − A" not in suite_table(suite)
    tied = [row for row in suite.rows if row.tied]
    assert suite_table(suite).count("tied-cell") == sum(len(row.tied) for row in tied)


def test_a_model_that_lacks_a_benchmark_has_no_mean():
    made = [row for row in rows(["a", "b", "c"]) if (row["model"], row["dataset"]) != ("c", "hard")]
    data = gather([made])
    suite = of_leaderboards(data.leaderboard, data.runs)
    assert suite.mean is None
    assert "not run" in suite_table(suite)
    many_page(data)


def test_one_model_on_several_benchmarks_is_listed():
    page = many_page(gather([rows(["a"])]))
    assert page.title == "a on 2 benchmarks."
    assert html(page).count('<details class="folded">') == 2


@pytest.mark.parametrize(("count", "said"), [(2, "two"), (12, "twelve"), (13, "13")])
def test_small_numbers_are_words(count, said):
    assert number(count) == said
