"""The result of a gate, with a check of every requirement for every group, as a page and for JUnit and GitHub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Literal

from calipers.analyses.watch import parse
from calipers.analyses.watch.status import CLOSED, NIGHT, QUIET, AlarmStatus, remark_of
from calipers.remarks import Remark
from calipers.reports import junit
from calipers.reports.asserted import Asserted
from calipers.reports.document import (
    Blank,
    Block,
    Document,
    Glance,
    Instead,
    Name,
    Row,
    Sentence,
    Table,
    TableColumn,
    Text,
    Title,
)
from calipers.reports.figures import counted, figure
from calipers.reports.github import annotation
from calipers.reports.junit import Case, TestSuite
from calipers.reports.page import Page
from calipers.reports.plain_words import plain_why
from calipers.reports.remark_texts import documents_of, text_of
from calipers.reports.sentences import MINUS, Answer, of_gate, places
from calipers.reports.untrusted_text import LONGEST, clean, without_middle

SCHEMA = "calipers.gate/1"
Word = Literal["passed", "failed", "undefined"]
TIERS: Final = ("critical", "supporting", "advisory")
CRITICAL, SUPPORTING, ADVISORY = TIERS
EXIT: Final = {"passed": 0, "failed": 1, "undefined": 3}
REQUIREMENT: Final = 28  # columns that a requirement keeps when its middle is cut
_WORDS: Final = {"passed": "PASS", "failed": "FAIL", "undefined": "NO ANSWER"}
_STATES: Final = {QUIET: "NO ALARM", CLOSED: "CLOSED"}  # of an alarm whose night passes


@dataclass(frozen=True, slots=True)
class Check:
    """The answer to one requirement for one group of one result."""

    require: str  # as the user wrote it
    tier: str
    result: str  # the path, or the policy's name for it
    agent: str | None
    model: str | None
    dataset: str | None
    word: Word
    value: float | None = None  # the value that was compared with the number
    op: str = ""
    number: float | None = None
    estimate: float | None = None  # the metric itself, or its difference
    interval: tuple[float, float] | None = None
    tasks: int | None = None
    planned: int | None = None
    gaps: int | None = None
    why: str | None = None  # why it is undefined
    remark: str | None = None
    confidence: float | None = None  # of the interval
    failing: Sequence[str] = ()  # the tasks or slices that fail, if the requirement is on each of them
    alarm: AlarmStatus | None = None  # of a history: the state of its alarm, which `require` names

    @property
    def state(self) -> Remark | None:
        """The state of the alarm of a history; None for a requirement."""
        return None if self.alarm is None else remark_of(self.alarm, parse(self.require), NIGHT)

    @property
    def verdict(self) -> str:
        """The word of the check in a table."""
        if self.alarm is not None and self.word == "passed":
            return _STATES.get(self.alarm.state, "ACCEPTED")
        return _WORDS[self.word]

    @property
    def title(self) -> str:
        """``dataset · model · agent``, without the unknown ones."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part)

    @property
    def shown(self) -> str:
        """The value, with enough digits to show on which side of the number it is."""
        if self.value is None:
            return figure(None)
        text = figure(self.value, 3 if self.value == 0 or 0.001 <= abs(self.value) < 10 else None)
        if self.number is None:
            return text
        side = _side(self.value, self.number)
        if _side(float(text.replace(",", "")), self.number) == side:
            return text
        exact = f"{self.value:.8g}"
        return exact if _side(float(exact), self.number) == side else repr(self.value)

    @property
    def level(self) -> str:
        """The name of the interval: ``95 % interval``."""
        return "interval" if self.confidence is None else f"{100 * self.confidence:g} % interval"

    @property
    def ends(self) -> str:
        """The interval in brackets, both ends with the same decimals; "" without an interval."""
        if self.interval is None:
            return ""
        texts = [figure(end) for end in self.interval]
        places = min(min(len(text.partition(".")[2]) for text in texts), _places(self.interval))
        return f"[{figure(self.interval[0], places)}, {figure(self.interval[1], places)}]"

    @property
    def between(self) -> str:
        """The interval in words, ``0.339 to 0.546``; "" without an interval."""
        if self.interval is None:
            return ""
        low, high = self.ends.strip("[]").split(", ")
        return f"{self._signed(low)} to {self._signed(high)}"

    @property
    def amount(self) -> str:
        """The value for the page; a difference has a sign."""
        return self._signed(self.shown)

    def _signed(self, text: str) -> str:
        """A number with a typographic minus; a positive difference gets a plus."""
        rises = "delta(" in self.require and text[0].isdigit() and any(digit in text for digit in "123456789")
        return f"+{text}" if rises else text.replace("-", MINUS)


def _side(value: float, number: float) -> int:
    """1 if a value is above the number, -1 if it is below, else 0."""
    return (value > number) - (value < number)


