"""Check a certificate: its signature, its numbers, each of its rollouts, and the plan that it names.

Single rollouts are shown with a proof: the salt, and the hashes that lead from the rollout's leaf to the root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec

from calipers.analyses.certify import (
    NUMBERS,
    ROOT,
    SCHEMA,
    TREE,
    TREE_FILE,
    CertifiedScoring,
    ScoredRollouts,
    scored,
)
from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.envelope import CERTIFICATE, Envelope, is_signed_by, keyid_of, public_key, read_envelope
from calipers.analyses.certify.leaves import leaf_of, words_of
from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.canonical import NotCanonical, canonical, words_digest
from calipers.formats.convert import records_of, refuse_pipes
from calipers.formats.read import begin
from calipers.reports.asserted import Asserted
from calipers.reports.document import Blank, Block, Document, Name, Sentence, plain_table
from calipers.reports.figures import counted, ends, figure, is_or_are
from calipers.reports.page import encoded
from calipers.reports.result import Result, covered
from calipers.reports.untrusted_text import clean
from calipers.typed import complete

PROOF: Final = "calipers.proof/1"
GOOD, WRONG, UNKNOWN = "good", "wrong", "not known"
EXITS: Final = {GOOD: 0, WRONG: 1, UNKNOWN: 3}
MOST: Final = 8  # differences that are listed
_KEYS: Final = ("schema", "rollouts", "result", "scoring", "columns", "plan", "preregistration")
VERIFICATION = "calipers.verification/1"
FIELDS = ("check", "state", "says")
VERDICTS = {
    GOOD: "verified: everything that the certificate says was checked, and holds",
    WRONG: "refused: something that the certificate says does not hold",
    UNKNOWN: "not everything could be checked; what was checked holds",
}


def show_rollouts(
    paths: Sequence[str], tree: str, wanted: Sequence[str], columns: Mapping[str, str] | None = None
) -> str:
    """The proof of the rollouts of tasks, ``TASK`` or ``TASK#SAMPLE``, as JSON; InputError for a task without any."""
    refuse_pipes(paths)
    certified = trees.open_tree(tree).read()
    rollouts = scored(paths, CertifiedScoring(), columns, certified.seed)
    if rollouts.tree is None or rollouts.tree.root != certified.root:
        raise InputError.at(tree, "is the tree of other rollouts", "expected the rollouts that were certified")
    texts = [*rollouts.leaves.texts()]
    indices = [index for text in wanted for index in _indices(rollouts.leaves.find, text)]
    words = _words(paths, Named(columns or {}), {texts[index] for index in indices})
    shown = [
        {
            "index": index,
            "salt": certified.salt(index).hex(),
            "leaf": texts[index].decode(),
            "words": words.get(texts[index]),
            "path": [node.hex() for node in certified.path(index)],
        }
        for index in dict.fromkeys(indices)
    ]
    return encoded({"schema": PROOF, "root": certified.root.hex(), "leaves": certified.count, "shown": shown})


def _indices(find: Callable[[str, int | None], list[int]], text: str) -> list[int]:
    """The indices of the leaves of ``TASK`` or ``TASK#SAMPLE``."""
    task, _, sample = text.rpartition("#")
    indices = find(text, None)
    if not indices and task and sample.isdecimal():
        indices = find(task, int(sample))
    if not indices:
        raise InputError.at("--show", f"no rollout of task {text!r}", "expected TASK or TASK#SAMPLE")
    return indices


def _words(paths: Sequence[str], names: Named, leaves: set[bytes]) -> dict[bytes, str | None]:
    """The texts in the records of the given leaves, as canonical JSON; None for a record without texts."""
    parts: list[Any] = []
    begin(paths, columns=names, kept=parts)
    by_leaf: dict[bytes, str | None] = {}
    for record in records_of(paths, names, parts):
        leaf = leaf_of(record)
        if leaf in leaves:
            words = words_of(record)
            by_leaf[leaf] = canonical(words).decode() if words else None
    return by_leaf


