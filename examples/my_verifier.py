"""A verifier of your own: 1 for the right number, 0.5 for a near miss, else 0."""

import re

from calipers import Verdict


def grade(task, completion):
    """Grade a completion: its reward, the number in it, and how far that is off."""
    numbers = re.findall(r"-?\d+", completion)
    if not numbers:
        return Verdict(0.0, outcome="unparsed")
    miss = abs(int(numbers[-1]) - int(task.target))
    return Verdict(1.0 if miss == 0 else 0.5 if miss <= 1 else 0.0, answer=numbers[-1], fields={"miss": miss})
