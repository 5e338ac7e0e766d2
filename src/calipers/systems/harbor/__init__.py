"""Harbor: its jobs."""

from __future__ import annotations

from calipers.readers import harbor, harbor_texts
from calipers.readers.format import Format
from calipers.readers.harbor_folder import jobs_in
from calipers.readers.harbor_join import numbered

JOB = Format(
    "harbor",
    harbor.read,
    recognise=lambda start: False,  # a job is a directory
    texts=lambda path, columns, wanted: harbor_texts.texts(path, wanted),
    folder=lambda path: (jobs_in(path), ()),
    join=numbered,
)