def check_proof(path: str, root: bytes | None, count: int) -> Iterator[CertCheck]:
    """Check that each rollout in a proof is in the certified tree."""
    try:
        if os.path.getsize(path) > 1 << 30:
            raise InputError.at(path, "is larger than 1 GiB", "expected a proof")
        with open(path, "rb") as file:
            document = json.loads(file.read())
        shown = [_rebuilt(entry) for entry in document["shown"]]
        if document["schema"] != PROOF:
            raise ValueError("its schema is another")
    except (OSError, ValueError, KeyError, TypeError, NotCanonical, OverflowError, RecursionError) as error:
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
    """The index, leaf hash, path and record of an entry of a proof; ValueError if its parts do not fit together."""
    text, words = entry["leaf"], entry["words"]
    record = json.loads(text)
    if canonical(record) != text.encode():
        raise ValueError("a leaf is not canonical")
    if not isinstance(record, dict) or not {"task", "sample", "outcome"} <= record.keys():
        raise ValueError("a leaf is of no rollout")
    content = {} if words is None else json.loads(words)
    if words is not None and (not isinstance(content, dict) or words_digest(content) != record.get("words")):
        raise ValueError("what a rollout says in words is not what its leaf has the hash of")
    salt = bytes.fromhex(entry["salt"])
    if len(salt) != trees.SALT:
        raise ValueError("a salt does not have 16 bytes")
    nodes = [bytes.fromhex(node) for node in entry["path"]]
    return int(entry["index"]), trees.leaf_hash(salt, text.encode()), nodes, record


class _RunRecord(msgspec.Struct):
    dataset: str | None
    model: str | None
    samples: int
    identity: dict[str, Any]
    created_at: str | None = None


class _Registered(msgspec.Struct):
    sha256: str
    differences: list[str]
    runs: int = 0


class _Predicate(msgspec.Struct):
    """The keys of a predicate that are read later."""

    scoring: CertifiedScoring
    columns: dict[str, str]
    plan: list[_RunRecord]
    preregistration: _Registered | None


class _Estimate(msgspec.Struct):
    value: float | None
    interval: tuple[float, float] | None


class _Ledger(msgspec.Struct):
    planned: int


class _Group(msgspec.Struct):
    agent: str | None
    model: str | None
    dataset: str | None
    ledger: _Ledger
    metrics: dict[str, _Estimate]


class _CertifiedNumbers(msgspec.Struct):
    """The parts that are shown of the text that a digest covers."""

    groups: list[_Group]
    missing: str
    confidence: float
    seed: int


