"""Updates, patches and apply: versions, subresources, generations and field managers."""

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "apply-patch+yaml"


async def test_status_and_spec_are_written_through_their_own_doors(http):
    """Status sent to the pod and labels of no status are ignored where they do not belong."""
    await http.create_pod("p")
    main = await http.patch(
        f"{PODS}/p", {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}
    )
    assert (main.body["status"]["phase"], main.body["metadata"]["labels"]) == (
        "Pending",
        {"a": "b"},
    )
    sub = await http.patch(
        f"{PODS}/p/status", {"spec": {"priority": 7}, "status": {"phase": "Running"}}
    )
    assert (sub.body["status"]["phase"], sub.body["spec"]["priority"]) == ("Running", 0)


async def test_conditions_merge_by_type_newest_first(http):
    """A strategic merge adds a condition in front and keeps the others."""
    await http.create_pod("p")
    for kind in ("PodScheduled", "Ready"):
        body = {"status": {"conditions": [{"type": kind, "status": "False"}]}}
        reply = await http.patch(f"{PODS}/p/status", body, "strategic-merge-patch+json")
    assert [c["type"] for c in reply.body["status"]["conditions"]] == ["Ready", "PodScheduled"]


async def test_a_write_of_nothing_makes_no_version(http):
    """An empty patch and a PUT of the same object leave the version alone."""
    made = await http.create_pod("p")
    same = await http.patch(f"{PODS}/p", {})
    again = await http.put(f"{PODS}/p", made)
    versions = {r["metadata"]["resourceVersion"] for r in (made, same.body, again.body)}
    assert len(versions) == 1


async def test_an_old_version_is_a_conflict(http):
    """PUT and PATCH with a version that is no longer stored are refused."""
    made = await http.create_pod("p")
    await http.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "1"}}})
    stale = await http.put(f"{PODS}/p", made)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    patch = {"metadata": {"resourceVersion": "1", "labels": {"q": "r"}}}
    assert (await http.patch(f"{PODS}/p", patch)).code == 409


async def test_what_a_pod_is_cannot_be_changed(http):
    """Scheduler, node and uid are sealed; lifting a gate is allowed and counts."""
    await http.create_pod("p", schedulingGates=[{"name": "example.com/wait"}])
    for spec in ({"schedulerName": "other"}, {"nodeName": "n1"}):
        reply = await http.patch(f"{PODS}/p", {"spec": spec})
        assert (reply.code, reply.body["details"]["causes"][0]["field"]) == (422, "spec")
    assert (await http.patch(f"{PODS}/p", {"metadata": {"uid": "x"}})).code == 422
    lift = [{"op": "remove", "path": "/spec/schedulingGates"}]
    lifted = await http.patch(f"{PODS}/p", lift, "json-patch+json")
    assert (lifted.code, lifted.body["metadata"]["generation"]) == (200, 2)


async def test_a_json_patch_that_does_not_fit_changes_nothing(http):
    """A failed test is 422 with empty details, a malformed patch 400."""
    await http.create_pod("p")
    test = [{"op": "test", "path": "/metadata/name", "value": "z"}]
    failed = await http.patch(f"{PODS}/p", test, "json-patch+json")
    assert (failed.code, failed.body["details"]) == (422, {})
    assert (await http.patch(f"{PODS}/p", {"no": "list"}, "json-patch+json")).code == 400


async def test_two_managers_contend_for_a_field(http):
    """The second manager meets a conflict, takes over by force, and the first may let go."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    assert (await http.patch(f"{MAPS}/cm?fieldManager=one", body, APPLY)).code == 201
    other = {**body, "data": {"a": "2"}}
    conflict = await http.patch(f"{MAPS}/cm?fieldManager=two", other, APPLY)
    assert conflict.code == 409
    assert conflict.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    forced = await http.patch(f"{MAPS}/cm?fieldManager=two&force=true", other, APPLY)
    assert forced.body["data"] == {"a": "2"}
    dropped = await http.patch(f"{MAPS}/cm?fieldManager=two", {**body, "data": {}}, APPLY)
    assert "data" not in dropped.body
    nobody = await http.patch(f"{MAPS}/cm", body, APPLY)
    assert nobody.body["details"]["causes"][0]["field"] == "fieldManager"


async def test_unknown_fields_are_dropped_with_a_warning_or_refused(http):
    """Warn is the default; Strict refuses; Ignore says nothing."""
    body = {
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nonsense": 1},
    }
    strict = await http.post(f"{PODS}?fieldValidation=Strict", body)
    assert strict.code == 400
    assert strict.message.endswith('strict decoding error: unknown field "spec.nonsense"')
    warned = await http.post(f"{PODS}?dryRun=All", body)
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.nonsense\\""'
    assert "nonsense" not in warned.body["spec"]
    silent = await http.post(f"{PODS}?fieldValidation=Ignore", body)
    assert (silent.code, "Warning" in silent.headers) == (201, False)


async def test_both_event_groups_are_one_store(http):
    """An event written in the newer group is read in the older one under its own names."""
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "gpusched",
        "reportingInstance": "gpusched-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "bound",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }
    made = await http.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert made.code == 201, made.body
    core = (await http.get("/api/v1/namespaces/default/events/e")).body
    assert (core["message"], core["involvedObject"]["name"]) == ("bound", "p")
    assert core["reportingComponent"] == "gpusched"


async def test_a_lease_is_taken_by_the_one_who_saw_it_last(http):
    """A PUT with the version of an older lease loses."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    made = (await http.post(leases, {"metadata": {"name": "l"}, "spec": spec})).body
    made["spec"]["holderIdentity"] = "b"
    assert (await http.put(f"{leases}/l", made)).code == 200
    made["spec"]["holderIdentity"] = "c"
    assert (await http.put(f"{leases}/l", made)).code == 409


async def test_a_deleted_lease_is_not_revived_by_its_holder(http):
    """A PUT of a lease makes a missing one, unless it names the uid of the one deleted."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = (await http.put(f"{leases}/l", {"metadata": {"name": "l"}, "spec": {}})).body
    await http.send("DELETE", f"{leases}/l")
    refused = await http.put(f"{leases}/l", made)
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert (await http.get(f"{leases}/l")).code == 404
    del made["metadata"]["uid"]
    assert (await http.put(f"{leases}/l", made)).code == 201
