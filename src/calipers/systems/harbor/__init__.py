"""Harbor: its jobs, tasks, datasets, agents and metric scripts."""

from calipers.systems.system import System

SYSTEM = System(
    page="calipers.systems.harbor.report:own_page",
    exports={"harbor": "calipers.systems.harbor.job_result:JobExport"},
)
