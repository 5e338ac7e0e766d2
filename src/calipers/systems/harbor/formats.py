"""Harbor: its jobs."""

from __future__ import annotations

from calipers.formats.format import Format
from calipers.systems.harbor import read, texts
from calipers.systems.harbor.folder import jobs_in
from calipers.systems.harbor.rows import numbered

JOB = Format(
    "harbor",
    read.read,
    recognise=lambda start: False,  # a job is a directory
    texts=lambda path, columns, wanted: texts.texts(path, wanted),
    folder=lambda path: (jobs_in(path), ()),
    join=numbered,
)
