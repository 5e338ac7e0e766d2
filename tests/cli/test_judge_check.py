import csv
import io
import json

import numpy as np
import pytest
from cli.running import calipers, lines, refused

import calipers as cal

# B20 of the paper on statistics: 100 labelled tasks, 1000 others of which the judge passes 720
LABELLED = [(1, 1)] * 60 + [(0, 0)] * 20 + [(0, 1)] * 12 + [(1, 0)] * 8  # (label, judge)


def run_of(folder, *more, labelled=LABELLED, others=(720, 280), name="run.jsonl"):
    judged = [judge for _, judge in labelled] + [1] * others[0] + [0] * others[1]
    rows = [{"task": f"t{n}", "sample": 0, "reward": judge} for n, judge in enumerate(judged)]
    return lines(folder, *rows, *more, name=name)


def labels_of(folder, *rows, head="task,sample,label", name="labels.csv"):
    text = [head, *rows] if rows else [head, *(f"t{n},0,{label}" for n, (label, _) in enumerate(LABELLED))]
    (folder / name).write_text("\n".join(text) + "\n")
    return name


def checked(*arguments, cwd):
    done = calipers("judge-check", *arguments, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_published_case(tmp_path):
    (group,) = checked(run_of(tmp_path), "--labels", labels_of(tmp_path), cwd=tmp_path)["groups"]
    scores = {one["method"]: one for one in group["corrected"]}
    assert {name: one["value"] for name, one in scores.items()} == pytest.approx(
        dict.fromkeys(("ppi++", "labels", "ppi", "rogan_gladen"), 0.68), abs=1e-6
    )
    expected = {"ppi++": 0.040527, "labels": 0.046883, "ppi": 0.046966}
    assert {name: scores[name]["stderr"] for name in expected} == pytest.approx(expected, rel=2e-4)
    assert scores["ppi++"]["trust"] == pytest.approx(0.5024, abs=2e-3)
    told = group["confusion"]
    assert [told[name] for name in ("true_positives", "false_negatives", "false_positives", "true_negatives")] == [
        60,
        8,
        12,
        20,
    ]
    assert (told["sensitivity"]["value"], told["specificity"]["value"]) == pytest.approx((0.882353, 0.625), abs=1e-6)
    assert all(told[name]["interval"] for name in ("sensitivity", "specificity", "accuracy"))
    # the judge alone: 792 of 1100
    assert group["uncorrected"]["value"] == pytest.approx(792 / 1100)
    assert group["bias"]["value"] == pytest.approx(0.04)


def test_krippendorff_among_raters_and_judge(tmp_path):
    # the units 111, 110, 000, 100, 111, 00 of the paper: two raters and the judge; the last has one rater
    ratings = ["111", "110", "000", "100", "111", "0-0"]
    run = lines(tmp_path, *({"task": f"u{n}", "sample": 0, "reward": int(r[2])} for n, r in enumerate(ratings)))
    rows = [
        f"u{n},0,{one},{who}" for n, r in enumerate(ratings) for one, who in zip(r, "ab", strict=False) if one != "-"
    ]
    labels = labels_of(tmp_path, *rows, head="task,sample,label,rater")
    (group,) = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    alphas = {one["among"]: one["alpha"] for one in group["agreement"]}
    assert alphas["raters and judge"] == pytest.approx(0.555556, abs=1e-6)
    # one of 5 pairs differs; 7 ones and 3 zeros in all
    assert alphas["raters"] == pytest.approx(1 - 0.2 / (2 * 7 * 3 / 90), abs=1e-6)
    pairs = {(one["first"], one["second"]): (one["share"], one["rollouts"]) for one in group["pairs"]}
    assert pairs == {("a", "b"): (0.8, 5), ("a", "judge"): (pytest.approx(4 / 6), 6), ("b", "judge"): (0.8, 5)}
    assert group["raters"] == ["a", "b"]


def test_samples_of_a_task_are_one_unit(tmp_path):
    rng = np.random.default_rng(5)
    rows, labels = [], []
    for task in range(40):
        good = bool(rng.random() < 0.5)  # all samples of a task are alike
        judge = good if rng.random() < 0.8 else not good
        rows += [{"task": f"t{task}", "sample": n, "reward": float(judge)} for n in range(8)]
        labels += [f"t{task},{n},{int(good)}" for n in range(4)]
    (group,) = checked(lines(tmp_path, *rows), "--labels", labels_of(tmp_path, *labels), cwd=tmp_path)["groups"]
    (one,) = [one for one in group["corrected"] if one["method"] == "labels"]
    assert (group["labelled"], group["labelled_tasks"], one["labelled"]) == (160, 40, 40)
    low, high = one["interval"]
    assert high - low > 0.28  # 160 independent labels would make it half as wide
    low, high = group["confusion"]["accuracy"]["interval"]
    assert high - low > 0.2


def test_graded_labels_are_corrected_as_they_are(tmp_path):
    rng = np.random.default_rng(2)
    truth = rng.uniform(1, 5, 60).round(1)
    rows = [{"task": f"t{n}", "sample": 0, "reward": float(y + 0.5)} for n, y in enumerate(truth)]
    labels = [f"t{n},0,{y}" for n, y in enumerate(truth[:30])]
    found = checked(lines(tmp_path, *rows), "--labels", labels_of(tmp_path, *labels), "--threshold", "3", cwd=tmp_path)
    (group,) = found["groups"]
    scores = {one["method"]: one for one in group["corrected"]}
    assert scores["ppi"]["value"] == pytest.approx(truth[30:].mean())  # a constant error is all taken out
    assert scores["ppi++"]["stderr"] < 0.8 * scores["labels"]["stderr"]
    assert group["bias"]["value"] == pytest.approx(0.5)
    assert group["corrected"][-1]["why"] == "only for labels and scores of 0 and 1"
    assert group["agreement"][0]["level"] == "interval"


def test_reward_picks_the_judge(tmp_path):
    rows = [{"task": f"t{n}", "sample": 0, "rewards": {"tests": n % 2, "llm": 1}} for n in range(6)]
    run = lines(tmp_path, *rows)
    labels = labels_of(tmp_path, *(f"t{n},0,{n % 2}" for n in range(4)))
    accuracy = [
        checked(run, "--labels", labels, "--reward", key, cwd=tmp_path)["groups"][0]["confusion"]["accuracy"]["value"]
        for key in ("tests", "llm")
    ]
    assert accuracy == [1.0, 0.5]
    said = refused("judge-check", run, "--labels", labels, cwd=tmp_path)
    assert said == "there are several rewards (llm, tests); choose the judge's with --reward KEY"


def test_labels_may_name_the_model(tmp_path):
    rows = [
        {"task": f"t{n}", "sample": 0, "model": model, "reward": float(model == "x")}
        for model in ("x", "y")
        for n in range(4)
    ]
    run = lines(tmp_path, *rows)
    plain = labels_of(tmp_path, "t0,0,1", name="plain.csv")
    said = refused("judge-check", run, "--labels", plain, cwd=tmp_path)
    assert said.startswith("plain.csv:2: task 't0' is in 2 groups of the run; expected a column model")
    labels = labels_of(tmp_path, "t0,0,1,x", "t1,0,1,x", "t0,0,0,y", "t2,0,0,y", head="task,sample,label,model")
    groups = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    assert [(group["model"], group["labelled"]) for group in groups] == [("x", 2), ("y", 2)]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            ["zz,0,1", "t0,9,0", "t1,0,1"],
            "l.csv:2: 2 of 3 labels are for rollouts that are not in the run, first task 'zz' sample 0",
        ),
        (["t0,0,1", "t0,3,1"], "l.csv:3: task 't0' sample 3 is not in the run; expected the tasks and samples"),
        (["t0,0,good"], "l.csv:2: label is 'good'; expected a number, such as 1 for good and 0 for bad"),
        (["t0,0,nan"], "l.csv:2: label is 'nan'; expected a number"),
        (["t0,first,1"], "l.csv:2: sample is 'first'; expected a whole number from 0 on"),
        ([f"t0,{'9' * 5000},1"], "l.csv:2: sample is '999"),  # Python converts at most 4300 digits
        (["t0,0"], "l.csv:2: has 2 cells; expected 3, as the first line has"),
        ([",0,1"], "l.csv:2: task is empty; expected the id of a task"),
        (["t0,0,", "t1,0,"], "l.csv: has no label: the label of all 2 rows is empty"),
        (
            ["t0,0,1", "t0,0,0"],
            "l.csv:3: task 't0' sample 0 appears twice, first on line 2; expected one label for each",
        ),
        ([' "t0"x,0,1'], "l.csv:2: "),
    ],
)
def test_bad_labels_are_one_clear_line(tmp_path, labels, said):
    run = lines(tmp_path, *({"task": f"t{n}", "sample": 0, "reward": 1} for n in range(3)))
    assert refused("judge-check", run, "--labels", labels_of(tmp_path, *labels, name="l.csv"), cwd=tmp_path).startswith(
        said
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "l.csv: is empty; expected CSV with the columns task, sample, label"),
        (b"task,sample,label\n", "l.csv: has no label: it has a header only"),
        (b"task,sample,labels\nt0,0,1\n", "l.csv:1: has no column 'label' (there is 'labels'); expected the columns"),
        (b"task,task,label\nt0,0,1\n", "l.csv:1: has the column 'task' twice"),
        (
            b"task;sample;label\nt0;0;1\n",
            "l.csv:1: has ';' between its cells; expected commas",
        ),  # where commas are points
        (b"\xff\xfe\x00", "l.csv: is not UTF-8 text"),
        (b"task,label\nt0,1\n", "l.csv:2: task 't0' has 2 samples; expected a column sample"),
        (None, "l.csv: cannot be read (No such file or directory)"),
    ],
)
def test_nor_are_bad_files(tmp_path, content, said):
    run = lines(tmp_path, *({"task": "t0", "sample": n, "reward": 1} for n in range(2)))
    if content is not None:
        (tmp_path / "l.csv").write_bytes(content)
    assert refused("judge-check", run, "--labels", "l.csv", cwd=tmp_path).startswith(said)


