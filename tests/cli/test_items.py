import csv
import io
import json

import pytest
from cli.running import ARITH, calipers, lines, refused, rewards

import calipers as cal
from calipers.analyses import items as report
from calipers.cli.items import SORTS


def runs(folder, table):
    """A file for each run, from a row of rewards for each task: ``{"t": "0011"}`` is one sample in each of 4 runs."""
    count = len(next(iter(table.values())))
    return [
        lines(
            folder,
            *(
                {"task": task, "sample": 0, "model": f"m{n}", "reward": float(marks[n])}
                for task, marks in table.items()
                if marks[n] != "-"
            ),
            name=f"r{n}.jsonl",
        )
        for n in range(count)
    ]


# eight runs, better and better; "odd" is solved by the worse ones only
LADDER = {f"t{n}": "0" * n + "1" * (8 - n) for n in range(1, 8)} | {
    "easy": "11111111",
    "hard": "00000000",
    "odd": "11110000",
}


def looked_at(*arguments, cwd):
    done = calipers("items", *arguments, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_hard_easy_telling_and_contradicting_tasks(tmp_path):
    (table,) = looked_at(*runs(tmp_path, LADDER), cwd=tmp_path)["tables"]
    found = {item["task"]: item for item in table["items"]}
    assert (found["easy"]["kind"], found["hard"]["kind"], found["odd"]["kind"]) == ("everyone", "nobody", "contradicts")
    assert found["t2"]["difficulty"] == 0.25
    assert found["t4"]["discrimination"] > 0.6
    assert found["odd"]["discrimination"] < -0.8
    assert found["odd"]["p_contradicts"] <= 0.05
    assert found["easy"]["discrimination"] is None  # it does not vary
    assert table["kinds"] == {"everyone": 1, "nobody": 1, "contradicts": 1, "mixed": 7}
    assert any("8 tasks with a discrimination, up to 0.4 would be flagged" in note for note in table["notes"])


def test_one_run_has_difficulties_and_no_discrimination(tmp_path):
    (table,) = looked_at(rewards(tmp_path), cwd=tmp_path)["tables"]
    assert [(item["task"], item["difficulty"]) for item in table["items"]] == [
        ("2", 1.0),
        ("1", pytest.approx(2 / 3)),
        ("0", pytest.approx(1 / 3)),
        ("3", 0.0),
    ]
    assert "at least three runs" in table["why"]
    shown = calipers("items", rewards(tmp_path), cwd=tmp_path).stdout
    assert shown.startswith("4 tasks: 1 always solved, 1 never solved.")
    assert "everyone" not in shown  # one run is not everyone


def test_the_variance_is_divided_and_says_what_to_do(tmp_path):
    (table,) = looked_at(rewards(tmp_path), cwd=tmp_path)["tables"]
    (run,) = table["runs"]
    within = (1 / 3 + 1 / 3) / 4
    assert run["split"]["sampling"] == pytest.approx(within)
    # the task means 2/3, 1/3, 0, 1 have the variance 5/27, of which sampling explains within / 3
    assert run["split"]["tasks"] == pytest.approx(5 / 27 - within / 3)
    assert run["advice"].endswith("twice the tasks by 29 %")
    shown = calipers("items", rewards(tmp_path), cwd=tmp_path).stdout
    assert "more samples per task can narrow the interval" in " ".join(shown.split())


def test_one_sample_each_cannot_be_divided(tmp_path):
    (table,) = looked_at(rewards(tmp_path, [[1], [0]]), cwd=tmp_path)["tables"]
    assert table["runs"][0]["split"] is None
    assert table["runs"][0]["advice"] == "the variance cannot be split: no task has two samples"


def test_a_task_that_a_run_lacks_is_no_failure(tmp_path):
    (table,) = looked_at(*runs(tmp_path, {"a": "11", "b": "1-"}), cwd=tmp_path)["tables"]
    found = {item["task"]: item for item in table["items"]}
    assert (found["b"]["difficulty"], found["b"]["runs"], found["b"]["values"]) == (0.0, 1, [1.0, None])


def test_models_in_one_file_are_runs(tmp_path):
    rows = [{"task": "a", "sample": 0, "model": model, "reward": 1} for model in "xyz"]
    (table,) = looked_at(lines(tmp_path, *rows), cwd=tmp_path)["tables"]
    assert [run["name"] for run in table["runs"]] == ["x", "y", "z"]


def test_each_dataset_has_its_own_table(tmp_path):
    rows = [{"task": "a", "sample": 0, "dataset": name, "reward": 1} for name in ("one", "two")]
    tables = looked_at(lines(tmp_path, *rows), cwd=tmp_path)["tables"]
    assert [table["dataset"] for table in tables] == ["one", "two"]


def test_rewards_beyond_one_are_judged_by_their_passes(tmp_path):
    path = rewards(tmp_path, [[5, 0.5], [7, 9]])
    said = refused("items", path, cwd=tmp_path)
    assert "pass@k: rewards reach 9; say what passes, such as --threshold 7.2" in said
    (table,) = looked_at(path, "--threshold", "1", cwd=tmp_path)["tables"]
    assert table["of"] == "passes"
    assert {item["task"]: item["difficulty"] for item in table["items"]} == {"0": 0.5, "1": 0.0}


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("difficulty", "hard"),
        ("easiest", "easy"),
        ("discrimination", "odd"),
        ("contradiction", "odd"),
        ("information", "t6"),  # passed by the two best only
        ("task", "easy"),
    ],
)
def test_the_order_of_tasks(tmp_path, sort, first):
    files = runs(tmp_path, LADDER)
    found = cal.items(*(tmp_path / name for name in files), sort=sort).tables[0].items
    assert found[0].task == first
    assert len(found) == len(LADDER)


