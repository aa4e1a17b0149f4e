"""When a policy counts: from the next write on, until it or its binding goes or is forgotten."""

from __future__ import annotations

import pytest

from gpusched.base.clock import SystemClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.resource_api import ResourceApi
from gpusched.devcluster.cluster import build_core

from .exchanges import binding, config_map, policy

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


@pytest.fixture
def client():
    """A cluster with a namespace that the policies of these tests are about."""
    made = LocalClient(ResourceApi(build_core(SystemClock(), 1)))
    meta = {"name": "vap-x"}
    made.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    return made


def refused(client, name="a") -> bool:
    """Whether a config map is refused; nothing is stored."""
    try:
        client.create("configmaps", config_map(name), "vap-x", dry_run=True)
    except StatusError:
        return True
    return False


def no(client) -> None:
    """A policy that refuses everything, and its binding."""
    client.create(POLICIES, policy("x", validations=[{"expression": "false"}]))
    client.create(BINDINGS, binding("x"))


def test_a_policy_counts_while_it_is_bound(client):
    """Not before its binding, not after it, and anew with it."""
    client.create(POLICIES, policy("x", validations=[{"expression": "false"}]))
    assert not refused(client)
    client.create(BINDINGS, binding("x"))
    assert refused(client)
    client.delete(BINDINGS, None, "vap-x")
    assert not refused(client)
    client.create(BINDINGS, binding("x"))
    assert refused(client)
    client.delete(POLICIES, None, "vap-x")
    assert not refused(client)


def test_a_change_of_a_policy_counts_at_once(client):
    """Its expressions are compiled anew."""
    no(client)
    allow = {"spec": {"validations": [{"expression": "object.metadata.name == 'b'"}]}}
    client.patch(POLICIES, None, "vap-x", allow)
    assert refused(client, "a")
    assert not refused(client, "b")


def test_no_policy_keeps_its_owner_from_changing_policies(client):
    """One that refuses everything everywhere can still be taken away."""
    made = policy("x", validations=[{"expression": "false"}])
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    made["spec"]["matchConstraints"] = {"resourceRules": [rule]}
    client.create(POLICIES, made)
    client.create(BINDINGS, binding("x"))
    assert refused(client)
    client.delete(BINDINGS, None, "vap-x")
    client.delete(POLICIES, None, "vap-x")
    assert not refused(client)


def test_a_restored_store_knows_the_policies_that_it_had(client):
    """What is loaded from before counts, and what came later is forgotten."""
    store = client._core.store
    before = store.freeze()
    no(client)
    after = store.freeze()
    assert refused(client)
    store.reset(before)
    assert not refused(client)
    store.reset(after)
    assert refused(client)


def test_the_clusters_own_writes_meet_no_policy(client):
    """What belongs to an answer of the server is not asked about: nobody asked for it."""
    made = policy("x", validations=[{"expression": "false"}])
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    made["spec"]["matchConstraints"] = {"resourceRules": [{**rule, "operations": ["DELETE"]}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    client.create("pods", pod, "vap-x")
    client.create(POLICIES, made)
    client.create(BINDINGS, binding("x"))
    with pytest.raises(StatusError):
        client.delete("pods", "vap-x", "p")
    client.evict("vap-x", "p")
    assert client.get("pods", "vap-x", "p") is None


def test_a_policy_reads_the_options_of_a_deletion(client):
    """``request.options`` of a deletion are its DeleteOptions, as on a real server."""
    made = policy("x", validations=[{"expression": "request.options.gracePeriodSeconds == 7"}])
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    made["spec"]["matchConstraints"] = {"resourceRules": [{**rule, "operations": ["DELETE"]}]}
    client.create("configmaps", config_map("a"), "vap-x")
    client.create(POLICIES, made)
    client.create(BINDINGS, binding("x"))
    with pytest.raises(StatusError):
        client.delete("configmaps", "vap-x", "a", grace_s=5)
    client.delete("configmaps", "vap-x", "a", grace_s=7)
    assert client.get("configmaps", "vap-x", "a") is None
