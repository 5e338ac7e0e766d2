"""Exports, read by the libraries that they are for: each with its real client, on this machine alone."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import ARITH, started
from exports.conftest import Reads, needed

ASKED = ("--metric", "mean_reward", "--metric", "pass@1", "--metric", "pass^2", "--by", "difficulty")
HERE = Path(__file__).parents[1]
LOGS = HERE / "systems" / "inspect" / "logs"


def exported(folder: Path, export: str, *asked: str, path: str = ARITH, **environment: str) -> dict:
    """The result of a score that was exported."""
    done = started("score", path, *asked, "--format", "json", "--export", export, cwd=folder, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def flat(result: dict) -> dict[str, float]:
    """What the trackers must hold of the three metrics."""
    (group,) = result["groups"]
    names = {"mean_reward": "mean_reward", "pass@1": "pass_at_1", "pass^2": "pass_hat_2"}
    numbers = {}
    for ours, theirs in names.items():
        estimate = group["metrics"][ours]
        numbers |= {
            f"{theirs}/value": estimate["value"],
            f"{theirs}/low": estimate["interval"][0],
            f"{theirs}/high": estimate["interval"][1],
            f"{theirs}/n": 40.0,
        }
        hard = group["breakdowns"]["difficulty"]["hard"]["metrics"][ours]
        numbers[f"{theirs}/by/difficulty/hard/value"] = hard["value"]
    return {**numbers, "rollouts/missing": 17.0}


def test_mlflow_has_every_number_and_the_result(tmp_path, reads: Reads):
    needed("mlflow")
    store = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/store"}
    result = exported(tmp_path, "mlflow", *ASKED, **store)
    program = """
import json
from mlflow.tracking import MlflowClient
client = MlflowClient()
run, = client.search_runs([client.get_experiment_by_name("arith").experiment_id])
path = client.download_artifacts(run.info.run_id, "result.json", ".")
print(json.dumps([run.data.metrics, run.data.params, json.load(open(path)), run.info.status]))
"""
    metrics, params, artefact, status = reads("mlflow", program, **store)
    assert flat(result).items() <= metrics.items()
    assert (params["model"], params["digest"], status) == ("tiny-calculator", result["digest"], "FINISHED")
    assert artefact == result


def test_mlflow_at_an_address_of_its_own(tmp_path, reads: Reads):
    needed("mlflow")
    exported(tmp_path, f"mlflow=file://{tmp_path}/other", MLFLOW_ALLOW_FILE_STORE="true")
    assert (tmp_path / "other").is_dir()


def test_a_client_that_fails_is_one_line(tmp_path):
    needed("mlflow")
    done = started("score", ARITH, "--export", "mlflow=nonsense://x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("--export mlflow: its client failed (Unsupported")


def test_wandb_has_every_number_and_the_result_in_the_file_of_its_run(tmp_path, reads: Reads):
    needed("wandb")
    result = exported(tmp_path, "wandb=mine", *ASKED, WANDB_MODE="offline")
    program = """
import glob, json, struct
from wandb.proto import wandb_internal_pb2 as pb
data = open(glob.glob("wandb/offline-run-*/run-*.wandb")[0], "rb").read()
records, at, whole = [], 7, b""  # after the file's own header: pieces, none across the blocks of LevelDB's log
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
    whole += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # whole, or the last piece
        records.append(whole)
        whole = b""
