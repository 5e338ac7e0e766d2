"""Whole runs against a real server: resuming, growing, retrying, stopping, and failures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from running.scene import MODEL, digest, records, served, sums, weather

import calipers
from calipers.analyses.rescore import Rescoring, rejudge
from calipers.clients import Price
from calipers.errors import ClientError, InputError, SandboxError
from calipers.formats.read import read
from calipers.isolate.launch import attempt
from calipers.rollouts.ledger import lost_before_answer
from calipers.running import Job
from calipers.running.folder import folder_name
from calipers.running.perform import perform
from calipers.verifiers import user_code

PYTHON = {"fn_name": "python_tests", "expected": [{"input": "", "output": "1"}]}
SHELL = {"fn_name": "test_sh", "params": {"test_sh": "true", "reward_from": "exit"}}


def job(tmp_path, url, tasks=30, **more):
    benchmark = tmp_path / "sums"
    return Job(
        str(benchmark) if benchmark.exists() else sums(tmp_path, tasks),
        MODEL,
        base_url=url,
        **{"out": tmp_path / "run", **more},
    )


def test_a_run_is_a_folder_that_score_reads(tmp_path):
    with weather() as url:
        report = perform(job(tmp_path, url, samples=2, metrics=("pass@1", "pass@2"), by=("level",)))
    assert report.complete
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock",
        "plan.json",
        "result.json",
        "rollouts.jsonl",
    ]
    again = calipers.score(str(tmp_path / "run"), ["pass@1", "pass@2"], by="level")
    assert again.digest == report.result.digest == digest(tmp_path / "run")
    ledger = report.result.groups[0].ledger
    assert (ledger.planned, ledger.planned_from, ledger.scored) == (60, "plan", 60)


def test_the_same_command_again_asks_nothing(tmp_path):
    with weather() as url:
        first = perform(job(tmp_path, url))
        calls = served(url)["calls"]
        second = perform(job(tmp_path, url))
        assert served(url)["calls"] == calls == 30
    assert second.result.digest == first.result.digest
    assert ("0 requested, 30 read from the log" in second.notes, first.notes) == (True, ())


@pytest.mark.parametrize(("tasks", "stopped"), [(1, ""), (2, "the cost limit of $1e-09 per start was reached")])
def test_a_limit_that_the_last_rollout_reaches_stops_nothing(tmp_path, tasks, stopped):
    with weather() as url:
        report = perform(job(tmp_path, url, tasks, price=Price(1.0, 1.0), max_cost=1e-9))
    assert (report.stopped, report.complete) == (stopped, not stopped)


def test_a_plan_that_no_reader_accepts_is_refused_before_the_first_request(tmp_path):
    with pytest.raises(
        InputError, match="--samples: 200,000,000 rollouts would be planned; expected at most 100,000,0"
    ):
        perform(job(tmp_path, "http://127.0.0.1:9/v1", 2, samples=10**8))
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_begin_leaves_an_existing_folder_as_it_was(tmp_path):
    """Else the same command with the right address would be refused as another run."""
    (tmp_path / "run").mkdir()
    for _ in range(2):
        with pytest.raises(ClientError, match="no other request was sent"):
            perform(job(tmp_path, "http://127.0.0.1:9/v1", 1))
        assert list((tmp_path / "run").iterdir()) == []


def test_keys_in_a_url_that_a_model_ignores_are_in_no_file(tmp_path):
    (tmp_path / "mine.py").write_text("def answer(prompt): return ''\n")
    spec = f"python/{tmp_path}/mine.py:answer"
    perform(replace(job(tmp_path, "http://me:hunter22@host/v1?api-key=%2fhunter33", 1), model=spec))
    assert not [path for path in (tmp_path / "run").iterdir() if b"hunter" in path.read_bytes()]


def written(folder):
    return json.loads((folder / "plan.json").read_text())


def test_two_servers_with_one_model_name_are_two_runs(tmp_path, monkeypatch):
    """The usual way to evaluate checkpoints: the same name and script, with another port."""
    monkeypatch.chdir(tmp_path)
    with weather("--seed", "0") as one, weather("--seed", "1") as two:
        first = perform(job(tmp_path, one, out=None))
        second = perform(job(tmp_path, two, out=None, samples=2))
        assert (served(one)["calls"], served(two)["calls"]) == (30, 60)
        assert first.folder != second.folder
        assert {row["endpoint"] for row in records(first.folder)} == {one}
        assert {row["endpoint"] for row in records(second.folder)} == {two}
        answers = [{row["task"]: row["completion"] for row in records(run.folder)} for run in (first, second)]
        assert answers[0] != answers[1]
        (note,) = second.notes
        assert f"(endpoint: {one} there, {two} requested)" in note
        told = []
        again = perform(job(tmp_path, one, out=None, samples=2), tell=told.append)  # each run is found again
        assert (again.folder, told, again.notes) == (first.folder, [], ("30 requested, 30 read from the log",))
        monkeypatch.setenv("OPENAI_BASE_URL", f"{two}/")  # named in another way, and the same
        assert perform(job(tmp_path, None, out=None, samples=2)).folder == second.folder
        assert (served(one)["calls"], served(two)["calls"]) == (60, 60)
    for run, url in ((first, one), (second, two)):
        plan = written(run.folder)
        assert plan["identity"]["endpoint"] == url
        assert {start["endpoint"] for start in plan["starts"]} == {url}


def test_a_new_folder_is_said_before_the_first_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with weather() as one, weather() as two:
        perform(job(tmp_path, one, out=None, limit=2))
        told = []
        report = perform(
            job(tmp_path, two, out=None, limit=2), tell=lambda note: told.append((note, served(two)["calls"]))
        )
    ((note, calls),) = told
    assert (calls, report.notes) == (0, ())
    assert "starting a new run" in note


def test_the_same_model_goes_on_at_another_address(tmp_path):
    with weather("--seed", "0") as one, weather("--seed", "1") as two:
        perform(job(tmp_path, one, limit=20))
        before = (tmp_path / "run" / "rollouts.jsonl").read_bytes()
        with pytest.raises(InputError) as caught:
            perform(job(tmp_path, two))
        assert str(caught.value).endswith(
            f"contains a different run: endpoint: {one} here, {two} requested; "
            "choose another --out, or --same-model if it is the same model"
        )
        assert served(two)["calls"] == 0
        report = perform(job(tmp_path, two, same_model=True))
        assert served(two)["calls"] == 10
        assert (
            f"--same-model: the run started with {one} and resumes with {two}; every rollout records its endpoint"
        ) in report.notes
        assert perform(job(tmp_path, one)).notes == ("0 requested, 30 read from the log",)  # it resumes where it began
    assert (tmp_path / "run" / "rollouts.jsonl").read_bytes().startswith(before)
    endpoints = [row["endpoint"] for row in records(tmp_path / "run")]
    assert endpoints == [one] * 20 + [two] * 10
    plan = written(tmp_path / "run")
    assert plan["identity"]["endpoint"] == one
    assert [start["endpoint"] for start in plan["starts"]] == [one, two, one]


def test_a_run_of_an_earlier_version_goes_on_where_its_url_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with weather("--seed", "0") as one, weather("--seed", "1") as two:
        now = perform(job(tmp_path, one, out=None, limit=20)).folder
        plan = written(now)  # the plan of an earlier version: no endpoint, and a hash without one
        del plan["starts"], plan["identity"]["endpoint"]
        old = now.rename(now.parent / folder_name("sums", MODEL, plan["identity"]))
        (old / "plan.json").write_text(json.dumps(plan))
        lines = [{key: value for key, value in row.items() if key != "endpoint"} for row in records(old)]
        (old / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        other = perform(job(tmp_path, two, out=None, limit=20))
        assert other.folder != old
        assert f"because {old} differs (endpoint: {one} there, {two} requested)" in other.notes[0]
        for _ in range(2):  # also with an endpoint, the run is found by its existing name
            assert perform(job(tmp_path, one, out=None)).folder == old
        assert served(one)["calls"] == 30
    starts = written(old)["starts"]
    assert [(start["endpoint"], "note" in start) for start in starts] == [(one, True), (one, False)]


def test_a_file_that_answers_counts_by_its_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    asked = Job(sums(tmp_path, 4), "python/mine.py:answer")
    file.write_text("def answer(prompt): return '0'\n")
    first = perform(asked)
    file.write_text("def answer(prompt): return '8'\n")
    second = perform(asked)
    assert first.folder != second.folder
    assert first.result.groups[0].ledger.scored == second.result.groups[0].ledger.scored == 4
    assert {row["completion"] for row in records(second.folder)} == {"8"}
    assert "endpoint: " in second.notes[0]
    file.write_text("def answer(prompt): return '0'\n")
    assert perform(asked).folder == first.folder
    assert perform(replace(asked, samples=2, out=second.folder, same_model=True)).complete
    assert [row["completion"] for row in records(second.folder)].count("0") == 4


def test_more_samples_and_more_tasks_add_only_what_is_owed(tmp_path):
    with weather() as url:
        perform(job(tmp_path, url, samples=4, limit=10))
        perform(job(tmp_path, url, samples=8, limit=20))
        assert served(url)["calls"] == 20 * 8
        grown = digest(tmp_path / "run")
        perform(job(tmp_path, url, samples=8, limit=20, out=tmp_path / "at_once"))
    assert grown == digest(tmp_path / "at_once")


def test_only_the_gaps_are_tried_again(tmp_path):
    with weather("--share", "0.4", "--kinds", "500") as url:
        first = perform(job(tmp_path, url, retries=0))
        gaps = first.result.groups[0].ledger.gaps
        assert 0 < gaps < 30
        assert not first.complete
        assert perform(job(tmp_path, url, retries=0)).result.digest == first.result.digest  # still missing
        assert served(url)["calls"] == 30
        second = perform(job(tmp_path, url, retries=0, retry_failed=True))
        assert served(url)["calls"] == 30 + gaps
    assert second.complete
    ledger = second.result.groups[0].ledger
    assert (ledger.scored, ledger.attempts) == (30, 30 + gaps)
    assert {row["attempt"] for row in records(tmp_path / "run")} == {1, 2}


def test_the_log_says_which_rollouts_were_lost_before_the_model_was_asked(tmp_path):
    with weather("--share", "0.6", "--kinds", "429,500,dropped") as url:
        perform(job(tmp_path, url, retries=0))
    kinds = {row["task"]: row["error"]["kind"] for row in records(tmp_path / "run") if "error" in row}
    assert set(kinds.values()) == {"http_429", "http_500", "connection"}
    expected = {task for task, kind in kinds.items() if kind == "http_429"}
    assert {row["task"] for row in records(tmp_path / "run") if row.get("error", {}).get("before_answer")} == expected
    table, _ = read([str(tmp_path / "run")])
    assert {table.tasks[n] for n in lost_before_answer(table).nonzero()[0]} == expected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "openai/other"}, "model: openai/any here, openai/other requested"),
        ({"temperature": 0.5}, "sampling.temperature: "),
        ({"system_prompt": "Be brief."}, "prompt.system: "),
        ({"max_tokens": 7}, "sampling.max_tokens: "),
        ({"seed": 3}, "sampling.seed: "),
    ],
)
def test_another_run_in_the_same_folder_is_refused(tmp_path, more, said):
    with weather() as url:
        one = job(tmp_path, url, limit=2)
        perform(one)
        settings = {"benchmark": one.benchmark, "model": MODEL, "base_url": url, "limit": 2, "out": one.out}
        with pytest.raises(InputError) as caught:
            perform(Job(**{**settings, **more}))
    assert said in str(caught.value)


def test_bad_weather_loses_nothing_and_scores_nothing_zero_that_was_not_the_models_doing(tmp_path):
    """30 % of the first calls fail in ten ways; the ledger and all rewards must be those after successful retries."""
    with weather("--share", "0.3", "--slow", "60", "--wait", "0.01") as url:
        report = perform(job(tmp_path, url, tasks=60, samples=4, timeout=5.0, concurrency=16))
        troubles = served(url)["troubles"]
    assert len(troubles) == 10, troubles  # every kind of failure has occurred
    rows = records(tmp_path / "run")
    ledger = report.result.groups[0].ledger
    assert (len(rows), ledger.planned, ledger.gaps) == (240, 240, 0)
    assert ledger.outcomes["refused"] == troubles["refusal"]
    assert ledger.outcomes["empty"] == troubles["null"]
    assert ledger.scored == 240 - troubles["refusal"] - troubles["null"]
    retried = sum(count for kind, count in troubles.items() if kind not in ("refusal", "null"))
    assert sum(row.get("retries", 0) for row in rows) == retried
    with weather("--share", "0.3", "--kinds", "null,refusal") as url:  # other kinds of the same pairs: compare answers
        perform(job(tmp_path, url, samples=4, out=tmp_path / "fine"))
    fine = {(row["task"], row["sample"]): row.get("completion") for row in records(tmp_path / "fine")}
    scored = [row for row in rows if row["outcome"] == "scored"]
    same = [row for row in scored if fine[row["task"], row["sample"]] == row["completion"]]
    assert len(same) > 150  # all that the model did not refuse or leave empty


def test_no_secret_reaches_any_byte_that_is_written(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-1234")
    with weather("--key", "sk-very-secret-1234", "--share", "0.3", "--kinds", "500,malformed") as url:
        perform(job(tmp_path, url, retries=0))
    # a server that repeats the wrong key in its error
    with weather("--key", "sk-another-1234567") as url, pytest.raises(ClientError) as caught:
        perform(job(tmp_path, url, out=tmp_path / "refused"))
    assert "401" in str(caught.value)
    assert "sk-very-secret-1234" not in str(caught.value) + "".join(capfd.readouterr())
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-very-secret-1234" not in path.read_bytes(), path


def test_a_key_among_the_settings_is_not_kept(tmp_path):
    with weather() as url:
        report = perform(job(tmp_path, url, limit=2, gen_kwargs={"api_key": "sk-of-somebody", "top_p": 0.5}))
        perform(job(tmp_path, url, limit=3, gen_kwargs={"api_key": "sk-of-another", "top_p": 0.5}))  # the same run
    assert report.complete
    for file in (tmp_path / "run").iterdir():
        assert b"sk-of" not in file.read_bytes()
    assert '"top_p": 0.5' in (tmp_path / "run" / "plan.json").read_text()


def test_a_hopeless_first_call_leaves_nothing_behind(tmp_path):
    before = {*tmp_path.rglob("*"), tmp_path / "sums", tmp_path / "sums" / "tasks.jsonl"}
    with weather("--key", "sk-something") as url:
        with pytest.raises(ClientError, match="401"):
            perform(job(tmp_path, url, out=tmp_path / "runs" / "deep" / "run"))
        assert served(url)["calls"] == 1
    assert set(tmp_path.rglob("*")) == before


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without a sandbox."""
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    yield
    attempt.cache_clear()


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("verifier", [PYTHON, SHELL])
def test_without_a_sandbox_nothing_is_asked(tmp_path, verifier):
    row = {"task_id": "a", "instruction": "?", "verifier": {"kind": "in_process", **verifier}}
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    before = set(tmp_path.rglob("*"))
    with weather() as url:
        with pytest.raises(SandboxError, match=r"no sandbox works on this machine .*bwrap is not installed"):
            perform(job(tmp_path, url, out=tmp_path / "runs" / "run"))
        assert served(url)["calls"] == 0
    assert set(tmp_path.rglob("*")) == before


