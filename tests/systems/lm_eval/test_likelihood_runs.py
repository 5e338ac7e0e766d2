"""Log-likelihood tasks, run by the command against a real server with a small model."""

import json
from contextlib import contextmanager

import pytest
from cli.running import calipers, refused, scored
from clients.likely import Model
from forks import FORKS
from running.scene import digest, records, served

MODEL = Model(bos=True)
HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: data.jsonl}}\ntest_split: test\n"
CHOICE = (
    f"task: mc\n{HEAD}output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\ndoc_to_target: n\n"
    "metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_mutual_info}, {metric: brier_score}]\n"
)
LIKELIHOOD = f"task: ll\n{HEAD}output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: t\n"
ROLLING = f"task: roll\n{HEAD}output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: t\n"
DOCS = [
    {"q": f"the cat {i} is", "c": ["sat", "not the dog", "A"], "n": i % 3, "t": " the dog ran" * (i % 4 + 1) + f" {i}"}
    for i in range(12)
]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    for name, text in (("mc", CHOICE), ("ll", LIKELIHOOD), ("roll", ROLLING)):
        (tmp_path / f"{name}.yaml").write_text(text)
    group = "group: both\ntask: [mc, ll]\naggregate_metric_list: [{metric: acc}]\n"
    (tmp_path / "both.yaml").write_text(group)
    return tmp_path


@contextmanager
def likely(*arguments):
    """The base URL of the running server."""
    with FORKS.server("clients.likely", *arguments) as port:
        yield f"http://127.0.0.1:{int(port)}/v1"


def run(home, task, url, *more):
    return calipers("run", f"{task}.yaml", "--model", "openai/any", "--base-url", url, *more, cwd=home)


@pytest.mark.parametrize(("task", "pairs"), [
    ("mc", lambda doc: [*((doc["q"], f" {one}") for one in doc["c"]), *(("", f" {one}") for one in doc["c"])]),
    ("ll", lambda doc: [(doc["q"], doc["t"])]),
    ("roll", lambda doc: [("", doc["t"])]),
])  # fmt: skip
def test_the_log_holds_every_likelihood_and_the_same_command_goes_on(home, task, pairs):
    with likely("--bos", "--troubles", "3") as url:  # the probe and more fail at first
        done = run(home, task, url, "--out", "r", "--limit", "5")
        assert done.returncode == 0, done.stderr
        before = served(url)["calls"]
        done = run(home, task, url, "--out", "r")
        assert done.returncode == 0, done.stderr
        assert served(url)["calls"] < 2.5 * before + 5  # the first five were not asked again
    rows = {int(row["task"]): row for row in records(home / "r")}
    assert sorted(rows) == list(range(12))
    for number, row in rows.items():
        held = json.loads(row["completion"])
        wanted = [MODEL.likelihood(*pair) for pair in pairs(DOCS[number])]
        assert [one["logprob"] for one in held] == pytest.approx([one[0] for one in wanted], rel=1e-12)
        assert [(one["greedy"], one["tokens"]) for one in held] == [one[1:] for one in wanted]
        assert row["usage"]["input_tokens"] > 0
    again = calipers("run", f"{task}.yaml", "--model", "replay/r/rollouts.jsonl", "--out", "again", cwd=home)
    assert again.returncode == 0, again.stderr
    values = [json.loads((home / name / "result.json").read_text())["groups"][0]["metrics"] for name in ("r", "again")]
    assert values[0]["mean"]["value"] == values[1]["mean"]["value"]
    table, other = (text.partition("lm-evaluation-harness' own table")[2] for text in (done.stdout, again.stdout))
    assert table == other != ""


def test_both_ways_of_asking_give_one_result(home):
    digests = set()
    for way in ("echo", "listed"):
        with likely("--bos", "--ways", way) as url:
            assert run(home, "mc", url, "--out", way).returncode == 0
        digests.add(digest(home / way))
    assert len(digests) == 1


