"""EvSys: its Benchmark, prediction rows and metric names, and stand-ins for its modules if they are not installed.

This file is the stand-in for the package ``evsys_sdk``, with its names for benchmarks, metrics, verifiers, clients and
their data. A name's module is imported on first use. ``__version__`` is the release whose behaviour is reproduced.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from calipers.systems import DialectCard, System

__version__ = "0.1.0"

SYSTEM = System(
    DialectCard(
        one_line=(
            "EvSys' six metric names and its numbers: pass@k over the first "
            "k samples in order, 0.0 where there is no data."
        ),
        default=("mean_reward", "pass_rate"),
        gaps="excluded from the estimate: EvSys drops failed rollouts",
        nothing="0.0",
        slices="named by Python's str(): True, None; __missing__ for a missing value",
        words={
            "avg": "mean_reward",
            "mean_reward": "mean_reward",
            "pass@1": "any_of_first_1",
            "pass@3": "any_of_first_3(short=judged)",
            "pass^3": "all_of_first_3",
            "pass_rate": "pass_rate",
        },
    )
)

_NAMES: Final = {  # module -> its names that EvSys' package exports
    "calipers.systems.evsys.benchmark": "Benchmark BenchmarkScore BenchmarkTaskResult run_benchmark",
    "calipers.systems.evsys.lent": (
        "ChatMessagesRow E2BVerifier HarborTask InProcessVerifier InferenceClient LLMJudgeVerifier Metric "
        "PromptExample TargetFormat Verifier VerifierPayload block_to_image_src chat_messages_row_from_dict "
        "detect_format from_dict get_inference get_metric get_verifier harbor_task_from_dict has_images "
        "image_base64_block image_url_block iter_jsonl list_inferences list_metrics list_verifiers parse_rows "
        "prompt_example_from_dict register_inference register_metric register_verifier text_block to_dict"
    ),
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # the names of ``evsys_sdk``


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
