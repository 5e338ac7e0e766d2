"""One file per kind of model: `openai`, `litellm`, `replay`, `python`, and `scripted` for tests."""
