"""The server: NeMo Gym's routes over HTTP. Only `calipers.cli.serve` imports it; it needs the extra ``serve``."""
