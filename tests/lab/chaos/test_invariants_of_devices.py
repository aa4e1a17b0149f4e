"""I17 and I18 are seen where they are broken, and nowhere else."""

from __future__ import annotations

import copy

import pytest

from gpusched.testing import invariants
from gpusched.testing.invariants.devices import DeviceBooks

DRIVER = "gpu.example.com"


def result(device, **more):
    """One device of node n0."""
    return {"request": "r", "driver": DRIVER, "pool": "n0", "device": device, **more}


def share(number, memory):
    """A share of the device that is shared."""
    return result(
        "shared", shareID=f"share-{number}", consumedCapacity={f"{DRIVER}/memory": memory}
    )


def claim(name, *results, user=""):
    """A claim with what it was given."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
    allocation = {
        "devices": {"results": list(results)}, "nodeSelector": {"nodeSelectorTerms": terms}
    }  # fmt: skip
    status = {"allocation": allocation} if results else {}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": status}


def pod(name, *, on="n0"):
    """A pod that we bound, with a claim of its own name."""
    notes = {"gpusched.io/plan": "p", "gpusched.io/fence": "d/1"}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes
        },
        "spec": {
            "schedulerName": "gpusched", "nodeName": on, "containers": [{}],
            "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "phase": "Running",
            "resourceClaimStatuses": [{"name": "c", "resourceClaimName": name}],
        },
    }  # fmt: skip


def slices():
    """Two cards in halves and one device that is shared, in a pool of one slice."""

    def part(name, card, halves):
        taken = [{"counterSet": f"card-{card}", "counters": {"half": {"value": str(halves)}}}]
        return {"name": name, "consumesCounters": taken}

    devices = [part(f"card-{card}", card, 2) for card in range(2)]
    devices += [part(f"card-{card}-{half}", card, 1) for card in range(2) for half in range(2)]
    devices.append(
        {
            "name": "shared", "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "40Gi"}},
        }
    )  # fmt: skip
    sets = [{"name": f"card-{card}", "counters": {"half": {"value": "2"}}} for card in range(2)]
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "sharedCounters": sets, "devices": devices}
    return [{"metadata": {"name": "s"}, "spec": spec}]


def cluster():
    """Everything in order."""
    return {
        "pods": [pod("a"), pod("b"), pod("c"), pod("d")],
        "nodes": [],
        "resourceslices": slices(),
        "resourceclaims": [
            claim("a", result("card-0"), user="a"),
            claim("b", result("card-1-0"), share(1, "20Gi"), user="b"),
            claim("c", result("card-1-1"), share(2, "20Gi"), user="c"),
            claim("d", result("card-1", adminAccess=True), user="d"),
        ],
    }


def test_nothing_is_said_where_all_is_well():
    found = cluster()
    assert invariants.findings(found) == []
    assert list(invariants.leaked_claims(found["resourceclaims"], found["pods"])) == []


BROKEN = [
    (("resourceclaims", 1), claim("b", result("card-0"), user="b"),
     "I17: device gpu.example.com/n0/card-0 is given 2 times: to default/a and default/b"),
    (("resourceclaims", 1), claim("b", result("card-0-1"), user="b"),
     "I17: devices in use take 3 half of counter set gpu.example.com/n0/card-0, it has 2"),
    (("resourceclaims", 1), claim("b", share(1, "21Gi"), user="b"),
     "I17: shares of device gpu.example.com/n0/shared take 41Gi memory, it has 40Gi"),
    (("resourceclaims", 1), claim("b", result("shared"), user="b"),
     "I17: device gpu.example.com/n0/shared is given 2 times: to default/b and default/c"),
    (("resourceclaims", 0), claim("a", result("card-0"), user="x"),
     "I17: pod default/a was bound to n0, for which claim default/a is not reserved"),
    (("resourceclaims", 0), claim("a", user="a"),
     "I17: pod default/a was bound to n0, whose claim default/a has no devices"),
    (("pods", 0), pod("a", on="n1"),
     "I17: pod default/a was bound to n1, where the devices of claim default/a cannot be used"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "broken", "sentence"), BROKEN)
def test_what_is_wrong_is_said(place, broken, sentence):
    found = copy.deepcopy(cluster())
    kind, number = place
    found[kind][number] = broken
    assert sentence in {str(each) for each in invariants.findings(found)}


def test_a_claim_whose_pod_is_gone_or_not_bound_is_a_leak():
    found = cluster()
    waits = pod("b")
    del waits["spec"]["nodeName"]
    pods = [waits, pod("c"), pod("d")]
    assert [str(each) for each in invariants.leaked_claims(found["resourceclaims"], pods)] == [
        "I18: claim default/a keeps 1 devices, reserved for a, and no pod that runs uses them",
        "I18: claim default/b keeps 2 devices, reserved for b, and no pod that runs uses them",
    ]


def test_books_say_what_a_change_breaks_and_forget_what_is_given_back():
    books = DeviceBooks()
    for part in slices():
        books.see_slice(part)
    assert books.see_claim(claim("a", result("card-0"))) == []
    (said,) = books.see_claim(claim("b", result("card-0-0")))
    assert "take 3 half" in said.sentence
    assert books.see_claim(claim("b", result("card-0-0"))) == []  # said when it came
    books.see_claim(claim("b"), gone=True)
    assert books.see_claim(claim("c", result("card-1-0"))) == []
    assert list(books.findings()) == []


def test_an_older_generation_of_a_pool_does_not_count():
    books = DeviceBooks()
    (old,) = slices()
    new = copy.deepcopy(old)
    new["metadata"]["name"] = "t"
    new["spec"]["pool"]["generation"] = 2
    new["spec"]["devices"] = []
    books.see_slice(old)
    books.see_slice(new)
    books.see_claim(claim("a", result("card-0")))
    assert books.see_claim(claim("b", result("card-0-0"))) == []
