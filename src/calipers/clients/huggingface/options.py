"""Options for loading a checkpoint, with the names of lm-evaluation-harness' ``hf`` model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError, UnknownName

DTYPES: Final = ("auto", "float16", "bfloat16", "float32", "float64")
CONFIG, TOKENIZER, ADAPTER = "config.json", "tokenizer_config.json", "adapter_config.json"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a checkpoint is loaded and used. None means the checkpoint's own setting."""

    dtype: str = "auto"  # of the weights; auto: as they are stored
    revision: str | None = None  # of a checkpoint in the hub's cache: a branch, a tag or a commit
    subfolder: str = ""  # the folder of the model in the checkpoint
    tokenizer: str | None = None  # of another checkpoint: a directory, or an id in the hub's cache
    max_length: int | None = None  # maximum tokens of the context
    add_bos_token: bool | None = None  # whether a text begins with the BOS token
    prefix_token_id: int | None = None  # the token before a text without a context
    truncation: bool = False  # cut prompts at the tokenizer's limit
    peft: str | None = None  # an adapter for the weights: a directory, or an id in the hub's cache

    @classmethod
    def of(cls, given: Mapping[str, Any], where: str = "--model-args") -> LoadOptions:
        """The options by name, checked; InputError for an unknown name or an invalid value."""
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in names:
                raise UnknownName(f"{where}: {UnknownName.of('argument of an hf model', name, names)}")
            if value is not None:
                values[name] = _checked(where, name, value)
        return cls(**values)

    def folders(self, name: str) -> Iterator[tuple[str, Path | None]]:
        """Everything that is loaded for a checkpoint of this name, with its folder; None if there is no folder."""
        yield name, folder_of(name, CONFIG, self.revision, self.subfolder)
        if self.tokenizer is not None:
            yield self.tokenizer, folder_of(self.tokenizer, TOKENIZER, self.revision, self.subfolder)
        if self.peft is not None:
            yield self.peft, folder_of(self.peft, ADAPTER, self.revision)

    def check(self, name: str) -> None:
        """Reject a tokenizer or adapter that does not exist, or that needs a package that is not installed."""
        if self.peft is not None and find_spec("peft") is None:
            raise InputError.at("--model-args", f"peft={self.peft} needs the package peft", "pip install peft")
        for (source, folder), file in zip(list(self.folders(name))[1:], self._files(), strict=True):
            if folder is None or not (folder / file).is_file():
                right = f"expected a directory with {file}, or an id in the hub's local cache"
                raise InputError.at("--model-args", f"{source}: no such checkpoint", right)

    def local(self) -> dict[str, Any]:
        """Arguments for transformers: subfolder and revision, no download, no remote code."""
        where: dict[str, Any] = {"subfolder": self.subfolder} if self.subfolder else {}
        where |= {} if self.revision is None else {"revision": self.revision}
        return {"local_files_only": True, "trust_remote_code": False, **where}

    def _files(self) -> list[str]:
        return [*([TOKENIZER] if self.tokenizer is not None else []), *([ADAPTER] if self.peft is not None else [])]


DEFAULT_OPTIONS: Final = LoadOptions()


def load_tokenizer(path: str, options: LoadOptions) -> Any:
    """Load the tokenizer of a checkpoint, or the one that replaces it."""
    import transformers

    more: dict[str, Any] = {} if options.add_bos_token is None else {"add_bos_token": options.add_bos_token}
    return transformers.AutoTokenizer.from_pretrained(options.tokenizer or path, **options.local(), **more)


def folder_of(name: str, file: str, revision: str | None = None, subfolder: str = "") -> Path | None:
    """The folder of a checkpoint: a directory, or the folder in the hub's local cache that contains a file; else None.

    A revision applies to the hub's cache only; for a directory it is ignored, as in transformers.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path / subfolder
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    inside = f"{subfolder}/{file}" if subfolder else file
    try:
        cached = try_to_load_from_cache(name, inside, revision=revision)
    except ValueError:  # not a valid model id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _checked(where: str, name: str, value: Any) -> Any:
    if name == "dtype":
        text = str(value).removeprefix("torch.")
        if text not in DTYPES:
            raise InputError.at(where, f"dtype={value} is unknown", f"expected {', '.join(DTYPES)}")
        return text
    if name in ("add_bos_token", "truncation"):
        if not isinstance(value, bool):
            raise InputError.at(where, f"{name}={value} cannot be read", "expected true or false")
        return value
    if name in ("max_length", "prefix_token_id"):
        least = 1 if name == "max_length" else 0
        if type(value) is not int or value < least:
            raise InputError.at(where, f"{name}={value} cannot be read", f"expected an integer >= {least}")
        return value
    if isinstance(value, (dict, list)) or value == "":
        raise InputError.at(where, f"{name}={value} cannot be read", "expected a name")
    return str(value)