@dataclass(frozen=True, slots=True)
class CertCheck:
    """A single check of a certificate, with its outcome and a sentence about it."""

    what: str
    state: str  # good, wrong or not known
    says: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate whose form has been checked."""

    envelope: Envelope
    predicate: Mapping[str, Any]
    digest: str  # of the result
    root: bytes | None  # of the tree of rollouts; None for a result alone
    leaves: int

    @property
    def result(self) -> dict[str, Any]:
        """The settings and the numbers that the digest covers."""
        numbers: dict[str, Any] = json.loads(self.predicate["result"]["covered"])
        return numbers


@dataclass(frozen=True, slots=True)
class Verification(Asserted):
    """All checks of a certificate; ``bool(verification)`` is whether all of them are good."""

    path: str
    certificate: Certificate | None  # None if its form is wrong
    checks: Sequence[CertCheck]

    @property
    def state(self) -> str:
        """Wrong if any check is wrong, else not known if any check is not known, else good."""
        states = [check.state for check in self.checks]
        return WRONG if WRONG in states else UNKNOWN if UNKNOWN in states else GOOD

    @property
    def exit_code(self) -> int:
        """0 for good, 1 for wrong, 3 for not known."""
        return EXITS[self.state]

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)


def read_certificate(path: str) -> Certificate:
    """The certificate in a file; InputError if its form is wrong."""
    envelope = read_envelope(path)
    statement = envelope.statement(path, CERTIFICATE)
    predicate = statement["predicate"]
    expected = "expected the file as calipers certify wrote it"
    if predicate.get("schema") != SCHEMA:
        raise InputError.at(path, f"schema is {str(predicate.get('schema'))[:60]!r}", f"expected {SCHEMA!r}")
    absent = [key for key in _KEYS if key not in predicate]
    if absent:
        raise InputError.at(path, f"has no key {absent[0]!r}", expected)
    try:
        subjects = {subject["name"]: subject["digest"] for subject in statement["subject"]}
        result, rollouts = predicate["result"], predicate["rollouts"]
        names = ["result"] if rollouts is None else ["rollouts", "result"]
        if [subject["name"] for subject in statement["subject"]] != names:
            raise InputError.at(path, "its subjects are not rollouts and result", expected)
        if subjects["result"] != {NUMBERS: result["digest"].removeprefix("sha256:")}:
            raise InputError.at(path, "its subject and its predicate name different results", expected)
        if sha256(result["covered"].encode()).hexdigest() != subjects["result"][NUMBERS]:
            raise InputError.at(path, "its numbers do not have the digest that it states", expected)
        root, leaves = None, 0
        if rollouts is not None:
            if subjects["rollouts"] != {ROOT: rollouts["root"]} or rollouts["tree"] != TREE:
                raise InputError.at(path, "its subject and its predicate name different rollouts", expected)
            root, leaves = bytes.fromhex(rollouts["root"]), rollouts["leaves"]
            if len(root) != trees.HASH or type(leaves) is not int or not 0 < leaves < trees.MOST:
                raise InputError.at(path, "the root of its rollouts is none", expected)
        certificate = Certificate(envelope, predicate, result["digest"], root, leaves)
        msgspec.convert(predicate, complete(_Predicate))
        msgspec.convert(certificate.result, complete(_CertifiedNumbers))
        CertifiedScoring.of(predicate["scoring"])
    except (KeyError, TypeError, AttributeError, ValueError, msgspec.ValidationError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError.at(path, f"is not a certificate ({type(error).__name__}: {error})", expected) from None
    return certificate


def verify(
    path: str | os.PathLike[str],
    rollouts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    *,
    key: str | os.PathLike[str] | None = None,
    tree: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    plan: str | os.PathLike[str] | None = None,
    rerun_verifier: bool = False,
    stamp: str | os.PathLike[str] | None = None,
    authority: str | os.PathLike[str] | None = None,
) -> Verification:
    """Check a certificate.

    ``rollouts`` are the certified rollouts in any format, or proofs of single rollouts. ``key`` is the signer's public
    key. ``tree`` is the tree file; by default it is result.tree beside the certificate, if that exists. ``plan`` is the
    certified plan. With ``rerun_verifier`` the stored completions are judged again. ``stamp`` is the reply of a
    time-stamp authority, whose certificate is ``authority``.
    """
    name = os.fspath(path)
    options = (key, tree, plan, stamp, authority)
    signer, tree_file, planned, reply, trusted = (None if file is None else os.fspath(file) for file in options)
    files = [rollouts] if isinstance(rollouts, (str, os.PathLike)) else rollouts
    given = [os.fspath(file) for file in files]
    refuse_pipes(given)
    try:
        certificate = read_certificate(name)
    except InputError as error:
        if not os.path.isfile(name):
            raise
        return Verification(name, None, [CertCheck("form", WRONG, str(error))])
    form = "an in-toto statement in a DSSE envelope; its numbers have the digest that it states"
    checks = [CertCheck("form", GOOD, form), _signature(certificate, signer)]
    proofs = [file for file in given if _is_proof(file)]
    full = [file for file in given if file not in proofs]
    checks += [check for proof in proofs for check in check_proof(proof, certificate.root, certificate.leaves)]
    if full:
        checks += _rollouts(name, certificate, full, tree_file, columns)
        if rerun_verifier:
            checks.append(_rejudged(full))
    else:
        checks.append(_not_given(certificate, bool(proofs)))
        if rerun_verifier:
            raise InputError.at("--rerun-verifier", "there are no rollouts to judge", "expected ROLLOUTS with it")
    checks += _planned(certificate, planned, signer)
    if stamp is not None or authority is not None:
        checks.append(_stamped(certificate, reply, trusted))
    return Verification(name, certificate, checks)


def _signature(certificate: Certificate, key: str | None) -> CertCheck:
    envelope = certificate.envelope
    if key is not None:
        public = public_key(key)
        if is_signed_by(envelope, public):
            return CertCheck("signature", GOOD, f"signed by the key {keyid_of(public)[:16]} of {key}")
        if not envelope.signatures:
            return CertCheck("signature", WRONG, "it has no signature")
        return CertCheck("signature", WRONG, f"no signature is of the key {keyid_of(public)[:16]} of {key}")
    if not envelope.signatures:
        return CertCheck("signature", UNKNOWN, "it has no signature, so it could come from anyone")
    ids = ", ".join(each.keyid[:16] for each in envelope.signatures)
    return CertCheck("signature", UNKNOWN, f"it says that the key {ids} signed it; --key FILE checks that")


def _not_given(certificate: Certificate, shown: bool) -> CertCheck:
    if shown:
        says = "the rollouts that are not shown are not given, so the numbers cannot be recomputed"
    elif certificate.root is None:
        says = "the certificate is of a result alone: no rollouts are certified, and none are given"
    else:
        says = f"the {certificate.leaves:,} rollouts are not given, so the numbers cannot be recomputed"
    return CertCheck("rollouts", UNKNOWN, says)


def _rollouts(
    name: str, certificate: Certificate, files: Sequence[str], tree: str | None, columns: Mapping[str, str] | None
) -> Iterator[CertCheck]:
    """Check that the rollouts give the certified numbers, and that they are the certified rollouts."""
    scoring = CertifiedScoring.of(certificate.predicate["scoring"])
    beside = os.path.join(os.path.dirname(name), TREE_FILE)
    chosen = tree or (beside if os.path.isfile(beside) else None)
    tree_file = None if chosen is None or certificate.root is None else trees.open_tree(chosen)
    matches = tree_file is not None and (tree_file.root, tree_file.count) == (certificate.root, certificate.leaves)
    seed = tree_file.seed if tree_file is not None and matches else None
    rollouts = _scored(files, scoring, columns, certificate.predicate["columns"], seed)
    result = rollouts.result
    if result.digest == certificate.digest:
        planned = counted(sum(group.ledger.planned for group in result.groups), "rollout")
        numbers = counted(sum(len(group.metrics) for group in result.groups), "number")
        yield CertCheck("numbers", GOOD, f"{numbers} of {planned} recomputed to the same digest")
    else:
        differing = "; ".join(_differences(result, certificate.result))
        yield CertCheck("numbers", WRONG, f"the rollouts give other numbers: {differing}")
    if certificate.root is None:
        says = "the certificate is of a result alone, so texts and single rollouts are not covered"
        yield CertCheck("tree", UNKNOWN, says)
        return
    if tree_file is None or (tree is None and not matches):  # a later certificate may have replaced the file beside it
        says = "without the tree file, which has the salts, no leaf can be recomputed; --tree FILE gives it"
        if tree_file is not None:
            says = f"{tree_file.path} is the tree of another certificate; --tree FILE gives that of this one"
        count = rollouts.leaves.count
        if count == certificate.leaves:
            yield CertCheck("tree", UNKNOWN, says)
        else:
            others = f"the certificate is of {certificate.leaves:,} rollouts and {count:,} are given"
            yield CertCheck("tree", WRONG, f"{says}; {others}")
        return
    yield _leaves(tree_file, rollouts)


def _leaves(file: trees.TreeFile, rollouts: ScoredRollouts) -> CertCheck:
    """Check that the rollouts are those of a tree file."""
    tree, count = rollouts.tree, rollouts.leaves.count
    if tree is None:
        return CertCheck("tree", WRONG, f"{file.path} is the tree of another certificate")
    if tree.root == file.root and count == file.count:
        same = "the rollout is the certified one" if count == 1 else f"all {count:,} rollouts are the certified ones"
        return CertCheck("tree", GOOD, f"{same}, texts included")
    certified = file.read()
    if count == certified.count:
        parting = trees.parting(tree, certified)
        if parting is None or not trees.is_consistent(certified, parting.index):
            return CertCheck("tree", WRONG, f"the rollouts are not the certified ones, and {file.path} is damaged")
        others = ""
        if count <= 1 << 16:
            differing = sum(tree.at(0, index) != certified.at(0, index) for index in range(parting.index, count))
            others = f"; {differing:,} of {count:,} differ"
        name = rollouts.leaves.name(parting.index)
        says = f"{name} is not as certified (leaf {parting.index:,}, found with {parting.compared} hashes{others})"
        return CertCheck("tree", WRONG, says)
    first = trees.first_difference(tree, certified)
    position = "at the end" if first >= count else f"at {rollouts.leaves.name(first)}"
    given = f"{counted(count, 'rollout')} {is_or_are(count)} given"
    says = f"{given} and {certified.count:,} {is_or_are(certified.count)} certified; the first difference is {position}"
    return CertCheck("tree", WRONG, says)


def _scored(
    files: Sequence[str],
    scoring: CertifiedScoring,
    given: Mapping[str, str] | None,
    certified: Mapping[str, str],
    seed: bytes | None,
) -> ScoredRollouts:
    """Score the rollouts as certified, with the given columns, else the certificate's, else the default columns."""
    if given is not None or not certified:
        return scored(files, scoring, given or None, seed)
    try:
        return scored(files, scoring, certified, seed)
    except InputError:
        return scored(files, scoring, seed=seed)


