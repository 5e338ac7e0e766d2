"""A checkpoint's chat template around the turns of a prompt, put there as lm-evaluation-harness puts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calipers.clients.huggingface.options import DEFAULT_OPTIONS, LoadOptions, load_tokenizer
from calipers.errors import ClientError
from calipers.tasks.task import Message

NO_SYSTEM = (
    "the model's chat template accepts no system message; the system message was dropped, as in lm-evaluation-harness"
)
NO_NAMES = "the model has only one chat template, which has no name; that template was used"


@dataclass(frozen=True, slots=True)
class Template:
    """Which of a checkpoint's templates is meant, and where to say what it did not take."""

    name: str  # "": its only one, or its default
    notes: list[str]

    def around(self, tokenizer: Any, turns: Sequence[Message]) -> str:
        """The turns as one text, which ends where the model is to go on: after an opened turn, or inside the last."""
        from jinja2 import TemplateError

        chosen = self.chosen(tokenizer.chat_template)
        try:
            try:
                return _rendered(tokenizer, turns, chosen)
            except TemplateError:
                rest = [turn for turn in turns if turn["role"] != "system"]
                if len(rest) == len(turns):
                    raise
                text = _rendered(tokenizer, rest, chosen)
                self._say(NO_SYSTEM)
                return text
        except Exception as error:  # a template is a program of the checkpoint's, and says no in its own way
            raise ClientError(f"the model's chat template rejects the prompt: {error}", kind="prompt") from error

    def chosen(self, templates: Any) -> str | None:
        """The text of the template that is named; None where the tokenizer is to take its own."""
        if not templates:
            message = "the model has no chat template; run it without --apply-chat-template"
            raise ClientError(message, kind="prompt", hopeless=True)
        if not self.name:
            return None
        if not isinstance(templates, dict):
            self._say(NO_NAMES)
            return None
        if self.name not in templates:
            message = f"the model has no chat template {self.name!r}; it has {', '.join(sorted(templates))}"
            raise ClientError(message, kind="prompt", hopeless=True)
        return str(templates[self.name])

    def _say(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True, slots=True)
class Local:
    """A checkpoint's template without its weights."""

    tokenizer: Any
    template: Template

    @classmethod
    def load(cls, path: str, name: str, options: LoadOptions = DEFAULT_OPTIONS) -> Local:
        """Load the tokenizer of a checkpoint; nothing is downloaded, none of its code is run."""
        try:
            tokenizer = load_tokenizer(path, options)
        except Exception as error:  # OSError, ValueError, KeyError and those of three file formats
            raise ClientError(f"the tokenizer cannot be loaded: {error}", kind="model", hopeless=True) from error
        return cls(tokenizer, Template(name, []))

    @property
    def text(self) -> str:
        """The template itself."""
        templates = self.tokenizer.chat_template
        chosen = self.template.chosen(templates)
        return str(chosen or (templates.get("default", "") if isinstance(templates, dict) else templates))

    def around(self, turns: Sequence[Message]) -> str:
        """The turns as the model reads them."""
        return self.template.around(self.tokenizer, turns)


def _rendered(tokenizer: Any, turns: Sequence[Message], template: str | None) -> str:
    begun = turns[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        list(turns),
        chat_template=template,
        tokenize=False,
        add_generation_prompt=not begun,
        continue_final_message=begun,
    )
    return text
