"""The scenario library on a cluster with every shipped policy, the daemons with their own rights.

By hand all of it: ``GPUSCHED_TEST_POLICIES=1 pytest tests/devcluster/policies``.
"""

from __future__ import annotations

import os

import attrs
import pytest

from gpusched.base import installed_files
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.admission.policies import AdmissionPolicies
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.cluster import DevCluster, kubeconfig_text
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.play import on_embedded
from gpusched.lab.scenario.play.on_embedded import play_embedded

DAEMON = "system:serviceaccount:gpusched-system:gpusched"
MANIFESTS = installed_files.path("manifests")
LIBRARY = installed_files.path("kwok-scenarios") / "library"
SHIPPED = [
    MANIFESTS / name
    for name in ("namespace.yaml", "lease.yaml", "rbac.yaml", "rbac-adapters.yaml", "policies")
]
CHOSEN = (
    "preempt-and-resume",
    "borrowed-gpus-returned",
    "leader-killed-in-mid-commit",
    "queue-hold-and-drain",
)
"""Evictions, suspended Jobs, promises, a change of leaders."""
OUTSIDE = 'namespaces "gpusched-system" is forbidden'
"""With a kubeconfig a daemon looks for the namespace of its Lease, to make it; a pod does not."""
ALL = sorted(file.stem for file in LIBRARY.glob("*.yaml"))


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every cluster has the policies, its kubeconfig the daemon's account; what that is refused."""
    told: list[str] = []
    admit, check = AdmissionPolicies.admit, RequestAccess.check

    def admitting(self, asked):
        try:
            admit(self, asked)
        except StatusError as refusal:
            if asked.user.name == DAEMON:
                told.append(refusal.message)
            raise

    def checking(self, user, route, verb):
        try:
            check(self, user, route, verb)
        except StatusError as refusal:
            if user.name == DAEMON:
                told.append(refusal.message)
            raise

    def account(self: DevCluster) -> str:
        found = self.core.store.collection("serviceaccounts").get("gpusched-system/gpusched")
        spec = {"spec": {"expirationSeconds": 10**8}}
        made = self.in_process._access.tokens.issue(found.obj, spec)
        return kubeconfig_text(self.url, made["status"]["token"])

    monkeypatch.setattr(AdmissionPolicies, "admit", admitting)
    monkeypatch.setattr(RequestAccess, "check", checking)
    monkeypatch.setattr(DevCluster, "kubeconfig_text", property(account))
    plain = on_embedded.SimulationOptions
    monkeypatch.setattr(
        on_embedded, "SimulationOptions", lambda **how: attrs.evolve(plain(**how), apply=SHIPPED)
    )
    return told


@pytest.mark.parametrize("name", ALL if os.environ.get("GPUSCHED_TEST_POLICIES") else CHOSEN)
def test_the_daemon_is_refused_nothing(refusals: list[str], name: str):
    """The scenario holds what it says, and no request of a daemon met a policy or lacked a right."""
    (scenario,) = read_path(LIBRARY / f"{name}.yaml")
    run = play_embedded(scenario)
    assert [told for told in refusals if not told.startswith(OUTSIDE)] == []
    assert run.record is not None
    assert [f"{v.expectation.sentence}: {v.seen}" for v in run.verdicts if not v.ok] == []
    assert [each.sentence for each in run.record.broken] == []