def test_numbers_intervals_and_files(home):
    with likely("--bos") as url:
        done = run(home, "both", url, "--include-path", ".", "--out", "g", "--export", "lm_eval=out")
        assert done.returncode == 0, done.stderr
        roll = run(home, "roll", url, "--out", "r", "--export", "lm_eval=out")
    right = [
        max(range(3), key=lambda at, doc=doc: MODEL.likelihood(doc["q"], f" {doc['c'][at]}")[0]) == doc["n"]
        for doc in DOCS
    ]
    greedy = [MODEL.likelihood(doc["q"], doc["t"])[1] for doc in DOCS]
    results = json.loads(
        next(path for path in (home / "out").rglob("results_*") if b"both" in path.read_bytes()).read_text()
    )
    assert results["results"]["mc"]["acc,none"] == pytest.approx(sum(right) / 12)
    assert results["results"]["ll"]["acc,none"] == pytest.approx(sum(greedy) / 12)
    assert results["groups"]["both"]["acc,none"] == pytest.approx((sum(right) + sum(greedy)) / 24)
    assert "mc brier_score,none" in done.stdout
    (group,) = (line for line in done.stdout.splitlines() if line.startswith("both acc,none"))
    assert group.endswith(" from 10,000 resamples, 2 tasks")
    ends = json.loads(group.partition("interval ")[2].partition(" from")[0])
    assert ends[0] < results["groups"]["both"]["acc,none"] < ends[1]
    bits = (
        -sum(MODEL.likelihood("", doc["t"])[0] for doc in DOCS)
        / sum(len(doc["t"]) for doc in DOCS)
        / 0.6931471805599453
    )
    line = next(line for line in roll.stdout.splitlines() if line.startswith("roll bits_per_byte,none"))
    assert f" {bits:.4f}, 95% interval [" in line
    assert line.endswith(" from 10,000 resamples, 12 documents")
    low, high = json.loads(line.partition("interval ")[2].partition(" from")[0])
    assert low < bits < high
    for task, key in (("mc", "acc"), ("ll", "acc"), ("roll", None)):
        (samples,) = (str(path.relative_to(home)) for path in (home / "out").rglob(f"samples_{task}_*"))
        found = scored(samples, "--dialect", "lm_eval", cwd=home)["groups"][0]
        assert found["ledger"]["outcomes"] == {"scored": 12}
        if key:
            name = "mean" if task == "ll" else f"mean(reward={key})"
            assert found["metrics"][name]["value"] == pytest.approx(results["results"][task][f"{key},none"])


def test_a_group_of_which_a_task_could_not_run_has_no_row(home):
    (home / "ll.yaml").write_text(LIKELIHOOD + "process_docs: !function utils.f\n")
    with likely("--bos") as url:
        done = run(home, "both", url, "--include-path", ".", "--out", "g")
    assert done.returncode == 3
    assert "ll.yaml:8: process_docs: is !function utils.f" in done.stderr
    assert "both: no row, because ll has no numbers" in done.stdout
    assert "mc acc,none" in done.stdout


def test_a_run_is_shown_again_without_its_server(home):
    with likely("--bos") as url:
        done = run(home, "roll", url, "--out", "r", "--format", "md")
    again = calipers("score", "r", "--dialect", "lm_eval", "--format", "md", cwd=home)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert "roll word_perplexity,none" in again.stderr
    (home / "roll.yaml").write_text(ROLLING + "metric_list: [{metric: bits_per_byte}]\n")
    other = calipers("score", "r", "--dialect", "lm_eval", "--format", "md", cwd=home)
    assert "word_perplexity" not in other.stdout
    assert "roll.yaml changed after the run; it is scored in its present form" in other.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--model", "openai/any", "--api", "chat"],
            "model 'openai/any' does not return log-likelihoods; expected hf/PATH, or",
        ),
        (
            ["--model", "python/own.py:answer"],
            "model 'python/own.py:answer' does not return log-likelihoods; expected hf/PATH",
        ),
        (
            ["--model", "openai/any", "--samples", "2"],
            "--samples: is 2; expected 1, because every sample of a log-likelihood would be the same",
        ),
        (
            ["--model", "openai/any", "--system-prompt", "x"],
            ("--system-prompt: a log-likelihood request is plain text without a system message"),
        ),
    ],
)
def test_who_gives_no_likelihoods_is_refused_before_any_call(home, asked, said):
    (home / "own.py").write_text("def answer(prompt):\n    raise SystemExit('it was asked')\n")
    assert said in refused("run", "mc.yaml", *asked, "--base-url", "http://127.0.0.1:9/v1", cwd=home)


def test_a_server_without_logprobs_is_refused_before_the_first_question(home):
    with likely("--ways", "none") as url:
        said = refused("run", "mc.yaml", "--model", "openai/any", "--base-url", url, cwd=home)
        assert set(served(url)["prompts"]) == {"one two"}
    assert said == (
        "openai/any: the server does not return log-likelihoods of a prompt: neither echo with logprobs nor "
        "prompt_logprobs returns them; no request was sent; use a server that returns prompt logprobs, or hf/PATH"
    )


def test_whole_texts_are_refused_by_a_server_that_puts_nothing_before_them(home):
    with likely() as url:
        said = refused("run", "roll.yaml", "--model", "openai/any", "--base-url", url, cwd=home)
    assert "a text without a context cannot be scored: the server adds no token before it" in said


def test_a_text_that_the_server_cannot_read_is_a_gap(home):
    """A document beyond the server's limit is reported with the server's message; the others are scored."""
    with likely("--bos", "--longest", "14") as url:
        done = run(home, "roll", url, "--out", "r")
    assert done.returncode == 3
    assert "client_failed: HTTP 400: This model's maximum context length is 14 tokens" in done.stderr
    outcomes = json.loads((home / "r" / "result.json").read_text())["groups"][0]["ledger"]["outcomes"]
    assert outcomes == {"scored": 9, "client_failed": 3}
    assert "roll bits_per_byte,none" in done.stdout
