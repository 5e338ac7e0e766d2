"""What lm-evaluation-harness' samples say: prompts, what is left of the answers, and the hashes of documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calipers.readers import lm_eval
from calipers.readers.files import Source
from calipers.readers.texts import Text

_GREEDY = ("True", "False")  # whether a choice is what the model would have said itself, written as text by some


def texts(path: str) -> Iterator[Text]:
    """The texts of every sample in a file; its prompt by its hash where the prompt itself is not kept."""
    task = lm_eval.task_of(path)
    with Source(path) as source:
        for row in lm_eval.rows_of(source):
            pipeline = row.get("filter", lm_eval.UNNAMED)
            arguments = row.get("arguments")
            first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
            prompt = first.get("arg_0") if isinstance(first, dict) else None
            yield Text(
                agent=None if pipeline == lm_eval.UNNAMED else str(pipeline),
                model=None,
                dataset=task,
                task=str(row["doc_id"]),
                sample=0,
                document=str(row.get("doc_hash") or ""),
                completion=_chosen(row["resps"]),
                prompt=prompt if isinstance(prompt, str) else str(row.get("prompt_hash") or ""),
                answer=_chosen(row["filtered_resps"]),
            )


def _chosen(answers: Any) -> Any:
    """The likeliest of several choices by its number; any other answer as it is."""
    pairs = answers if isinstance(answers, list) else []
    if len(pairs) < 2 or not all(isinstance(one, list) and len(one) == 2 and str(one[1]) in _GREEDY for one in pairs):
        return answers
    try:
        return f"choice {max(range(len(pairs)), key=lambda place: float(pairs[place][0]))}"
    except (TypeError, ValueError):  # pairs of something else
        return answers
