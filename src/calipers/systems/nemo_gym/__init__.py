"""NeMo Gym: its rollouts, metrics, servers and collections."""

from calipers.systems.system import System

SYSTEM = System(
    exports={
        "nemo_gym": "calipers.systems.nemo_gym.export:MetricsExport",
        "nemo_gym_profile": "calipers.systems.nemo_gym.export:ProfileExport",
    }
)
