"""Server-side apply and managedFields, as recorded (W8, W9) and as laws.

``data/applies.json`` holds the recorded applies of status-and-patch and custom-resources.
"""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.devcluster.apiserver.patching.field_sets import from_fields_v1, to_fields_v1
from gpusched.devcluster.apiserver.patching.managed_fields import track_create, track_update
from gpusched.devcluster.apiserver.patching.server_side_apply import (
    ApplyConflict,
    TypedObjectError,
    apply_object,
)
from gpusched.devcluster.schema.schema import load_builtin, structural

RECORDED = json.loads((Path(__file__).parent / "data/applies.json").read_text())
WIDGET_RAW = next(
    step["request"]["body"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in json.loads((Path(__file__).parent / "data/custom-resources.json").read_text())[
        "steps"
    ]
    if "request" in step
)
CONFIG_MAP = load_builtin("", "v1", "ConfigMap")
POD = load_builtin("", "v1", "Pod")
DEPLOYMENT = load_builtin("apps", "v1", "Deployment")
WIDGET = structural(WIDGET_RAW)
T1, T2 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm1"}, "data": data}


def put_on(live, manager, config, *, schema=CONFIG_MAP, now=T1, **options):
    return apply_object(live, config, schema=schema, manager=manager, now=now, **options)


def owners(obj):
    """Manager and operation to the paths it owns."""
    return {
        (e["manager"], e["operation"]): from_fields_v1(e["fieldsV1"])
        for e in obj["metadata"].get("managedFields", ())
    }


def test_the_recorded_story_of_a_config_map():
    """W8, W9: create, conflict, force, another field, dropped field, value by value."""
    live = None
    for step in RECORDED["config-map"]:
        config = json.loads(step["body"])
        answer = step["response"]
        if answer["kind"] == "Status":
            with pytest.raises(ApplyConflict) as conflict:
                put_on(live, step["manager"], config)
            assert str(conflict.value) == answer["message"]
            assert conflict.value.causes == answer["details"]["causes"]
            continue
        live = put_on(live, step["manager"], config, force=step["force"])
        assert CONFIG_MAP.prune(live)["data"] == answer["data"]


def test_the_recorded_story_of_a_custom_resource():
    """W9: keyed lists keep every manager's elements, in order of arrival."""
    live = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    live["spec"] = {"size": 7, "color": "red"}
    for step in RECORDED["widget"]:
        live = put_on(live, step["manager"], json.loads(step["body"]), schema=WIDGET)
        assert live["spec"]["items"] == step["response"]["spec"]["items"]


def test_conditions_merge_by_type():
    """W9: applied conditions meet the ones that are there by their type."""
    live = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False"}]},
    }
    new = put_on(live, "s", config, schema=POD, subresource="status", reset=[("f:spec",)])
    assert [c["type"] for c in new["status"]["conditions"]] == ["Ready", "PodScheduled"]
    (entry,) = [e for e in new["metadata"]["managedFields"] if e["manager"] == "s"]
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {
        "f:status": {
            "f:conditions": {'k:{"type":"PodScheduled"}': {".": {}, "f:status": {}, "f:type": {}}}
        }
    }


def test_fields_outside_the_request_are_ignored():
    """An apply to the object cannot set its status."""
    config = {**config_map(a="1"), "status": {"x": 1}}
    schema = structural({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    new = put_on(None, "one", config, schema=schema, reset=[("f:status",)])
    assert "status" not in new


def test_agreeing_managers_share_a_field():
    """The same value is no conflict; the field goes when the last owner drops it."""
    live = put_on(None, "one", config_map(a="1"))
    live = put_on(live, "two", config_map(a="1"))
    live = put_on(live, "one", config_map())
    assert live["data"] == {"a": "1"}
    live = put_on(live, "two", config_map())
    assert live["data"] == {}


def test_nothing_new_changes_nothing():
    """The same apply again is the stored object itself, times included."""
    live = put_on(None, "one", config_map(a="1"))
    assert put_on(live, "one", config_map(a="1"), now=T2) is live


def test_several_conflicts_are_told_by_manager():
    """All conflicts of an apply are listed."""
    live = put_on(None, "one", config_map(a="1", b="1"))
    live = put_on(live, "two", config_map(c="1"))
    with pytest.raises(ApplyConflict) as conflict:
        put_on(live, "three", config_map(a="2", b="2", c="2"))
    assert str(conflict.value) == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\n'
        'conflicts with "two":\n- .data.c'
    )
    assert [c["field"] for c in conflict.value.causes] == [".data.a", ".data.b", ".data.c"]


def test_objects_written_without_a_record():
    """Fields that were there before the first apply belong to nobody's apply."""
    live = {**config_map(a="1"), "metadata": {"name": "cm1", "creationTimestamp": T1}}
    with pytest.raises(ApplyConflict, match='conflict with "before-first-apply" using v1'):
        put_on(live, "one", config_map(a="2"))
    new = put_on(live, "one", config_map(b="2"))
    assert new["data"] == {"a": "1", "b": "2"}


def test_plain_writes_are_recorded():
    """A create owns what it sets; a later patch owns what it changes; both can conflict."""
    made = config_map(a="1", b="1")
    made["metadata"] = {
        **made["metadata"],
        "managedFields": track_create(made, schema=CONFIG_MAP, manager="k", now=T1),
    }
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "k",
            "operation": "Update",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
        }
    ]
    patched = copy.deepcopy(made) | {"data": {"a": "2", "c": "3"}}
    patched = track_update(made, patched, schema=CONFIG_MAP, manager="p", now=T2)
    assert owners(patched) == {
        ("k", "Update"): {("f:data",)},
        ("p", "Update"): {("f:data", "f:a"), ("f:data", "f:c")},
    }
    with pytest.raises(ApplyConflict, match=r'conflict with "p" using v1: \.data\.a'):
        put_on(patched, "p", config_map(a="9"))


