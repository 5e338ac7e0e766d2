"""Which tasks the sample has."""
SHOTS = (None, 2)
LEAVES = 12
SAMPLE: list[tuple[str, int | None]] = []
