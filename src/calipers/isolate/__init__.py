"""The sandbox, which runs untrusted programs isolated from the machine.

::

    here  launch.py ──► bwrap | unshare ──► inside/  process 1 of its own namespaces: mounts, privileges
             ▲                                 │ fork
             │ pipe the program never holds    ▼
             └──────────────────────────── process 1 ◄── the program: nobody, no network, no capabilities, limits

`docs/sandbox.md` describes which guarantees hold and which do not.
"""

from calipers.errors import SandboxError
from calipers.isolate.launch import Mechanism, Ran, probe, run
from calipers.isolate.limits import Limits

__all__ = ["Limits", "Mechanism", "Ran", "SandboxError", "probe", "run"]