def _differences(result: Result, certified: Mapping[str, Any]) -> list[str]:
    """The first differences between the numbers of two results."""
    now, then = dict(_flat(json.loads(covered(result)))), dict(_flat(certified))
    differing = [
        f"{key} is {_shown(now.get(key, 'absent'))}, certified {_shown(then.get(key, 'absent'))}"
        for key in dict.fromkeys((*then, *now))
        if now.get(key, "absent") != then.get(key, "absent")
    ]
    more = [f"and {len(differing) - MOST:,} more"] if len(differing) > MOST else []
    return [*differing[:MOST], *more]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a document with its path."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]


def _rejudged(files: Sequence[str]) -> CertCheck:
    """Check that the stored completions get the same rewards from the run's own verifier."""
    from calipers.analyses.rescore import changed_verdicts

    if len(files) != 1:
        raise InputError.at("--rerun-verifier", f"there are {len(files)} paths of rollouts", "expected one run")
    rescored, changed = changed_verdicts(files[0])
    if changed:
        flips = "; ".join(
            f"{flip.what}: {flip.count:,}, first task {flip.which[0][0]!r} sample {flip.which[0][1]}"
            for flip in changed
        )
        return CertCheck("verifier", WRONG, f"the verifier gives other rewards: {flips}")
    return CertCheck("verifier", GOOD, f"the verifier gives the same reward to {rescored.judged:,} stored completions")


