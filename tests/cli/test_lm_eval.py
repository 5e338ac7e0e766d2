"""``calipers lm-eval``: the command line of lm-evaluation-harness 0.4.13, as a user pastes it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli.running import calipers, refused

from calipers.systems.lm_eval.command_line import read_command

SUMS = """\
task: sums
tag: mine
dataset_path: json
dataset_kwargs:
  data_files: {test: data.jsonl, train: data.jsonl}
test_split: test
fewshot_split: train
output_type: generate_until
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 20}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""
CHOICES = """\
task: NAME
tag: mine
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: gold
doc_to_choice: choices
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0}
"""
GROUP = """\
group: mc_all
task: [mc_one, mc_two]
aggregate_metric_list:
  - {metric: acc, weight_by_size: true}
metadata: {version: 1}
"""
MADE = """\
def rows(**given):
    return {"test": [{"q": f"What is {n}?", "a": str(n)} for n in given["lengths"]]}
"""
DUMMY = ("--model", "dummy", "--include_path", "tasks")


@pytest.fixture
def home(tmp_path):
    rows = [
        {"q": f"What is {i} + {i}?", "a": str(2 * i) if i % 3 else "lol", "choices": ["x", "yy", "zzz"], "gold": i % 3}
        for i in range(8)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "sums.yaml").write_text(SUMS)
    (tasks / "one.yaml").write_text(CHOICES.replace("NAME", "mc_one"))
    (tasks / "two.yaml").write_text(CHOICES.replace("NAME", "mc_two"))
    (tasks / "all.yaml").write_text(GROUP)
    return tmp_path


def rows_of(home, folder, task):
    [path] = (home / folder).rglob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def results_of(home, folder):
    [path] = (home / folder).rglob("*.json")
    return json.loads(path.read_text())


# What lm-evaluation-harness 0.4.13 printed for this command on these files.
THEIRS = """\
dummy ({}), gen_kwargs: ({'temperature': 0.5, 'do_sample': True}), limit: 2.0, num_fewshot: 1, batch_size: 1
|Tasks|Version|Filter|n-shot|  Metric   |   |Value|   |Stderr|
|-----|------:|------|-----:|-----------|---|----:|---|-----:|
|sums |      1|none  |     1|exact_match|↑  |  0.5|±  |   0.5|

"""


@pytest.mark.parametrize("words", [[], ["run"]])
def test_it_prints_and_writes_what_lm_eval_does(home, words):
    asked = ("--tasks", "sums", "-L", "2", "--num_fewshot", "1", "--gen_kwargs", "temperature=0.5", "do_sample=True")
    done = calipers("lm-eval", *words, *DUMMY, *asked, "-o", "out", "-s", "--seed", "42", cwd=home)
    assert (done.returncode, done.stdout) == (0, THEIRS), done.stderr
    results = results_of(home, "out")
    assert results["config"]["gen_kwargs"] == {"temperature": 0.5, "do_sample": True}
    assert results["configs"]["sums"]["generation_kwargs"]["temperature"] == 0.5
    assert (results["config"]["fewshot_seed"], results["model_source"]) == (42, "dummy")
    rows = rows_of(home, "out", "sums")
    assert [row["exact_match"] for row in rows] == [1.0, 0.0]
    assert rows[0]["arguments"]["gen_args_0"]["arg_1"] == {
        "until": ["\n"],
        "max_gen_toks": 20,
        "temperature": 0.5,
        "do_sample": True,
    }


def test_another_limit_is_another_run(home):
    for limit, value in (("5", "0.4"), ("3", "0.3333")):
        done = calipers("lm-eval", *DUMMY, "--tasks", "sums", "--limit", limit, cwd=home)
        assert f"|{value}|" in done.stdout.replace(" ", ""), done.stdout


def test_limits_that_differ_in_their_last_digits_are_two_runs(home, monkeypatch):
    monkeypatch.chdir(home)
    words = ("--model", "dummy", "--include_path", "tasks", "--tasks", "sums", "--limit")
    folders = [read_command([*words, limit]).jobs[0].out for limit in ("3", "1234567", "1234568", "0.1234567")]
    assert [folder.name for folder in folders] == ["limit-3", "limit-1234567", "limit-1234568", "limit-0.1234567"]


