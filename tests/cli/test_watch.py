"""``calipers watch`` and ``gate --history`` as a user types them."""

import json
import os
import signal
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from cli.running import MAIN, calipers
from waiting import PATIENCE, until
from watch_steps import write_run


@pytest.fixture
def quiet(tmp_path):
    """A folder of steps without a change."""
    write_run(tmp_path / "run", 8, tasks=60)
    return tmp_path


@pytest.fixture
def dropped(tmp_path):
    """A folder of steps with a drop."""
    write_run(tmp_path / "run", 16, drop=0.25, at=9, tasks=60)
    return tmp_path


def test_exit_codes(quiet):
    once = calipers("watch", "run", "--once", cwd=quiet)
    assert (once.returncode, once.stderr) == (0, "")
    assert "No alarm in 8 steps." in once.stdout
    assert "at most 5 %" in once.stdout
    write_run(quiet / "run", 6, drop=0.3, at=0, first=8, tasks=60)
    assert calipers("watch", "run", "--once", cwd=quiet).returncode == 1
    assert calipers("watch", "nowhere", "--once", cwd=quiet).returncode == 2
    (quiet / "empty").mkdir()
    assert calipers("watch", "empty", "--once", cwd=quiet).returncode == 3


def test_an_alarm_in_every_shape(dropped):
    table = calipers(
        "watch", "run", "--once", "--alarm", "drop(pass@1) > 0.02", "--junit", "j.xml", "--out", "w.json", cwd=dropped
    )
    assert table.returncode == 1
    assert "Look closer: calipers compare" in table.stdout
    document = json.loads((dropped / "w.json").read_text())
    assert document["schema"] == "calipers.watch/1"
    assert (document["exit_code"], len(document["raised"])) == (1, 1)
    assert document == json.loads(calipers("watch", "run", "--once", "--format", "json", cwd=dropped).stdout)
    suites = ElementTree.fromstring((dropped / "j.xml").read_text())
    assert suites.get("failures") == "1"
    rows = calipers("watch", "run", "--once", "--format", "csv", cwd=dropped).stdout.splitlines()
    assert rows[0].startswith("series,metric,step,value,low,high,band_low,band_high")
    assert len([row for row in rows if row.startswith(",reward,")]) == 16
    assert "▼ lower" in calipers("watch", "run", "--once", "--format", "md", cwd=dropped).stdout


def test_an_alarm_is_told_once_and_without_prompts(dropped):
    tell = f'{sys.executable} -c \'import sys; open("told", "a").write(sys.stdin.read() + "\\n")\''
    arguments = ("watch", "run", "--once", "--alarm", "drop(pass@1) > 0.02", "--notify", tell)
    assert calipers(*arguments, cwd=dropped).returncode == 1
    assert calipers(*arguments, cwd=dropped).returncode == 1
    (message,) = [json.loads(line) for line in (dropped / "told").read_text().splitlines()]
    assert message["schema"] == "calipers.watch_alarm/1"
    assert message["alarm"]["since"] in (8, 9, 10)
    assert message["alarm"]["rollouts"] == []


