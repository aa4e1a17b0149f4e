"""kubectl against every kind of discovery; skipped where there is no kubectl."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

import pytest

from gpusched.base import installed_files

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="no kubectl on this machine")


@pytest.fixture
def kubectl(cluster, tmp_path):
    """Run kubectl without blocking the loop that serves it; returns code and what it printed."""
    config = tmp_path / "config"
    config.write_text(cluster.kubeconfig_text)
    environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

    def call(arguments, stdin):
        done = subprocess.run(
            [KUBECTL, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    async def run(*arguments, stdin=None):
        return await asyncio.to_thread(call, arguments, stdin)

    return run


async def test_the_manifests_can_be_installed(kubectl):
    """``kubectl apply -k manifests`` installs everything, and again changes no object's meaning."""
    code, text = await kubectl("apply", "-k", str(installed_files.path("manifests")))
    assert code == 0, text
    for made in ("deployment.apps", "networkpolicy.networking.k8s.io", "clusterrole.rbac", "lease"):
        assert made in text
    code, text = await kubectl("apply", "-k", str(installed_files.path("manifests")))
    assert code == 0, text
    assert "created" not in text


async def test_every_listed_kind_can_be_read(kubectl):
    """What discovery lists, kubectl can get: all at once, and as ``get all``."""
    code, names = await kubectl("api-resources", "--verbs=list", "-o", "name")
    assert code == 0
    kinds = names.split()
    assert {"services", "resourceclaims.resource.k8s.io", "apiservices.apiregistration.k8s.io"} <= {
        *kinds
    }
    code, text = await kubectl("get", ",".join(kinds), "-A")
    assert code == 0, text
    code, text = await kubectl("get", "all", "-A")
    assert code == 0, text
    assert "service/kubernetes" in text


async def test_generators_of_services(kubectl):
    """What ``kubectl create service`` sends in protobuf carries no zeros into the store."""
    assert (await kubectl("create", "service", "nodeport", "np", "--tcp=80:8080"))[0] == 0
    code, text = await kubectl("get", "service", "np", "-o", "jsonpath={.spec}")
    assert code == 0
    assert "healthCheckNodePort" not in text
    assert "publishNotReadyAddresses" not in text
    _, text = await kubectl("get", "service", "np")
    assert "80:30086/TCP" in text


async def test_a_kind_without_effect_says_so(kubectl):
    """A CronJob is refused with a sentence that names it, and nothing is stored."""
    made = await kubectl("create", "cronjob", "c", "--image=i", "--schedule=* * * * *")
    assert made[0] != 0
    assert "cronjobs.batch is not supported by the embedded API server" in made[1]
    assert "No resources found" in (await kubectl("get", "cronjobs"))[1]