def test_a_pattern_with_groups_asks_every_task_once(home):
    done = calipers("lm-eval", *DUMMY, "--tasks", "mc_*", "--limit", "2", cwd=home)
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[3:6]] == ["mc_all", "- mc_one", "- mc_two"]
    ours = calipers("run", "mc_*", "--include-path", "tasks", "--model", DUMMY_SPEC, "--format", "md", cwd=home)
    assert ours.stdout.count("mc_one") == 1, ours.stderr


DUMMY_SPEC = "python/calipers.systems.lm_eval.client:DUMMY"


def test_a_tag_beside_its_task_and_a_file(home):
    done = calipers("lm-eval", *DUMMY, "--tasks", "mine,sums", "--limit", "1", cwd=home)
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[3:6]] == ["mc_one", "mc_two", "sums"]
    running = [line.partition(" · ")[0] for line in done.stderr.splitlines() if " · " in line]
    assert running == ["mc_one", "mc_two", "sums"]  # each by its own name, not by its tag's
    file = calipers("lm-eval", "--model", "dummy", "--tasks", "tasks/su*.yaml", "--limit", "1", cwd=home)
    assert "|sums |" in file.stdout, file.stderr
    (home / "sums").mkdir()  # a folder of that name does not hide the task
    assert calipers("lm-eval", *DUMMY, "--tasks", "sums", "--limit", "1", cwd=home).returncode == 0


def test_samples_are_numbers_of_documents(home):
    asked = ("--samples", '{"sums": [6, 0, 6]}', "--output_path", "out/my.json", "--log_samples")
    done = calipers("lm-eval", *DUMMY, "--tasks", "sums,mc_one", *asked, cwd=home)
    assert done.returncode == 0, done.stderr
    assert [row["doc_id"] for row in rows_of(home, "out", "sums")] == [0, 6]
    assert len(rows_of(home, "out", "mc_one")) == 8  # not named: all of them
    assert [path.name[:3] for path in (home / "out").glob("*.json")] == ["my_"]
    assert "no requested task" not in done.stderr
    other = calipers("lm-eval", *DUMMY, "--tasks", "sums", "--samples", '{"sum": [1]}', cwd=home)
    assert "note: --samples: no requested task named 'sum'; did you mean 'sums'?" in other.stderr


def test_a_configuration_file_and_the_command_line_above_it(home):
    (home / "c.yaml").write_text(
        "model: dummy\ntasks: [sums]\ninclude_path: tasks\nlimit: 2\nseed: 7\nwrite_out: true\n"
    )
    done = calipers("lm-eval", "run", "--config", "c.yaml", "--limit", "4", "--show_config", cwd=home)
    assert done.returncode == 0, done.stderr
    document, _, table = done.stdout.partition("\ndummy (")
    assert json.loads(document)["config"]["limit"] == 4.0
    assert table.startswith("{})")
    assert "Task: sums; document 0; context prompt (starting on next line):\nQ: What is 0 + 0?\nA:\n" in done.stderr
    (home / "c.yaml").write_text("tasks: sums\nmodel: dummy\ntask: [sums]\n")
    said = refused("lm-eval", "run", "--config", "c.yaml", cwd=home)
    assert said == "c.yaml:3: no option of lm-eval named 'task'; did you mean 'tasks'?"


def test_predictions_alone(home):
    asked = ("--tasks", "sums", "--predict_only", "--output_path", "out")
    done = calipers("lm-eval", *DUMMY, *asked, cwd=home)
    assert "|sums |      1|none  |     0|bypass|↑  |  999|±  |   N/A|" in done.stdout, done.stderr
    assert [row["resps"] for row in rows_of(home, "out", "sums")] == [[["lol"]]] * 8
    assert "no rollout has a reward" not in done.stderr  # nobody wanted one


