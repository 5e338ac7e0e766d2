"""Single rollouts, shown: each with its salt and the hashes that lead from its leaf to the certified root."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.leaves import leaf_of, words_of
from calipers.errors import InputError
from calipers.formats.canonical import NotCanonical, canonical, words_digest
from calipers.formats.convert import records_of
from calipers.formats.format import Named
from calipers.formats.read import begin
from calipers.reports.json import encoded

if TYPE_CHECKING:
    from calipers.analyses.certify.verify import CertCheck

PROOF: Final = "calipers.proof/1"


def show_rollouts(
    paths: Sequence[str], tree: str, wanted: Sequence[str], columns: Mapping[str, str] | None = None
) -> str:
    """The proof of the rollouts of some tasks, ``TASK`` or ``TASK#SAMPLE``, as JSON; InputError where there is none."""
    from calipers.analyses.certify.certify import CertifiedScoring, scored

    kept = trees.open_tree(tree).read()
    done = scored(paths, CertifiedScoring(), columns, kept.seed)
    if done.tree is None or done.tree.root != kept.root:
        raise InputError.at(tree, "is the tree of other rollouts", "expected the rollouts that were certified")
    texts = [*done.leaves.texts()]
    indices = [index for each in wanted for index in _found(done.leaves.find, each)]
    words = _words(paths, Named(columns or {}), {texts[index] for index in indices})
    shown = [
        {
            "index": index,
            "salt": kept.salt(index).hex(),
            "leaf": texts[index].decode(),
            "words": words.get(texts[index]),
            "path": [node.hex() for node in kept.path(index)],
        }
        for index in dict.fromkeys(indices)
    ]
    return encoded({"schema": PROOF, "root": kept.root.hex(), "leaves": kept.count, "shown": shown})


def _found(find: Any, text: str) -> list[int]:
    task, _, sample = text.rpartition("#")
    found: list[int] = find(text, None)
    if not found and task and sample.isdecimal():
        found = find(task, int(sample))
    if not found:
        raise InputError.at("--show", f"no rollout of task {text!r}", "expected TASK or TASK#SAMPLE")
    return found


def _words(paths: Sequence[str], names: Named, leaves: set[bytes]) -> dict[bytes, str | None]:
    """What the records of some leaves say in words, as canonical JSON."""
    parts: list[Any] = []
    begin(paths, columns=names, kept=parts)
    said: dict[bytes, str | None] = {}
    for record in records_of(paths, names, parts):
        leaf = leaf_of(record)
        if leaf in leaves:
            words = words_of(record)
            said[leaf] = canonical(words).decode() if words else None
    return said


def check_proof(path: str, root: bytes | None, count: int) -> Iterator[CertCheck]:
    """Whether each rollout that a file shows is in a certified tree."""
    from calipers.analyses.certify.verify import GOOD, WRONG, CertCheck

    try:
        if os.path.getsize(path) > 1 << 30:
            raise InputError.at(path, "is larger than 1 GiB", "expected a proof")
        with open(path, "rb") as file:
            document = json.loads(file.read())
        shown = [_rebuilt(each) for each in document["shown"]]
        if document["schema"] != PROOF:
            raise ValueError("its schema is another")
    except (OSError, ValueError, KeyError, TypeError, NotCanonical) as error:
        yield CertCheck("shown", WRONG, f"{path} is not a proof ({type(error).__name__}: {error})")
        return
    for index, leaf, nodes, record in shown:
        what = f"task {record['task']!r} sample {record['sample']}"
        if root is not None and trees.root_of(leaf, index, count, nodes) == root:
            rewards = ", ".join(f"{name} {value}" for name, value in record.get("rewards", {}).items()) or "no reward"
            yield CertCheck("shown", GOOD, f"{what} is certified: {record['outcome']}, {rewards}")
        else:
            yield CertCheck("shown", WRONG, f"{what} is not among the certified rollouts")


def _rebuilt(entry: Mapping[str, Any]) -> tuple[int, bytes, list[bytes], dict[str, Any]]:
    """The index, leaf hash, path and record that an entry shows; ValueError where its parts do not fit."""
    text, words = entry["leaf"], entry["words"]
    record = json.loads(text)
    if canonical(record) != text.encode():
        raise ValueError("a leaf is not canonical")
    digest = None if words is None else words_digest(json.loads(words))
    if words is not None and digest != record.get("words"):
        raise ValueError("what a rollout says in words is not what its leaf has the hash of")
    salt = bytes.fromhex(entry["salt"])
    if len(salt) != trees.SALT:
        raise ValueError("a salt does not have 16 bytes")
    nodes = [bytes.fromhex(node) for node in entry["path"]]
    return int(entry["index"]), trees.leaf_hash(salt, text.encode()), nodes, record
