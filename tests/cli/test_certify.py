"""``calipers certify``, ``verify`` and ``audit`` as a user types them."""

import json
from pathlib import Path

import pytest
from cli.running import ARITH, calipers, refused


@pytest.fixture
def certified(tmp_path):
    assert calipers("certify", "--new-key", "key", cwd=tmp_path).returncode == 0
    done = calipers("certify", ARITH, "-o", "c.json", "--key", "key", "--metric", "pass@3", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: 5" in done.stderr  # of missing rollouts
    assert done.stdout.endswith("result.tree: the salts and hashes of 320 rollouts\n")
    return tmp_path


def test_a_run_is_certified_and_verified(certified):
    done = calipers("verify", "c.json", ARITH, "--key", "key.pub", cwd=certified)
    assert done.returncode == 0
    assert "verified: everything that the certificate says was checked, and holds" in done.stdout
    assert "pass@3" in done.stdout
    assert calipers("verify", "c.json", ARITH, cwd=certified).returncode == 3
    document = json.loads(calipers("verify", "c.json", "--format", "json", cwd=certified).stdout)
    assert (document["schema"], document["state"]) == ("calipers.verification/1", "not known")


def test_rollouts_are_shown(certified):
    shown = ("certify", ARITH, "--show", "add-3", "--tree", "result.tree")
    task = json.loads(Path(ARITH).read_text().splitlines()[0])["task"]
    done = calipers("certify", ARITH, "--show", f"{task}#0", "--tree", "result.tree", cwd=certified)
    assert (done.returncode, done.stdout) == (0, f"shown.json: the proof of {task}#0\n")
    verified = calipers("verify", "c.json", "shown.json", "--key", "key.pub", cwd=certified)
    assert verified.returncode == 3
    assert "is certified: " in verified.stdout
    assert refused(*shown, "-o", "s.json", cwd=certified).startswith("--show: no rollout of task 'add-3'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("certify",), "no run; expected a run, files of rollouts or a result"),
        (
            ("certify", ARITH, "--new-key", "k"),
            "--new-key: writes a key and nothing else; run the command again with --key",
        ),
        (
            ("certify", ARITH, "--show", "t"),
            "--show: there is no tree file; expected --tree FILE, as calipers certify wrote it",
        ),
        (("certify", "--new-key", "k", "-o", "c"), "-o: cannot be combined with --new-key; leave one of them out"),
        (
            ("certify", ARITH, "--show", "t", "--tree", "r", "--metric", "pass@1"),
            "--metric: cannot be combined with --show; leave one of them out",
        ),
        (("certify", ARITH, "--key", "nowhere"), "nowhere: cannot be read (No such file or directory)"),
        (
            ("certify", ARITH, "--truth", "a=1"),
            "--truth: a certificate does not hold it; convert the rollouts first: calipers convert",
        ),
        (("verify", "nowhere.json"), "nowhere.json: cannot be read (No such file or directory)"),
        (
            ("audit", "nowhere.jsonl"),
            "nowhere.jsonl: no such file; expected a file of rollouts, or - for standard input",
        ),
    ],
)
def test_what_is_wrong(tmp_path, arguments, message):
    said = refused(*arguments, cwd=tmp_path)
    assert said == message or said.startswith("nowhere.jsonl: ")


def test_an_existing_certificate_stays(certified):
    message = refused("certify", ARITH, "-o", "c.json", cwd=certified)
    assert message == "c.json: already exists; --force replaces it"
    assert calipers("certify", ARITH, "-o", "c.json", "--force", cwd=certified).returncode == 0


def test_a_time_stamp_needs_its_authority(certified):
    message = refused("verify", "c.json", "--time-stamp", "a.tsr", cwd=certified)
    assert message == "--authority: is not given; expected --time-stamp FILE and --authority FILE together"


def test_a_request_for_a_time_stamp(certified):
    done = calipers("certify", ARITH, "-o", "d/c.json", "--time-stamp-request", "c.tsq", cwd=certified)
    assert done.stderr == "d/c.json: there is no folder 'd'; create it first\n"
    (certified / "d").mkdir()
    done = calipers("certify", ARITH, "-o", "d/c.json", "--time-stamp-request", "c.tsq", cwd=certified)
    assert "c.tsq: a request for a time stamp\n" in done.stdout
    assert (certified / "c.tsq").read_bytes()[:1] == b"0"


@pytest.mark.parametrize(
    "arguments", [("audit", "r.jsonl", "--rejudge"), ("verify", "c.json", "r.jsonl", "--rerun-verifier")]
)
def test_the_advice_on_judging_again_is_a_command_that_has_the_option(tmp_path, arguments):
    """It was "--benchmark DIR", which only rescore has."""
    (tmp_path / "r.jsonl").write_text('{"task": "a", "reward": 1}\n{"task": "b", "reward": 0}\n')
    calipers("certify", "r.jsonl", "-o", "c.json", cwd=tmp_path)
    message = refused(*arguments, cwd=tmp_path)
    assert message == "r.jsonl: does not name its benchmark; name it: calipers rescore r.jsonl --benchmark DIR"


def test_an_audit(tmp_path):
    done = calipers("audit", ARITH, "--out", "audit.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "nothing found that an honest run does not show" in done.stdout
    assert "silent retries cannot be excluded" in done.stdout
    assert json.loads((tmp_path / "audit.json").read_text())["schema"] == "calipers.audit/1"
    assert calipers("audit", ARITH, "--format", "csv", cwd=tmp_path).stdout.startswith("rule,kind,count")