def test_a_live_watch_finds_what_comes_and_ends_with_its_answer(quiet):
    log = quiet / "log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "watch", "run", "--every", "0.1", "--alarm", "drop(pass@1) > 0.02"],
            cwd=quiet,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        until(lambda: b"step 7: No alarm in 8 steps." in log.read_bytes(), "the first look")
        write_run(quiet / "run", 6, drop=0.3, at=0, first=8, tasks=60)
        (quiet / "run" / "step_99.jsonl").write_text('{"task": "q0", "reward": "torn')
        until(lambda: b"1 alarm: drop(pass@1) > 0.02" in log.read_bytes(), "the alarm")
        until(lambda: b"step_99.jsonl" in log.read_bytes(), "the note on the torn file")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 1
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_live_watch_without_a_standard_output_looks_until_it_is_stopped(quiet):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", MAIN, "watch", "run", "--every", "0.1"]
    with open(quiet / "log", "wb") as file:
        process = subprocess.Popen(command, cwd=quiet, stderr=file)
    try:
        until(lambda: b"step 7: No alarm in 8 steps." in (quiet / "log").read_bytes(), "the first look")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 2
        assert b"standard output: is closed" in (quiet / "log").read_bytes()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_checkpoints_are_evaluated_one_by_one(tmp_path):
    """A user's command runs on names that a shell would split; one of its evaluations fails."""
    for name in ("step 1; rm x", "step_2", "step_3"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    program = tmp_path / "evaluate.py"
    program.write_text(
        "import json, sys\n"
        "name, out = sys.argv[1:]\n"
        "if name == 'step_3': sys.exit('no such model')\n"
        "rows = [json.dumps({'task': t, 'sample': 0, 'reward': 1.0}) for t in range(5)]\n"
        "open(out + '/rollouts.jsonl', 'w').write('\\n'.join(rows) + '\\n')\n"
        "open('done', 'a').write(name + '\\n')\n"
    )
    command = f"{sys.executable} evaluate.py {{name}} {{out}}"
    for _ in range(2):  # the second look evaluates only the failed checkpoint again
        found = calipers("watch", "checkpoints", "--once", "--eval", command, "--format", "json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "done").read_text().splitlines() == ["step 1; rm x", "step_2"]
    assert "--eval of step_3: exit code 1: no such model" in found.stderr
    points = json.loads(found.stdout)["series"][0]["curves"][0]["points"]
    assert [point["step"] for point in points] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alarm", "drop(x"], "cannot be read"),
        (["--false-alarms", "0.9"], "0.9"),
        (["--steps", "0"], "0"),
        (["--confidence", "1"], "confidence is 1.0; expected a number between 0 and 1"),
        (["--range", "1,0"], "range is 1,0; expected two numbers, the lower one first"),
        (["--eval", "run {model} {out}"], "no placeholder {model}; expected {name}, {path}, {out}"),
        (["--eval", "run {name}"], "has no {out}"),
        (["--log", "wandbb"], "no tracker named 'wandbb'; did you mean 'wandb'"),
        (["--notify", ""], "--notify: is empty"),
        (["--accept", "99"], "--accept: step 99 is not there yet"),
        (["--input-format", "verll"], "no format named 'verll'"),
        (["--metric", "pass@1"], "--metric: is the metric of --best; add --best"),
        (
            ["--best", "--format", "junit"],
            "--format junit: has alarms, not steps; --junit FILE writes them beside --best",
        ),
    ],
)
def test_wrong_input_is_told_by_name(quiet, arguments, message):
    found = calipers("watch", "run", "--once", *arguments, cwd=quiet)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_another_range_is_told_as_it_is_written(quiet):
    calipers("watch", "run", "--once", "--range", "0,10", cwd=quiet)
    found = calipers("watch", "run", "--once", "--range", "0,5", cwd=quiet)
    assert "was begun with another --range: 0,10; expected the same" in found.stderr


def test_the_best_step_with_and_without_a_watch(quiet):
    watched = calipers("watch", "run", "--best", cwd=quiet)
    ranked = calipers("leaderboard", "--steps", "run", cwd=quiet)
    assert watched.returncode == ranked.returncode == 0
    assert watched.stdout.splitlines()[1:] == ranked.stdout.splitlines()[1:]
    assert "of it is luck" in ranked.stdout
    assert "may be best" in ranked.stdout
    wrong = calipers("leaderboard", "--steps", "run", "--confidence", "1", cwd=quiet)
    assert (wrong.returncode, "confidence is 1.0" in wrong.stderr) == (2, True)
    missing = calipers("leaderboard", "--steps", "run", "--metric", "f1", cwd=quiet)
    assert missing.returncode == 2
    assert "has no 'f1'" in missing.stderr
    twice = calipers("watch", "run", "--once", "--junit", "j", "--out", "j", cwd=quiet)
    assert (twice.returncode, twice.stderr) == (2, "j: would be written twice; expected a file for each\n")
    gone = calipers("leaderboard", "--steps", "run", "--plugin", "gone.py", cwd=quiet)
    assert (gone.returncode, gone.stderr.startswith("gone.py: ")) == (2, True)


def test_nights_are_kept_and_a_lasting_drop_fails_the_gate(dropped):
    words = []
    for night in range(14):
        found = calipers("gate", f"run/step_{night}.jsonl", "--history", "nights.json", cwd=dropped)
        words.append(found.returncode)
    assert words[:9] == [0] * 9
    assert 1 in words[9:]
    history = json.loads((dropped / "nights.json").read_text())
    assert history["schema"] == "calipers.history/1"
    assert len(history["nights"]) == 14
    before = (dropped / "nights.json").read_bytes()
    again = calipers("gate", "run/step_3.jsonl", "--history", "nights.json", cwd=dropped)
    assert again.returncode == 0
    assert "are night 4 of the history already" in again.stderr
    assert (dropped / "nights.json").read_bytes() == before


def test_a_history_says_how_often_its_baseline_was_compared(quiet):
    for night in range(5):
        found = calipers("gate", f"run/step_{night}.jsonl", "--history", "n.json", cwd=quiet)
    assert "This baseline has been compared 4 times." in " ".join(found.stdout.split())


@pytest.mark.parametrize("rule", ["lord++", "e-lond"])
def test_tests_of_each_night_on_request(dropped, rule):
    results = [
        calipers("gate", f"run/step_{night}.jsonl", "--history", "n.json", "--online", rule, cwd=dropped)
        for night in (0, 1, 2, 12)
    ]
    assert [found.returncode for found in results] == [0, 0, 0, 1]
    assert "level" in results[-1].stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alarm", "rate(truncated) > 0.1"], "is no regression"),
        (["--online", "lordd"], "no rule named 'lordd'"),
    ],
)
def test_wrong_rules_of_a_history(quiet, arguments, message):
    found = calipers("gate", "run/step_0.jsonl", "--history", "n.json", *arguments, cwd=quiet)
    assert found.returncode == 2
    assert message in found.stderr
    assert not (quiet / "n.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"rule": "lord"},
        {"nights": 5},
        {"nights": [{"number": "1", "path": "a", "digest": "d", "value": 0.5}]},
        {"nights": [{"number": 1, "path": "a", "digest": "d", "value": 0.5, "raised": "no"}]},
        {"monitor": {}},
    ],
)
def test_a_damaged_history_is_refused(quiet, damage):
    assert calipers("gate", "run/step_0.jsonl", "--history", "n.json", cwd=quiet).returncode == 0
    history = json.loads((quiet / "n.json").read_text())
    (quiet / "n.json").write_text(json.dumps(history | damage))
    refusal = calipers("gate", "run/step_1.jsonl", "--history", "n.json", cwd=quiet)
    assert (refusal.returncode, "n.json: is damaged; restore it" in refusal.stderr) == (2, True)


