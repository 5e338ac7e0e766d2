"""One side of a comparison: a source, read, with what its files say beside the numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from calipers.comparison.contents import Key, Said, contents
from calipers.comparison.samples import table_of
from calipers.comparison.unlike import Digests, Papers, papers
from calipers.comparison.values import Table
from calipers.names import FORMATS
from calipers.pipeline import Progress, Source, read
from calipers.readers.read import Input, begin
from calipers.rollouts.part import Part
from calipers.rollouts.table import Rollouts


@dataclass(frozen=True, slots=True)
class Side:
    """What was read from one source."""

    path: str  # what it is called; "" for a table
    rollouts: Rollouts
    digests: Digests
    columns: Mapping[str, str]
    hashed: Callable[[], list[Input]]  # the files, once they are hashed
    known: list[dict[Key, Said]] = field(default_factory=list)  # what was asked before
    tables: dict[Key, Table] = field(default_factory=dict)  # likewise

    def said(self, wanted: Mapping[Key, Collection[str]]) -> dict[Key, Said]:
        """Prompts, and the answers to the wanted tasks, by group."""
        return contents(self.hashed(), self.rollouts.keys, self.columns, wanted)

    def prompts(self, key: Key) -> Said:
        """What a group says but for its answers; read once, however many runs it meets."""
        if not self.known:
            self.known.append(self.said({}))
        return self.known[0].get(key) or Said()

    def papers(self, dataset: str | None) -> Papers:
        """How the run on a dataset was made, as far as the files say."""
        return papers(self.hashed(), self.digests, dataset)

    def table(self, key: Key) -> Table:
        """What its documents keep for the numbers of lm-evaluation-harness' table of a group; read once."""
        if key not in self.tables:
            self.tables[key] = table_of(self.hashed(), key)
        return self.tables[key]

    @property
    def documented(self) -> bool:
        """Whether its records carry the hash of the document each task is made of."""
        return any(FORMATS.load(one.format).has_documents for one in self.hashed())


def opened(source: Source, columns: Mapping[str, str], labels: Collection[str], progress: Progress | None) -> Side:
    """Read one source: anything that can be scored."""
    given = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(given, Rollouts):
        paths = [os.fspath(path) for path in given if isinstance(path, (str, os.PathLike))]
        if paths and len(paths) == len(given):
            parts: list[Part] = []
            rollouts, inputs = begin(paths, columns=columns, labels=labels, progress=progress, kept=parts)
            known: list[list[Input]] = []

            def hashed() -> list[Input]:
                if not known:
                    known.append(inputs())
                return known[0]

            digests = {key: digest for part in parts for key, digest in part.digests.items()}
            return Side(" ".join(paths), rollouts, digests, columns, hashed)
    return Side("", read(source, columns=columns, labels=labels), {}, columns, list)
