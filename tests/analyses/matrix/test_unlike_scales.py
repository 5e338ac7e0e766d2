"""Benchmarks of unlike scales: no mean over them, each is a question of its own, and the mean of the range."""

import pytest
from analyses.matrix.rows import rows_of, share
from analyses.matrix.worlds import random_rows

import calipers
from calipers.analyses.matrix.document import document
from calipers.errors import InputError, UnknownName
from calipers.reports import terminal

RANGES = {"acc": (0, 1), "chrf": (0, 100)}


def chrf(mean, tasks=60):
    """Scores of up to 100 whose mean is this."""
    return [mean + 6 * ((task * 7) % 11 - 5) / 5 for task in range(tasks)]


def unlike():
    """The accuracy falls from 0.9 to 0.1, and chrF rises by 9."""
    values = {("acc", "a"): share(0.9), ("acc", "b"): share(0.1), ("chrf", "a"): chrf(55), ("chrf", "b"): chrf(64)}
    # the tasks do not all change by the same
    values["chrf", "b"] = [value + (task % 4 - 1.5) * 2 for task, value in enumerate(values["chrf", "b"])]
    return rows_of(values)


def test_an_accuracy_that_falls_and_a_chrf_that_rises_have_no_mean():
    """It was said: b is better than a by 4.1 over two benchmarks."""
    found = calipers.matrix(unlike())
    mean = found.mean
    assert mean.undecided_by == "scales"
    assert mean.why.startswith("No mean over benchmarks: acc lies within 0 to 1, chrf reaches 7")
    assert [(cell.value, cell.interval, cell.stderr) for cell in mean.cells] == [(None, None, None)] * 2
    (pair,) = mean.pairs
    assert (pair.delta, pair.interval, pair.p, pair.verdict) == (None, None, None, "undecided")
    assert (pair.undecided_by, mean.best) == ("scales", None)
    assert found.verdicts == ["worse", "better"]
    page = terminal.render(document(found), columns=80)
    assert "Worse on acc by 0.80; better on chrf by 9.0" in page
    assert "macro mean" not in page
    assert "--range acc=0,1 --range chrf=LOW,HIGH --mean of-range" in " ".join(page.split()).replace(
        "--mean of", "--mean of"
    )
    assert "--range LOW,HIGH" in " ".join(page.split())


def test_the_document_says_why_there_is_no_mean():
    document_of = calipers.matrix(unlike()).to_dict()
    assert document_of["adjust"] == "sidak"
    assert document_of["mean"]["undecided_by"] == "scales"
    assert document_of["mean"]["delta"] is document_of["mean"]["p"] is None
    assert [remark["code"] for remark in document_of["remarks"]] == ["scales_above", "ranges_for_a_mean"]
    assert document_of["remarks"][0]["text"] == document_of["mean"]["why"]
    assert [row["range"] for row in document_of["benchmarks"]] == [(0.0, 1.0), None]


def test_each_benchmark_is_one_question_of_one_family():
    """Sidak over the benchmarks: the test and the interval agree line by line."""
    values = {("acc", "a"): share(0.5, 40), ("acc", "b"): share(0.6, 40)}
    values |= {("chrf", "a"): chrf(50, 40), ("chrf", "b"): [x + 1.2 * (t % 5) - 1 for t, x in enumerate(chrf(50, 40))]}
    rows = rows_of(values)
    found = calipers.matrix(rows)
    alone = {name: calipers.matrix([row for row in rows if row["dataset"] == name])[name] for name in ("acc", "chrf")}
    for row in found.benchmarks:
        (pair,), (of_one,) = row.pairs, alone[row.benchmark].pairs
        assert pair.p == of_one.p
        assert pair.p_adjusted == pytest.approx(1 - (1 - of_one.p) ** 2)
        assert pair.confidence == pytest.approx(0.95**0.5)
        assert pair.interval[0] < of_one.interval[0]
        excludes_zero = pair.interval[0] > 0 or pair.interval[1] < 0
        assert excludes_zero == (pair.verdict in ("better", "worse"))


