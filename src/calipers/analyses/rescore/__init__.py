"""Score stored completions with other verifiers."""