def test_one_kind_of_label_says_what_it_cannot_tell(tmp_path):
    run = run_of(tmp_path)
    labels = labels_of(tmp_path, *(f"t{n},0,1" for n in range(30)))
    (group,) = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    assert group["confusion"]["specificity"] == {
        "value": None,
        "interval": None,
        "of": 0,
        "why": "no labelled rollouts for it",
    }
    assert group["corrected"][-1]["why"] == "all labels are the same, so sensitivity or specificity is unknown"
    shown = calipers("judge-check", run, "--labels", labels, cwd=tmp_path).stdout
    assert "note: every label (30) is good: the judge's specificity is unknown; also label some bad rollouts" in shown


@pytest.mark.parametrize(
    ("label_of", "said"),
    [
        (lambda label: 1 - label, "the judge is right for only 20 % of these: are good and bad swapped in the labels?"),
        (lambda label: 100 * label, "labels range from 0 to 100 and the judge's scores from 0 to 1"),
    ],
)
def test_labels_that_can_hardly_mean_the_same_are_doubted(tmp_path, label_of, said):
    rows = [f"t{n},0,{label_of(label)}" for n, (label, _) in enumerate(LABELLED)]
    (group,) = checked(run_of(tmp_path), "--labels", labels_of(tmp_path, *rows), cwd=tmp_path)["groups"]
    assert any(said in note for note in group["notes"])
    (good,) = checked(run_of(tmp_path), "--labels", labels_of(tmp_path), cwd=tmp_path)["groups"]
    assert good["notes"] == []


