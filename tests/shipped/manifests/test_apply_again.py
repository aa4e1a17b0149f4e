"""Applying the manifests again changes nothing, whoever has written to the objects meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched.base.installed_files import path

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
ALWAYS_SENT = "poddisruptionbudget.policy/gpusched configured"
"""kubectl sends the selector of a budget whether it differs or not; the server writes nothing."""
OBJECTS = "namespace,crd,priorityclass,clusterrole,clusterrolebinding"
INSIDE = "serviceaccount,role,rolebinding,lease,configmap,networkpolicy,pdb,deployment"
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """Kubectl on an embedded cluster of its own."""
    config = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "gpusched.cli.main", "devcluster", "--no-stages"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")

        def run(*words: str, body: Any = None) -> str:
            done = subprocess.run(
                ["kubectl", "--kubeconfig", str(config), "--cache-dir", str(tmp_path), *words],
                capture_output=True,
                text=True,
                check=False,
                input=None if body is None else json.dumps(body),
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run
        process.terminate()


def versions(kubectl: Kubectl) -> dict[str, str]:
    """Resource versions of what the manifests make, but of status that controllers write."""
    found = {}
    for words in ((OBJECTS,), (INSIDE, "--namespace", "gpusched-system")):
        for obj in json.loads(kubectl("get", *words, "-o", "json"))["items"]:
            body = {key: obj[key] for key in obj if key not in ("metadata", "status")}
            metadata = obj["metadata"]
            if "gpusched" not in metadata["name"]:
                continue
            seen = [body, metadata.get("labels"), metadata.get("generation")]
            if obj["kind"] not in ("Deployment", "CustomResourceDefinition", "PodDisruptionBudget"):
                seen.append(metadata["resourceVersion"])
            found[f"{obj['kind']}/{metadata['name']}"] = json.dumps(seen, sort_keys=True)
    return found


@pytest.mark.parametrize(
    "how", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"]
)
def test_the_second_apply_changes_nothing(kubectl: Kubectl, how: tuple[str, ...]) -> None:
    """Nothing that the server fills in or leaves out is taken for a difference.

    The third finds a Lease in use: its holder, and the duration of its configuration, are the
    leader's; so are annotations.
    """
    folder = str(path("manifests"))
    kubectl("apply", "-k", folder, *how)
    before = versions(kubectl)
    said = kubectl("apply", "-k", folder, *how)
    assert versions(kubectl) == before
    assert len(before) >= 20
    if not how:
        changed = [line for line in said.splitlines() if not line.endswith(" unchanged")]
        assert changed == [ALWAYS_SENT]
    there = ("lease", "gpusched", "--namespace", "gpusched-system", "-o", "json")
    spec = {"holderIdentity": "a_1", "leaseDurationSeconds": 30, "leaseTransitions": 3}
    written = {"metadata": {"annotations": {"gpusched.io/told": "x"}}, "spec": spec}
    kubectl(
        "patch", *there, "--field-manager", "gpusched", "--type=merge", "-p", json.dumps(written)
    )
    held = json.loads(kubectl("get", *there))
    kubectl("apply", "-k", folder, *how)
    again = json.loads(kubectl("get", *there))
    assert again["spec"] == held["spec"]
    assert again["metadata"]["annotations"]["gpusched.io/told"] == "x"
    assert again["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
