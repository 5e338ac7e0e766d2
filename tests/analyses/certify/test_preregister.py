"""A plan that is certified before its run, and what differs after it."""

import json
import time
from base64 import b64decode

import pytest
from cli.running import calipers, refused
from waiting import until

SUITE = """
benchmarks: [sums.csv]
models: ["python/answers.py:answer"]
verifier: numeric_match
metrics: [mean_reward]
samples: {samples}
max_tokens: {max_tokens}
gate: {{critical: [lower(mean_reward) >= 0]}}
out: runs
"""


def suite(folder, name="suite.yaml", samples=2, max_tokens=64, tasks=6):
    (folder / name).write_text(SUITE.format(samples=samples, max_tokens=max_tokens))
    lines = [f"what is {task} + 1?,{task + 1}" for task in range(tasks)]
    (folder / "sums.csv").write_text("\n".join(["question,answer", *lines]) + "\n")
    (folder / "answers.py").write_text("def answer(messages):\n    return '3'\n")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A plan, its run, and the plans of other runs."""
    folder = tmp_path_factory.mktemp("plan")
    suite(folder)
    done = calipers("preregister", "suite.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "plan.cert.json: 1 run, 12 rollouts; no model was called\n"), (
        done.stderr
    )
    assert calipers("run", "suite.yaml", cwd=folder).returncode == 0
    begun = time.time()
    until(lambda: int(time.time()) > int(begun))  # dates are to the second: a later plan has a later one
    return folder


def run_in(folder):
    [run] = [path.parent for path in (folder / "runs").rglob("plan.json")]
    return run.relative_to(folder)


def test_as_planned(ran):
    run = str(run_in(ran))
    done = calipers("certify", run, "-o", f"{run}/result.cert.json", "--plan", "plan.cert.json", cwd=ran)
    assert done.returncode == 0, done.stderr
    assert "plan: as planned\n" in done.stdout
    verified = calipers(
        "verify",
        f"{run}/result.cert.json",
        run,
        "--plan",
        "plan.cert.json",
        "--rerun-verifier",
        "--format",
        "json",
        cwd=ran,
    )
    checks = {each["check"]: each for each in json.loads(verified.stdout)["checks"]}
    assert (checks["plan"]["state"], checks["plan"]["says"]) == ("good", "as planned")
    assert checks["verifier"]["says"] == "the verifier gives the same reward to 12 stored completions"
    assert calipers("report", run, "-o", "page.html", cwd=ran).returncode == 0
    assert "<dt>Plan</dt><dd>as planned</dd>" in (ran / "page.html").read_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 3}, "12 rollouts, planned 18"),
        ({"max_tokens": 65}, "max_tokens is 64, planned 65"),
        ({"tasks": 7}, "the tasks have changed"),
    ],
)
def test_what_differs_is_said(ran, tmp_path, change, says):
    suite(tmp_path, **change)
    assert calipers("preregister", "suite.yaml", cwd=tmp_path).returncode == 0
    run = str(ran / run_in(ran))
    done = calipers("certify", run, "-o", "c.json", "--plan", "plan.cert.json", cwd=tmp_path)
    assert says in done.stdout
    assert "before the plan was registered" in done.stdout  # the run was first
    verified = calipers("verify", "c.json", run, "--plan", "plan.cert.json", cwd=tmp_path)
    assert verified.returncode == 3, verified.stdout
    assert "not as planned" in verified.stdout


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("prompt", {"chat_template": "tool_use"}, "chat_template is 'tool_use', planned None"),
        ("model_args", {"dtype": "float16"}, "model_args has changed"),
        ("documents", [1, 2], "documents has changed"),
    ],
)
def test_a_setting_that_the_plan_does_not_have_is_said(ran, key, value, says):
    from calipers.analyses.certify.preregister import differences, read_preregistration

    plan = read_preregistration(str(ran / "plan.cert.json")).predicate
    [planned] = plan["runs"]
    before = planned["identity"].get(key)
    identity = {**planned["identity"], key: {**before, **value} if isinstance(before, dict) else value}
    run = {"dataset": planned["dataset"], "model": planned["model"], "samples": 2, "identity": identity}
    ledger, metrics = {"planned": 12}, {"mean_reward": {}}
    group = {"dataset": planned["dataset"], "model": planned["model"], "ledger": ledger, "metrics": metrics}
    result = {"groups": [group], "dialect": "native", "missing": "gap", "confidence": 0.95, "seed": 0}
    [difference] = differences(plan, result, [run], None)
    assert difference.endswith(says)


@pytest.mark.parametrize("planned", ["metrics: [mean_reward]\n", ""])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "as planned"),
        (("--metric", "pass@2"), "pass@2 was not planned"),
        (("--dialect", "evsys"), "dialect is evsys, planned native"),
        (("--seed", "7"), "seed is 7, planned 0"),
        (("--confidence", "0.9"), "confidence is 0.9, planned 0.95"),
        (("--missing", "zero"), "missing is zero, planned gap"),
        (("--interval", "bootstrap"), "interval is bootstrap, planned not set"),
        (("--cluster", "task"), "cluster is task, planned not set"),
        (("--by", "sample"), "by is sample, planned not set"),
        (("--range", "0,2"), "range is 0, 2, planned not set"),
        (("--exclude", "task=2c953257df79b7f9"), "exclude is task=2c953257df79b7f9, planned not set"),
    ],
)
def test_a_score_of_another_kind_is_not_as_planned(tmp_path, planned, options, says):
    """Whoever may choose a metric, a slice or an interval after the run has planned nothing."""
    suite(tmp_path)
    text = (tmp_path / "suite.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(text.replace("metrics: [mean_reward]\n", planned))
    assert calipers("preregister", "suite.yaml", cwd=tmp_path).returncode == 0
    assert calipers("run", "suite.yaml", cwd=tmp_path).returncode == 0
    run = str(run_in(tmp_path))
    done = calipers("certify", run, "-o", "c.json", "--plan", "plan.cert.json", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = [line for line in done.stdout.splitlines() if line.startswith("plan: ")]
    assert any(line.endswith(says) for line in plan), plan
    assert (plan == ["plan: as planned"]) is (not options)
    verified = calipers("verify", "c.json", run, "--plan", "plan.cert.json", "--format", "json", cwd=tmp_path)
    checks = {each["check"]: each for each in json.loads(verified.stdout)["checks"]}
    assert checks["plan"]["state"] == "good"  # the certificate says truthfully what differs
    assert checks["plan"]["says"].startswith("as planned" if not options else "not as planned")


def test_a_run_is_certified_as_it_was_planned(tmp_path):
    """What the plan says of scoring holds where no option says otherwise."""
    suite(tmp_path)
    text = (tmp_path / "suite.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(f"{text}seed: 5\nconfidence: 0.9\ndialect: evsys\nmissing: zero\n")
    assert calipers("preregister", "suite.yaml", cwd=tmp_path).returncode == 0
    assert calipers("run", "suite.yaml", cwd=tmp_path).returncode == 0
    run = str(run_in(tmp_path))
    done = calipers("certify", run, "-o", "c.json", "--plan", "plan.cert.json", cwd=tmp_path)
    assert "plan: as planned\n" in done.stdout, done.stderr
    certified = json.loads(b64decode(json.loads((tmp_path / "c.json").read_bytes())["payload"]))
    result = json.loads((tmp_path / run / "result.json").read_text())
    assert certified["predicate"]["result"]["digest"] == result["digest"]


def test_a_certificate_of_some_planned_runs_says_so(tmp_path):
    """Of several planned runs the best one alone is not all that was planned."""
    suite(tmp_path)
    (tmp_path / "other.py").write_text("def answer(messages):\n    return '4'\n")
    text = (tmp_path / "suite.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(
        text.replace('"python/answers.py:answer"', '"python/answers.py:answer", "python/other.py:answer"')
    )
    assert calipers("preregister", "suite.yaml", cwd=tmp_path).returncode == 0
    assert calipers("run", "suite.yaml", cwd=tmp_path).returncode == 0
    runs = sorted(str(path.parent.relative_to(tmp_path)) for path in (tmp_path / "runs").rglob("plan.json"))
    some = "the certificate has 1 of 2 planned runs"
    for chosen, told in ((runs[:1], True), (runs, False)):
        done = calipers("certify", *chosen, "-o", "c.json", "--plan", "plan.cert.json", "--force", cwd=tmp_path)
        assert "plan: as planned\n" in done.stdout
        assert (some in done.stderr) is told
        verified = calipers("verify", "c.json", *chosen, "--plan", "plan.cert.json", "--format", "json", cwd=tmp_path)
        checks = {each["check"]: each for each in json.loads(verified.stdout)["checks"]}
        assert (checks["plan"]["state"], some in checks["plan"]["says"]) == ("good", told)


def test_a_run_that_was_not_planned_takes_no_place_of_one_that_was():
    from calipers.analyses.certify.preregister import others_planned

    stated = {"runs": 2, "differences": ["d · other: the plan has no such run"]}
    assert others_planned(stated, 2) == "the certificate has 1 of 2 planned runs"
    assert others_planned(stated, 3) == ""


@pytest.mark.parametrize(
    ("hidden", "where"), [({"differences": []}, "plan"), ({"runs": 9}, "plan"), ({"runs": None}, "form")]
)
def test_a_certificate_that_hides_a_difference_is_refused(ran, tmp_path, hidden, where):
    from calipers.analyses.certify import certify
    from calipers.analyses.certify.envelope import CERTIFICATE, state
    from calipers.analyses.certify.verify import WRONG, verify

    suite(tmp_path, samples=3)
    assert calipers("preregister", "suite.yaml", cwd=tmp_path).returncode == 0
    run, plan = str(ran / run_in(ran)), str(tmp_path / "plan.cert.json")
    statement = json.loads(certify(run, plan=plan).envelope.payload)
    statement["predicate"]["preregistration"] |= hidden
    forged = state(CERTIFICATE, statement["subject"], statement["predicate"])
    (tmp_path / "c.json").write_bytes(forged.encoded())
    checks = {check.what: check for check in verify(tmp_path / "c.json", [run], plan=plan).checks}
    assert checks[where].state == WRONG


def test_a_changed_reward_is_found_by_judging_again(ran, tmp_path):
    import shutil

    shutil.copytree(ran, tmp_path / "copy")
    run = run_in(tmp_path / "copy")
    log = tmp_path / "copy" / run / "rollouts.jsonl"
    lines = log.read_text().splitlines()
    at = next(index for index, line in enumerate(lines) if json.loads(line)["reward"] == 0)
    lines[at] = lines[at].replace('"reward":0', '"reward":1', 1)
    log.write_text("\n".join(lines) + "\n")
    assert calipers("certify", str(run), "-o", "c.json", cwd=tmp_path / "copy").returncode == 0
    done = calipers("verify", "c.json", str(run), "--rerun-verifier", cwd=tmp_path / "copy")
    assert done.returncode == 1
    assert "pass to fail: 1" in done.stdout
    audited = calipers("audit", str(run), "--rejudge", "--format", "json", cwd=tmp_path / "copy")
    assert audited.returncode == 1
    assert [each["rule"] for each in json.loads(audited.stdout)["findings"]] == ["rejudged"]


def test_what_is_no_plan(tmp_path, ran):
    (tmp_path / "odd.json").write_text("{}")
    run = str(ran / run_in(ran))
    message = refused("certify", run, "-o", "c.json", "--plan", "odd.json", cwd=tmp_path)
    assert message == "odd.json: payloadType is None; expected 'application/vnd.in-toto+json'"


@pytest.mark.parametrize(("name", "problem"), [("absent", "no such file"), ("sums.csv", "is no YAML file")])
def test_only_a_yaml_file_has_a_plan(tmp_path, name, problem):
    suite(tmp_path)
    message = refused("preregister", name, cwd=tmp_path)
    assert message == f"{name}: {problem}; expected a suite for calipers run, such as suite.yaml"
