"""Certify the numbers of a run: which rollouts were scored, with which settings, and whether as planned."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from calipers.analyses.certify.envelope import CERTIFICATE, Envelope, private_key, sign, state
from calipers.analyses.certify.leaves import Leaves, grow, growing_tree, of_parts, of_records
from calipers.analyses.certify.tree import SEED, Tree
from calipers.errors import InputError
from calipers.formats import Format, Named
from calipers.formats.convert import records_of, refuse_pipes
from calipers.formats.jsonl import WORDS
from calipers.formats.lines import kept_processes
from calipers.formats.read import begin, format_of, with_folders
from calipers.formats.run_folder import PLAN, RUN, is_run, read_plan
from calipers.formats.source import Source
from calipers.pipeline import columns_read, score
from calipers.reports.result import Result, covered
from calipers.request import integer, make_plan, names_code, no_reward
from calipers.rollouts.table import Part
from calipers.stores import atomic_file

SCHEMA: Final = "calipers.certificate/1"
ROOT: Final = "calipersRolloutsSha256"  # the name of the digest's algorithm in an in-toto subject
NUMBERS: Final = "calipersResultSha256"
TREE_FILE: Final = "result.tree"
TREE: Final = "rfc6962-sha256-salted"
HASHED_WHILE_READ: Final = frozenset({"native", "run", "json_array"})
NO_ROOT: Final = "a result alone has no rollouts, so the certificate has no root of their tree"


@dataclass(frozen=True, slots=True)
class CertifiedScoring:
    """The settings of a scoring that anybody needs to repeat it."""

    metrics: Sequence[str] = ()
    by: Sequence[str] = ()
    cluster: str | None = None
    dialect: str | None = None
    missing: str | None = None
    reward: str | None = None
    confidence: float = 0.95
    seed: int = 0
    interval: str | None = None
    range: tuple[float, float] | None = None
    exclude: Sequence[str] = ()
    threshold: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        defaults = asdict(CertifiedScoring())
        given = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CertifiedScoring:
        """The scoring in a certificate; InputError if it is invalid."""
        unknown = [name for name in document if name not in cls.__dataclass_fields__]
        if unknown:
            raise InputError.at("scoring", f"has a key {unknown[0]!r}", "was it written by a newer version?")
        lists = {name: tuple(document[name]) for name in ("metrics", "by", "range", "exclude") if name in document}
        scoring = cls(**{**document, **lists})
        scoring.refuse_code()
        return scoring

    def refuse_code(self) -> None:
        """Raise InputError for a metric that is a file of code, because checking a certificate must not run code."""
        for metric in self.metrics:
            if names_code(metric):
                problem = f"{metric!r:.60} is a file of code, which no certificate names"
                raise InputError.at("scoring", problem, "expected names of metrics")


@dataclass(frozen=True, slots=True)
class ScoredRollouts:
    """The result of scored rollouts, with their leaves, and the Merkle tree of the leaves with salts from a seed."""

    result: Result
    leaves: Leaves
    tree: Tree | None  # None without a seed


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate, the tree of its rollouts, and its result."""

    envelope: Envelope
    tree: Tree | None  # None for a result alone
    result: Result
    notes: Sequence[str] = ()
    differences: Sequence[str] | None = None  # from the registered plan; None without a plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file, and the tree beside it as result.tree; files that exist are replaced."""
        with atomic_file(path) as file:
            file.write(self.envelope.encoded())
        if self.tree is not None:
            with atomic_file(os.path.join(os.path.dirname(os.fspath(path)), TREE_FILE)) as file:
                file.writelines(self.tree.encoded())


def scored(
    paths: Sequence[str], scoring: CertifiedScoring, columns: Mapping[str, str] | None = None, seed: bytes | None = None
) -> ScoredRollouts:
    """Score rollouts and compute their leaves; native records are read once for both."""
    names = columns if isinstance(columns, Named) else Named(columns or {})
    settings = asdict(scoring)
    metrics = list(settings.pop("metrics")) or None
    plan = make_plan(metrics, **settings)
    parts: list[Part] = []
    with kept_processes():
        formats = _formats(paths, names)
        if names or not {file_format.name for file_format in formats} <= HASHED_WHILE_READ:
            result = score(list(paths), metrics, columns=names, **settings)
            extra = sorted({label for file_format in formats for label in file_format.labels})
            begin(paths, columns=names, labels=extra, kept=parts)
            leaves = of_records(records_of(paths, names, parts))
        elif plan.labels:  # labels of a plan may add columns, and leaves must not depend on the requested scoring
            result = score(list(paths), metrics, columns=names, **settings)
            begin(paths, labels=[WORDS], kept=parts)
            leaves = of_parts(parts)
        else:
            table, inputs = begin(paths, labels=[WORDS], kept=parts, keep=columns_read(plan))
            if table.unread and any("reward" in request.metric.reads for request in plan.requests):
                raise no_reward(list(paths), table.unread)
            leaves = of_parts(parts)
            with nullcontext(None) if seed is None else growing_tree(seed, leaves) as finished:
                result = replace(score(table, metrics, **settings), inputs=inputs())
                del table  # it needs as much memory as the tree
                return ScoredRollouts(result, leaves, finished() if finished else None)
        return ScoredRollouts(result, leaves, None if seed is None else grow(seed, leaves))