def _places(interval: tuple[float, float]) -> int:
    """The most decimals of an interval: those of `places`, or 12 if both ends are below 0.01."""
    return 12 if max(map(abs, interval)) < 0.01 else places(interval)


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Asserted, Page):
    """Whether the requirements are met; ``bool(gate)`` is whether they are.

    Every critical requirement must be met. Up to ``allowed_failures`` supporting requirements may fail, and any number
    of advisory ones. A requirement without an answer never counts as met: unless the gate fails, it is then undefined.
    """

    checks: Sequence[Check]
    allowed_failures: int = 0
    notes: Sequence[str] = ()

    def of(self, word: Word, *tiers: str) -> list[Check]:
        """The checks with this answer in the given tiers, or in all tiers."""
        return [check for check in self.checks if check.word == word and check.tier in (tiers or TIERS)]

    @property
    def word(self) -> Word:
        """The answer of the gate."""
        if self.of("failed", CRITICAL) or len(self.of("failed", SUPPORTING)) > self.allowed_failures:
            return "failed"
        return "undefined" if self.of("undefined", CRITICAL, SUPPORTING) else "passed"

    @property
    def exit_code(self) -> int:
        """0 if it passed, 1 if it failed, 3 if it is undefined."""
        return EXIT[self.word]

    def blocks(self, check: Check) -> bool:
        """Whether this check keeps the gate from passing."""
        if check.tier == ADVISORY or check.word == "passed":
            return False
        if check.word == "undefined" or check.tier == CRITICAL:
            return True
        return len(self.of("failed", SUPPORTING)) > self.allowed_failures

    @property
    def sentence(self) -> str:
        """The answer of the gate as a sentence."""
        if (state := _only_state(self)) is not None:
            return text_of(state).removesuffix(".")
        met = len(self.of("passed"))
        parts = [f"{met:,} of {len(self.checks):,} requirement{'' if len(self.checks) == 1 else 's'} met"]
        for tier in TIERS:
            if failed := len(self.of("failed", tier)):
                may = f" ({self.allowed_failures:,} allowed)" if tier == SUPPORTING and self.allowed_failures else ""
                parts.append(f"{counted(failed, f'{tier} requirement')} failed{may}")
            if undefined := len(self.of("undefined", tier)):
                has = "has" if undefined == 1 else "have"
                parts.append(f"{counted(undefined, f'{tier} requirement')} {has} no answer")
        return f"{self.word}: {', '.join(parts)}"

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)

    def glance(self) -> Glance:
        """The answer and a row for each rule, for a notebook."""
        return Glance(str(answer_of(self)), _table(self.checks), self.sentence)

    def headline(self) -> str:
        """The answer in one line."""
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        return {
            "schema": SCHEMA,
            "calipers": __version__,
            "gate": self.word,
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "allowed_failures": self.allowed_failures,
            "checks": [_checked(check) for check in self.checks],
            "notes": list(self.notes),
        }


def _checked(check: Check) -> dict[str, Any]:
    """A check as the document has it."""
    state = check.state
    return {**asdict(check), "remarks": documents_of([] if state is None else [state])}


def _only_state(gate: Gate) -> Remark | None:
    """The state of the alarm, if the gate has nothing else to check and an answer."""
    if len(gate.checks) != 1 or gate.word == "undefined":
        return None
    return gate.checks[0].state


def document(gate: Gate) -> Document:
    """The page of a gate: its answer, and a table of the checks with remarks under each."""
    return Document(partial(_blocks, gate), gate.to_dict, escaped="", paged=True)


def _blocks(gate: Gate) -> Iterator[Block]:
    answer = answer_of(gate)
    results = list(dict.fromkeys(check.result for check in gate.checks))
    about = without_middle([clean(results[0], None)], 50)[0] if len(results) == 1 else counted(len(results), "result")
    yield Title("", markdown=f"Gate{'' if _only_state(gate) is None else ':'} {gate.sentence}")
    yield Sentence(("gate · ", Name(about, None)), right=counted(len(gate.checks), "rule"), markdown="")
    yield Sentence(answer.sentence, "strong", markdown="")
    if answer.detail:
        yield Sentence(answer.detail, markdown="")
    yield Blank()
    yield _table(gate.checks)


def answer_of(gate: Gate) -> Answer:
    """How many rules are met, and the first one that stops the gate or the number of allowed failures."""
    failed = len(gate.of("failed"))
    if (state := _only_state(gate)) is not None:
        return Answer(text_of(state))
    stopping = sorted(filter(gate.blocks, gate.checks), key=lambda check: check.word != "failed")
    if stopping:
        detail = _in_words(stopping[0])
    else:
        tiers = [(tier, len(gate.of("failed", tier))) for tier in TIERS]
        detail = ", ".join(f"{counted(number, f'{tier} rule')} failed (allowed)" for tier, number in tiers if number)
    return of_gate(len(gate.of("passed")), len(gate.checks), detail, word=gate.word, failed=failed)