def test_a_judge_that_rates_low_is_told_so_in_plain_numbers(tmp_path):
    """Every good rollout it calls bad is one too few: the interval is that of how much, without a sign."""
    few = [(1, 0)] * 60 + [(1, 1)] * 20 + [(0, 0)] * 20
    run = run_of(tmp_path, labelled=few)
    rows = [f"t{n},0,{label}" for n, (label, _) in enumerate(few)]
    shown = calipers("judge-check", run, "--labels", labels_of(tmp_path, *rows), cwd=tmp_path).stdout
    assert "it rates 0.600 too low (interval 0.49" in " ".join(shown.split())


def test_no_label_reaches_a_threshold_that_is_none(tmp_path):
    run, labels = run_of(tmp_path), labels_of(tmp_path)
    said = refused("judge-check", run, "--labels", labels, "--threshold", "nan", cwd=tmp_path)
    assert said == "--threshold is nan; expected a number that a label can reach"


@pytest.mark.parametrize(("scores", "label"), [((1, 1e308, 1e308), 1), ((1, -1e200, 0), 1), ((1, 0, 0), 1e200)])
def test_numbers_whose_squares_overflow_are_refused(tmp_path, scores, label):
    run = lines(tmp_path, *({"task": f"t{n}", "sample": 0, "reward": score} for n, score in enumerate(scores)))
    labels = labels_of(tmp_path, "t0,0,1", "t1,0,0", f"t2,0,{label}")
    said = refused("judge-check", run, "--labels", labels, "--format", "json", cwd=tmp_path)
    assert said.startswith("reward 'reward' or its labels have numbers beyond 1e+100, whose squares overflow; expected")


