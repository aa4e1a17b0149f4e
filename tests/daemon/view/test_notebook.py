"""docs/examples/when.ipynb, cell by cell, against a daemon on an embedded cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpusched.client import Client
from gpusched.io.serve.view_client import NoView
from tests.daemon.view.test_view_process import processes, until  # noqa: F401 - a fixture

pytestmark = pytest.mark.early

NOTEBOOK = Path(__file__).parents[3] / "docs/examples/when.ipynb"
SLOT = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  schedulerName: gpusched
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def cells():
    """The code of the notebook."""
    book = json.loads(NOTEBOOK.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    return ["".join(each["source"]) for each in book["cells"] if each["cell_type"] == "code"]


def gangs_told():
    """Gangs as the daemon tells them; None while it tells nothing."""
    try:
        return Client().gangs()
    except NoView:
        return None


def test_the_notebook_asks_a_daemon(processes, monkeypatch, capsys):  # noqa: F811
    """Given a node that is full for two hours, then what is asked about starts after them."""
    _, _, daemon, kubeconfig = processes
    daemon()
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    until(gangs_told, lambda gangs: any(each.state == "Running" for each in gangs))
    known = {}
    for code in cells():
        exec(compile(code, NOTEBOOK.name, "exec"), known)
    (gang,) = known["answer"].gangs
    assert (gang.kind, gang.name, gang.start.kind) == ("PodGroup", "asked", "expected")
    assert {each.options["members"] for each in known["table"].variants} == {"1", "2", "64"}
    assert "PodGroup asked starts expected" in capsys.readouterr().out
    assert [each.metadata.name for each in known["gangs"]] == ["g", "late"]

    command = [sys.executable, "-m", "gpusched.cli.main", "when", "-f", "-", "--source", "daemon"]
    told = subprocess.run(command, input=SLOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "Pod default/one in queue default, 1 pod" in told.stdout