def test_tasks_that_the_first_run_lacks_are_in_order_too(tmp_path):
    files = runs(tmp_path, {"b": "10", "c": "00", "a": "-0"})
    (table,) = looked_at(*files, "--sort", "task", cwd=tmp_path)["tables"]
    assert [item["task"] for item in table["items"]] == ["a", "b", "c"]


def test_the_command_knows_every_order():
    assert SORTS == report.SORTS
    with pytest.raises(cal.InputError, match="did you mean 'easiest'"):
        cal.items([[1]], sort="easyest")


def test_information_takes_five_runs(tmp_path):
    files = runs(tmp_path, LADDER)
    (table,) = looked_at(*files, "--sort", "information", cwd=tmp_path)["tables"]
    told = [item["information"] for item in table["items"]]
    assert told == sorted(told, reverse=True)
    assert table["why_information"] is None
    assert table["items"][-1]["task"] == "odd"  # better runs fail it
    assert told[-1] == 0
    (table,) = looked_at(*files[:4], cwd=tmp_path)["tables"]
    assert {item["information"] for item in table["items"]} == {None}
    assert table["why_information"] == "it needs at least five runs"
    shown = calipers("items", *files, cwd=tmp_path).stdout
    assert "information" in shown
    fewer = calipers("items", *files[:4], cwd=tmp_path).stdout
    assert "no information: it needs at least five runs" in fewer
    alone = calipers("items", files[0], cwd=tmp_path).stdout
    assert "information" not in alone  # one note, on discrimination, is enough where nobody asked


def test_limit_cuts_what_is_shown(tmp_path):
    shown = calipers("items", ARITH, "--limit", "3", cwd=tmp_path).stdout
    assert "3 of 40 tasks, sorted by difficulty; --limit 0 shows all" in shown
    assert len(looked_at(ARITH, cwd=tmp_path)["tables"][0]["items"]) == 40
    assert len(looked_at(ARITH, "--limit", "3", cwd=tmp_path)["tables"][0]["items"]) == 3


def test_the_shapes_agree(tmp_path):
    files = runs(tmp_path, LADDER)
    (table,) = looked_at(*files, cwd=tmp_path)["tables"]
    done = calipers("items", *files, "--format", "csv", cwd=tmp_path)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["task"], float(row["difficulty"]), row["kind"]) for row in rows] == [
        (item["task"], item["difficulty"], item["kind"]) for item in table["items"]
    ]
    assert "all runs solve 1, no run solves 1, 1 contradicts the rest. 20 % of the tasks do not separate" in calipers(
        "items", *files, cwd=tmp_path
    ).stdout.replace("\n  ", " ")
    assert "| `odd` | 0.500 |" in calipers("items", *files, "--format", "md", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sort", "hard"], "invalid value for '--sort': 'hard' is not one of 'difficulty'"),
        (["--limit", "-1"], "--limit is -1; expected a number of tasks, or 0 for all"),
        ([ARITH], f"{ARITH}: is given twice; expected different runs"),
        (["--reward", "accuracy"], "no reward named 'accuracy'; known: reward"),
        (["--cluster", "author"], "--cluster author: task 'add-00' has no 'author'"),
        (["--missing", "fail"], "17 of 320 rollouts are missing; --missing gap excludes them"),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, said):
    code = 3 if "fail" in arguments else 2
    assert refused("items", ARITH, *arguments, cwd=tmp_path, code=code).startswith(said)


def test_no_rewards_nothing_to_say(tmp_path):
    assert refused("items", rewards(tmp_path, [[None]]), cwd=tmp_path).startswith("no rollout has a reward")


def test_runs_without_a_common_reward_say_so(tmp_path):
    files = [
        lines(tmp_path, *({"task": "a", "sample": 0, "rewards": dict.fromkeys(keys, 1)},), name=f"{keys}.jsonl")
        for keys in ("xy", "vw")
    ]
    said = refused("items", *files, cwd=tmp_path)
    assert said.startswith("the runs have no reward in common: xy.jsonl has x, y; vw.jsonl has v, w")


def test_tasks_of_one_run_alone_tell_nothing_of_the_others(tmp_path):
    paths = runs(tmp_path, {"a": "1-", "b": "0-", "both": "11", "c": "-1"})
    said = " ".join(calipers("items", *paths, cwd=tmp_path).stdout.split("\n\n")[0].split())
    assert said == (
        "4 tasks: all runs solve 3, no run solves 1. The only task that several runs have does not "
        "separate them. Only one run has 3 of the tasks, which cannot separate runs."
    )


def test_p_says_what_of(tmp_path):
    files = runs(tmp_path, LADDER)
    shown = " ".join(calipers("items", *files, cwd=tmp_path).stdout.split())
    assert "discrimination p (contradicts) information" in shown
    assert "p (contradicts): one-sided p of a discrimination this low, for a task that does not separate runs" in shown
    assert "p (contradicts)" not in calipers("items", files[0], cwd=tmp_path).stdout  # one run has none