def test_the_mean_of_the_range_divides_each_value_by_the_range_of_its_benchmark():
    found = calipers.matrix(unlike(), range=RANGES, mean="of-range")
    mean = found.mean
    assert (mean.of_range, mean.why, mean.undecided_by) == (True, None, None)
    assert mean.cells[0].value == pytest.approx((found["acc"].cells[0].value + found["chrf"].cells[0].value / 100) / 2)
    delta = (found["acc"].pairs[0].delta + found["chrf"].pairs[0].delta / 100) / 2
    assert mean.pairs[0].delta == pytest.approx(delta)
    scaled = [{**row, "reward": row["reward"] / (100 if row["dataset"] == "chrf" else 1)} for row in unlike()]
    (by_hand,) = calipers.matrix(scaled).mean.pairs
    assert mean.pairs[0].p == pytest.approx(by_hand.p)
    assert mean.pairs[0].interval == pytest.approx(by_hand.interval)
    assert found["chrf"].cells[0].value == pytest.approx(55, abs=1)  # the benchmark keeps its own numbers


def test_a_mean_that_a_benchmark_contradicts_names_it():
    found = calipers.matrix(unlike(), range=RANGES, mean="of-range")
    page = terminal.render(document(found), columns=200)
    assert "b is worse than a on average by 0.35" in page
    assert "of the range over two benchmarks; better on chrf." in page
    assert "Each benchmark is decided alone" not in page
    assert "2 of 2 benchmarks are decided alone: acc (worse), chrf (better)." in page


def test_each_benchmark_is_decided_alone_too_only_if_all_agree():
    rows = rows_of({(name, m): share(rate, 80) for name in "xy" for m, rate in (("a", 0.2), ("b", 0.8))})
    page = terminal.render(document(calipers.matrix(rows)), columns=80)
    assert "Each benchmark is decided alone, too." in page
    assert "on average" not in page


def test_the_best_of_many_by_the_mean_names_where_it_is_worse():
    values = {(name, m): share(rate, 80) for name in "xyz" for m, rate in (("a", 0.2), ("b", 0.4), ("c", 0.9))}
    values |= {("w", "a"): share(0.9, 80), ("w", "b"): share(0.5, 80), ("w", "c"): share(0.3, 80)}
    found = calipers.matrix(rows_of(values))
    assert found.mean.best == "c"
    assert "c is the best of 3 models over four benchmarks; worse than a on w" in found.headline()


def test_differing_ranges_that_are_given_have_no_mean_without_asking_for_one():
    found = calipers.matrix(unlike(), range=RANGES)
    assert found.mean.why == "No mean over benchmarks: the range of acc is 0 to 1, and that of chrf is 0 to 100."
    assert found.remarks[1].values["options"] == "--mean of-range"


def test_one_range_without_a_name_holds_for_all():
    rows = [{**row, "reward": row["reward"] / 100} if row["dataset"] == "chrf" else row for row in unlike()]
    found = calipers.matrix(rows, range=(0, 5))
    assert found.mean.undecided_by is None
    assert [row.range for row in found.benchmarks] == [(0.0, 5.0)] * 2
    named = calipers.matrix(rows, range={None: (0, 5), "acc": (0, 1)})
    assert [row.range for row in named.benchmarks] == [(0.0, 1.0), (0.0, 5.0)]
    assert named.mean.undecided_by == "scales"


def test_a_weak_model_does_not_make_a_scale_of_0_to_1():
    """The rewards of all runs count: a chrF below 1 in one run is still a chrF."""
    rows = rows_of({("acc", m): share(0.5) for m in "ab"} | {("chrf", "a"): [0.5] * 60, ("chrf", "b"): chrf(60)})
    assert calipers.matrix(rows).mean.undecided_by == "scales"


def test_the_mean_of_the_range_needs_the_ranges():
    with pytest.raises(InputError, match=r"chrf has no range: its values go from 4.*expected --range chrf=LOW,HIGH"):
        calipers.matrix(unlike(), mean="of-range")
    with pytest.raises(UnknownName, match="no mean over benchmarks named 'of-rang'"):
        calipers.matrix(unlike(), mean="of-rang")
    with pytest.raises(UnknownName, match="no benchmark in these runs named 'chr'; did you mean 'chrf'"):
        calipers.matrix(unlike(), range={"chr": (0, 100)})
    with pytest.raises(InputError, match="expected 0 to 50, the given --range"):
        calipers.matrix(unlike(), range={"chrf": (0, 50)})
    with pytest.raises(InputError, match="range of 'chrf' is 100,0"):
        calipers.matrix(unlike(), range={"chrf": (100, 0)})


