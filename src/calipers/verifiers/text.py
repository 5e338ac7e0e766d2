r"""Text verifiers: exact match, containment, pattern match, tags, multiple choice and tool calls.

The functions have EvSys' signature and compute the same as EvSys: ``expected or ""`` is compared as text, so that
null, but also 0, false, [] and {}, become the empty text. The verifiers around them refuse such a target before a run
begins, except for null in `exact_match`.

For a multiple choice, the accepted answers are a letter alone (``B``, ``(b)``, ``B.``), the last ``answer is B`` or
``Answer: B``, a ``\boxed{B}``, a letter at the start of the text (``B) Rome``), a text that equals a choice, and a
separate letter if it is the only one. If two letters are possible, there is no answer.

For a tool call, the JSON object in the text is compared with the target; `tool_calls_match` refuses a target that no
action could match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.tasks import Task
from calipers.text import patterns
from calipers.text.filters import WORTH as WORTHWHILE
from calipers.text.filters import Filter, filtered, first_matches, plain
from calipers.verifiers import Verdict, check_flag, check_names, check_number, fault, is_number
from calipers.verifiers.reasoning import answer_of, of_answer

PARAMS: Final = ("ignore_case",)
FEWEST: Final = 10  # answers after which a verifier that passes none is probably the wrong one
Outcomes = tuple[list[float | VerifierError], list[Any]]
"""The reward of each text, or the error that prevents one; and the answer in each text."""
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LONGEST: Final = 20_000  # characters at the end of a text that are searched for the answer
_ALONE: Final = re.compile(r"[\s(\[*_`\"']*(?:option\s+|choice\s+)?([A-Za-z])[\s)\].:*_`\"']*", re.IGNORECASE)
# `*+` never backtracks: two plain repeats of the same characters would try every way to share them
_STATED: Final = re.compile(
    r"(?i:\banswer)(?i:\s+is)?[\s:=*_`]*+(?i:option\s+|choice\s+)?[(\[\"'*_`]*+([A-Z])(?=[)\].,:;*_`\"'\s]|$)"
)
_BOXED: Final = re.compile(r"\\boxed\{\s*+(?:\\text(?:bf|rm)?\{)?\s*\(?([A-Z])\)?\s*\}")
_FIRST: Final = re.compile(r"\s*[(\[*_`]*([A-Z])[*_`]*[)\].:](?!\w)")
_WORD: Final = re.compile(  # an article
    r"\b[AI] (?!(?:or|and|nor|but|is|was|as|because|since|seems|would|rather than|instead of)\b)(?=[a-z])"
)
_SINGLE: Final = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])")
NEAR: Final = 40  # characters before a negated letter in which a word may take an answer back
_OPTION: Final = r"(?:(?i:the\s)?(?i:option|choice|answer|letter)s?\s)?"
_LETTER: Final = r"[(\[*`\"']{0,4}[A-Z](?![\w'’])[)\]*`\"']{0,4}"
_NOT_BEFORE: Final = re.compile(
    r"(?:(?i:\b(?:not|cannot|never|neither|nor|rather\sthan|instead\sof|(?:any|every)thing\s(?:but|except)|all\s(?:but|except)"
    r"|other\sthan|except|unlike|over|eliminated?s?|excluded?s?|reject(?:ed|s)?|rul(?:ed?|ing|es)\sout|discard(?:ed|s)?)"
    r"|n['’]t)\s(?i:be\s|for\s)?)"
    rf"(?P<letters>{_OPTION}{_LETTER}(?:(?:,\s?{_OPTION}{_LETTER}){{0,8}},?\s(?:or|nor)\s{_OPTION}{_LETTER})?)"
)
_COMPLEMENT: Final = (
    r"(?:the\s|a\s|an\s|my\s|our\s)?(?:only\s)?(?:correct|right|answer|best|true|valid|possible|it|one|option|choice)\b"
)
_NOT_AFTER: Final = re.compile(
    r"(?<![\w'’])([A-Z])[)\]*`\"'.]{0,4}(?:\s\([^()]{0,60}\))?,?\s"
    r"(?i:(?P<plain>(?:is|was|would\sbe|seems|must\sbe|looks|gets|got|can\sbe|could\sbe)\s"
    r"(?:clearly\s|definitely\s|also\s|obviously\s|just\s|simply\s|plainly\s|therefore\s|thus\s|then\s)?"
    r"(?:wrong|out|impossible|eliminated|excluded|ruled\sout|rejected|no\sanswer|not\s(?:the\s|my\s)?(?:answer|it\b|right))"
    r"|(?:isn['’]t|wasn['’]t|can['’]t\sbe|cannot\sbe|can\snot\sbe|couldn['’]t\sbe|could\snot\sbe)\s"
    r"(?:the\s|my\s)?(?:answer|it\b|right|correct)"
    r"|(?:doesn['’]t|does\snot|won['’]t|will\snot)\s(?:work|fit|apply|make\ssense|match|hold)|fails\b)"
    rf"|(?:is|was)\s(?:clearly\s|definitely\s|also\s)?(?:incorrect|false|untrue|invalid|not\s{_COMPLEMENT})"
    rf"|(?:isn|wasn)['’]t\s{_COMPLEMENT})"
)
_CORRECTION: Final = re.compile(r"\b(?i:no|wait|actually|however|but|oops|sorry|hmm)\b")
_JOINED: Final = re.compile(r"[\s$.]*(?i:,|/|&|or|and|,\s?or)[\s$]*(?i:maybe\s|perhaps\s|possibly\s)?[\s$]*")
_OTHER: Final = re.compile(
    r"[\s$]*(?:,\s?)?(?:(?i:(?P<either>(?:and/)?or)\b|and\b)|/|&|,)[\s$]*"
    rf"(?i:(?:maybe|perhaps|possibly|even|else|also)\s)?{_OPTION}[(\[*`\"']{{0,4}}([A-Z])(?![\w'’])[)\]*`\"'.:]{{0,4}}"
    r"(?(either)(?!\s(?!(?:or|and|is|was|would|are|could|both|as|because|since)\b)[a-z])|\s*(?:$|[;!?\n,]|are\b|both\b))"
)


class Goal(NamedTuple):
    """The target and the params of a task, for verifying without the task."""

    target: Any
    params: Mapping[str, Any]


def exact_matches(goals: Sequence[Goal | Task], texts: Sequence[str]) -> Outcomes:
    """1.0 for each text that equals its target, both trimmed, else 0.0; the answer is the trimmed text, if any."""
    rewards: list[float | VerifierError] = []
    answers: list[Any] = []
    for goal, text in zip(goals, texts, strict=True):
        answer, target = text.strip(), str(goal.target or "").strip()
        if goal.params and goal.params.get("ignore_case"):
            answer, target = answer.lower(), target.lower()
        rewards.append(1.0 if answer == target else 0.0)
        answers.append(answer or None)
    return rewards, answers


def containments(goals: Sequence[Goal | Task], texts: Sequence[str]) -> Outcomes:
    """1.0 for each text that contains its target (untrimmed), else 0.0; the answer is the target, if it is found."""
    rewards: list[float | VerifierError] = []
    answers: list[Any] = []
    for goal, text in zip(goals, texts, strict=True):
        needle = str(goal.target or "")
        if goal.params and goal.params.get("ignore_case"):
            needle, text = needle.lower(), text.lower()
        found = needle and needle in text
        rewards.append(1.0 if found else 0.0)
        answers.append(str(goal.target) if found else None)
    return rewards, answers


def regex_matches(goals: Sequence[Goal | Task], texts: Sequence[str]) -> Outcomes:
    """1.0 for each text in which its target, a pattern of Python's `re`, matches, else 0.0; the answer is the match.

    A pattern that runs out of time is a `filter_timeout`. A pattern that many texts share is searched by Rust's engine
    if that gives the same result.
    """
    answers: list[Any] = [None] * len(texts)
    for (pattern, ignore_case), rows in _by_pattern(goals).items():
        rust = plain(pattern) if len(rows) >= WORTHWHILE and not ignore_case else None
        rust_rows = [row for row in rows if rust.fits(texts[row])] if rust else []
        if rust:
            for row, answer in zip(rust_rows, first_matches(rust, [texts[row] for row in rust_rows]), strict=True):
                answers[row] = answer
        for row in rows if not rust_rows else sorted(set(rows) - set(rust_rows)):
            answers[row] = _search(pattern, texts[row], ignore_case)
    rewards = [answer if isinstance(answer, VerifierError) else float(answer is not None) for answer in answers]
    return rewards, [None if isinstance(answer, VerifierError) else answer for answer in answers]


def _by_pattern(goals: Sequence[Goal | Task]) -> dict[tuple[str, bool], list[int]]:
    rows: dict[tuple[str, bool], list[int]] = {}
    for row, goal in enumerate(goals):
        rows.setdefault((str(goal.target or ""), bool(goal.params.get("ignore_case"))), []).append(row)
    return rows


def _search(pattern: str, text: str, ignore_case: bool) -> str | VerifierError | None:
    if not pattern:
        return None
    try:
        match = patterns.search(pattern, text, ignore_case=ignore_case)
    except patterns.RegexTimeout as error:
        return _timed_out(error)
    return None if match is None else match[0]


def _timed_out(error: patterns.RegexTimeout) -> VerifierError:
    """The error for a pattern that ran out of time, which the answer may have caused."""
    failed = VerifierError(str(error), outcome="filter_timeout", suspect=True)
    failed.__cause__ = error
    return failed


def exact_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 if output and target are the same text after trimming, else 0.0; ``ignore_case`` compares lower case.

    >>> exact_match(" 42 ", 42, {}), exact_match("1", 1.0, {}), exact_match("0", 0, {})
    (1.0, 0.0, 0.0)
    """
    return _reward(exact_matches([Goal(expected, params)], [model_output or ""]))