def test_what_is_left_out_is_counted(tmp_path):
    rows = [{"task": f"t{n}", "sample": 0, "reward": n % 2} for n in range(6)]
    run = lines(tmp_path, *rows, {"task": "t6", "sample": 0, "outcome": "judge_failed"})
    rows = ["t0,0,0,a", "t0,0,1,b", "t1,0,1,a", "t2,0,0,a", "t3,0,,a", "t6,0,1,a"]
    labels = labels_of(tmp_path, *rows, head="task,sample,label,rater")
    found = checked(run, "--labels", labels, cwd=tmp_path)
    (group,) = found["groups"]
    assert group["labelled"] == 3
    assert "excluded: 1 labelled rollout without a score of the judge" in group["notes"]
    assert "excluded from the judge's errors: 1 rollout on which raters are evenly split" in group["notes"]
    assert found["notes"] == ["labels.csv: 1 row without a label is excluded"]


def test_the_shapes_agree(tmp_path):
    run, labels = run_of(tmp_path), labels_of(tmp_path)
    (group,) = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    done = calipers("judge-check", run, "--labels", labels, "--format", "csv", cwd=tmp_path)
    table = {row["what"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert float(table["score.ppi++"]["low"]) == group["corrected"][0]["interval"][0]
    assert int(table["false_positives"]["value"]) == 12
    shown = calipers("judge-check", run, "--labels", labels, cwd=tmp_path).stdout
    assert shown.startswith("The corrected score is 0.680 (interval 0.59")
    assert "The judge alone gives 0.720; a bias of the judge is not shown" in " ".join(shown.split())
    markdown = calipers("judge-check", run, "--labels", labels, "--format", "md", cwd=tmp_path).stdout
    assert "| label: good | 60 | 8 |" in markdown


def test_from_python(tmp_path):
    run, labels = run_of(tmp_path), labels_of(tmp_path)
    found = cal.judge_check(tmp_path / run, tmp_path / labels)
    assert found.groups[0].score.method == "ppi++"
    assert found.to_polars().height == len(found.rows())


def test_the_headline_counts_the_runs(tmp_path):
    run, labels = tmp_path / run_of(tmp_path), labels_of(tmp_path)
    assert cal.judge_check(run, tmp_path / labels).headline().startswith("1 judged run against the labels in ")


def test_labels_that_were_picked_are_warned_of(tmp_path):
    """Labels on what the judge failed: 100 of 1100, of which it passes none, beside 792 of the others."""
    judged = [0] * 308 + [1] * 792
    run = lines(tmp_path, *({"task": f"t{n}", "sample": 0, "reward": one} for n, one in enumerate(judged)))
    labels = labels_of(tmp_path, *(f"t{n},0,{n % 2}" for n in range(100)))
    done = calipers("judge-check", run, "--labels", labels, cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert "warning: the labelled rollouts do not look like a random sample" in said
    assert "is 0.0000 over the 100 labelled and 0.7920 over the 1,000 others (permutation test, p 0.001)" in said
    (group,) = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    assert group["labelled_sample"] == {"labelled": 0.0, "others": 0.792, "p": 0.001}


def test_labels_drawn_at_random_are_not(tmp_path):
    done = calipers("judge-check", run_of(tmp_path), "--labels", labels_of(tmp_path), cwd=tmp_path)
    assert "warning" not in done.stdout
    (group,) = checked(run_of(tmp_path), "--labels", labels_of(tmp_path), cwd=tmp_path)["groups"]
    assert group["labelled_sample"]["p"] > 0.5


def two_rewards(tasks=300):
    """Judge and test pass half of the rollouts each, and disagree in a fifth of them, as often in each direction."""
    for number in range(tasks):
        judge = number % 2
        yield {"task": f"t{number}", "sample": 0, "rewards": {"judge": judge, "tests": judge ^ (number % 10 < 2)}}


def test_labels_picked_by_disagreement_are_warned_of(tmp_path):
    run = lines(tmp_path, *two_rewards())
    picked = [f"t{number},0,{number % 2}" for number in range(300) if number % 10 < 2]
    names = run, "--labels", labels_of(tmp_path, *picked), "--reward", "judge"
    (group,) = checked(*names, cwd=tmp_path)["groups"]
    (remark,) = group["remarks"]
    assert (remark["code"], remark["severity"]) == ("labels_disagreement", "warning")
    assert remark["values"]["labelled"] == 1.0
    assert remark["values"]["others"] == 0.0
    assert group["labelled_sample"]["p"] > 0.5  # the judge's mean is the same over both
    said = " ".join(calipers("judge-check", *names, cwd=tmp_path).stdout.split())
    assert (
        "warning: the labelled rollouts look as if they were picked by disagreement. judge and tests differ by" in said
    )


def test_what_cannot_be_shown_of_the_labels_stands_below_the_score(tmp_path):
    run = lines(tmp_path, *two_rewards())
    some = [f"t{number},0,{number % 2}" for number in range(0, 300, 7)]
    names = run, "--labels", labels_of(tmp_path, *some), "--reward", "judge"
    shown = calipers("judge-check", *names, cwd=tmp_path).stdout
    assert "No sign of a pick by judge, or by its disagreement with tests (smallest p" in " ".join(shown.split())
    alone = lines(tmp_path, *({"task": f"t{n}", "sample": 0, "reward": n % 2} for n in range(300)), name="alone.jsonl")
    shown = calipers("judge-check", alone, "--labels", "labels.csv", cwd=tmp_path).stdout
    assert shown.startswith("The corrected score is")
    assert "and this run cannot show that" in " ".join(shown.split())


def test_nothing_is_picked_if_all_rollouts_are_labelled(tmp_path):
    run = lines(tmp_path, *two_rewards(20))
    rows = [f"t{number},0,{number % 2}" for number in range(20)]
    (group,) = checked(run, "--labels", labels_of(tmp_path, *rows), "--reward", "judge", cwd=tmp_path)["groups"]
    assert (group["remarks"], group["picked"], group["labelled_sample"]) == ([], [], None)


def test_a_check_is_read_back(tmp_path):
    run = lines(tmp_path, *two_rewards())
    picked = [f"t{number},0,{number % 2}" for number in range(300) if number % 10 < 2]
    check = cal.judge_check(tmp_path / run, tmp_path / labels_of(tmp_path, *picked), reward="judge")
    assert cal.JudgeCheck.from_json(check.to_json()).to_dict() == check.to_dict()


def test_a_standard_error_beyond_the_range_is_not_shown(tmp_path):
    few = [(1, 1)] * 7 + [(1, 0)] * 5 + [(0, 1)] * 4 + [(0, 0)] * 3
    run = run_of(tmp_path, labelled=few, others=(40, 0))
    labels = labels_of(tmp_path, *(f"t{n},0,{label}" for n, (label, _) in enumerate(few)))
    (group,) = checked(run, "--labels", labels, cwd=tmp_path)["groups"]
    (found,) = [one for one in group["corrected"] if one["method"] == "rogan_gladen"]
    assert (found["stderr"], found["interval"]) == (None, None)
    assert "these labels do not determine it" in calipers("judge-check", run, "--labels", labels, cwd=tmp_path).stdout
