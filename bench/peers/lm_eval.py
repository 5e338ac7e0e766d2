"""lm-evaluation-harness 0.4.13: a whole ``lm_eval run`` over a local file of questions."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.peer import Numbers, Peer, Work

PEER = Peer(
    "lm_eval",
    "lm-eval 0.4.13",
    packages=("lm_eval", "datasets"),
    requirement="lm_eval[api]==0.4.13",
    note="`lm_eval run` with `local-chat-completions`, `--log_samples` and a task of eight lines",
)

TASK = """task: live
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 16, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def prepare(url: str, questions: str, workers: int) -> Work:
    """Its own command, in this process, with all its caches in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="calipers-bench-"))
    (folder / "live.yaml").write_text(TASK.format(questions=json.dumps(questions)), encoding="utf-8")
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    os.environ |= {**offline, "OPENAI_API_KEY": "none"}
    settings = {"model": "fixed", "base_url": f"{url}/chat/completions", "num_concurrent": workers}
    command = ["lm_eval", "run", "--model", "local-chat-completions", "--apply_chat_template", "--log_samples"]
    command += ["--model_args", ",".join(f"{name}={value}" for name, value in settings.items())]
    command += ["--tasks", "live", "--include_path", str(folder), "--output_path", str(folder / "out")]
    run = importlib.import_module("lm_eval.__main__").cli_evaluate

    def work() -> Path:
        sys.argv = command
        run()
        return folder

    return work


def numbers(answer: Any) -> Numbers:
    """The share of correct answers, from its results file; then the folder is removed."""
    import shutil

    (found,) = answer.glob("out/**/results_*.json")
    scores = json.loads(found.read_text(encoding="utf-8"))["results"]["live"]
    shutil.rmtree(answer)
    return {"mean_reward": scores["exact_match,none"]}