def test_until_stops_between_tasks_and_says_so(tmp_path):
    with weather("--delay", "0.005") as url:
        more = {"samples": 2, "concurrency": 8, "metrics": ("pass_rate",)}
        report = perform(job(tmp_path, url, 3_000, until="width(pass@1) < 0.3", **more))
        again = perform(job(tmp_path, url, until="width(pass@1) < 0.3", **more))
        assert served(url)["calls"] == len(records(tmp_path / "run"))  # the rule was reached: no request
    assert report.complete
    assert again.result.digest == report.result.digest
    estimate = report.result["pass@1"]
    low, high = estimate.interval
    assert estimate.method == "beta_mixture"
    assert high - low < 0.3
    assert estimate.samples == 2 * estimate.tasks  # only complete tasks
    document = json.loads((tmp_path / "run" / "result.json").read_text())
    assert document["stopped"].startswith("--until 'width(pass@1) < 0.3' stopped the run after ")
    score = calipers.score(str(tmp_path / "run"), ["pass_rate", "pass@1"], interval="beta_mixture")
    assert score.digest == document["digest"]


def test_samples_of_one_answer_are_remarked_upon(tmp_path):
    with weather() as url:
        report = perform(job(tmp_path, url, limit=2, samples=2, temperature=0.0))
    assert any("temperature 0" in note for note in report.notes)