def _in_words(check: Check) -> str:
    """``pass_rate > 0.5: it is 0.446``, or the reason why there is no answer."""
    require = clean(check.require, 100)
    if check.word == "undefined":
        return f"{require}: {plain_why(check.why or 'no value')}"
    if check.state is not None:
        return f"{require}: {text_of(check.state)}"
    ends = f" ({check.level} {check.between})" if check.interval else ""
    return f"{require}: it is {check.amount}{ends}"


def _table(checks: Sequence[Check]) -> Table:
    """A row for each check; the columns tier, result and group are left out if they are the same in all rows."""
    has_tiers = any(check.tier != CRITICAL for check in checks)
    results = {check.result for check in checks}
    alone = len(checks) == 1  # then the state of an alarm is the answer above the table
    has_groups = len({(check.result, check.title) for check in checks}) > len(results)
    levels = {check.level for check in checks if check.interval}
    columns = [TableColumn(style="verdict"), *([TableColumn("tier")] if has_tiers else [])]
    columns += [TableColumn("result", middle=True, heading=has_groups)] if len(results) > 1 else []
    columns += [TableColumn("of", middle=True)] if has_groups else []
    columns += [TableColumn("requirement", middle=True, keeps=REQUIREMENT), TableColumn("value")]
    columns += [TableColumn(levels.pop() if len(levels) == 1 else "interval", yields=1), TableColumn("n", yields=2)]
    rows = []
    for check in checks:
        cells: list[Text] = [check.verdict, *([check.tier] if has_tiers else [])]
        cells += [Name(check.result, None, _shortened(check.result))] if len(results) > 1 else []
        cells += [Name(check.title or "(unnamed)", 200, _shortened(check.title) or "(unnamed)")] if has_groups else []
        cells += [Name(check.require, None, clean(check.require, 100)), check.amount, check.between, _size(check)]
        shown = check.remark
        if check.state is not None and not (alone and check.word != "undefined"):
            shown = _with_state(check)
        remarks = [plain_why(text) for text in (check.why, shown) if text]
        hidden = [Instead(f"{check.level} {check.between}")] if check.interval else []  # shown if a column has no room
        hidden += [Instead(_size(check), 2)] if _size(check) else []
        pieces = [piece for text in remarks for piece in (" ", Name(text, None))][1:]
        rows.append(Row(cells, [*hidden, *remarks], tuple(pieces)))
    return Table(columns, rows, across=True)


def _with_state(check: Check) -> str:
    """The state of an alarm, and what is said beside it."""
    texts = [] if check.state is None else [text_of(check.state)]
    return " ".join([*texts, check.remark or ""]).strip()


def _shortened(name: str) -> str:
    """A long name without its middle, because paths and models of one family often start with the same text."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-LONGEST // 2 :]}"


def _size(check: Check) -> str:
    """``40 tasks, 3 missing``."""
    tasks = [counted(check.tasks, "task")] if check.tasks is not None else []
    return ", ".join([*tasks, *([f"{check.gaps:,} missing"] if check.gaps else [])])


def junit_page(gate: Gate) -> str:
    """The JUnit XML: a suite for each result and group, with a case for each requirement.

    A requirement that is not met is a `failure`; a requirement without an answer is an `error`. One that does not stop
    the gate, as it is advisory or within the allowed failures, is `skipped`, so that it is visible.
    """
    by_group: dict[tuple[str, str], list[Check]] = {}
    for check in gate.checks:
        by_group.setdefault((check.result, check.title), []).append(check)
    suites = [
        TestSuite(" · ".join(part for part in names if part), [_case(check, gate) for check in checks])
        for names, checks in by_group.items()
    ]
    return junit.render("calipers gate", suites)


def message(check: Check) -> str:
    """A check on one line: the value, or the reason why there is no answer."""
    if check.word == "undefined":
        return clean(f"{check.require}: {plain_why(check.why or '')}", None)
    if check.state is not None:
        why = f" ({check.why})" if check.why else ""
        return clean(f"{check.require}: {_with_state(check)}{why}", None)
    text = f"{check.require}: {check.shown}"
    if check.interval:
        text += f", {check.level} {check.ends}"
    return clean("; ".join(filter(None, (text, check.remark))), None)


def _case(check: Check, gate: Gate) -> Case:
    name, class_name = check.require, f"{check.tier}.{check.result}"
    if check.word == "passed":
        return Case(name, class_name)
    if not gate.blocks(check):
        return Case(name, class_name, "skipped", f"does not stop the gate: {message(check)}")
    return Case(name, class_name, "failure" if check.word == "failed" else "error", message(check), check.tier)


def annotated(gate: Gate) -> Iterator[str]:
    """GitHub annotations for the checks that are not met: an error if the check stops the gate, else a warning."""
    for check in gate.checks:
        if check.word == "passed":
            continue
        group = " · ".join(part for part in (check.result, check.title) if part)
        title = f"{check.tier} requirement {check.word}: {group}"
        yield annotation("error" if gate.blocks(check) else "warning", title, message(check))
