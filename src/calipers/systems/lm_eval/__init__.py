"""lm-evaluation-harness: its files, tasks, rules and numbers."""

from calipers.systems.system import System

SYSTEM = System(
    page="calipers.systems.lm_eval.library:own_page",
    numbers="calipers.systems.lm_eval.library:with_own_numbers",
    run_page="calipers.systems.lm_eval.library:run_page",
    replaces=frozenset({"md"}),
)
