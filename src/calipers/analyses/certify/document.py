"""A certificate that was checked, as a page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from calipers.analyses.certify.verify import GOOD, UNKNOWN, WRONG, Verification
from calipers.reports.document import Blank, Block, Document, Name, Sentence, plain_table
from calipers.reports.figures import ends, figure
from calipers.reports.untrusted_text import clean

SCHEMA = "calipers.verification/1"
FIELDS = ("check", "state", "says")
VERDICTS = {
    GOOD: "verified: everything that the certificate says was checked, and holds",
    WRONG: "refused: something that the certificate says does not hold",
    UNKNOWN: "not everything could be checked; what was checked holds",
}


def document(verified: Verification) -> Document:
    """The page of a certificate that was checked."""
    return Document(partial(_blocks, verified), partial(data, verified), FIELDS, lambda: data(verified)["checks"])


def data(verified: Verification) -> dict[str, Any]:
    """The checks for programs, and the numbers of the certificate."""
    from calipers import __version__

    certificate = verified.certificate
    return {
        "schema": SCHEMA,
        "calipers": __version__,
        "certificate": verified.path,
        "state": verified.state,
        "checks": [{"check": each.what, "state": each.state, "says": each.says} for each in verified.checks],
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
        who = " · ".join(clean(part, 40) for part in (group["dataset"], group["model"], group["agent"]) if part)
        for name, estimate in group["metrics"].items():
            interval = estimate["interval"]
            numbers.append(
                [
                    who or "-",
                    clean(name, 40),
                    figure(estimate["value"], 4),
                    ends(tuple(interval), 4) if interval else "-",
                    f"{group['ledger']['planned']:,}",
                ]
            )
    yield plain_table(["run", "metric", "value", "interval", "rollouts"], numbers, numbers={2, 4}, names={0})