def test_what_failed_most_is_said_in_its_own_words(tmp_path):
    with weather("--share", "0.5", "--kinds", "500") as url:
        report = perform(job(tmp_path, url, retries=0))
    gaps = report.result.groups[0].ledger.gaps
    assert [note for note in report.notes if note.startswith(f"{gaps} client_failed: ")]
    remedy = "resuming does not retry client_failed rollouts; --retry-failed does"
    assert remedy in report.notes
    with weather() as url:
        same = job(tmp_path, url, same_model=True)
        assert remedy in perform(same).notes  # no request was made, and the rollouts are still missing
        assert remedy not in perform(replace(same, retry_failed=True)).notes


def test_failures_that_are_not_told_one_by_one_are_counted(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    report = perform(Job(sums(tmp_path, 130), f"replay/{tmp_path}/empty.jsonl", out=tmp_path / "run"))
    told = [note for note in report.notes if "no rollout with task" in note]
    assert len(told) == 3
    assert "and at least 97 more, each with its error in the log" in report.notes  # 100 of 130 errors are counted


def test_answers_without_a_verdict_need_not_be_asked_for_again(tmp_path):
    def unwell(model_output, expected, params):
        raise ValueError("unwell")

    user_code.register("exact_match", unwell)
    try:
        with weather() as url:
            report = perform(job(tmp_path, url, limit=2))
    finally:
        user_code.unregister("exact_match")
    run = tmp_path / "run"
    advice = f"answers without a verdict are kept: calipers rescore {run} verifies them again without calling the model"
    assert report.notes[-2:] == ("2 verifier_failed: verifier 'exact_match' failed: ValueError: unwell", advice)
    assert rejudge(Rescoring(str(run))).after["mean_reward"].samples == 2


def test_predictions_alone_are_not_judged(tmp_path):
    with weather() as url:
        report = perform(job(tmp_path, url, limit=3, predict_only=True))
    assert report.result.groups[0].ledger.outcomes == {"missing": 3}
    assert all(row["completion"] for row in records(tmp_path / "run"))


def test_each_sample_is_asked_with_a_seed_of_its_own(tmp_path):
    with weather() as url:
        perform(job(tmp_path, url, limit=1, samples=20))
    assert len({row["completion"] for row in records(tmp_path / "run")}) > 1


def test_a_server_that_limits_its_callers_is_obeyed(tmp_path):
    with weather("--share", "0.3", "--kinds", "429", "--wait", "0.05") as url:
        report = perform(job(tmp_path, url, tasks=40, concurrency=16))
    assert report.complete


def test_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with weather() as url:
        result = calipers.evaluate(sums(tmp_path), MODEL, base_url=url, limit=4, metrics=["pass@1"])
    assert result["pass@1"].tasks == 4
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("sums-openai_any-")


def test_from_a_notebook(tmp_path):
    import asyncio

    async def cell(url):
        return perform(job(tmp_path, url, limit=3))

    with weather() as url:
        assert asyncio.run(cell(url)).complete


def test_a_typing_error_in_a_setting_is_named(tmp_path):
    with pytest.raises(InputError, match="did you mean 'samples'"):
        calipers.evaluate("x", MODEL, sampels=3)
