"""The notebook of the first hour, executed cell by cell as a reader would."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from waiting import PATIENCE

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"
MOST_CELLS = 25


def test_it_is_stored_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert len(cells) <= MOST_CELLS
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def test_every_cell_runs_and_shows_its_table(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    shown = {
        cell.source: output["data"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    }
    pages = {source.splitlines()[-1]: data.get("text/html", "") for source, data in shown.items()}
    assert all("<table" in pages[name] for name in ("result", "comparison", "curve", "gate", "before.head()"))
    assert "better" in pages["comparison"]
    texts = {source.splitlines()[-1]: data["text/plain"] for source, data in shown.items()}
    assert texts["gate.word, gate.exit_code"] == "('passed', 0)"
    assert texts["again.digest == result.digest"] == "True"
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "--truth yes=1,no=0" in "".join(output.get("text", "") for output in outputs)