def contains(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 if the output contains the target (untrimmed), else 0.0; an empty target is never contained."""
    return _reward(containments([Goal(expected, params)], [model_output or ""]))


def regex_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 if the target, a pattern of Python's `re`, matches in the output, else 0.0; an empty pattern never matches.

    An invalid pattern raises a `re.error`, one that runs out of time `calipers.text.patterns.RegexTimeout`.
    """
    return _reward(regex_matches([Goal(expected, params)], [model_output or ""]))


def _reward(outcomes: Outcomes) -> float:
    """The reward of one text; raises the error that prevents one."""
    (reward,), _ = outcomes
    if isinstance(reward, VerifierError):
        raise reward.__cause__ or reward
    return reward


def _verdict(outcomes: Outcomes, nothing: str | None = None) -> Verdict:
    """The verdict on one text; ``nothing`` is the answer in a verdict without an answer."""
    (reward,), (answer,) = outcomes
    if isinstance(reward, VerifierError):
        raise reward
    return Verdict(reward, answer=nothing if answer is None else answer)


class ExactMatch:
    """Reward 1 if the trimmed completion equals the target, else 0; the answer is the trimmed completion."""

    name = "exact_match"
    rerunnable = True
    verify_many = staticmethod(exact_matches)

    def check(self, task: Task) -> None:
        """Reject a target that is not text; null means the empty text."""
        _check_text(task)

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        return _verdict(exact_matches([task], [completion.text]), nothing="")


class ExactMatchOfRun:
    """Exact match for one run: if no answer equals its target and most contain it, ``notes`` says so."""

    def __init__(self) -> None:
        self._verified = self._equal = self._contained = 0

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        verdict = await EXACT_MATCH.verify(task, completion)
        self._verified += 1
        self._equal += verdict.reward == 1.0
        self._contained += contains(answer_of(task, completion.text), task.target, task.params) == 1.0
        return verdict

    @property
    def notes(self) -> list[str]:
        """The advice to use another verifier, if no answer equals its target and most contain it."""
        if self._equal or self._verified < FEWEST or 2 * self._contained < self._verified:
            return []
        return [
            f"exact_match: none of {self._verified:,} answers equals its target, but {self._contained:,} contain it; "
            "consider --verifier contains, or numeric_match for numbers"
        ]


class Contains:
    """Reward 1 if the completion contains the target, else 0; the answer is the target if it was found."""

    name = "contains"
    rerunnable = True
    verify_many = staticmethod(containments)

    def check(self, task: Task) -> None:
        """Reject a target that is not text or a number, or is empty, which would never be found."""
        _check_text(task)
        _check_given(task)

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        return _verdict(containments([task], [completion.text]))


class RegexMatch:
    """Reward 1 if the target, a regular expression, matches in the completion, else 0; the answer is the match."""

    name = "regex_match"
    rerunnable = True
    verify_many = staticmethod(regex_matches)

    def check(self, task: Task) -> None:
        """Reject a target that is not a pattern, or is empty, which would never be found."""
        _check_text(task)
        _check_given(task)
        try:
            patterns.check(str(task.target), ignore_case=bool(task.params.get("ignore_case")))
        except (patterns.BadPattern, patterns.RegexTimeout) as error:
            raise fault(task, str(error), "") from None

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the pattern itself, if it matches itself; else None."""
        text = str(task.target or "")
        return text if text and regex_match(text, text, task.params) else None

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; a pattern that runs out of time is a `filter_timeout`."""
        try:
            return _verdict(regex_matches([task], [completion.text]))
        except patterns.BadPattern as error:
            raise VerifierError(str(error)) from error


class FilterOnly:
    """A chain of filters as a verifier, which has a verdict unless a pattern runs out of time."""

    name = "filter"

    def __init__(self, chain: Sequence[Filter]) -> None:
        self._chain = chain

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; its reward says nothing."""
        [answer] = filtered(self._chain, [completion.text])
        if isinstance(answer, patterns.RegexTimeout):
            raise _timed_out(answer)
        return Verdict(0.0)


def _check_text(task: Task) -> None:
    check_names(task, PARAMS)
    check_flag(task, "ignore_case")
    if isinstance(task.target, (list, dict)):
        raise fault(task, f"target is {task.target!r}", "expected text or a number")
    if not task.target and not isinstance(task.target, str) and task.target is not None:
        text = str(task.target)
        raise fault(task, f"target is {task.target!r}, which {task.verifier} reads as empty text", f"write {text!r}")


def _check_given(task: Task) -> None:
    if not task.target:
        raise fault(task, f"target is {task.target!r}", f"{task.verifier} needs a text to look for")


EXACT_MATCH: Final = ExactMatch()
CONTAINS: Final = Contains()
REGEX_MATCH: Final = RegexMatch()


WORTH: Final[Mapping[str, float]] = {"has_think_reward": 0.5, "has_answer_reward": 0.5}


def tags(text: str) -> dict[str, bool]:
    """Which pairs of tags occur in a text; order and nesting do not count.

    >>> tags("</think> 4 <think>")
    {'has_think': True, 'has_answer': False}
    """
    return {f"has_{tag}": f"<{tag}>" in text and f"</{tag}>" in text for tag in ("think", "answer")}


def worth(present: Mapping[str, bool], rewards: Mapping[str, float]) -> float:
    """The sum of the rewards of the pairs that occur, 0.5 each unless ``has_..._reward`` gives another."""
    reward_of = {**WORTH, **rewards}
    return float(sum(reward_of[f"{tag}_reward"] for tag, occurs in present.items() if occurs))


class TagMatch:
    """Reward for ``<think>`` and ``<answer>`` tags; the fields show which were found. The target is not used."""

    name = "format_only"
    rerunnable = True

    def check(self, task: Task) -> None:
        """Reject rewards that are not numbers."""
        check_names(task, tuple(WORTH))
        for name in WORTH:
            check_number(task, name)

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: both pairs of tags."""
        return "<think>so</think><answer>that</answer>"

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        rewards: dict[str, Any] = {name: task.params[name] for name in WORTH if name in task.params}
        for name, value in rewards.items():
            if not is_number(value):
                raise VerifierError(f"{name} is {value!r}; expected a number")
        present = tags(completion.text)
        return Verdict(worth(present, rewards), fields={tag: float(occurs) for tag, occurs in present.items()})


FORMAT_ONLY: Final = TagMatch()


def chosen_letter(text: str, choices: Sequence[str]) -> str | None:
    """The letter of the choice that a text gives as its answer; None if it gives none, or several.

    A negated letter is no answer: "not B", "B is wrong", "rather than B".

    >>> chosen_letter("So the answer is (B).", ["Paris", "Rome"]), chosen_letter("rome", ["Paris", "Rome"])
    ('B', 'B')
    >>> chosen_letter("A, not B", ["Paris", "Rome"]), chosen_letter("It isn't B.", ["Paris", "Rome"])
    ('A', None)
    """
    text = text[-LONGEST:].strip()
    known = LETTERS[: len(choices)] if choices else LETTERS
    if (alone := _ALONE.fullmatch(text)) and alone[1].upper() in known:
        return alone[1].upper()
    plain = _plain(text)
    same = [letter for letter, choice in zip(LETTERS, choices, strict=False) if _plain(choice) == plain]
    if len(same) == 1:
        return same[0]
    text = _without_negated(text)
    for pattern in (_STATED, _BOXED):
        matches = [match for match in pattern.finditer(text) if match[1] in known]
        if matches:
            return _only(matches[-1], text, choices, matches[-2] if pattern is _BOXED and len(matches) > 1 else None)
    if (first := _FIRST.match(text)) and first[1] in known:
        return _only(first, text, choices)
    single = {letter for letter in _SINGLE.findall(_WORD.sub("", text)) if letter in known}
    return single.pop() if len(single) == 1 else None


def _without_negated(text: str) -> str:
    """The text without its negated letters, and without what a later negation takes back."""
    marks = [*text]
    taken_back: dict[str, int] = {}  # letter -> the position of the last negation that takes it back
    for match in _NOT_BEFORE.finditer(text):
        for letter in _SINGLE.finditer(text, match.start("letters"), match.end("letters")):
            marks[letter.start()] = "_"
            taken_back[letter[1]] = letter.start()
    for match in _NOT_AFTER.finditer(text):
        marks[match.start(1)] = "_"
        if match["plain"] or _CORRECTION.search(text, max(0, match.start() - NEAR), match.start()):
            taken_back[match[1]] = max(match.start(1), taken_back.get(match[1], 0))
    rest = "".join(marks)
    for letter in _SINGLE.finditer(rest):  # what is said again after its last negation holds
        if letter[1] in taken_back and letter.start() > taken_back[letter[1]]:
            del taken_back[letter[1]]
    for letter in _SINGLE.finditer(rest):
        if letter[1] in taken_back:
            marks[letter.start()] = "_"
    return "".join(marks)


def _only(match: re.Match[str], text: str, choices: Sequence[str], before: re.Match[str] | None = None) -> str | None:
    """The letter of a match; None if another letter is joined to it by "or" or in a list, or a box before it is."""
    if before is not None and before[1] != match[1] and _JOINED.fullmatch(text, before.end(), match.start()):
        return None
    position = LETTERS.index(match[1])
    choice = choices[position].strip() if position < len(choices) else ""
    end = match.end(1)
    named = re.compile(rf"[)\].:*_`\"'}} ]*(?:\([^()]{{0,60}}\)|{re.escape(choice)})?", re.IGNORECASE).match(text, end)
    end = named.end() if named is not None else end
    other = _OTHER.match(text, end)
    return match[1] if other is None or other[2] == match[1] else None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .\"'`*")