def _planned(certificate: Certificate, plan: str | None, key: str | None) -> list[CertCheck]:
    """Check what the certificate says of a registered plan; no check without a plan."""
    stated = certificate.predicate["preregistration"]
    if stated is None and plan is None:
        return []
    if stated is None:
        return [CertCheck("plan", WRONG, "the certificate names no plan that was registered before the run")]
    from calipers.analyses.certify.preregister import differences, others_planned, read_preregistration

    changed = stated["differences"]
    says = "as planned" if not changed else f"not as planned, as the certificate says: {'; '.join(changed[:MOST])}"
    if others := others_planned(stated, len(certificate.result["groups"])):
        says += f"; {others}"
    if plan is None:
        return [CertCheck("plan", UNKNOWN, f"it says: {says}; --plan FILE checks that")]
    registered = read_preregistration(plan)
    if registered.envelope.digest != stated["sha256"]:
        return [CertCheck("plan", WRONG, f"{plan} is not the plan that the certificate names")]
    predicate = certificate.predicate
    scoring = None if certificate.root is None else predicate["scoring"]
    differing = differences(registered.predicate, certificate.result, predicate["plan"], scoring)
    if differing != changed:
        says = f"the certificate does not say what differs from the plan: {'; '.join(differing[:MOST])}"
        return [CertCheck("plan", WRONG, says)]
    runs = len(registered.predicate["runs"])
    if stated.get("runs", runs) != runs:
        says = f"the certificate says that {stated['runs']:,} runs were planned, not {runs:,}"
        return [CertCheck("plan", WRONG, says)]
    if key is not None and not is_signed_by(registered.envelope, public_key(key)):
        says += f"; {plan} itself is not signed by the key of {key}"
    return [CertCheck("plan", GOOD, says)]