def test_metadata_makes_documents(home):
    (home / "tasks" / "made.py").write_text(MADE)
    text = (
        SUMS.replace("task: sums", "task: made")
        .replace("dataset_path: json\n", "")
        .replace("fewshot_split: train\n", "")
    )
    lines = [line for line in text.splitlines() if "data_files" not in line and "dataset_kwargs" not in line]
    (home / "tasks" / "made.yaml").write_text("\n".join([*lines, "custom_dataset: !function made.rows", ""]))
    asked = ("--tasks", "made", "--metadata", "lengths=[1,2,3]", "--output_path", "out", "--log_samples")
    assert "--trust" in refused("lm-eval", *DUMMY, *asked, cwd=home)
    done = calipers("lm-eval", *DUMMY, *asked, "--trust", cwd=home)
    assert done.returncode == 0, done.stderr
    assert [row["doc"]["a"] for row in rows_of(home, "out", "made")] == ["1", "2", "3"]
    assert results_of(home, "out")["configs"]["made"]["metadata"]["lengths"] == [1, 2, 3]
    ours = ("run", "made", "--include-path", "tasks", "--trust", "--model", DUMMY_SPEC, "--out", "ours")
    again = calipers(*ours, "--task-metadata", '{"lengths": [5]}', "--format", "json", cwd=home)
    assert json.loads(again.stdout)["groups"][0]["ledger"]["planned"] == 1, again.stderr


