"""The base of all reports: the printed page, the notebook view, the rows, and reading from JSON."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from calipers.errors import InputError
from calipers.names import DOCUMENTS
from calipers.names import load as load_name
from calipers.reports.document import Document, Glance, Table
from calipers.reports.untrusted_text import clean
from calipers.stores.address import local

if TYPE_CHECKING:
    import pandas
    import polars as pl
    import pyarrow


class Page(ABC):
    """A report: ``print`` shows the page of the command, a notebook its sentence, one table and one line."""

    __slots__ = ()

    @abstractmethod
    def page(self) -> Document:
        """The page and its data, for renderers."""

    @abstractmethod
    def headline(self) -> str:
        """Its main finding, in one line."""

    def glance(self) -> Glance:
        """The report in three parts, for a notebook: the sentence, one table, and a line below it."""
        table = next((block for block in self.page().blocks() if isinstance(block, Table)), None)
        return Glance(self.headline(), table)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {clean(self.headline(), 200)}>"

    def __str__(self) -> str:
        from calipers.reports.terminal import render

        return render(self.page()).rstrip("\n")

    def _repr_html_(self) -> str:
        from calipers.reports.html import render

        return render(self.glance())

    def to_markdown(self) -> str:
        """The page as Markdown, as ``--format md`` prints it."""
        from calipers.reports.markdown import render

        return render(self.page())

    def to_polars(self) -> pl.DataFrame:
        """The rows of ``--format csv`` as a polars frame."""
        import polars as pl

        page = self.page()
        rows = [{field: row.get(field) for field in page.fields} for row in page.rows()]
        return pl.DataFrame(rows or None, schema=None if rows else list(page.fields), infer_schema_length=None)

    def to_pandas(self) -> pandas.DataFrame:
        """The same rows as a pandas frame; pandas must be installed."""
        import pandas

        frame = self.to_polars()
        return pandas.DataFrame(frame.to_dicts(), columns=frame.columns)

    def to_arrow(self) -> pyarrow.Table:
        """The same rows as an Arrow table; pyarrow must be installed."""
        table: Any = self.to_polars().to_arrow()
        return table

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The report of a document; InputError if the document is of another kind.

        Text for the reader only, such as the notes of a result, is not in the document.
        """
        try:
            return msgspec.convert(dict(document), cls, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"not a {cls.__name__} of this version: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The report that `to_json` wrote; InputError if the document is of another kind."""
        document = _decoded(text, cls.__name__)
        kind = load_name(DOCUMENTS[document["schema"]]) if document.get("schema") in DOCUMENTS else None
        if kind is not cls:
            raise InputError(f"the document is {document.get('schema')!r}; expected the document of a {cls.__name__}")
        return cls.from_dict(document)


def load(path: str | os.PathLike[str]) -> Page:
    """The report in a file that a command or ``to_json`` wrote: a result, a comparison, a gate and so on."""
    try:
        text = Path(local(path)).read_bytes()
    except OSError as error:
        raise InputError.at(os.fspath(path), f"cannot be read ({error.strerror})") from None
    document = _decoded(text, os.fspath(path))
    schema = document.get("schema")
    if schema not in DOCUMENTS:
        right = f"expected one of {', '.join(DOCUMENTS)}; rollouts are read by calipers.read"
        raise InputError.at(os.fspath(path), f"schema is {schema!r}", right)
    kind: type[Page] = load_name(DOCUMENTS[schema])
    return kind.from_dict(document)


def _decoded(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError.at(what, f"not JSON ({error})", "expected a document that Calipers wrote") from None
    if not isinstance(document, dict):
        raise InputError.at(what, "not a JSON object", "expected a document that Calipers wrote")
    return document
