"""The script that made these logs needs inspect_ai, which no test does."""

collect_ignore = ["make.py"]
