"""Folders of steps for tests of a watch."""

import json

import numpy as np

from calipers.analyses.watch.watch import RunWatch


def write_step(folder, step, rewards, *, name="step_{step}.jsonl", tasks=None, **columns):
    """A file of our own records: rewards [G, n], and columns [G, n] by name."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for task, samples in enumerate(np.asarray(rewards).tolist()):
        for sample, reward in enumerate(samples):
            row = {"task": tasks[task] if tasks else f"q{task}", "sample": sample, "reward": reward}
            row |= {key: np.asarray(values)[task][sample].item() for key, values in columns.items()}
            rows.append(json.dumps(row))
    path = folder / name.format(step=step)
    path.write_text("\n".join(rows) + "\n")
    return path


def write_run(folder, steps, *, tasks=100, samples=4, drop=0.0, at=10**9, seed=1, first=0, **more):
    """Steps on the same tasks, with a drop of the mean from a step on."""
    rng = np.random.default_rng(seed)
    chances = rng.beta(0.8, 0.8, tasks)
    for step in range(first, first + steps):
        chance = chances - (drop * chances * (1 - chances) / 0.154 if step >= at else 0)
        passes = rng.random((tasks, samples)) < np.clip(chance, 0, 1)[:, None]
        write_step(folder, step, passes.astype(float), **more)


def watch(path, alarms=None, *, state=None, accept=None, columns=None, reward=None, **settings):
    """One look at a folder of steps, as ``calipers watch --once`` has it."""
    watching = RunWatch(str(path), {"alarms": alarms, **settings}, state=state, columns=columns, reward=reward)
    try:
        watching.look()
        if accept is not None:
            watching.accept(accept)
        return watching.result()
    finally:
        watching.close()
