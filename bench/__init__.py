"""How fast Calipers is, measured beside the tools it is compared with. Start at `run.py`."""