class Route(BaseHTTPRequestHandler):
    """A server that says lol, and keeps what it was asked."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append((self.path, body))
        choice = {"text": "lol"} if "prompt" in body else {"message": {"role": "assistant", "content": "lol"}}
        reply = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Route) as served:
        served.calls = []
        threading.Thread(target=served.serve_forever, args=[0.02], daemon=True).start()
        yield served
        served.shutdown()


@pytest.mark.parametrize(
    ("kind", "route", "more"),
    [
        ("local-completions", "/v1/completions", []),
        ("local-chat-completions", "/v1/chat/completions", ["--apply_chat_template"]),
    ],
)
def test_a_server_is_asked_by_its_whole_url(home, server, kind, route, more):
    url = f"http://127.0.0.1:{server.server_address[1]}{route}"
    arguments = f"model=org/m,base_url={url},num_concurrent=2,tokenized_requests=False,max_retries=3"
    asked = ("--include_path", "tasks", "--tasks", "sums", "--limit", "3", "--output_path", "out", "--device", "cuda:0")
    done = calipers("lm-eval", "--model", kind, "--model_args", arguments, *asked, *more, cwd=home)
    assert done.returncode == 0, done.stderr
    assert [path for path, _ in server.calls] == [route] * 3
    assert {body["model"] for _, body in server.calls} == {"org/m"}
    assert {(body["temperature"], body["max_tokens"]) for _, body in server.calls} == {(0, 20)}
    assert done.stdout.startswith(f"{kind} ({{'model': 'org/m', 'base_url': '{url}', 'num_concurrent': 2, ")
    assert results_of(home, "out")["model_name_sanitized"] == "org__m"
    assert [path.name for path in (home / "out").iterdir()] == ["org__m"]


def test_a_cache_asks_nothing_twice(home, server):
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/completions"
    asked = ("--model", "local-completions", "--model_args", f"model=m,base_url={url}", "--include_path", "tasks")
    printed = {calipers("lm-eval", *asked, "--tasks", "sums", "--use_cache", "kept", cwd=home).stdout for _ in range(2)}
    assert (len(printed), len(server.calls)) == (1, 8)
    assert [path.name.split("-")[0] for path in (home / "kept").iterdir()] == ["sums"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "vllm"], "--model: no kind of model named 'vllm'; known: dummy, hf, local-chat-completions"),
        (["--model", "hf"], "--model_args: does not name a model; expected pretrained=PATH"),
        (
            ["--model", "hf", "--model_args", "pretrained=m,delta=x"],
            "--model_args: delta is not supported; add the delta to the weights first",
        ),
        (
            ["--model_args", "pretrained=m,dtype=int3"],
            "--model_args: dtype=int3 is unknown; expected auto, float16, bfloat16, float32, float64",
        ),
        (
            ["--model_args", "pretrained=m,max_length=x"],
            "--model_args: max_length=x cannot be read; expected an integer",
        ),
        (
            ["--model_args", "pretrained=m,parallelize=4"],
            "--model_args: parallelize=4 cannot be read; expected true or false",
        ),
        (
            ["--model_args", "pretrained=m,backend=seq2seq"],
            "--model_args: backend=seq2seq has no effect here; expected backend=default or causal",
        ),
        (
            ["--model", "local-completions", "--model_args", "model=m"],
            "--model_args: has no base_url; expected base_url=",
        ),
        (
            ["--model", "openai-chat-completions", "--model_args", "model=m"],
            "--model: openai-chat-completions accepts only chat messages; add --apply_chat_template",
        ),
        (["--model", "dummy", "--limt", "3"], "no option '--limt'; did you mean '--limit'?"),
        (["--model", "dummy", "--limit", "x"], "--limit: invalid float value: 'x'; see calipers lm-eval run --help"),
        (["--model", "dummy", "--wandb_args", "project=x"], "--wandb_args: has no effect here; expected none"),
        (
            ["--model", "dummy", "--cache_requests", "maybe"],
            "--cache_requests: is 'maybe'; expected true",
        ),
        (
            ["--model", "dummy", "--trust_remote_code"],
            "--trust_remote_code: runs code from the dataset; add --trust",
        ),
        (["--model", "dummy", "--log_samples"], "--log_samples: is given without --output_path; add --output_path DIR"),
        (["--model", "dummy", "--seed", "0,None,1,2"], "--seed: is '0,None,1,2'; expected integers"),
        (
            ["--model", "dummy", "--samples", '{"sums": [9]}'],
            "--samples: documents: there is no document 9 among the 8 of sums",
        ),
        (["--model", "dummy", "--samples", "nowhere"], "--samples: 'nowhere' is neither; expected JSON"),
        (["--model", "dummy", "--metadata", '{"a": ' + "1" * 5000 + "}"], "--metadata: is not JSON (Exceeds the limit"),
        (["--model", "dummy", "--metadata", '{"a": ' + "[" * 9000], "--metadata: is not JSON (maximum recursion depth"),
        (["--model", "dummy", "--metadata", "a={1}"], "--metadata: is {'a': {1}}; expected a JSON value"),
        (
            ["--model", "dummy", "--gen_kwargs", "temperature=²"],
            "--gen-kwargs: temperature: is '²'; expected a number or null",
        ),
        (
            ["--model", "dummy", "--fewshot_as_multiturn"],
            ("--fewshot_as_multiturn: needs a chat template; add --apply_chat_template"),
        ),
    ],
)
def test_what_means_nothing_here_is_refused_by_name(home, words, said):
    assert refused("lm-eval", "--include_path", "tasks", "--tasks", "sums", *words, cwd=home).startswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("output_path: 5", "--output_path: is 5; expected a path"),
        ("use_cache: true", "--use_cache: is True; expected a path"),
        ("write_out: 'no'", "--write_out: is 'no'; expected true or false"),
        ("include_path: 5", "--include_path: is 5; expected text or a list of texts"),
        ("num_fewshot: x", "--num_fewshot: is 'x'; expected an integer or null"),
        ("limit: [1]", "--limit: is [1]; expected"),
        ("system_instruction: []", "--system_instruction: is []; expected text or null"),
        ("metadata: {since: 2024-01-01}", "--metadata: is {'since': datetime.date(2024, 1, 1)}; expected a JSON"),
        ("limit: 2024-13-01", "c.yaml: is not valid YAML"),
        ('samples: "\\0"', "--samples: '\\x00' is neither; expected JSON"),
    ],
)
def test_an_option_of_another_type_in_a_file_is_refused_by_name(home, line, said):
    (home / "c.yaml").write_text(f"model: dummy\ntasks: sums\n{line}\n")
    assert refused("lm-eval", "--config", "c.yaml", cwd=home).startswith(said)


def test_tasks_that_are_none_or_twice(home):
    said = refused("lm-eval", *DUMMY, "--tasks", "sumz", cwd=home)
    assert said == "no task, group or tag named 'sumz'; did you mean 'sums'?"
    said = refused("lm-eval", *DUMMY, "--tasks", "mc_all,mc_one", cwd=home)
    assert said == "--tasks: mc_one is requested twice, in mc_all and in mc_one; expected each task once"
    (home / "other.yaml").write_text(SUMS)
    said = refused("lm-eval", *DUMMY, "--tasks", "tasks/sums.yaml,other.yaml", cwd=home)
    assert said.startswith("--tasks: tasks/sums.yaml and other.yaml are both called sums; expected tasks of different")
    assert refused("lm-eval", "--model", "dummy", "--limit", "2", cwd=home).startswith("--tasks: does not name a task")
    for names in ("sums,,mc_one", "sums, "):
        said = refused("lm-eval", *DUMMY, "--tasks", names, cwd=home)
        assert said == f"--tasks: is [{names!r}]; expected names: a,b"
    assert (
        refused("lm-eval", "rnu", "--tasks", "x", cwd=home) == "no command of lm-eval named 'rnu'; did you mean 'run'?"
    )


def test_ls_and_validate(home):
    done = calipers("lm-eval", "ls", "tags", "--include_path", "tasks", cwd=home)
    assert "|mine|" in done.stdout
    done = calipers("lm-eval", "ls", "subtasks", "--include_path", "tasks", cwd=home)
    assert "|mc_one|tasks/one.yaml |multiple_choice|" in done.stdout
    done = calipers("lm-eval", "validate", "--tasks", "sums,mc_all", "--include_path", "tasks", cwd=home)
    assert done.stdout.endswith("All tasks found and valid\n")
    done = calipers("lm-eval", "validate", "--tasks", "sums,nope", "--include_path", "tasks", cwd=home)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "Tasks not found: nope")


def test_lists_for_calipers(home):
    done = calipers("list", "tasks", "mc*", "--include-path", "tasks", cwd=home)
    assert done.stdout.splitlines() == ["mc_one  tasks/one.yaml", "mc_two  tasks/two.yaml"]
    assert calipers("list", "tags", "--include-path", "tasks", cwd=home).stdout == "mine  3 tasks\n"
    assert calipers("list", "groups", "--include-path", "tasks", cwd=home).stdout == "mc_all  tasks/all.yaml\n"
    said = refused("list", "tasks", "sumz", "--include-path", "tasks", cwd=home)
    assert said == "no task named 'sumz'; did you mean 'sums'?"


def test_several_names_and_chosen_documents_of_run(home):
    asked = ("run", "sums,mc_one", "--include-path", "tasks", "--model", DUMMY_SPEC, "--documents", "0,3-4")
    more = ("--write-out", "--show-config", "--check-integrity", "--num-fewshot", "1", "--format", "json")
    done = calipers(*asked, *more, cwd=home)
    assert done.returncode == 0, done.stderr
    assert [group["ledger"]["planned"] for group in json.loads(done.stdout)["groups"]] == [3, 3]
    assert "sums: generate_until, 8 documents, 1 repeat, 1 example" in done.stderr
    assert '"task": "mc_one",' in done.stderr
    other = calipers(*asked, *more, "--fewshot-seed", "7", cwd=home)
    assert prompt_of(other.stderr) != prompt_of(done.stderr)
    again = calipers(*asked, *more, "--load-seeds", "0,1234,1234,7", cwd=home)
    assert prompt_of(other.stderr) == prompt_of(again.stderr)


def prompt_of(text):
    return text.partition("Task: sums; document 0;")[2].partition("(end of prompt")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--documents", "0,9"],
            ("--documents: there is no document 9 among the 8 of sums; expected numbers from 0 to 7"),
        ),
        (["--documents", "x"], "--documents: is 'x'; expected numbers counted from 0: 0,3,6-9"),
        (["--documents", "0", "--limit", "1"], "--documents: --limit and a choice of documents exclude each other"),
        (["--task-metadata", "[]"], "--task-metadata: is not a JSON object"),
        (["--fewshot-seed", "-1"], "--fewshot-seed: is [0, 1234, 1234, -1]; expected four integers"),
    ],
)
def test_wrong_settings_of_run(home, words, said):
    asked = ("run", "sums", "--include-path", "tasks", "--model", DUMMY_SPEC)
    assert refused(*asked, *words, cwd=home).startswith(said)


def test_a_name_where_no_tasks_are_at_all(tmp_path):
    (tmp_path / "empty").mkdir()
    line = refused("lm-eval", "--model", "dummy", "--tasks", "nope", "--include_path", "empty", cwd=tmp_path)
    assert "no task, group or tag named 'nope': lm_eval is not installed, and no folder contains" in line


BLOCKS = [
    *("results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "config"),
    *("git_hash", "date", "pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash"),
    *("task_hashes", "model_source", "model_name", "model_name_sanitized", "system_instruction"),
    *("system_instruction_sha", "fewshot_as_multiturn", "chat_template", "chat_template_sha"),
    "total_evaluation_time_seconds",
]
"""Of a results file of lm-evaluation-harness 0.4.13 and its dummy model, in its order."""


def test_a_results_file_has_every_block_of_theirs(home):
    words = ("lm-eval", "--model", "dummy", "--include_path", "tasks", "--tasks", "sums", "--output_path", "out")
    assert calipers(*words, cwd=home).returncode == 0
    [path] = (home / "out").rglob("results_*.json")
    results = json.loads(path.read_text())
    assert list(results) == BLOCKS
    assert "OS: " in results["pretty_env_info"]
    assert f"Python version: {sys.version.split()[0]}" in results["pretty_env_info"]
    assert results["upper_git_hash"] is None


def test_the_commits_are_those_of_the_working_directory_and_the_one_above(home):
    def commit(folder, *words):
        who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout

    inner = home / "inner"
    inner.mkdir()
    for folder in (home, inner):
        commit(folder, "init", "-q")
        commit(folder, "commit", "-q", "--allow-empty", "-m", folder.name)
    words = ("lm-eval", "--model", "dummy", "--include_path", "../tasks", "--tasks", "sums", "--output_path", "out")
    (inner / "data.jsonl").write_text((home / "data.jsonl").read_text())
    done = calipers(*words, cwd=inner)
    [path] = (inner / "out").rglob("results_*.json")
    results = json.loads(path.read_text())
    assert done.returncode == 0
    assert results["git_hash"] == commit(inner, "describe", "--always").strip()
    assert results["upper_git_hash"] == commit(home, "rev-parse", "HEAD").strip()


BLEU = """\
task: mixed
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"]}
metric_list: [{metric: exact_match}, {metric: chrf}]
"""


def test_an_interval_by_name_reaches_the_means_of_their_table_and_says_which_it_does_not(home):
    (home / "tasks/mixed.yaml").write_text(BLEU)
    assert calipers("lm-eval", *DUMMY, "--tasks", "mixed", cwd=home).returncode == 0
    [run] = map(str, (home / "runs").glob("mixed-*"))

    def scored(*more):
        done = calipers("score", run, "--dialect", "lm_eval", *more, cwd=home)
        assert done.returncode == 0, done.stderr
        return done

    def own(*more):
        return json.loads(scored("--format", "json", *more).stdout)["lm_eval"][0]["tasks"]["mixed"]

    plain, exact = own(), own("--interval", "clopper-pearson")
    assert (plain["exact_match,none"]["method"], exact["exact_match,none"]["method"]) == ("wilson", "clopper-pearson")
    assert plain["exact_match,none"]["interval"] != exact["exact_match,none"]["interval"]
    assert plain["chrf,none"] == exact["chrf,none"]
    note = "--interval clopper-pearson is for means of documents: mixed chrf,none are by draws"
    assert note in scored("--interval", "clopper-pearson", "--format", "md").stderr
    assert note in scored("--interval", "clopper-pearson", "--format", "json").stderr
    assert "--interval" not in scored("--format", "md").stderr
    assert "--interval" not in scored("--interval", "bootstrap", "--format", "md").stderr
