"""Small rollouts, and a page of each documented kind that the commands make from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.running import lines

from calipers.reports.document import Document

ROWS = [
    {
        "task": f"t{task}",
        "sample": sample,
        "reward": 1.0 if (task * 7 + sample * 5) % 12 < 6 else 0.0,
        "completion": f"the answer is {(task * 7 + sample * 5) % 12}",
        "latency_s": 1.0 + task % 5,
        "cost_usd": 0.01,
        "level": "ab"[task % 2],
    }
    for task in range(36)
    for sample in range(4)
]
POLICY = """\
results: {new: {path: b.jsonl, baseline: a.jsonl}, lacking: gaps.jsonl}
allowed_failures: 1
critical: [mean_reward >= 0.99, {require: lower(delta(mean_reward)) >= -0.9, of: new}]
supporting: [lower(pass@1) >= 0.01, pass@9 >= 0.5]
advisory: [cost_per_task <= 0.05]
"""


def write_files(folder: Path) -> None:
    """Rollouts, labels and a policy for every page."""
    better = [{**row, "reward": 1.0 if row["task"] in ("t1", "t4", "t6") else row["reward"]} for row in ROWS]
    gaps = [{**row, "reward": None, "outcome": "client_failed"} if n % 7 == 0 else row for n, row in enumerate(ROWS)]
    half = [{**row, "reward": row["reward"] / 2} for row in better]
    runs: dict[str, list[dict[str, Any]]] = {"a": ROWS, "b": better, "c": half, "gaps": gaps}
    runs["same"] = [{**row, "model": "m"} for row in ROWS]
    runs["one"] = [row for row in ROWS if row["sample"] == 0]
    runs["other"] = [{**row, "reward": 1 - row["reward"]} for row in runs["one"]]
    runs["sets"] = [{**row, "dataset": name} for name in ("x", "y") for row in ROWS]
    for number in range(6):
        passes = [float((int(row["task"][1:]) * (number + 3) + row["sample"] * 5) % 12 < 3 + number) for row in ROWS]
        solved = {"t0": 1.0, "t1": 0.0, "t2": float(number < 2)}  # by all, by none, and only by the worst models
        runs[f"run{number}"] = [
            {**row, "reward": solved.get(row["task"], reward)} for row, reward in zip(ROWS, passes, strict=True)
        ]
    for name, rows in runs.items():
        lines(folder, *rows, name=f"{name}.jsonl")
    labels = [
        f"t{task},{sample},{(task + sample) % 2},{who}" for task in range(20) for sample in (0, 1) for who in "pq"
    ]
    (folder / "labels.csv").write_text("\n".join(["task,sample,label,rater", *labels]) + "\n")
    (folder / "policy.yaml").write_text(POLICY)


def documents(folder: Path) -> Iterator[tuple[str, Document]]:
    """A page of every kind, made from the files in a folder."""
    import calipers
    from calipers.analyses.compare.document import document as comparison_page
    from calipers.analyses.judge_check import document as judge_page
    from calipers.analyses.leaderboard import document as leaderboard_page
    from calipers.reports.result import document as result_page

    at = {path.stem: str(path) for path in folder.glob("*.jsonl")}
    one = calipers.score(at["gaps"], ["mean_reward", "pass@2", "pass@9"], by="level")
    yield "score", result_page(one, economics=True)
    yield "score details", result_page(one, details=True)
    yield "score datasets", result_page(calipers.score(at["sets"]))
    yield "score datasets details", result_page(calipers.score(at["sets"]), details=True)
    several = calipers.compare(at["a"], at["b"], at["c"], metric=["mean_reward", "pass@2"], by="level", adjust="bh")
    yield "compare", comparison_page(several)
    yield "compare details", comparison_page(several, details=True)
    yield "compare missing", comparison_page(calipers.compare(at["a"], at["gaps"], margin=0.5, adjust="holm"))
    yield "compare same", comparison_page(calipers.compare(at["a"], at["same"], margin=0.2), details=True)
    yield "compare latency", comparison_page(calipers.compare(at["a"], at["b"], metric=["mean(column=latency_s)"]))
    runs = [at[f"run{number}"] for number in range(6)]
    board = calipers.leaderboard(*runs, at["gaps"], baseline="run0.jsonl")
    yield "leaderboard", leaderboard_page(board, pairs=True)
    several = [
        {**row, "dataset": name, "model": f"m{number}"}
        for number, rows in enumerate([ROWS] * 5)
        for name in ("x", "y")
        for row in rows
        if (name, number) != ("y", 1)
    ]
    for title, count in (("matrix", 2), ("matrix of three", 3), ("matrix of models", 5)):
        yield title, calipers.matrix(several, models=[f"m{number}" for number in range(count)]).page()
    yield "curve", calipers.curve([at["a"]], upto=8).page()
    yield "items", calipers.items(*runs).page()
    yield "items of one run", calipers.items(at["a"]).page()
    yield "judge-check", judge_page(calipers.judge_check([at["a"]], str(folder / "labels.csv")))
    yield from _more(folder, at)


def _more(folder: Path, at: Mapping[str, str]) -> Iterator[tuple[str, Document]]:
    """The pages of commands that have no public function."""
    from cli.running import ARITH

    from calipers.analyses.gate import document as gate_page
    from calipers.analyses.gate.gate import check_policy
    from calipers.analyses.gate.requirement import read_policy
    from calipers.analyses.plan_study import Chosen, StudyRequest, from_pilots, study
    from calipers.analyses.rescore import Rescoring, rejudge
    from calipers.analyses.rescore import document as rescored_page
    from calipers.analyses.selftest import checked, selftest
    from calipers.analyses.selftest import document as selftest_page
    from calipers.tasks.store import load_suite

    yield from _watched(folder)
    yield "gate", gate_page(check_policy(read_policy(str(folder / "policy.yaml"))))
    wanted = StudyRequest(detect=0.1, tasks=40, samples=4, price_per_sample=0.01, budget=10.0)
    yield "plan", study(from_pilots((at["a"], at["b"]), Chosen(), None, paired=True), wanted).page()
    clustered = Chosen(cluster="level")
    yield "plan clusters", study(from_pilots((at["a"],), clustered, None, paired=True), wanted).page()
    again = Rescoring(at["a"], scores=at["other"], name="score", out=str(folder / "rescored.jsonl"))
    yield "rescore", rescored_page(rejudge(again))
    yield "selftest", selftest_page(selftest(checked(load_suite(ARITH.removesuffix(".jsonl")), 6)))
    yield "verify", _verified(folder, at["a"])
    yield "audit", _audited()


def _verified(folder: Path, run: str) -> Document:
    from calipers.analyses.certify import certify
    from calipers.analyses.certify.verify import document as verified_page
    from calipers.analyses.certify.verify import verify

    done = certify(run)
    (folder / "c.cert.json").write_bytes(done.envelope.encoded())
    return verified_page(verify(folder / "c.cert.json", [run]))


def _audited() -> Document:
    import numpy as np

    from bench.simulations.audit import CHEATS, look
    from calipers.analyses.audit import Audit
    from calipers.analyses.audit import document as audit_page

    found = [look(make(np.random.default_rng(2))) for make, _, _ in CHEATS.values()]
    findings = {each.rule: each for audit in found for each in audit.findings}
    lists = {each.rule: each for audit in found for each in audit.lists}
    return audit_page(Audit([], 1000, list(findings.values()), list(lists.values()), found[0].tried, found[0].unknown))


def _watched(folder: Path) -> Iterator[tuple[str, Document]]:
    """The pages of a watch: an alarm with its rollouts, and the best step."""
    from watch_steps import watch, write_run

    from calipers.analyses.watch import alarms_of
    from calipers.analyses.watch.best import best_in

    for split in ("train", "eval"):
        write_run(folder / "steps" / split, 14, drop=0.3, at=8, tasks=40)
    alarms = alarms_of(["rl", "drop(reward) > 0.02", "mean(entropy) > 3"])
    yield "watch", watch(str(folder / "steps"), alarms).page()
    yield "best step", best_in([str(folder / "steps" / "eval")]).page()
