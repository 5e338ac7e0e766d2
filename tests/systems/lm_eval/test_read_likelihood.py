"""Samples that lm-evaluation-harness wrote of likelihoods, read as rollouts."""

import json

import pytest

from calipers.pipeline import read

ROW = {"doc_id": 0, "doc": {}, "resps": [], "filtered_resps": [["-2.0", "True"]], "filter": "none", "metrics": []}


def made(tmp_path, *metrics):
    path = tmp_path / "samples_t.jsonl"
    path.write_text("".join(json.dumps({**ROW, "doc_id": n, **one}) + "\n" for n, one in enumerate(metrics)))
    return read(str(path))


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