def test_a_plain_write_takes_fields_from_appliers():
    """An update never conflicts; the applier loses the field and meets a conflict later."""
    live = put_on(None, "one", config_map(a="1"))
    edited = track_update(
        live, {**live, "data": {"a": "2"}}, schema=CONFIG_MAP, manager="edit", now=T2
    )
    assert owners(edited) == {("edit", "Update"): {("f:data", "f:a")}}
    with pytest.raises(ApplyConflict):
        put_on(edited, "one", config_map(a="1"))


def test_updates_beyond_ten_managers_are_joined():
    """The record stays small whoever writes."""
    obj = config_map()
    for n in range(15):
        new = {**obj, "data": {**obj["data"], f"k{n}": "1"}}
        now = f"2026-01-01T00:00:{n:02d}Z"
        obj = track_update(obj, new, schema=CONFIG_MAP, manager=f"m{n}", now=now)
    assert len(owners(obj)) == 10
    everything = frozenset().union(*owners(obj).values())
    assert {("f:data", f"f:k{n}") for n in range(15)} <= everything


def deployment(*containers, **spec):
    template = {"spec": {"containers": [dict(c) for c in containers]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {**spec, "template": template},
    }


def containers_of(obj):
    return [c["name"] for c in obj["spec"]["template"]["spec"]["containers"]]


def test_dropped_elements_go_with_their_defaults():
    """A container that its only owner drops goes whole, with what defaults had added."""
    a, b = {"name": "a", "image": "i"}, {"name": "b", "image": "i"}
    live = put_on(None, "one", deployment(a, b), schema=DEPLOYMENT)
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"
    live = put_on(live, "one", deployment(a), schema=DEPLOYMENT)
    assert containers_of(live) == ["a"]
    assert live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"


def test_elements_that_others_use_stay():
    """A container stays, without the dropped field, while another manager owns a part of it."""
    live = put_on(None, "one", deployment({"name": "a", "image": "i"}), schema=DEPLOYMENT)
    live = put_on(live, "two", deployment({"name": "a", "tty": True}), schema=DEPLOYMENT)
    live = put_on(live, "one", deployment(), schema=DEPLOYMENT)
    assert live["spec"]["template"]["spec"]["containers"] == [{"name": "a", "tty": True}]


def test_ports_are_told_apart_by_number_and_protocol():
    """Keys with defaults need not be written."""

    def ports(*numbers):
        return deployment(
            {"name": "a", "ports": [{"containerPort": n, "hostPort": n} for n in numbers]}
        )

    live = put_on(None, "one", ports(1), schema=DEPLOYMENT)
    live["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    live = put_on(live, "one", ports(1, 2), schema=DEPLOYMENT)
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert [p["containerPort"] for p in container["ports"]] == [1, 2]
    with pytest.raises(ApplyConflict) as conflict:
        put_on(live, "two", deployment({"name": "a", "ports": [
            {"containerPort": 1, "hostPort": 9}]}), schema=DEPLOYMENT)  # fmt: skip
    assert conflict.value.causes[0]["field"] == (
        '.spec.template.spec.containers[name="a"].ports[containerPort=1,protocol="TCP"].hostPort'
    )


def test_atomic_values_are_owned_whole():
    """An atomic list or map changes as one."""
    live = put_on(None, "one", deployment({"name": "a", "args": ["x"]}), schema=DEPLOYMENT)
    with pytest.raises(ApplyConflict, match=r"containers\[name=\"a\"\]\.args"):
        put_on(live, "two", deployment({"name": "a", "args": ["y"]}), schema=DEPLOYMENT)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (deployment(replicass=1), ".spec.replicass: field not declared in schema"),
        (
            deployment({"name": "a"}, {"name": "a"}),
            '.spec.template.spec.containers: duplicate entries for key [name="a"]',
        ),
        (
            deployment({"image": "i"}),
            (
                ".spec.template.spec.containers: element 0: associative list with keys has an "
                'element that omits all key fields ["name"] (and doesn\'t have default values for any key fields)'
            ),
        ),
    ],
)
def test_objects_that_do_not_fit(config, why):
    """An applied object with unknown fields or unclear lists is refused with its place."""
    with pytest.raises(TypedObjectError) as fault:
        put_on(None, "one", config, schema=DEPLOYMENT)
    assert str(fault.value) == why


keys = st.sampled_from("abc")
data = st.dictionaries(keys, st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), data), max_size=6))
def test_forced_applies_give_the_union_of_owned_fields(steps):
    """Whatever the history: every key is owned, and the last apply of a key is its value."""
    live, wanted = None, {}
    for manager, values in steps:
        kept = copy.deepcopy(live)
        new = put_on(live, manager, config_map(**values), force=True)
        assert live == kept
        live = new
        wanted = {m: {k: v for k, v in d.items() if values.get(k, v) == v}
                  for m, d in wanted.items()}  # fmt: skip
        wanted[manager] = values
        expected = {k: v for d in wanted.values() for k, v in d.items()}
        assert live.get("data", {}) == expected
        owned = frozenset().union(*owners(live).values())
        assert {("f:data", f"f:{k}") for k in expected} <= owned


@given(st.sets(st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":1}', "v:1"]), min_size=1,
                        max_size=3).map(tuple), max_size=6))  # fmt: skip
def test_sets_survive_storage(paths):
    """A set of fields reads back from managedFields as it was."""
    assert from_fields_v1(to_fields_v1(frozenset(paths))) == paths
