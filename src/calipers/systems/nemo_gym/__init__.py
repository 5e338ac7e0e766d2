"""NeMo Gym: its rollouts, metrics, servers and collections."""

from calipers.systems.nemo_gym.words import DEFAULT, WORDS
from calipers.systems.system import DialectCard, System

SYSTEM = System(
    DialectCard(
        one_line="NeMo Gym's five statistics of any numeric key, pooled over an agent's rollouts.",
        default=DEFAULT,
        gaps="excluded from the estimate: NeMo Gym keeps failed attempts in a separate file",
        words=WORDS,
    ),
    exports={
        "nemo_gym": "calipers.systems.nemo_gym.export:MetricsExport",
        "nemo_gym_profile": "calipers.systems.nemo_gym.export:ProfileExport",
    },
)
