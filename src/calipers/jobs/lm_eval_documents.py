"""The documents that a run of a task was asked about, by their hashes: a run reports on these and on no others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec

from calipers.errors import InputError
from calipers.readers.run_plan import PLAN
from calipers.reports.lm_eval import digest, dumped
from calipers.tasks.lm_eval.loaded import LoadedTask

DIGITS: Final = 16  # of a document's hash, the doc_hash of lm-evaluation-harness' samples files


class _Described(msgspec.Struct):
    document_hashes: list[str] | None = None


class _Plan(msgspec.Struct):
    dataset: str | None = None
    lm_eval: _Described | None = None


def document_hashes(task: LoadedTask) -> list[str]:
    """The hash of each document of the evaluated split, in its order."""
    if "hashes" not in task.kept:
        task.kept["hashes"] = [digest(dumped(dict(doc)))[:DIGITS] for doc in task.docs]
    found: list[str] = task.kept["hashes"]
    return found


def check_documents(folder: Path, task: str, hashes: Sequence[str]) -> None:
    """Refuse a folder whose run of a task was asked about other documents; one that recorded none is not refused."""
    recorded = _recorded(folder, task)
    if recorded is None or recorded == list(hashes):
        return
    pairs = zip_longest(recorded, hashes)
    different = [number for number, (before, now) in enumerate(pairs) if before != now]
    some = ", ".join(map(str, different[:3])) + (", ..." if len(different) > 3 else "")
    wrong = f"{len(different)} of its {len(recorded)} documents are not those that were asked ({some})"
    right = "expected the same data files, task code and --load-seeds, or another --out"
    raise InputError.at(str(folder), wrong, right)


def _recorded(folder: Path, task: str) -> list[str] | None:
    try:
        plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=_Plan)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # whoever reads the plan itself says what is wrong with it
    return plan.lm_eval.document_hashes if plan.lm_eval is not None and plan.dataset == task else None
