"""``--truth`` beside ``--columns``: rewards that are words, in every command that reads rollouts."""

import pytest
from cli.running import calipers, refused

NAMES = ["--columns", "task=id,reward=ok,sample=#"]
TRUTH = ["--truth", "yes=1,no=0"]


@pytest.fixture
def home(tmp_path):
    for name, words in (("a", "yes no yes yes no no"), ("b", "Yes yes yes yes no yes")):
        rows = [f"q{number // 2},{word}\n" for number, word in enumerate(words.split())]
        (tmp_path / f"{name}.csv").write_text("id,ok\n" + "".join(rows))
    (tmp_path / "labels.csv").write_text("task,sample,label\nq0,0,1\nq1,1,1\nq2,0,0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["score", "a.csv"], "mean_reward   0.500"),
        (["compare", "a.csv", "b.csv"], "mean_reward   0.500   0.833   +0.333"),
        (["curve", "a.csv"], "2   0.667"),
        (["items", "a.csv", "b.csv"], "3 tasks: all runs solve 1, no run solves 0."),
        (["judge-check", "a.csv", "--labels", "labels.csv"], "3 rollouts of 3 tasks"),
        (["gate", "b.csv", "--baseline", "a.csv", "--require", "delta(mean_reward) > 0"], "Passed: 1 of 1 rule."),
        (["plan", "a.csv"], "3 tasks with about 2 samples each"),
    ],
)
def test_words_are_rewards(home, command, shown):
    done = calipers(*command, *NAMES, *TRUTH, cwd=home)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    refusal = calipers(*command, *NAMES, cwd=home)
    assert refusal.returncode == 2
    assert "--truth yes=1,no=0" in refusal.stderr


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [("yes=1,no", "'no' cannot be read"), ("=1", "'=1' cannot be read"), ("yes=1,yes=0", "'yes=0' is given twice")],
)
def test_what_cannot_be_read(home, truth, wrong):
    right = "expected WORD=NUMBER for each word, such as yes=1,no=0"
    assert refused("score", "a.csv", *NAMES, "--truth", truth, cwd=home) == f"--truth: {wrong}; {right}"


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        ("yes=nan", "'yes' is nan; expected a finite number"),
        ("yes=1e999", "'yes' is inf; expected a finite number"),
        (
            "yes=1,Yes=0",
            "'Yes' has two rewards, for upper and lower case are the same; expected one reward for each word",
        ),
    ],
)
def test_what_no_reward_can_be(home, truth, wrong):
    assert refused("score", "a.csv", *NAMES, "--truth", truth, cwd=home) == f"--truth: {wrong}"
    assert calipers("score", "a.csv", *NAMES, "--truth", "yes=1,YES=1,no=0", cwd=home).returncode == 0