def test_a_history_reads_rewards_that_are_words(quiet):
    (quiet / "words.jsonl").write_text('{"task": "a", "ok": "yes"}\n{"task": "b", "ok": "no"}\n')
    options = ("--columns", "reward=ok", "--truth", "yes=1,no=0", "--require", "mean_reward > 0.4")
    found = calipers("gate", "words.jsonl", "--history", "n.json", *options, cwd=quiet)
    assert (found.returncode, found.stdout.count("PASS")) == (0, 1), found.stderr
    assert "NO ALARM" in found.stdout


def test_a_history_from_standard_input_has_no_requirements(quiet):
    rollouts = (quiet / "run" / "step_0.jsonl").read_bytes()
    both = ("gate", "-", "--history", "n.json", "--require", "mean_reward > 0")
    refusal = calipers(*both, cwd=quiet, stdin=rollouts)
    assert (refusal.returncode, "--history: standard input can be read only once" in refusal.stderr) == (2, True)
    assert not (quiet / "n.json").exists()
    assert calipers(*both[:4], cwd=quiet, stdin=rollouts).returncode == 0


def test_a_history_keeps_its_rules_and_refuses_what_is_none(quiet):
    assert calipers("gate", "run/step_0.jsonl", "--history", "n.json", cwd=quiet).returncode == 0
    other = calipers("gate", "run/step_1.jsonl", "--history", "n.json", "--nights", "9", cwd=quiet)
    assert "was begun with --nights 180" in other.stderr
    for text in (b"{}", b'{"a": "\xff"}', b"[" * 100_000):
        (quiet / "n.json").write_bytes(text)
        refusal = calipers("gate", "run/step_1.jsonl", "--history", "n.json", cwd=quiet)
        assert (refusal.returncode, "n.json: is not a history" in refusal.stderr) == (2, True)
    alone = calipers("gate", "run/step_1.jsonl", "--online", "lord++", "--require", "pass@1 > 0", cwd=quiet)
    assert "--online: needs --history FILE" in alone.stderr
    for option, value in (("--false-alarms", "0.1"), ("--nights", "9")):
        alone = calipers("gate", "run/step_1.jsonl", option, value, "--require", "pass@1 > 0", cwd=quiet)
        assert (alone.returncode, f"{option}: needs --history FILE" in alone.stderr) == (2, True)


def test_a_state_elsewhere_leaves_the_folder_alone(quiet):
    os.chmod(quiet / "run", 0o555)
    try:
        found = calipers("watch", "run", "--once", "--state", "kept", cwd=quiet)
        assert found.returncode == 0, found.stderr
        assert not (quiet / "run" / ".calipers-watch").exists()
        assert (quiet / "kept" / "watch.log").exists()
    finally:
        os.chmod(quiet / "run", 0o755)