numbers, artefacts, project = {}, [], ""
for raw in records:
    record = pb.Record()
    record.ParseFromString(raw)
    for item in record.history.item:
        numbers[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    project = record.run.project or project
    artefacts += [entry.path for entry in record.artifact.manifest.contents]
    artefacts += [entry.path for entry in record.request.log_artifact.artifact.manifest.contents]
print(json.dumps([numbers, artefacts, project]))
"""
    numbers, artefacts, project = reads("wandb", program)
    assert flat(result).items() <= numbers.items()
    assert project == "mine"
    assert "result.json" in artefacts


def test_trackio_has_every_number_and_the_result(tmp_path):
    needed("trackio")
    result = exported(tmp_path, "trackio=mine", *ASKED, TRACKIO_DIR=str(tmp_path / "store"))
    with sqlite3.connect(tmp_path / "store" / "mine.db") as database:
        rows = [json.loads(row) for (row,) in database.execute("select metrics from metrics")]
    (numbers,) = rows
    assert flat(result).items() <= numbers.items()
    blobs = [path for path in (tmp_path / "store" / "artifacts").rglob("*") if path.is_file()]
    assert any(json.loads(path.read_text()) == result for path in blobs)


@pytest.mark.parametrize("target", ["inspect=a.eval", "inspect=a.json"])
@pytest.mark.parametrize("name", ["one_scorer.eval", "three_scorers.eval"])
def test_inspect_opens_the_log_and_the_score_is_the_same(tmp_path, reads: Reads, target, name):
    needed("inspect_ai")
    result = exported(tmp_path, target, path=str(LOGS / name))
    program = f"""
import json
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log({target.partition("=")[2]!r})
print(json.dumps([
    log.status, log.eval.model, log.eval.task, log.eval.config.epochs,
    sorted([sample.id, sample.epoch, bool(sample.error), sample.limit is not None] for sample in log.samples),
    len(read_eval_log_sample_summaries({target.partition("=")[2]!r})),
    [score.name for score in log.results.scores],
]))
"""
    status, model, task, epochs, samples, summaries, scorers = reads("inspect_ai", program)
    assert (status, model, task, epochs) == ("success", "mockllm/model", "sums", 2)
    assert (len(samples), summaries) == (10, 10)
    assert [sample[:2] for sample in samples if sample[2]] == [["s3", 1]]
    assert [sample[0] for sample in samples if sample[3]] == ["s4"]
    assert "match" in scorers
    again = started("score", target.partition("=")[2], "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["digest"] == result["digest"]


def test_inspect_reads_rollouts_of_our_own(tmp_path, reads: Reads):
    exported(tmp_path, "inspect")
    program = """
import glob, json
from inspect_ai.log import read_eval_log
log = read_eval_log(glob.glob("logs/*.eval")[0])
print(json.dumps([len(log.samples), sum(bool(sample.error) for sample in log.samples), log.eval.config.epochs]))
"""
    assert reads("inspect_ai", program) == [320, 5, 8]


def test_every_eval_ever_finds_no_fault(tmp_path):
    needed("every_eval_ever")
    rows = [
        {"task": task, "sample": sample, "reward": sample / 2, "model": model, "dataset": "d", "prompt": [{"a": 1}]}
        for task in "ab"
        for sample in range(3)
        for model in ("acme/tiny-1", "acme/tiny-2")
    ]
    rows += [{"task": "c", "outcome": "client_failed", "model": "acme/tiny-1", "dataset": "d"}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    exported(tmp_path, "every_eval_ever", *ASKED[:6], path="r.jsonl")
    files = [str(path.relative_to(tmp_path)) for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(files) == 4
    command = [sys.executable, "-W", "ignore", "-m", "every_eval_ever", "validate", "--format", "json", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=300)
    reports = json.loads(done.stdout)
    assert [(report["errors"], report["warnings"]) for report in reports] == [([], [])] * 4, done.stdout.decode()


def test_hugging_face_reads_the_value_and_the_notes(tmp_path, reads: Reads):
    needed("huggingface_hub")
    result = exported(tmp_path, "hf=openai/gsm8k:gsm8k", "--metric", "mean_reward")
    program = """
import json, yaml
from huggingface_hub import parse_eval_result_entries
entry, = parse_eval_result_entries(yaml.safe_load(open(".eval_results/gsm8k.yaml")))
print(json.dumps([entry.dataset_id, entry.task_id, entry.value, entry.notes]))
"""
    dataset, task, value, notes = reads("huggingface_hub", program)
    estimate = result["groups"][0]["metrics"]["mean_reward"]
    assert (dataset, task, value) == ("openai/gsm8k", "gsm8k", estimate["value"])
    low, high = estimate["interval"]
    assert f"95 % interval {low:.4f} to {high:.4f} (wilson_t)" in notes
    assert "n = 40 tasks, 303 samples; 17 of 320 rollouts missing" in notes