class ChoiceMatch:
    """Reward 1 for the letter or the text of the right choice, else 0. The answer is the letter.

    If no letter is found, the outcome is `unparsed`.
    """

    name = "choice"
    rerunnable = True

    def check(self, task: Task) -> None:
        """Reject a target that is not the letter of a choice, and choices that are not a list of texts."""
        check_names(task, ("choices",))
        choices = task.params.get("choices", [])
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            raise fault(task, f"choices is {choices!r:.60}", "expected a list of texts")
        known = LETTERS[: len(choices)] if choices else LETTERS
        if not isinstance(task.target, str) or task.target.strip() not in [*known]:
            raise fault(task, f"target is {task.target!r}", f"expected a letter from A to {known[-1]}")

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the letter."""
        return str(task.target).strip()

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        choices: Any = task.params.get("choices", [])
        if not isinstance(task.target, str):
            raise VerifierError(f"target is {task.target!r}; expected the letter of a choice")
        letter = chosen_letter(completion.text, choices)
        if letter is None:
            return Verdict(0.0, outcome="unparsed")
        return Verdict(float(letter == task.target.strip()), answer=letter)


CHOICE: Final = ChoiceMatch()


TOLERANCE: Final = 25  # of a coordinate, in the unit of the coordinate


def tool_calls_match(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """1.0 if the JSON object in the output is the expected action, else 0.0.

    ``tool`` and ``action`` must be equal (absent is null), and also ``ref`` and ``text`` if they are expected; each
    axis of ``coordinate``, if expected, must be within ``coordinate_tolerance`` (25). Other keys are ignored.

    >>> tool_calls_match('Sure: {"tool": "t", "x": 1}', {"tool": "t"}, {})
    1.0
    """
    return _compare(parse_action(model_output), expected, params)


def parse_action(text: str) -> dict[str, Any] | None:
    """The JSON object in a text, from its first brace to its last; None if there is none."""
    stripped = (text or "").strip()  # a list as target raises an AttributeError, as in EvSys
    first, last = stripped.find("{"), stripped.rfind("}")
    if first < 0 or last < first:
        return None
    try:
        action: dict[str, Any] = json.loads(stripped[first : last + 1])
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return None
    return action


def _compare(predicted: dict[str, Any] | None, expected: Any, params: Mapping[str, Any]) -> float:
    if predicted is None:
        return 0.0
    wanted = expected if isinstance(expected, dict) else parse_action(expected or "")
    if wanted is None:
        return 0.0
    exact = ["tool", "action", *(key for key in ("ref", "text") if key in wanted)]
    if any(predicted.get(key) != wanted.get(key) for key in exact):
        return 0.0
    if "coordinate" in wanted:
        tolerance = int(params.get("coordinate_tolerance", TOLERANCE))
        return float(_near(predicted.get("coordinate"), wanted["coordinate"], tolerance))
    return 1.0


def _near(point: Any, wanted: Any, tolerance: int) -> bool:
    if not isinstance(point, list) or len(point) != 2 or not all(map(is_number, point)):
        return False
    try:
        return all(abs(axis - goal) <= tolerance for axis, goal in zip(point, wanted, strict=True))
    except OverflowError:  # an integer too large to be anywhere near
        return False


class ToolCallsMatch:
    """Reward 1 for the expected tool call, else 0; the answer is the tool call as JSON with sorted keys."""

    name = "tool_calls_match"
    rerunnable = True

    def check(self, task: Task) -> None:
        """Refuse a target that is not a JSON object, an invalid coordinate, and an invalid tolerance."""
        check_names(task, ("coordinate_tolerance",))
        target = task.target
        wanted = target if isinstance(target, dict) else parse_action(target) if isinstance(target, str) else None
        if wanted is None:
            raise fault(task, f"target is {target!r}", "expected a JSON object, or text that contains one")
        point = wanted.get("coordinate", [0, 0])
        if not (isinstance(point, list) and len(point) == 2 and all(map(is_number, point))):
            raise fault(task, f"target's coordinate is {point!r}", "expected two numbers")
        try:
            int(task.params.get("coordinate_tolerance", TOLERANCE))
        except (TypeError, ValueError, OverflowError):
            problem = f"coordinate_tolerance is {task.params['coordinate_tolerance']!r}"
            raise fault(task, problem, "expected a whole number") from None

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the expected action as JSON."""
        return task.target if isinstance(task.target, str) else json.dumps(task.target)

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; `unparsed` without a JSON object."""
        action = parse_action(completion.text)
        try:
            reward = _compare(action, task.target, task.params)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:  # from an invalid target or param
            raise VerifierError(f"{self.name}: {type(error).__name__}: {error}") from error
        if action is None:
            return Verdict(reward, outcome="unparsed")
        return Verdict(reward, answer=json.dumps(action, sort_keys=True))


TOOL_CALLS_MATCH: Final = ToolCallsMatch()