def planned_as(path: str) -> str:
    """A sentence on what a certificate says of a plan registered before its run; the certificate's form is checked."""
    try:
        certificate = read_certificate(path)
        stated = certificate.predicate["preregistration"]
    except InputError:
        return "the certificate beside the run is damaged; calipers verify shows how"
    if stated is None:
        return "no plan was registered before the run"
    from calipers.analyses.certify.preregister import others_planned

    changed = stated["differences"]
    says = f"not as planned: {'; '.join(changed)}" if changed else "as planned"
    others = others_planned(stated, len(certificate.result["groups"]))
    return f"{says}; {others}" if others else says


def _stamped(certificate: Certificate, stamp: str | None, authority: str | None) -> CertCheck:
    from calipers.analyses.certify.envelope import NotStamped, stamped_at

    if stamp is None or authority is None:
        absent = "--time-stamp" if stamp is None else "--authority"
        raise InputError.at(absent, "is not given", "expected --time-stamp FILE and --authority FILE together")
    try:
        moment = stamped_at(certificate.envelope, stamp, authority)
    except NotStamped as error:
        return CertCheck("time stamp", WRONG, f"{stamp}: {error}")
    return CertCheck(
        "time stamp", GOOD, f"it existed at {moment.isoformat(sep=' ')}, says the authority of {authority}"
    )


def _is_proof(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return PROOF.encode() in file.read(200)
    except OSError:
        return False


def document(verified: Verification) -> Document:
    """The page of a checked certificate."""
    return Document(partial(_blocks, verified), partial(data, verified), FIELDS, lambda: data(verified)["checks"])


def data(verified: Verification) -> dict[str, Any]:
    """The checks and the numbers of the certificate as a JSON document."""
    from calipers import __version__

    certificate = verified.certificate
    return {
        "schema": VERIFICATION,
        "calipers": __version__,
        "certificate": verified.path,
        "state": verified.state,
        "checks": [{"check": check.what, "state": check.state, "says": check.says} for check in verified.checks],
        "digest": certificate and certificate.digest,
        "groups": certificate.result["groups"] if certificate else [],
    }


def _blocks(verified: Verification) -> Iterator[Block]:
    yield Sentence((Name(verified.path, None), f": {VERDICTS[verified.state]}"), "strong")
    yield Blank()
    rows = [[check.what, check.state, clean(check.says, 600)] for check in verified.checks]
    yield plain_table(["check", "state", ""], rows, strong={1})
    if verified.certificate is None or verified.state == WRONG:
        return
    yield Blank()
    numbers = []
    for group in verified.certificate.result["groups"]:
        parts = (group["dataset"], group["model"], group["agent"])
        run = " · ".join(clean(part, 40) for part in parts if part) or "-"
        rollouts = f"{group['ledger']['planned']:,}"
        for name, estimate in group["metrics"].items():
            interval = ends(tuple(estimate["interval"]), 4) if estimate["interval"] else "-"
            numbers.append([run, clean(name, 40), figure(estimate["value"], 4), interval, rollouts])
    yield plain_table(["run", "metric", "value", "interval", "rollouts"], numbers, numbers={2, 4}, names={0})
