import random
import re
from importlib.resources import files

import pytest

from calipers.analyses.leaderboard import LANES, lanes_of, leaderboard
from calipers.analyses.matrix import matrix
from calipers.pipeline import score
from calipers.reports.sentences import of_leaderboard, signed
from calipers.web import report
from calipers.web.many_page import board_table, many_page, number, pairs_section, suite_table, tied_of
from calipers.web.page import html
from calipers.web.report_data import report_data

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
    page = html(many_page(report_data([CALCULATORS])))
    assert page.count('<details class="folded">') == 7
    assert "It was picked as the best of 7 on these tasks, so expect" in words(page)


def test_a_leaderboard_from_a_document_has_no_runs(tmp_path):
    (tmp_path / "board.json").write_text(leaderboard(CALCULATORS).to_json())
    page = report(str(tmp_path / "board.json")).html
    assert "abacus is first of 7." in page
    assert 'class="folded"' not in page


def test_too_many_lanes_are_counted_instead():
    tasks = 60  # each model solves two tasks more than the next: neighbours are tied, but distant models are not
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
    assert "bars" not in table  # the note on bars, which are not drawn
    assert " 2 m01 ~ 3 m02 " in words(pairs_section(board, 0.95).body)  # shortened names may be equal


def test_a_suite_has_a_row_for_each_benchmark_and_the_mean():
    data = report_data([rows(["a", "b"], tasks=200)])
    page = many_page(data)
    found = data.ranking
    pair = found.mean.pairs[0]
    assert page.title == f"b is better than a by {pair.delta:.3f} over two benchmarks."
    table = words(suite_table(found))
    for said in ("easy", "hard", "Mean of two", "Missing 0 of 400 0 of 400", "Cost not recorded not recorded"):
        assert said in table
    assert signed(pair.delta) in table
    assert "adjusted for two tests (Holm); the mean is one test of its own." in table


def test_three_models_have_no_difference_and_a_bar_under_ties():
    found = report_data([rows(["a", "b", "c"])]).ranking
    table = suite_table(found)
    assert "B − A" not in table
    every = [*found.benchmarks, found.mean]
    assert table.count("tied-cell") == sum(len(tied_of(row, True)) for row in every) > 0
    assert table.count("▲") == sum(row.best is not None for row in every) + 1  # and once in the note


def test_a_model_that_lacks_a_benchmark_is_not_run_there():
    made = [row for row in rows(["a", "b", "c"]) if (row["model"], row["dataset"]) != ("c", "hard")]
    page = many_page(report_data([made]))
    assert "not run" in words(page.top)
    assert "not in the mean" in words(page.top)


def test_one_model_on_several_benchmarks_has_a_mean():
    page = many_page(report_data([rows(["a"])]))
    assert page.title.startswith("a scores 0.")
    assert "Over 80 tasks , nothing missing." in words(page.top)
    assert html(page).count('<details class="folded">') == 2


def test_a_matrix_from_a_document_has_no_runs(tmp_path):
    (tmp_path / "matrix.json").write_text(matrix(rows(["a", "b"])).to_json())
    page = report(str(tmp_path / "matrix.json")).html
    assert "Mean of two" in page
    assert 'class="folded"' not in page


def test_leaderboards_of_several_benchmarks_are_folded(tmp_path):
    (tmp_path / "boards.json").write_text(leaderboard(rows(["a", "b"])).to_json())
    page = html(many_page(report_data([str(tmp_path / "boards.json")])))
    assert page.count('<table class="board">') == 2


@pytest.mark.parametrize(("count", "said"), [(2, "two"), (12, "twelve"), (13, "13")])
def test_small_numbers_are_words(count, said):
    assert number(count) == said


def test_pictures_of_many_runs_end_where_the_file_would_become_too_large(monkeypatch):
    sources = [[row for row in rows("abc", [("easy", 0.5)]) if row["model"] == model] for model in "abc"]
    whole = html(many_page(report_data(sources)))
    assert whole.count("<h3>Every task</h3>") == 3
    monkeypatch.setattr("calipers.web.many_page.MOST_BYTES", 1)
    assert "<h3>Every task</h3>" not in html(many_page(report_data(sources)))
    assert 'class="command"' not in whole  # there is no command for rewards in memory


def test_the_command_of_a_finished_result_gives_its_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result.json").write_text(score(CALCULATORS).to_json())
    page = report("result.json").html
    assert "calipers leaderboard result.json --metric" in words(page)
    assert leaderboard("result.json").digest in page
