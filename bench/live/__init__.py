"""Live runs against one loopback server: Calipers beside a bare loop and the peers. Start at `run.py`."""