def test_pass_rates_have_one_range_whatever_the_rewards():
    found = calipers.matrix(unlike(), metric="solved_rate(threshold=0.5)")
    assert found.mean.undecided_by is None


def test_a_score_of_unlike_datasets_has_no_mean():
    rows = [row for row in unlike() if row["model"] == "a"]
    result = calipers.score(rows, "mean_reward")
    means = result.suites[0].metrics["mean_reward"]
    for mean in (means.macro, means.micro):
        assert (mean.value, mean.stderr, mean.interval) == (None, None, None)
        assert mean.why.startswith("No mean over benchmarks: acc lies within 0 to 1, chrf reaches ")
    (suite,) = result.to_dict()["suites"]
    assert suite["metrics"]["mean_reward"]["undecided_by"] == "scales"
    again = calipers.Result.from_json(result.to_json())
    assert again.suites[0].metrics["mean_reward"].no_mean == means.no_mean
    assert result.headline()
    assert "No mean over benchmarks" in terminal.render(result.page(), columns=80)


def test_a_score_has_the_mean_of_the_range_in_its_signature():
    rows = [row for row in unlike() if row["model"] == "a"]
    result = calipers.score(rows, "mean_reward", range=RANGES, mean="of-range")
    macro = result.suites[0].metrics["mean_reward"].macro
    assert macro.signature.startswith("macro|datasets:2|mean:of-range|mean_reward|")
    assert [part for part in macro.signature.split("|") if part.startswith("range:")] == ["range:0,1"]
    assert macro.value == pytest.approx((0.9 + result.groups[1]["mean_reward"].value / 100) / 2)
    assert "scores 0.72" in terminal.render(result.page(), columns=80)
    assert "of the range over 2 datasets" in terminal.render(result.page(), columns=80)
    again = calipers.Result.from_json(result.to_json())
    assert again.suites[0].metrics["mean_reward"].macro.signature == macro.signature


def test_a_finished_result_of_another_scale_has_no_mean(tmp_path):
    (tmp_path / "a.json").write_text(calipers.score([r for r in unlike() if r["model"] == "a"]).to_json())
    found = calipers.matrix(str(tmp_path / "a.json"))
    assert found.mean.undecided_by == "scales"
    like = calipers.score(rows_of({(name, "a"): share(0.5) for name in "xy"}))
    assert calipers.matrix(like).mean.undecided_by is None


def test_compare_takes_the_ranges_of_several_benchmarks():
    first, second = ([row for row in unlike() if row["model"] == model] for model in "ab")
    found = calipers.compare(first, second, metrics="mean_reward", range=RANGES)
    widths = [evidence.observed.width for evidence in found.evidences]
    assert widths == [1.0, 100.0]
    with pytest.raises(UnknownName, match="no benchmark in these runs named 'acd'; did you mean 'acc'"):
        calipers.compare(first, second, range={"acd": (0, 1)})


# --- decimals


def test_printed_ends_always_contain_the_printed_value():
    for seed in range(24):
        page = terminal.render(document(calipers.matrix(random_rows(seed))), columns=100)
        for line in page.splitlines():
            if "[" not in line:
                continue
            words = line.replace("[", " ").replace("]", " ").replace(",", " ").split()
            numbers = [float(word) for word in words[2:8]]
            for value, low, high in (numbers[:3], numbers[3:]):
                assert low <= value <= high


def test_rows_of_one_scale_share_their_decimals_and_others_have_those_they_need():
    page = terminal.render(document(calipers.matrix(unlike())), columns=80)
    acc, chrf_row = (next(line for line in page.splitlines() if line.startswith(name)) for name in ("acc", "chrf"))
    assert "0.900 [0.798, 0.954]" in acc
    assert " 55.02 [54.02, 56.02]" in chrf_row
