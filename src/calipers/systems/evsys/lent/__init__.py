"""EvSys' package, as far as it is lent: what concerns benchmarks, metrics, verifiers, clients and their data.

Nothing is loaded before its name is asked for. ``__version__`` is that of the release whose behaviour is lent.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

__version__ = "0.1.0"

_NAMES: Final = {  # module -> the names that the package has of it
    "calipers.systems.evsys.benchmark": "Benchmark BenchmarkScore BenchmarkTaskResult run_benchmark",
    "calipers.systems.evsys.lent.data_types": (
        "ChatMessagesRow E2BVerifier HarborTask InProcessVerifier LLMJudgeVerifier PromptExample TargetFormat "
        "VerifierPayload block_to_image_src chat_messages_row_from_dict detect_format from_dict harbor_task_from_dict "
        "has_images image_base64_block image_url_block iter_jsonl parse_rows prompt_example_from_dict text_block "
        "to_dict"
    ),
    "calipers.systems.evsys.lent.registry": (
        "InferenceClient Metric Verifier get_inference get_metric get_verifier list_inferences list_metrics "
        "list_verifiers register_inference register_metric register_verifier"
    ),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
