"""The notebooks equal their paired text, hold no outputs, and run from top to bottom in a kernel: `make test-notebooks`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pair
import pytest
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def test_every_text_has_its_notebook() -> None:
    assert [path.stem for path in pair.tours()] == sorted(path.stem for path in HERE.glob("*.ipynb"))
    assert len(pair.tours()) == 4


@pytest.mark.parametrize("text", pair.tours(), ids=lambda path: path.stem)
def test_pair_is_equal_and_the_notebook_runs(text: Path) -> None:
    path = text.with_suffix(".ipynb")
    assert path.read_text(encoding="utf-8") == pair.written(text), f"{path.name}: python notebooks/pair.py writes it from {text.name}"
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in notebook.cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs) or text.stem.startswith("4"), "a tour shows a figure"


def got(url: str) -> str:
    """What a server on this machine answers; it says its address a moment before it listens."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens at {url}")


def test_make_notebooks_opens_the_first_tour() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["make", "notebooks", "SETUP=@:", f"PY={sys.executable}", f"ARGS=--no-browser --allow-root --port={port}"]
    server = subprocess.Popen(command, cwd=HERE.parent, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert server.stderr is not None
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if address := re.search(r"http://127\S+", line):
                break
        else:
            raise AssertionError("".join(said))
        assert "/lab/tree/1_one_case_by_hand.ipynb?token=" in address[0]
        assert "jupyter-config-data" in got(address[0])
        place, _, token = address[0].partition("/lab/tree/1_one_case_by_hand.ipynb")
        settings = json.loads(got(f"{place}/lab/api/settings/@jupyterlab/apputils-extension:notification{token}"))
        # Nothing asks the reader for a decision, and nothing is fetched from elsewhere.
        assert settings["schema"]["properties"]["fetchNews"]["default"] == "false"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        server.stderr.close()
