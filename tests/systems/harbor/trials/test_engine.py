"""The modules that are copied for Harbor's interpreter import only modules that are copied too."""

import subprocess
import sys

from rooms import needs_rooms

from calipers.systems.harbor.trials import lent

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from calipers_harbor.dockerfile import EnvironmentPlan, furnish
from calipers_harbor.isolate.container import Container
container = Container()
container.start()
try:
    furnish(container, None, EnvironmentPlan(workdir="/app/work"))
    print(container.run("pwd", cwd="/app/work").stdout.decode().strip())
finally:
    container.stop()
print(sorted(name for name in sys.modules if name.partition(".")[0] == "calipers"))
"""


@needs_rooms
def test_a_container_of_the_standard_library_alone():
    with lent() as folder:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", RUN, folder], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("/app/work\n[]\n", "")
