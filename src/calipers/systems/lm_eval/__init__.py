"""lm-evaluation-harness: its files, tasks, rules and numbers."""

from calipers.systems.system import System

SYSTEM = System(
    page="calipers.systems.lm_eval.pages:own_page",
    numbers="calipers.systems.lm_eval.pages:with_own_numbers",
    run_page="calipers.systems.lm_eval.pages:run_page",
    replaces=frozenset({"md"}),
)
