"""The logs of OpenAI evals."""
