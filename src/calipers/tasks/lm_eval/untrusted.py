"""What a task file may ask of the library ``datasets`` before anybody trusts the file.

The library can run code on the way to its rows: some of its builders unpickle, some of its URLs chain
into other loaders, and older releases run scripts. So a file that is not trusted may name a dataset of
the hub, or a file of one of our own kinds by ``https`` or ``hf``, and give a short list of options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from calipers.errors import InputError
from calipers.tasks.lm_eval.config import TaskConfig, shown
from calipers.tasks.lm_eval.files import READERS
from calipers.tasks.lm_eval.yaml import TaskFile

FLOOR: Final = Version("5.2")  # the first release whose builders run nothing: no script, no pickle
SCHEMES: Final = ("https", "hf")
OPTIONS: Final = (  # of load_dataset; those of our readers come on top where the kind is one of theirs
    "data_dir",
    "data_files",
    "download_mode",
    "features",
    "keep_in_memory",
    "revision",
    "split",
    "streaming",
    "trust_remote_code",  # taken, and never passed on
    "verification_mode",
)
BUILDERS: Final = frozenset(  # of any release so far; the names of ours are taken from READERS
    (
        *("audiofolder", "cache", "conll", "eval", "fasta", "fastq", "folder_based_builder", "genbank", "generator"),
        *("harbor", "hdf5", "iceberg", "imagefolder", "lance", "meshfolder", "mmcif", "niftifolder", "pandas"),
        *("pdb", "pdffolder", "pickle", "spark", "sql", "tsfile", "videofolder", "vortex", "webdataset", "xml"),
    )
)
TRUSTING: Final = "read the task, then run it with --trust"
_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]*):")


def refuse_unsafe(config: TaskConfig, kwargs: Mapping[str, Any], file: TaskFile) -> None:
    """InputError where a task asks the library for more than a file without trust may."""
    path = config.dataset_path or ""
    _refuse_path(path.removeprefix("hf://datasets/"), file.place("dataset_path"))
    place = file.place("dataset_kwargs")
    known = (*OPTIONS, *(READERS[path][1] if path in READERS else ()))
    for key, value in kwargs.items():
        if key not in known:
            wrong = f"{shown(key)} may not be given to a dataset of the hub"
            raise InputError.at(place, wrong, f"expected {', '.join(known)}; else {TRUSTING}")
        for text in _texts(value) if key in ("data_files", "data_dir") else ():
            _refuse_name(text, f"{place}.{key}")


def refuse_old(version: str, place: str) -> None:
    """InputError for a release of the library that runs code on its own."""
    try:
        old = Version(version) < FLOOR
    except InvalidVersion:
        old = True
    if old:
        wrong = f"the library datasets is {shown(version)}, which may run code that lies with the data"
        raise InputError.at(place, wrong, f"expected datasets>={FLOOR}; else {TRUSTING}")


def _refuse_path(path: str, place: str) -> None:
    if path in READERS:
        return
    if path in BUILDERS:
        wrong = f"{path} is a builder of the library datasets"
        raise InputError.at(place, wrong, f"expected {', '.join(READERS)} or a dataset of the hub; else {TRUSTING}")
    if not _HUB.fullmatch(path) or path.endswith(".py") or os.path.lexists(path):
        right = f"expected {', '.join(READERS)}, a folder of such files or the name of a dataset on the hub"
        raise InputError.at(place, f"is {shown(path)}", f"{right}; else {TRUSTING}")


def _refuse_name(name: str, place: str) -> None:
    scheme = _SCHEME.match(name)
    if "::" in name or name.count("://") > 1 or ("://" in name and not scheme):
        raise InputError.at(place, f"{shown(name)} is a chain of URLs", f"expected one URL or path; else {TRUSTING}")
    if scheme and scheme[1].lower() not in SCHEMES:
        wrong = f"{shown(name)} has the scheme {scheme[1]}"
        raise InputError.at(place, wrong, f"expected {' or '.join(SCHEMES)}; else {TRUSTING}")


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, however deep; keys are names of splits."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(one, (Mapping, list, tuple)):
            yield from _texts(one)
        elif one is not None:
            yield str(one)
