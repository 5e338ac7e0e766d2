import hashlib
import json
import os

import pytest
from cli.running import ARITH, calipers, lines, refused, rewards, run, scored

from calipers.reports.result import canonical

FIVE = [word for name in ("mean_reward", "pass_rate", "pass@1", "pass@3", "pass^3") for word in ("--metric", name)]


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("evsys", [0.5, 0.5, 0.75, 0.75, 0.25]),
        ("native", [0.5, 0.5, 0.5, 0.75, 0.25]),  # pass@1: every sample counts, not the first alone
    ],
)
def test_the_same_words_in_two_dialects(tmp_path, dialect, expected):
    (group,) = scored(rewards(tmp_path), *FIVE, "--dialect", dialect, cwd=tmp_path)["groups"]
    assert [estimate["value"] for estimate in group["metrics"].values()] == expected


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ("evsys", "any pass among the first 3 samples, in order"),
        ("native", "unbiased estimate: probability of a pass in 3 samples (Chen et al. 2021)"),
    ],
)
def test_each_number_says_which_it_is(tmp_path, dialect, said):
    ask = ("score", rewards(tmp_path), "--metric", "pass@3", "--dialect", dialect)
    short = calipers(*ask, cwd=tmp_path).stdout
    assert (f"  pass@3: {said}\n" in short) == (dialect == "evsys")  # a name that means something else says so
    assert ("evsys rules; sha256:" in short) == (dialect == "evsys")
    done = calipers(*ask, "--details", cwd=tmp_path)
    name, note = [line for line in done.stdout.splitlines() if "pass@3" in line or said in line]
    assert name.split()[:3] == ["pass@3", "↑", "0.7500"]
    assert note.strip() == said
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "pas@3"], "no metric named 'pas@3'; did you mean 'pass@{k}'"),
        (["--metric", "pass@0"], "metric 'pass@0': k is 0; expected a positive integer"),
        (["--dialect", "evsyz"], "no dialect named 'evsyz'; did you mean 'evsys'?"),
        (["--interval", "wilsn"], "no interval named 'wilsn'; did you mean 'wilson'?"),
        (["--columns", "task"], "--columns: 'task' cannot be read; expected ROLE=KEY, such as task=id"),
        (["--columns", "tsak=a"], "no role for --columns named 'tsak'; did you mean 'task'?"),
        (["--range", "1"], "--range: '1' cannot be read; expected LOW,HIGH, such as -1,1"),
        (["--range", "0.5,1"], "task '"),
        (
            ["--metric", "any_of_first_3(short=no)"],
            "metric 'any_of_first_3(short=no)': short is 'no'; expected undefined",
        ),
        (["--metrc", "pass@3"], "no option '--metrc'; did you mean '--metric' or '--metric-script' or '--mean'?"),
        (["--plugin", "nowhere.py"], "nowhere.py: "),
        (["--out", "no/such/result.json"], "no/such/result.json: there is no folder 'no/such'; create it first"),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, said):
    assert refused("score", ARITH, *arguments, cwd=tmp_path).startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "pass@" + "9" * 5000], "no metric named 'pass@9"),
        (["--metric", "mean(column=f3)"], "no column of numbers named 'f3'; did you mean 'f1'?"),
        (["--metric", "mean"], "metric 'mean' needs column"),
        (["--metric", "pass@3("], "metric 'pass@3(' cannot be read"),
        (["--dialect", "evsys", "--metric", "pass@5"], "no evsys metric named 'pass@5'; it is a native name"),
        (["--columns", "task=a,task=b"], "--columns: task is given twice; expected it once"),
        (["--confidence", "95"], "confidence is 95.0; expected a number between 0 and 1"),
        (["--confidence", "high"], "invalid value for '--confidence': 'high' is not a valid float"),
        (["--seed", "-1"], "seed is -1; expected an integer >= 0"),
        (["--missing", "drop"], "invalid value for '--missing': 'drop' is not one of 'gap', 'zero', 'fail'"),
        (["--format", "xml"], "invalid value for '--format': 'xml' is not one of 'table', 'json', 'csv', 'md'"),
        (["--cluster", "author"], "--cluster author: task 'add-00' has no 'author'"),
        (["--reward", "accuracy"], "no reward named 'accuracy'; known: reward"),
        (["--out", "."], ".: is a directory; expected a file, such as result.json"),
        (["--out", "-"], "'-' is not a file; expected a path, such as result.json"),
    ],
)
def test_nor_is_anything_else(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert run(["score", ARITH, *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(said)
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_a_usage_error(tmp_path):
    assert refused("score", cwd=tmp_path) == "missing argument 'PATH...'; see calipers score --help"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--metric", "pas@3"], 2), (["--missing", "fail"], 3), (["--cluster", "author"], 2)],
)
def test_a_failure_leaves_the_result_file_as_it_was(tmp_path, arguments, code):
    (tmp_path / "result.json").write_text("what was there before")
    refused("score", ARITH, "--out", "result.json", *arguments, cwd=tmp_path, code=code)
    assert (tmp_path / "result.json").read_text() == "what was there before"


@pytest.mark.parametrize(
    "option",
    [["--cache", "c"], ["--out", "r.json"], ["--format", "json"], ["--details"], ["--economics"], ["--all"]],
)
def test_an_option_that_does_not_apply_to_a_partial_score_is_refused(tmp_path, option):
    said = refused("score", ARITH, "--partial", "p", *option, cwd=tmp_path)
    assert said == f"{option[0]}: cannot be combined with --partial; leave one of them out"


def test_missing_rollouts_can_be_refused(tmp_path):
    said = refused("score", ARITH, "--missing", "fail", cwd=tmp_path, code=3)
    assert said.startswith("17 of 320 rollouts are missing (scored 281, refused 8,")


def test_the_input_is_not_overwritten(tmp_path):
    name = rewards(tmp_path)
    os.symlink(name, tmp_path / "link.json")
    said = "link.json: is one of the files to be read; expected another file"
    assert refused("score", name, "--out", "link.json", cwd=tmp_path) == said


def test_the_result_file_is_what_json_prints(tmp_path):
    name = rewards(tmp_path)
    done = calipers("score", name, "--format", "json", "--out", "result.json", cwd=tmp_path)
    assert (tmp_path / "result.json").read_text() == done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", name]


OUTSIDE = ("economics", "warnings", "remarks", "ends_seen")  # of the digest


def test_the_document_has_every_key_and_proves_its_digest(tmp_path):
    document = scored(ARITH, "--metric", "pass@3", "--by", "difficulty", cwd=tmp_path)
    keys = ("schema", "calipers", "dialect", "missing", "confidence", "seed", "inputs", "groups", "suites", "digest")
    assert tuple(document) == keys
    (group,) = document["groups"]
    assert {"agent", "model", "dataset", "ledger", "metrics", "breakdowns", "economics"} <= group.keys()
    assert {"planned", "planned_from", "tasks", "scored", "gaps", "outcomes"} <= group["ledger"].keys()
    fields = ("value", "stderr", "interval", "method", "tasks", "samples", "undefined_tasks", "bounds")
    assert {*fields, "higher_is_better", "why", "signature"} <= group["metrics"]["pass@3"].keys()
    assert set(group["breakdowns"]["difficulty"]) == {"easy", "hard"}
    assert {"path", "format", "sha256", "rollouts"} == document["inputs"][0].keys()

    kept = {key: document[key] for key in ("dialect", "missing", "confidence", "seed")}
    kept["groups"] = [{key: part for key, part in group.items() if key not in OUTSIDE}]
    for part in (group, *group["breakdowns"]["difficulty"].values()):
        for later in ("passed", "samples_per_task", "tasks_passed"):
            del part["ledger"][later]
    assert document["digest"] == "sha256:" + hashlib.sha256(canonical(kept)).hexdigest()


def test_an_interval_by_name(tmp_path):
    first, again = (scored(ARITH, "--interval", "exact", cwd=tmp_path) for _ in range(2))
    (group,) = first["groups"]
    assert {one["method"] for one in group["metrics"].values()} == {"clopper-pearson"}
    assert group["economics"]["time_per_task"]["method"] == "t"  # nobody asked for it: it has no range
    assert first["digest"] == again["digest"] != scored(ARITH, cwd=tmp_path)["digest"]


RETRIED = [[0] * (n - 1) + [1] for n in (1, 1, 1, 2, 2, 3, 3, 4)] + [[0] * 4] * 4


@pytest.mark.parametrize("shape", ["table", "md", "json"])
def test_sample_counts_that_depend_on_results_are_said_beside_the_numbers(tmp_path, shape):
    done = calipers("score", rewards(tmp_path, RETRIED), "--metric", "pass@2", "--format", shape, cwd=tmp_path)
    assert "7 of 12 tasks stop at their first pass" in " ".join(done.stdout.replace("\\", "").split())
    assert "any_of_first_2 is not" in " ".join(done.stdout.replace("\\", "").split())
    assert "unbiased" not in done.stdout
    assert done.stderr == ""


def test_csv_has_no_room_for_warnings(tmp_path):
    done = calipers("score", rewards(tmp_path, RETRIED), "--format", "csv", cwd=tmp_path)
    assert done.stderr.startswith("warning: 7 of 12 tasks stop at their first pass")
    assert "warning" not in done.stdout


def test_a_known_range(tmp_path):
    name = rewards(tmp_path, [[-1, 2], [0, 2], [2, 2]])
    (group,) = scored(name, "--range", "-1,2", "--metric", "mean_reward", cwd=tmp_path)["groups"]
    assert group["metrics"]["mean_reward"]["method"] == "wilson_t"
    said = refused("score", name, "--range", "-1,1.5", cwd=tmp_path)
    assert said == "task '0' sample 1: reward is 2; expected -1 to 1.5, the given --range"


def test_json_is_strict(tmp_path):
    (tmp_path / "nan.json").write_text("[[NaN, 1], [1, 0]]")
    done = calipers("score", "nan.json", "--format", "json", cwd=tmp_path)

    def no_constant(word):
        raise AssertionError(word)

    document = json.loads(done.stdout, parse_constant=no_constant)
    assert document["groups"][0]["metrics"]["mean_reward"]["value"] is None
    assert document["groups"][0]["metrics"]["mean_reward"]["why"] == "1 reward is NaN"


def test_standard_input(tmp_path):
    rows = '{"task": "a", "reward": 1}\n{"task": "b", "reward": 0}\n'
    document = scored("-", cwd=tmp_path, stdin=rows)
    assert document["groups"][0]["metrics"]["mean_reward"]["value"] == 0.5
    assert document["inputs"][0]["path"] == "-"


def test_other_names_for_the_columns(tmp_path):
    name = lines(tmp_path, {"id": "a", "score": 1, "tries": 2}, {"id": "b", "score": 0, "tries": 5})
    both = scored(name, "--columns", "task=id", "--columns", "reward=score", cwd=tmp_path)
    assert both["groups"][0]["metrics"]["mean_reward"]["value"] == 0.5


def test_several_files_are_one_set(tmp_path):
    one = lines(tmp_path, {"task": "a", "reward": 1}, name="one.jsonl")
    two = lines(tmp_path, {"task": "b", "reward": 0}, name="two.jsonl")
    assert scored(one, two, cwd=tmp_path)["groups"][0]["ledger"]["tasks"] == 2


def test_notes_go_to_standard_error(tmp_path):
    done = calipers("score", rewards(tmp_path), "--by", "level", "--format", "json", cwd=tmp_path)
    assert json.loads(done.stdout)["groups"][0]["breakdowns"]["level"].keys() == {"__missing__"}
    assert done.stderr == "note: no rollout has 'level': all rollouts are in the slice __missing__\n"


def test_a_plugin_brings_a_metric(tmp_path):
    (tmp_path / "worst.py").write_text(
        "from evsys_sdk.registry import register_metric\n"
        "@register_metric('worst')\n"
        "class Worst:\n"
        "    def compute(self, task_rewards):\n"
        "        return min(sum(rs) / len(rs) for rs in task_rewards)\n"
    )
    done = calipers("score", rewards(tmp_path), "--plugin", "worst.py", "--metric", "worst", "--details", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "computed by a plugin from all rewards" in done.stdout


def test_what_a_plugin_prints_is_no_data(tmp_path):
    (tmp_path / "loud.py").write_text(
        "from evsys_sdk.registry import register_metric\n"
        "print('hello')\n"
        "@register_metric('loud')\n"
        "class Loud:\n"
        "    def compute(self, task_rewards):\n"
        "        print('again')\n"
        "        return 0.0\n"
    )
    arguments = ("--plugin", "loud.py", "--metric", "loud", "--format", "json")
    done = calipers("score", rewards(tmp_path), *arguments, cwd=tmp_path)
    assert json.loads(done.stdout)["groups"][0]["metrics"]["loud"]["value"] == 0
    assert done.stderr.startswith("hello\nagain\n")


def test_a_plugin_that_ends_the_process_does_not_end_it_silently(tmp_path):
    (tmp_path / "quits.py").write_text(
        "from evsys_sdk.registry import register_metric\n"
        "@register_metric('quits')\n"
        "class Quits:\n"
        "    def compute(self, task_rewards):\n"
        "        raise SystemExit(0)\n"
    )
    name = rewards(tmp_path)
    done = calipers("score", name, "--plugin", "quits.py", "--metric", "quits", cwd=tmp_path)
    assert done.returncode == 2
    assert "SystemExit" in done.stderr
    assert len(done.stderr.splitlines()) == 1
