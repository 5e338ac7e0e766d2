"""The server: NeMo Gym's routes over HTTP. Only `calipers.cli.serve` leads here; it needs the extra ``serve``."""
