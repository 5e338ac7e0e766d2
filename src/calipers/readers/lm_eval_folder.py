"""The folder that lm-evaluation-harness writes with ``--output_path``: a folder for each model, or that alone.

A folder gathers every run that was written into it. What stands for a model is its newest results file; of the
older ones it is said that they were passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from calipers.errors import InputError
from calipers.readers.files import BOM, LARGEST_WHOLE
from calipers.readers.lm_eval import RESULTS_NAME, decoded, is_results

HEAD: Final = 4096  # bytes of a file that say whether it holds results
NAMED: Final = 3  # files that a note names


@dataclass(frozen=True, slots=True)
class _Results:
    """A results file."""

    folder: str
    name: str
    time: str  # when it was written, by its name; "" where that does not say
    model: str | None

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)


class _Model(msgspec.Struct):
    model_name: str | None = None


def newest(path: str) -> tuple[list[str], list[str]]:
    """The newest results file of each model in a folder, sorted; and notes on those that are passed over.

    Nothing where the folder is none of lm-evaluation-harness'. InputError where a model has two folders.
    """
    found: dict[tuple[str | None, str], list[_Results]] = {}
    for folder in [path, *_folders(path)]:
        for one in _results_in(folder):
            found.setdefault((one.model, one.folder), []).append(one)
    first: dict[str, str] = {}
    for model, folder in found:
        if model is not None and first.setdefault(model, folder) != folder:
            wrong = f"the model {model!r} stands in {first[model]} as well"
            raise InputError.at(folder, wrong, "expected one folder for each model; give one of the two")
    taken: list[str] = []
    notes: list[str] = []
    for those in found.values():
        *older, last = sorted(those, key=lambda one: (one.time, one.name))
        taken.append(last.path)
        notes += [_passed_over(last, [one.name for one in reversed(older)])] if older else []
    return sorted(taken), notes


def _passed_over(last: _Results, older: Sequence[str]) -> str:
    names = ", ".join(older[:NAMED]) + (f" and {len(older) - NAMED} more" if len(older) > NAMED else "")
    what = "is" if len(older) == 1 else "are"
    said = f"{last.path} is the newest of its model: {names} beside it {what} passed over"
    return f"{said}; to read one, give the file itself"


def _results_in(folder: str) -> Iterator[_Results]:
    for name in _names(folder):
        match = RESULTS_NAME.fullmatch(name)
        path = os.path.join(folder, name)
        if match and os.path.isfile(path) and is_results(_read(path, HEAD)):
            yield _Results(folder, name, match["time"] or "", _model(path))


def _model(path: str) -> str | None:
    """The model that a results file tells of; None where it says none."""
    if os.path.getsize(path) > LARGEST_WHOLE:
        raise InputError.at(path, f"larger than {LARGEST_WHOLE >> 20} MiB", "expected a results file")
    raw = _read(path, LARGEST_WHOLE).removeprefix(BOM)
    try:
        return msgspec.json.decode(raw, type=_Model).model_name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        held = decoded(raw)  # NaN, as Python writes it
    if held is None:
        raise InputError.at(path, "is no whole JSON", "expected what lm_eval writes, or give another file itself")
    name = held.get("model_name")
    return name if isinstance(name, str) else None


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise InputError.at(folder, f"cannot be read ({error.strerror})") from None


def _folders(path: str) -> list[str]:
    """The folders in a folder, no links, sorted; those that may not be looked into hold nothing."""
    found = [os.path.join(path, name) for name in _names(path)]
    return [each for each in found if os.path.isdir(each) and not os.path.islink(each) and os.access(each, os.R_OK)]
