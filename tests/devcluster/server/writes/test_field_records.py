"""managedFields as clients see them: from creation on, by whom, and how they are reset."""

from __future__ import annotations

MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def config_map(name="cm", **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "data": data,
    }


def owners(obj):
    return [
        (e["manager"], e["operation"], e.get("subresource", ""), e["fieldsV1"])
        for e in obj["metadata"].get("managedFields", ())
    ]


async def test_a_create_records_its_manager(http):
    """A created object says who set which field; the server's own fields have no owner."""
    made = (await http.post(f"{MAPS}?fieldManager=kubectl-create", config_map(x="1"))).body
    assert owners(made) == [
        (
            "kubectl-create",
            "Update",
            "",
            {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:data": {".": {}, "f:x": {}},
            },
        )
    ]


async def test_a_pod_is_recorded_as_sent_and_defaulted(http):
    """Defaults belong to the creator; what admission adds and the status belong to nobody."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    made = (await http.post("/api/v1/namespaces/default/pods?fieldManager=m", pod)).body
    [(_, _, _, fields)] = owners(made)
    assert set(fields) == {"f:spec"}
    assert "f:tolerations" not in fields["f:spec"]
    assert "f:priority" not in fields["f:spec"]
    assert "f:restartPolicy" in fields["f:spec"]
    assert set(fields["f:spec"]["f:containers"]) == {'k:{"name":"c"}'}


async def test_apply_after_a_create_conflicts_with_the_creator(http):
    """An apply to a created object names the manager of the create."""
    await http.post(f"{MAPS}?fieldManager=kubectl-create", config_map(x="1"))
    reply = await http.send(
        "PATCH", f"{MAPS}/cm?fieldManager=kubectl", config_map(x="2"), media=APPLY
    )
    assert reply.code == 409
    assert reply.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-create" using v1: .data.x'
    )


async def test_updates_and_status_writes_have_entries_of_their_own(http):
    """A patch moves what it changes to its manager; a status write is an entry apart."""
    await http.post(f"{MAPS}?fieldManager=one", config_map(x="1", y="1"))
    patched = await http.send(
        "PATCH", f"{MAPS}/cm?fieldManager=two", {"data": {"x": "2"}}, media=MERGE
    )
    assert [o[0] for o in owners(patched.body)] == ["one", "two"]
    assert owners(patched.body)[1][3] == {"f:data": {"f:x": {}}}
    status = {"status": {"conditions": [{"type": "Odd", "status": "True"}]}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"l": "1"}}}
    await http.post("/api/v1/nodes?fieldManager=one", node)
    reply = await http.send("PATCH", "/api/v1/nodes/n/status?fieldManager=k", status, media=MERGE)
    [(*_, subresource, fields)] = [o for o in owners(reply.body) if o[0] == "k"]
    assert subresource == "status"
    assert set(fields) == {"f:status"}


async def test_one_empty_entry_erases_the_record_and_an_empty_list_does_not(http):
    """Clients that know nothing of managedFields cannot lose them; [{}] strips them for good."""
    await http.post(f"{MAPS}?fieldManager=one", config_map(x="1"))
    emptied = {"metadata": {"managedFields": []}}
    kept = await http.send("PATCH", f"{MAPS}/cm", emptied, media=MERGE)
    assert len(owners(kept.body)) == 1
    erase = {"metadata": {"managedFields": [{}]}}
    erased = await http.send("PATCH", f"{MAPS}/cm", erase, media=MERGE)
    assert "managedFields" not in erased.body["metadata"]
    again = await http.send("PATCH", f"{MAPS}/cm", {"data": {"x": "2"}}, media=MERGE)
    assert "managedFields" not in again.body["metadata"]
    applied = config_map(z="1")
    reply = await http.send("PATCH", f"{MAPS}/cm?fieldManager=m", applied, media=APPLY)
    assert [o[0] for o in owners(reply.body)] == ["m", "before-first-apply"]


async def test_a_client_may_write_the_record(http):
    """A record sent back with another manager's name is stored: kubectl migrates that way."""
    made = (await http.post(f"{MAPS}?fieldManager=one", config_map(x="1"))).body
    entry = {**made["metadata"]["managedFields"][0], "manager": "new", "operation": "Apply"}
    reply = await http.send(
        "PATCH",
        f"{MAPS}/cm",
        [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}],
        media="application/json-patch+json",
    )
    assert [(o[0], o[1]) for o in owners(reply.body)] == [("new", "Apply")]
    version = made["metadata"]["resourceVersion"]
    assert reply.body["metadata"]["resourceVersion"] != version