def _formats(paths: Sequence[str], names: Named) -> list[Format]:
    formats = []
    for path in with_folders(paths, names)[0]:
        if not isinstance(path, str):
            formats.append(format_of(path))
        elif os.path.isdir(path):
            formats.append(RUN)
        else:
            with Source(path) as source:
                formats.append(format_of(source, names))
    return formats


def certify(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    metrics: str | Sequence[str] = (),
    *,
    key: str | os.PathLike[str] | None = None,
    plan: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    range: tuple[float, float] | None = None,
    exclude: str | Sequence[str] = (),
    threshold: float | None = None,
    salt_seed: bytes | None = None,
) -> Certified:
    """Certify the rollouts in ``paths``, or a result alone.

    The private key in the file ``key`` signs the certificate. ``plan`` is the file of a certified plan that the run is
    compared with. The other settings are those of `score`. ``salt_seed`` is the seed of the salts, 32 bytes, random by
    default. `Certified.save` writes the certificate, and its tree beside it.
    """
    given = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    refuse_pipes(given)
    metrics, by, exclude = ((names,) if isinstance(names, str) else tuple(names) for names in (metrics, by, exclude))
    scoring = CertifiedScoring(
        *(metrics, by, cluster, dialect, missing, reward, confidence, integer("seed", seed), interval, range, exclude),
        threshold,
    )
    planned = None if plan is None else os.fspath(plan)
    if key is not None:
        private_key(os.fspath(key))  # a wrong key is an error before the work
    alone = result_in(given[0]) if len(given) == 1 else None
    if alone is not None:
        if scoring != CertifiedScoring() or columns:
            raise InputError.at(given[0], "is a result, whose numbers are made", "expected rollouts with these options")
        certified = _certified(alone, None, scoring, {}, given, planned, [NO_ROOT])
    else:
        if planned is not None:
            from calipers.analyses.certify.preregister import as_planned

            scoring = as_planned(planned, scoring)
        scoring.refuse_code()
        rollouts = scored(given, scoring, columns, salt_seed or os.urandom(SEED))
        result = rollouts.result
        certified = _certified(result, rollouts.tree, scoring, columns or {}, given, planned, result.notes)
    return certified if key is None else replace(certified, envelope=sign(certified.envelope, os.fspath(key)))


def _certified(
    result: Result,
    tree: Tree | None,
    scoring: CertifiedScoring,
    columns: Mapping[str, str],
    paths: Sequence[str],
    plan: str | None,
    notes: Sequence[str],
) -> Certified:
    from calipers import __version__

    subject = [{"name": "result", "digest": {NUMBERS: result.digest.removeprefix("sha256:")}}]
    if tree is not None:
        subject.insert(0, {"name": "rollouts", "digest": {ROOT: tree.root.hex()}})
    run_plans = _run_plans(paths)
    predicate: dict[str, Any] = {
        "schema": SCHEMA,
        "calipers": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rollouts": None if tree is None else {"leaves": tree.count, "root": tree.root.hex(), "tree": TREE},
        "result": {"digest": result.digest, "covered": covered(result).decode()},
        "scoring": scoring.to_dict(),
        "columns": dict(columns),
        "inputs": [
            {"name": os.path.basename(source.path), "format": source.format, "sha256": source.sha256}
            for source in result.inputs
        ],
        "plan": run_plans,
        "preregistration": None,
    }
    differences = None
    if plan is not None:
        from calipers.analyses.certify.preregister import bound, others_planned

        stated = bound(plan, result, run_plans, None if tree is None else predicate["scoring"])
        predicate["preregistration"], differences = stated, stated["differences"]
        others = others_planned(stated, len(result.groups))
        notes = [*notes, *([others] if others else [])]
    return Certified(state(CERTIFICATE, subject, predicate), tree, result, notes, differences)


def result_in(path: str) -> Result | None:
    """The result in a file that a command wrote; None for any other file."""
    if os.path.isdir(path):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
            if head[:1] != b"{" or b'"calipers.result/1"' not in head:
                return None
            document = json.loads(head + file.read())
    except (OSError, ValueError, RecursionError):
        return None
    result = Result.from_dict(document)
    if result.digest != document.get("digest"):
        problem = "its numbers do not have the digest that it states"
        raise InputError.at(path, problem, "expected a result as calipers wrote it")
    return result


def _run_plans(paths: Sequence[str]) -> list[dict[str, Any]]:
    """The plan of each run, from its folder: the dataset, the model, the settings and the verifier."""
    plans = []
    for path in paths:
        if not is_run(path):
            continue
        plan = read_plan(path)
        with open(os.path.join(path, PLAN), "rb") as file:
            document = json.loads(file.read())
        names = ("dataset", "model", "agent", "samples", "identity", "created_at")
        settings = {name: getattr(plan, name) for name in names}
        inputs = [{"sha256": source.get("sha256")} for source in document.get("inputs") or ()]
        plans.append({**settings, "tasks": len(plan.tasks), "versions": document.get("versions"), "inputs": inputs})
    return plans
