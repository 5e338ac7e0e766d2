"""Harbor: its jobs, tasks, datasets, agents and metric scripts."""

from calipers.systems.harbor.words import DEFAULT, WORDS
from calipers.systems.system import DialectCard, System

SYSTEM = System(
    DialectCard(
        one_line="Harbor's four statistics over all trials that ended, and its pass@k; missing rewards count as 0.",
        default=DEFAULT,
        gaps="count as 0, as Harbor counts a trial without a reward; a trial that did not end is excluded",
        words=WORDS,
    ),
    page="calipers.systems.harbor.job_result:own_page",
    exports={"harbor": "calipers.systems.harbor.job_result:JobExport"},
)
