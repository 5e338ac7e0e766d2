"""Runs of log-likelihood tasks with a checkpoint, and texts that a model cannot score.

The expected values are computed with transformers, one text at a time, by lm-evaluation-harness' definitions.
"""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from hf.tiny import LENGTH
from running.scene import records

from calipers.running.perform import perform
from calipers.running.settings import jobs_of
from calipers.systems.lm_eval.report import joined, part

HEAD = "dataset_path: json\ndataset_kwargs: {data_files: {test: data.jsonl}}\ntest_split: test\n"
TASKS = {
    "mc": "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\ndoc_to_target: n\n"
    "metric_list: [{metric: acc}, {metric: acc_mutual_info}, {metric: brier_score}]\n",
    "ll": "output_type: loglikelihood\ndoc_to_text: q\ndoc_to_target: t\n",
    "roll": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: t\n",
}
LONG = "the cat sat on the mat and then the dog ran away, not the cat; " * 4
CLOSE = {"rel": 1e-5, "abs": 1e-5}


def run(home: Path, kind: str, checkpoint: str, docs, out="r"):
    """Run a task with these documents; returns the logged likelihoods, or the error, by document; and the report."""
    (home / "data.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (home / "task.yaml").write_text(f"task: {kind}\n{HEAD}{TASKS[kind]}")
    given = {"model": (f"hf/{checkpoint}",), "out": home / out, "concurrency": 8}
    ((job,), _) = jobs_of([str(home / "task.yaml")], given)
    report = perform(job)
    rows = {int(row["task"]): row for row in records(home / out)}
    ends = [
        json.loads(row["completion"]) if "completion" in row else row["error"]["message"]
        for _, row in sorted(rows.items())
    ]
    return ends, report


@cache
def parts(path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)


def reference(path, tokens, count):
    """The log-likelihood of the last tokens of a sequence that fits into the model's context."""
    import torch

    _, model = parts(path)
    with torch.no_grad():
        table = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
    places = range(len(tokens) - count, len(tokens))
    return sum(float(table[place - 1, tokens[place]]) for place in places)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_multiple_choice_from_file_to_numbers(checkpoints, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docs = [{"q": f"the cat {n}", "c": [" sat on", " the dog", " not"], "n": n % 3} for n in range(6)]
    ends, report = run(tmp_path, "mc", checkpoints[kind], docs)
    assert report.complete
    words, _ = parts(checkpoints[kind])
    begin = words.bos_token_id
    right = 0
    for doc, held in zip(docs, ends, strict=True):
        wanted = []
        for context in (doc["q"], ""):
            for choice in doc["c"]:
                before = words(context)["input_ids"] if context else [begin]
                whole = words(context + " " + choice)["input_ids"] if context else None
                alone = words(" " + choice, add_special_tokens=False)["input_ids"]
                tokens = [begin, *alone] if whole is None else whole
                wanted.append(reference(checkpoints[kind], tokens, len(tokens) - len(before)))
        assert [one["logprob"] for one in held] == pytest.approx(wanted, **CLOSE)
        right += max(range(3), key=wanted.__getitem__) == doc["n"]
    (found,) = joined([part(report.job, report.folder)])
    assert found.results["results"]["mc"]["acc,none"] == pytest.approx(right / 6)
    assert found.results["results"]["mc"]["brier_score_stderr,none"] == "N/A"
    brier = [line for line in found.sentences if line.startswith("mc brier_score,none ")]
    assert [line for line in brier if " from 10,000 resamples" in line]


def test_the_same_command_gives_the_same_digits(checkpoints, tmp_path, monkeypatch):
    """The last digits agree: the batches follow from the plan, whatever the timing of verifiers and disk."""
    monkeypatch.chdir(tmp_path)
    docs = [{"q": LONG[: 9 + 5 * n], "c": [" sat on", " the dog", " not", " ran away"], "n": n % 3} for n in range(40)]
    first, second = (run(tmp_path, "mc", checkpoints["llama"], docs, out)[0] for out in "ab")
    assert first == second


def test_a_text_that_lm_eval_stops_at_is_a_gap_and_the_rest_is_scored(checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docs = [
        {"q": "the cat", "t": " sat"},
        {"q": "the cat", "t": ""},  # nothing to score
        {"q": "the", "t": "n"},  # with its context it is the one token "then"
        {"q": "the", "t": "n ran"},  # a token crosses the border: it is skipped, and the rest scored after "the"
        {"q": LONG.strip(), "t": " the cat"},  # too long: it is cut at its beginning
        {"q": "a", "t": LONG},  # a continuation that is longer than the model
    ]
    path = checkpoints["gpt2"]
    ends, report = run(tmp_path, "ll", path, docs)
    words, _ = parts(path)
    assert ends[1] == "the continuation '' has no tokens of its own"
    assert ends[2] == "the continuation 'n' has no tokens of its own"
    assert ends[5] == (
        f"the continuation has {len(words(LONG)['input_ids'])} tokens, "
        f"but the model's context length is {LENGTH['gpt2']}"
    )
    split = [*words("the")["input_ids"], *words("then ran")["input_ids"][1:]]
    assert ends[3][0]["logprob"] == pytest.approx(reference(path, split, len(split) - 1), **CLOSE)
    whole = words(LONG.strip() + " the cat")["input_ids"][-(LENGTH["gpt2"] + 1) :]
    assert ends[4][0]["logprob"] == pytest.approx(last_two(path, whole), **CLOSE)
    assert not report.complete
    assert report.result.groups[0].ledger.outcomes == {"scored": 3, "client_failed": 3}


def last_two(path, tokens):
    """One token more than the model's context length: the last token is only scored."""
    import torch

    _, model = parts(path)
    with torch.no_grad():
        table = model(torch.tensor([tokens[:-1]])).logits[0].log_softmax(-1)
    return float(table[-2, tokens[-2]] + table[-1, tokens[-1]])


def without_beginning(folder: Path, checkpoint: str, *, ends: bool) -> str:
    """A copy of a checkpoint whose tokenizer has no BOS token, or no EOS token, either."""
    shutil.copytree(checkpoint, folder)
    place = folder / "tokenizer_config.json"
    held = json.loads(place.read_text())
    del held["bos_token"]
    if not ends:
        del held["eos_token"]
    place.write_text(json.dumps(held))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    return str(folder)


def test_a_model_without_a_token_for_the_beginning_begins_with_its_end(checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = without_beginning(tmp_path / "endless", checkpoints["gpt2"], ends=True)
    words, _ = parts(path)
    assert words.bos_token_id is None
    ((held,),), _ = run(tmp_path, "roll", path, [{"t": "the cat sat"}])
    tokens = [words.eos_token_id, *words("the cat sat")["input_ids"]]
    assert held["logprob"] == pytest.approx(reference(path, tokens, len(tokens) - 1), **CLOSE)
    none = without_beginning(tmp_path / "none", checkpoints["gpt2"], ends=False)
    ends, report = run(tmp_path, "roll", none, [{"t": "the cat sat"}, {"t": "on"}], out="none-run")
    assert ends == ["the model has no BOS token"] * 2
    assert report.result.groups[0].ledger.outcomes == {"client_failed": 2}
