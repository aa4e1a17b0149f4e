"""Versions of Kubernetes' own groups that come and go, and kinds of others with their names."""

from __future__ import annotations

from gpusched.base import limits
from tests.behaviour.fuzz.foreign_kinds import ANY, fields
from tests.daemon.adapters.test_native_status import GROUPS, conditions, gang, member, running

CRDS = "customresourcedefinitions.apiextensions.k8s.io"


def version(name, *, served=True, storage=False):
    """One version of the kind, as far as it is read."""
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": fields(spec=ANY, status=ANY)},
        "subresources": {"status": {}},
    }


def definition(*versions, scope="Namespaced", kind="PodGroup"):
    """Kubernetes' own PodGroup in these versions, or what somebody else calls so."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": GROUPS, "annotations": {"api-approved.kubernetes.io": "a test"}},
        "spec": {
            "group": "scheduling.k8s.io",
            "scope": scope,
            "names": {"plural": "podgroups", "kind": kind, "listKind": f"{kind}List"},
            "versions": list(versions),
        },
    }


async def served(w, name):
    """Wait until a version is served."""
    await w.until(lambda: w.client.kind_of(f"scheduling.k8s.io/{name}", "PodGroup"))


def group(w, name, spec, api_version="v1alpha2"):
    """A native group in the namespace default."""
    head = {"apiVersion": f"scheduling.k8s.io/{api_version}", "kind": "PodGroup"}
    w.client.create(
        GROUPS, {**head, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )


def test_an_upgrade_changes_the_version_under_running_groups(play):
    """Given two versions served and then one, the best is used, and no group is forgotten."""

    async def scenario(w):
        await w.start(nodes=4)
        w.client.create(CRDS, definition(version("v1alpha2", storage=True)))
        await served(w, "v1alpha2")
        w.daemon()
        group(w, "a", gang(2))
        for number in range(2):
            member(w, "a", number, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: conditions(w, "a").get("PodGroupScheduled", ("",))[0] == "True")
        both = [version("v1alpha2", storage=True), version("v1beta1")]
        w.client.patch(CRDS, None, GROUPS, {"spec": {"versions": both}})
        await served(w, "v1beta1")
        await w.until(lambda: "PodGroupInitiallyScheduled" in conditions(w, "a"))
        group(w, "b", gang(2), "v1beta1")
        for number in range(2):
            member(w, "b", number)
        await w.until(lambda: len(running(w, "b")) == 2)
        await w.until(lambda: "PodGroupInitiallyScheduled" in conditions(w, "b"))
        assert "PodGroupScheduled" not in conditions(w, "b")
        assert running(w, "a") == ["a-0", "a-1"]
        told = conditions(w, "a")
        assert told["PodGroupScheduled"][0] == told["PodGroupInitiallyScheduled"][0] == "True"

    play(scenario)


def test_a_kind_that_appears_and_vanishes_while_the_daemon_runs(play):
    """Given pods that name a group of a kind that comes later, they start then."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        for number in range(2):
            member(w, "a", number, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: "does not exist" in w.told("a-0").get("message", ""))
        w.client.create(CRDS, definition(version("v1alpha2", storage=True)))
        await served(w, "v1alpha2")
        group(w, "a", gang(2))
        await w.until(lambda: len(running(w, "a")) == 2, within=3 * limits.DISCOVERY_PERIOD_S)
        w.client.delete(CRDS, None, GROUPS)
        await w.clock.sleep(3 * limits.DISCOVERY_PERIOD_S)
        w.pod("later", gpus=0)
        await w.until(lambda: "later" in running(w, "later"))
        assert len(running(w, "a")) == 2

    play(scenario)


def test_a_kind_of_somebody_else_with_the_same_name_is_left_alone(play, caplog):
    """Given a cluster-scoped kind of this name, it is said once and all else goes on."""

    async def scenario(w):
        await w.start(nodes=1)
        w.client.create(CRDS, definition(version("v1alpha2", storage=True), scope="Cluster"))
        await served(w, "v1alpha2")
        w.daemon()
        w.pod("single")
        await w.until(lambda: running(w, "single") == ["single"])
        await w.clock.sleep(3 * limits.DISCOVERY_PERIOD_S)

    play(scenario)
    told = [each for each in caplog.messages if "somebody else's kind has this name" in each]
    assert len(told) == 1


def test_an_object_of_another_shape_is_told_what_it_lacks(play):
    """Given a CRD of the same kind with other fields, its object is held and says why."""

    async def scenario(w):
        await w.start(nodes=2)
        w.client.create(CRDS, definition(version("v1alpha2", storage=True)))
        await served(w, "v1alpha2")
        w.daemon()
        group(w, "odd", {"minMember": 1})
        group(w, "b", gang(1))
        member(w, "odd", 0)
        member(w, "b", 0)
        await w.until(lambda: running(w, "b") == ["b-0"])
        await w.until(lambda: "gpusched.io/Scheduled" in conditions(w, "odd"))
        assert "schedulingPolicy is missing" in conditions(w, "odd")["gpusched.io/Scheduled"][2]
        assert running(w, "odd") == []

    play(scenario)
