"""Files of lm-evaluation-harness read as rollouts, also log-likelihoods and whole folders."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from formats.given import refused, seen, written
from systems.harbor.made import GOLDEN as JOB

from calipers import pipeline, score
from calipers.errors import InputError
from calipers.formats.convert import convert
from calipers.formats.read import read
from calipers.systems.lm_eval.read import texts

NAME = "samples_gsm8k_2026-01-02T03-04-05.678.jsonl"
RESULTS = "results_2026-01-02T03-04-05.678.json"


def sample(doc_id, answer="4", pipeline="none", doc=None, **scores):
    return {
        **{"doc_id": doc_id, "doc": doc or {"q": "2+2"}, "target": "4", "arguments": {"gen_args_0": {"arg_0": "2+2"}}},
        **{"resps": [["so 4"]], "filtered_resps": [answer], "filter": pipeline, "metrics": list(scores)},
        **{"doc_hash": "d", "prompt_hash": "p", "target_hash": "t", **scores},
    }


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(folder, *rows, name=NAME, **asked):
    found, inputs = read([written(folder, lines(*rows), name)], **asked)
    assert [one.format for one in inputs] == ["lm_eval_samples"]
    return found


def test_a_document_is_a_task_and_a_pipeline_an_agent(tmp_path):
    rows = [sample(n, pipeline=p, exact_match=float(n)) for p in ("strict-match", "flexible-extract") for n in (0, 1)]
    found = table(tmp_path, *rows)
    assert list(found.keys) == [("flexible-extract", None, "gsm8k"), ("strict-match", None, "gsm8k")]
    assert [row["reward exact_match"] for row in seen(found)] == [0.0, 1.0, 0.0, 1.0]


def test_an_unnamed_pipeline_is_no_agent(tmp_path):
    assert list(table(tmp_path, sample(0, acc=1.0), name="samples_t.jsonl").keys) == [(None, None, "t")]


def test_a_fallback_is_unparsed_and_keeps_its_score(tmp_path):
    found = table(tmp_path, sample(0, "[invalid]", exact_match=0.0), sample(1, ["[invalid]", "4"], exact_match=0.5))
    assert [row["outcome"] for row in seen(found)] == ["unparsed", "scored"]
    assert found.rewards["exact_match"].values.tolist() == [0.0, 0.5]


def test_before_0_4_7_the_order_of_a_documents_rows_tells_their_pipelines(tmp_path):
    rows = [sample(n, exact_match=score) for score in (0.0, 1.0) for n in (0, 1)]
    old = [{key: value for key, value in row.items() if key not in ("filter", "metrics")} for row in rows]
    with pytest.raises(InputError, match="task '0' sample 0 attempt 1 appears twice"):
        table(tmp_path, *old)  # nothing says that there are two pipelines
    pipelines = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("strict", "flexible")]
    configs = {"gsm8k": {"filter_list": pipelines}}
    written(tmp_path, json.dumps({"results": {}, "configs": configs, "model_name": "m"}), RESULTS)
    found = table(tmp_path, *old)
    assert list(found.keys) == [("flexible", "m", "gsm8k"), ("strict", "m", "gsm8k")]
    assert [row["reward exact_match"] for row in seen(found)] == [1.0, 1.0, 0.0, 0.0]
    with pytest.raises(InputError, match="task '0' sample 0 attempt 1 appears twice"):
        table(tmp_path, *old, *old[:1])


def test_a_metric_of_another_task_says_nothing_of_an_unparsed_answer(tmp_path):
    written(tmp_path, lines(sample(0, "[invalid]", exact_match=0.0), sample(1, exact_match=1.0)), NAME)
    written(tmp_path, lines(sample(0, acc=1.0), sample(1, acc=0.0)), "samples_arc.jsonl")
    result = score([tmp_path / NAME, tmp_path / "samples_arc.jsonl"], ["mean_reward"])
    values = {(g.dataset, name): number.value for g in result.groups for name, number in g.metrics.items()}
    acc, match = "mean_reward(reward=acc)", "mean_reward(reward=exact_match)"
    assert values == {("arc", acc): 0.5, ("arc", match): None, ("gsm8k", acc): None, ("gsm8k", match): 0.5}
    assert [group.ledger.rewarded for group in result.groups] == [{}, {"unparsed": 1}]


def test_a_reward_that_other_tasks_lack_is_named(tmp_path):
    written(tmp_path, lines(sample(0, word_perplexity=[-2.0, 3])), "samples_wiki.jsonl")
    written(tmp_path, lines(sample(0, acc=1.0)), "samples_arc.jsonl")
    result = score([tmp_path / "samples_wiki.jsonl", tmp_path / "samples_arc.jsonl"], ["mean_reward"])
    assert result.notes[-1] == "no rollout of arc has the reward 'reward'; --reward picks another: acc"


def test_the_results_beside_tell_the_model_and_the_fallbacks(tmp_path):
    steps = [{"function": "regex", "fallback": "?"}]
    configs = {"gsm8k": {"filter_list": [{"name": "n", "filter": steps}]}}
    written(tmp_path, json.dumps({"results": {}, "configs": configs, "model_name": "m"}), RESULTS)
    found = table(tmp_path, sample(0, "?", exact_match=0.0))
    assert list(found.keys) == [(None, "m", "gsm8k")]
    assert [row["outcome"] for row in seen(found)] == ["unparsed"]


def test_a_bare_nan_is_a_number_somebody_sent(tmp_path):
    found = table(tmp_path, sample(0, acc=math.nan), sample(1, acc=1.0), sample(2, doc={"x": math.inf}, acc=math.inf))
    assert found.rewards["acc"].given.all()
    assert math.isnan(found.rewards["acc"].values[0])
    assert found.rewards["acc"].values[1:].tolist() == [1.0, math.inf]


def test_half_of_a_surrogate_pair_is_converted_as_a_question_mark(tmp_path):
    path = written(tmp_path, json.dumps(sample(0, "a \ud83d", acc=1.0)) + "\n", NAME)
    convert(path, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["answer"] == "a ?"


def test_numbers_too_large_for_a_float_are_no_likelihoods(tmp_path):
    pairs = [["-1.5", "True"], [10**400, "False"]]
    path = written(tmp_path, lines({**sample(0, acc=1.0), "filtered_resps": pairs}), NAME)
    assert next(texts(path)).answer == pairs


def test_pairs_are_noted_and_are_no_rewards(tmp_path):
    found = table(tmp_path, sample(0, acc=1.0, f1=[0, 1], bleu=["a", "b"]))
    assert list(found.rewards) == ["acc"]
    assert "bleu, f1 are numbers of all documents together" in found.notes[0]


def test_the_document_is_what_one_can_slice_by(tmp_path):
    rows = [sample(n, doc={"level": level}, acc=float(n)) for n, level in enumerate(["easy", "hard"])]
    result = score(written(tmp_path, lines(*rows), NAME), by=["level"])
    assert sorted(result.groups[0].breakdowns["level"]) == ["easy", "hard"]


def test_a_results_file_stands_for_the_samples_of_its_time(tmp_path):
    written(tmp_path, lines(sample(0, acc=1.0)), NAME)
    written(tmp_path, lines(sample(0, acc=0.0)), "samples_old_2025-01-02T03-04-05.678.jsonl")
    found, inputs = read([written(tmp_path, json.dumps({"results": {"gsm8k": {}}}, indent=2), RESULTS)])
    assert [one.format for one in inputs] == ["lm_eval_results"]
    assert list(found.keys) == [(None, None, "gsm8k")]


def test_a_results_file_alone_has_no_rollouts(tmp_path):
    assert "--log_samples" in refused(written(tmp_path, json.dumps({"results": {"t": {}}}, indent=2), RESULTS))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines(sample(0, acc=1.0)) * 2, ":2: task '0'"),  # the same document twice under one pipeline
        (lines(sample(0, acc=1.0)) + '{"doc_id": 1}\n', ":2: no key 'task'"),
        (lines(sample(0, acc=1.0)) + "{not json\n", ":2: not JSON"),
    ],
)
def test_bad_lines_are_refused_where_they_stand(tmp_path, content, said):
    assert said in refused(written(tmp_path, content, NAME))


ROW = {"doc_id": 0, "doc": {}, "resps": [], "filtered_resps": [["-2.0", "True"]], "filter": "none", "metrics": []}


def made(tmp_path, *metrics):
    path = tmp_path / "samples_t.jsonl"
    path.write_text("".join(json.dumps({**ROW, "doc_id": n, **one}) + "\n" for n, one in enumerate(metrics)))
    return pipeline.read(str(path))


@pytest.mark.parametrize(
    ("metrics", "reward", "columns"),
    [
        ({"perplexity": -2.5}, -2.5, {"logprob": -2.5}),
        (
            {"word_perplexity": [-12.0, 3], "byte_perplexity": [-12.0, 16]},
            -0.75,
            {"logprob": -12.0, "words": 3, "bytes": 16},
        ),
        ({"bits_per_byte": [0.0, 0]}, 0.0, {"logprob": 0.0, "bytes": 0}),  # no text at all
    ],
)
def test_a_document_keeps_its_log_likelihood(tmp_path, metrics, reward, columns):
    found = made(tmp_path, metrics)
    assert found.rewards["reward"].values.tolist() == [reward]
    assert {name: found.columns[name].values.tolist()[0] for name in columns} == columns
    assert "of all documents together, shown by calipers score --dialect lm_eval --format md" in found.notes[0]


def test_what_is_averaged_is_the_reward(tmp_path):
    found = made(tmp_path, {"perplexity": -2.5, "acc": 1}, {"perplexity": -0.5, "acc": 0})
    assert list(found.rewards) == ["acc"]  # the mean of log-likelihoods is not called a perplexity
    assert found.columns["logprob"].values.tolist() == [-2.5, -0.5]


GOLDEN = Path(__file__).parents[2] / "golden" / "lm_eval" / "e2e"
OLD, NEW = "2026-01-02T03-04-05.678901", "2026-03-02T03-04-05"  # no fraction when the clock has none


def output(folder, time=NEW, model="m", acc=1.0, task="t", stem="results"):
    """Write the folder of a model after one run of a task; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {"results": {task: {"acc,none": acc}}, "model_name": model}
    (folder / f"{stem}_{time}.json").write_text(json.dumps(held, indent=2))
    row = {"doc_id": 0, "doc": {}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "acc": acc}
    (folder / f"samples_{task}_{time}.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def groups(*paths):
    """The (model, task, accuracy) of everything that was read, the files, and the notes."""
    table, inputs = read([str(path) for path in paths])
    rows = [(row.get("model"), row["dataset"], row["reward acc"]) for row in seen(table)]
    return rows, [os.path.basename(one.path) for one in inputs], list(table.notes)


@pytest.mark.parametrize("name", ["gen_repeats", "mc_group", "rolling"])
def test_what_lm_eval_wrote(tmp_path, name):
    """Files are recognised by lm-eval's names; other files of the folder are ignored."""
    model = tmp_path / "out" / "fixture-v1"
    model.mkdir(parents=True)
    shutil.copy(GOLDEN / name / "results.json", model / f"results_{NEW}.json")
    shutil.copy(GOLDEN / name / "run.json", model)
    for path in (GOLDEN / name).glob("samples_*.jsonl"):
        shutil.copy(path, model / f"{path.stem}_{NEW}.jsonl")
    whole, inputs = read([str(tmp_path / "out")])
    alone, _ = read([str(model)])
    beside, _ = read([str(model / f"results_{NEW}.json")])
    assert seen(whole) == seen(alone) == seen(beside) != []
    assert [(one.format, one.rollouts) for one in inputs] == [("lm_eval_results", len(whole))]
    assert {key[1] for key in whole.keys} == {"fixture-v1"}


def test_every_model_has_its_folder(tmp_path):
    output(tmp_path / "m", model="org/m")
    output(tmp_path / "n", model="n", acc=0.0)
    (tmp_path / "plots").mkdir()
    found, files, notes = groups(tmp_path)
    assert found == [("n", "t", 0.0), ("org/m", "t", 1.0)]
    assert (len(files), notes) == (2, [])


def test_the_newest_stands_for_its_model_and_the_others_are_told_of(tmp_path):
    output(tmp_path / "m", OLD, acc=0.0)
    output(tmp_path / "m", NEW)
    output(tmp_path / "n", OLD, model="n")
    found, files, (note,) = groups(tmp_path)
    assert found == [("m", "t", 1.0), ("n", "t", 1.0)]
    assert files == [f"results_{NEW}.json", f"results_{OLD}.json"]
    assert note == (
        f"{tmp_path}/m/results_{NEW}.json is the newest file of its model: results_{OLD}.json beside it is ignored; "
        "to read one of them, pass the file itself"
    )


def test_of_many_that_are_passed_over_a_few_are_named(tmp_path):
    for day in range(1, 7):
        output(tmp_path, f"2026-01-{day:02d}T00-00-00")
    _, (file,), (note,) = groups(tmp_path)
    assert file == "results_2026-01-06T00-00-00.json"
    named = [f"results_2026-01-{day:02d}T00-00-00.json" for day in (5, 4, 3)]
    assert f"{', '.join(named)} and 2 more beside it are ignored" in note


def test_models_that_share_a_folder_are_told_apart(tmp_path):
    """With --output_path x.json there is no folder per model, and the results file has another name."""
    output(tmp_path, OLD, model="m", stem="x")
    output(tmp_path, NEW, model="n", stem="y", acc=0.0)
    found, files, notes = groups(tmp_path)
    assert found == [("m", "t", 1.0), ("n", "t", 0.0)]
    assert (files, notes) == ([f"x_{OLD}.json", f"y_{NEW}.json"], [])


def test_a_model_in_two_folders_is_not_guessed_at(tmp_path):
    output(tmp_path / "before")
    output(tmp_path / "now", OLD)
    with pytest.raises(InputError, match=r"now: the model 'm' also appears in .*before; expected one folder for each"):
        read([str(tmp_path)])


def test_a_bare_nan_in_the_results_hides_no_model(tmp_path):
    output(tmp_path, OLD, acc=0.0)
    path = output(tmp_path) / f"results_{NEW}.json"
    path.write_text(path.read_text().replace("1.0", "NaN"))
    assert groups(tmp_path)[0] == [("m", "t", 1.0)]


@pytest.mark.parametrize(
    "content",
    [
        '{"results": {"t": {"acc,none": 1',  # cut off
        '{"results": {' + '"a": {' * 100_000,
        '{"results": {}, "model_name": "\\ud800',
    ],
)
def test_results_that_are_no_json_are_named(tmp_path, content):
    (output(tmp_path) / f"results_{NEW}.json").write_text(content)
    with pytest.raises(
        InputError, match=(rf"results_{NEW}\.json: is not complete JSON; " r"expected a file that lm_eval wrote")
    ):
        read([str(tmp_path)])


@pytest.mark.parametrize(
    "more",
    [
        {"configs": 3},
        {"configs": {"t": [1]}},
        {"configs": {"t": {"filter_list": "x"}}},
        {"configs": {"t": {"filter_list": [{"filter": [None]}]}}},
        {"model_name": ["m"]},
    ],
)
def test_results_of_other_shapes_are_no_harm(tmp_path, more):
    path = output(tmp_path) / f"results_{NEW}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    assert groups(tmp_path)[0][0][1:] == ("t", 1.0)


def test_results_without_samples_are_refused_by_name(tmp_path):
    output(tmp_path, OLD)
    (output(tmp_path) / f"samples_t_{NEW}.jsonl").unlink()
    with pytest.raises(InputError, match=rf"results_{NEW}\.json: contains numbers but no rollouts.*--log_samples"):
        read([str(tmp_path)])


def test_a_line_nested_too_deeply_is_refused_where_it_stands(tmp_path):
    row = {"doc_id": 1, "doc": 0, "resps": [], "filtered_resps": [], "acc": 1.0}
    deep = json.dumps(row).replace('"doc": 0', '"doc": {"q": ' + "[" * 700 + "]" * 700 + "}")
    with (output(tmp_path) / f"samples_t_{NEW}.jsonl").open("a") as file:
        file.write(deep + "\n")
    with pytest.raises(InputError, match=rf"samples_t_{NEW}\.jsonl:2: "):
        read([str(tmp_path)])


@pytest.mark.parametrize("name", ["x.json", "results.txt", "result.json", "results_x.json", "deep/er/results.json"])
def test_a_folder_of_anything_else_says_what_it_would_take(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('{"results": {}}' if name.startswith("deep") else '{"answer": 42}')
    said = refused(str(tmp_path))
    assert said.startswith(
        ": is a directory; expected a file of rollouts, a run folder or a Harbor job (with plan.json or result.json"
    )
    assert said.endswith("(results_*.json and samples_*.jsonl, or a folder for each model)")


def test_other_folders_mean_what_they_meant(tmp_path):
    """A Harbor job is read as such, whatever other files are beside its trials."""
    shutil.copytree(JOB, tmp_path / "job")
    output(tmp_path / "job")
    _, (one,) = read([str(tmp_path / "job")])
    assert one.format == "harbor"


def test_a_fifo_and_linked_folders_are_not_looked_into(tmp_path):
    output(tmp_path / "elsewhere")
    folder = output(tmp_path / "out" / "m", OLD, acc=0.0)
    os.mkfifo(folder / f"results_{NEW}.json")
    (tmp_path / "out" / "n").symlink_to(tmp_path / "elsewhere")
    assert groups(tmp_path / "out")[0] == [("m", "t", 0.0)]


@pytest.mark.parametrize("again", ["out", "out/m", f"out/m/results_{NEW}.json", "link"])
def test_what_is_given_twice_is_refused(tmp_path, again):
    output(tmp_path / "out" / "m")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(InputError, match=rf"results_{NEW}\.json: appears twice, also as .*out"):
        read([str(tmp_path / "out"), str(tmp_path / again)])
