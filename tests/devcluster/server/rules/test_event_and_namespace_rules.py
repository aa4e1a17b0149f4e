"""Events, namespaces, evictions and bindings over HTTP: what is refused, in which words."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
CORE = "/api/v1/namespaces/default"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PATCH = "merge-patch+json"


def event(**fields: Any) -> Obj:
    """An event of the newer group."""
    return {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "gpusched",
        "reportingInstance": "gpusched-0",
        "action": "Scheduling",
        "reason": "Scheduled",
        "type": "Normal",
        **fields,
    }


async def test_the_newer_group_wants_its_own_fields_only(http: Any) -> None:
    """Old fields, short series and unknown types are refused; the older group takes them."""
    body = event(type="Odd", series={"count": 1}, deprecatedCount=3)
    reply = await http.post(EVENTS, body)
    assert reply.message == (
        'Event "e" is invalid: [series.count: Invalid value: "": should be at least 2, '
        "series.lastObservedTime: Required value, "
        'type: Invalid value: "": has invalid value: Odd, count: Invalid value: "": needs to be unset]'
    )
    old = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "type": "Odd"}
    assert (await http.post(f"{CORE}/events", old)).code == 201


async def test_an_event_of_the_newer_group_only_grows(http: Any) -> None:
    """Its series may change, its reason not."""
    assert (await http.post(EVENTS, event())).code == 201
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    assert (await http.patch(f"{EVENTS}/e", series, PATCH)).code == 200
    reply = await http.patch(f"{EVENTS}/e", {"reason": "Other"}, PATCH)
    assert reply.code == 422
    assert 'reason: Invalid value: "Other": field is immutable' in reply.message


async def test_namespaces_that_stay(http: Any) -> None:
    """The system's namespaces cannot be deleted; a phase says what the deletion mark says."""
    reply = await http.delete("/api/v1/namespaces/kube-system")
    text = 'namespaces "kube-system" is forbidden: this namespace may not be deleted'
    assert (reply.code, reply.message) == (403, text)
    reply = await http.patch(
        "/api/v1/namespaces/default/status", {"status": {"phase": "Terminating"}}, PATCH
    )
    assert "status.Phase: Invalid value" in reply.message


async def test_a_binding_names_its_pod_and_namespace(http: Any) -> None:
    """A body without the name, or for another namespace, is refused before the pod is looked at."""
    await http.create_pod("p")
    target = {"target": {"kind": "Node", "name": "n"}}
    reply = await http.post(f"{CORE}/pods/p/binding", target)
    assert (reply.code, reply.message) == (400, "name in URL does not match name in Binding object")
    named = {"metadata": {"name": "p", "namespace": "other"}, **target}
    assert (await http.post(f"{CORE}/pods/p/binding", named)).code == 400
    assert (await http.post(f"{CORE}/bindings", target)).message == "Name parameter required."
    named["metadata"].pop("namespace")
    assert (await http.post(f"{CORE}/bindings?dryRun=All", named)).code == 201
    assert "nodeName" not in (await http.get(f"{CORE}/pods/p")).body["spec"]


async def test_an_eviction_of_another_pod_of_that_name(http: Any) -> None:
    """A wrong uid leaves the pod as it is, without a mark."""
    await http.create_pod("p", nodeName="n")
    body = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "x"}}}
    reply = await http.post(f"{CORE}/pods/p/eviction", body)
    pod = (await http.get(f"{CORE}/pods/p")).body
    why = f"the UID in the precondition (x) does not match the UID in record ({pod['metadata']['uid']})"
    assert (reply.code, reply.message) == (409, f'Operation cannot be fulfilled on Pod "p": {why}')
    assert "conditions" not in pod["status"]
    assert (await http.post(f"{CORE}/pods/p/eviction", {"metadata": {"name": "p"}})).code == 201


async def test_taints_of_nodes(http: Any) -> None:
    """Keys, values and effects are checked; the same pair twice is refused with the taint."""
    taint = {"key": "a", "value": "v", "effect": "NoSchedule"}
    body = {"metadata": {"name": "n"}, "spec": {"taints": [taint, taint]}}
    reply = await http.post("/api/v1/nodes", body)
    shown = '{"Key":"a","Value":"v","Effect":"NoSchedule","TimeAdded":null}'
    assert reply.message == (
        f'Node "n" is invalid: metadata.taints[1]: Duplicate value: {shown}: '
        "taints must be unique by key and effect pair"
    )


async def test_address_ranges_of_nodes(http: Any) -> None:
    """One range and the list of ranges are two views of one value, which must be a range."""
    body = {"metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.0.0/24"}}
    made = (await http.post("/api/v1/nodes", body)).body["spec"]
    assert made["podCIDRs"] == ["10.1.0.0/24"]
    reply = await http.post("/api/v1/nodes", {"metadata": {"name": "m"}, "spec": {"podCIDR": "x"}})
    assert reply.body["details"]["causes"][0]["field"] == "spec.podCIDRs[0]"


async def test_a_pod_is_no_binding(http: Any) -> None:
    """A body of another kind is refused by its kind."""
    await http.create_pod("p")
    reply = await http.post(f"{CORE}/pods/p/binding", {"kind": "Pod", "metadata": {"name": "p"}})
    assert reply.message == (
        'Pod in version "v1" cannot be handled as a Binding: '
        "converting (v1.Pod) to (core.Binding): unknown conversion"
    )
