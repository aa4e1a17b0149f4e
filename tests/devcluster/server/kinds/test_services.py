"""Services: what is given out once in the cluster, defaults, and texts of refusals."""

from __future__ import annotations

import pytest

PATH = "/api/v1/namespaces/default/services"


def service(name, port=80, **spec):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": port}], **spec}}


async def test_a_plain_service(http):
    """It gets an address of the cluster's range and every default that is printed."""
    made = await http.post(PATH, service("web", selector={"app": "web"}))
    assert made.code == 201
    assert made.body["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"app": "web"},
        "clusterIP": "10.96.1.1",
        "clusterIPs": ["10.96.1.1"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    assert made.body["status"] == {"loadBalancer": {}}
    assert "generation" not in made.body["metadata"]


async def test_addresses_and_node_ports_are_given_once(http):
    """Nobody gets what another has; what is asked for outside the ranges is refused."""
    first = (await http.post(PATH, service("a", type="NodePort"))).body["spec"]
    second = (await http.post(PATH, service("b", type="LoadBalancer"))).body["spec"]
    assert first["clusterIP"] != second["clusterIP"]
    assert first["ports"][0]["nodePort"] != second["ports"][0]["nodePort"]
    taken = first["clusterIP"]
    refused = await http.post(PATH, service("c", clusterIP=taken))
    assert refused.message == (
        f'Service "c" is invalid: spec.clusterIPs: Invalid value: ["{taken}"]: '
        f"failed to allocate IP {taken}: provided IP is already allocated"
    )
    outside = await http.post(PATH, service("c", clusterIP="192.0.2.1"))
    assert outside.message.endswith(
        "failed to allocate IP 192.0.2.1: the provided IP (192.0.2.1) is not in the valid range. "
        "The range of valid IPs is 10.96.0.0/12"
    )
    port = first["ports"][0]["nodePort"]
    again = service("c", type="NodePort")
    again["spec"]["ports"][0]["nodePort"] = port
    why = (await http.post(PATH, again)).body["details"]["causes"][0]["message"]
    assert why == f"Invalid value: {port}: provided port is already allocated"
    again["spec"]["ports"][0]["nodePort"] = 80
    why = (await http.post(PATH, again)).body["details"]["causes"][0]["message"]
    assert why.endswith("The range of valid ports is 30000-32767")
    await http.delete(f"{PATH}/a")
    assert (await http.post(PATH, service("c", clusterIP=taken))).code == 201


async def test_headless_and_external_services(http):
    """A headless service has no address to give out, an external one not even the field."""
    headless = (await http.post(PATH, service("h", clusterIP="None", selector={"a": "b"}))).body
    assert headless["spec"]["clusterIPs"] == ["None"]
    assert headless["spec"]["ipFamilyPolicy"] == "SingleStack"
    both = (await http.post(PATH, service("n", clusterIP="None"))).body["spec"]
    assert both["ipFamilies"] == ["IPv4", "IPv6"]
    body = {"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}
    external = (await http.post(PATH, body)).body["spec"]
    assert external == {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}


async def test_updates_keep_what_was_given(http):
    """A PUT without addresses keeps them; another address is refused; types may change."""
    await http.post(PATH, service("web"))
    changed = (await http.put(f"{PATH}/web", service("web", port=81))).body["spec"]
    assert changed["clusterIP"] == "10.96.1.1"
    refused = await http.patch(f"{PATH}/web", {"spec": {"clusterIP": "10.96.9.9"}})
    assert refused.body["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: ["10.96.9.9"]: may not change once set',
            "field": "spec.clusterIPs[0]",
        }
    ]
    opened = (await http.patch(f"{PATH}/web", {"spec": {"type": "NodePort"}})).body["spec"]
    assert opened["ports"][0]["nodePort"] >= 30000
    assert opened["externalTrafficPolicy"] == "Cluster"
    closed = (await http.patch(f"{PATH}/web", {"spec": {"type": "ClusterIP"}})).body["spec"]
    assert "nodePort" not in closed["ports"][0]
    assert "externalTrafficPolicy" not in closed
    away = {"spec": {"type": "ExternalName", "externalName": "a.b"}}
    assert "clusterIP" not in (await http.patch(f"{PATH}/web", away)).body["spec"]


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"ports": []}, "spec.ports", "Required value"),
        (
            {"ports": [{"port": 0, "targetPort": 1}]},
            "spec.ports[0].port",
            "Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            {"ports": [{"port": 1}, {"port": 2, "name": "b"}]},
            "spec.ports[0].name",
            "Required value",
        ),
        (
            {"clusterIP": "None", "type": "NodePort"},
            "spec.clusterIPs[0]",
            "Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ),
        ({"type": "ExternalName"}, "spec.externalName", "Required value"),
        (
            {"ports": [{"port": 80, "nodePort": 30000}]},
            "spec.ports[0].nodePort",
            "Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
    ],
)
async def test_services_that_make_no_sense(http, spec, field, text):
    """Each is refused with the field and the sentence of the real server."""
    refused = await http.post(PATH, service("x", **spec))
    assert refused.code == 422
    causes = [(c["field"], c["message"]) for c in refused.body["details"]["causes"]]
    assert causes == [(field, text)]


async def test_the_cluster_has_its_own_service(http):
    """The API server's service is there from the start."""
    own = (await http.get(f"{PATH}/kubernetes")).body
    assert own["spec"]["clusterIP"] == "10.96.0.1"
    assert own["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
