"""Kubernetes' own gangs over HTTP: gates, the form of 1.37, trees of templates, Jobs' own words."""

from __future__ import annotations

import copy

import pytest

from gpusched.base.errors import ConfigError
from gpusched.devcluster.registry.gangs.features import OFF, all_gates, read_features

GROUP = "/apis/scheduling.k8s.io"
BETA, ALPHA = (f"{GROUP}/{v}/namespaces/default" for v in ("v1beta1", "v1alpha3"))
OLDER = f"{GROUP}/v1alpha2/namespaces/default"
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}
BASIC = {"schedulingPolicy": {"basic": {}}}
TREE = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"


def named(name, **spec):
    return {"metadata": {"name": name}, "spec": spec}


def job(name="j", **spec):
    pods = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return named(name, template={"spec": pods}, **spec)


async def refused(http, path, body):
    """Return the sentence of a 422 without its head."""
    reply = await http.post(path, body)
    assert reply.code == 422, reply.body
    return reply.message.partition(" is invalid: ")[2]


@pytest.fixture
async def newer(start_http):
    """A cluster with every gate of 1.37 open."""
    return await start_http(gangs=all_gates("1.37"))


@pytest.mark.parametrize(
    ("release", "gates", "served", "why"),
    [
        ("off", "", (), ""),
        ("1.36", "WorkloadWithJob=false", ("GangScheduling", "GenericWorkload"), ""),
        ("off", "GenericWorkload=true", ("GenericWorkload",), ""),
        ("off", "WorkloadWithJob=true", (), "WorkloadWithJob needs GenericWorkload"),
        (
            "1.37",
            "GangScheduling=true",
            (),
            "GangScheduling is no gate of gangs in Kubernetes 1.37",
        ),
        ("1.36", "GenericWorkload", (), "GenericWorkload=true or GenericWorkload=false"),
        ("1.40", "", (), "as in Kubernetes 1.36 or 1.37, not 1.40"),
    ],
)
def test_options_say_which_gates_are_open(release, gates, served, why):
    """A release opens all of its gates, single ones are changed, and nonsense is told."""
    if why:
        with pytest.raises(ConfigError, match=why):
            read_features(release, gates)
        return
    assert set(served) <= read_features(release, gates).gates


async def test_nothing_is_served_by_default(start_http):
    """No kinds and no versions: clients see a cluster without gangs."""
    http = await start_http(gangs=OFF)
    assert (await http.get(f"{OLDER}/podgroups")).code == 404
    versions = (await http.get(GROUP)).body["versions"]
    assert [v["version"] for v in versions] == ["v1"]


async def test_fields_behind_closed_gates_are_dropped(start_http):
    """With only the kinds open a group keeps its policy, and has no priority."""
    http = await start_http(gangs=read_features("off", "GenericWorkload=true"))
    spec = {
        **GANG,
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": "PodGroup",
        "priorityClassName": "system-node-critical",
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    }
    made = await http.post(f"{OLDER}/podgroups", named("g", **spec))
    assert made.body["spec"] == {**GANG, "podGroupTemplateRef": None}
    template = {"name": "t", **spec}
    workload = await http.post(f"{OLDER}/workloads", named("w", podGroupTemplates=[template]))
    kept = {"name": "t", **GANG, "schedulingConstraints": None}
    assert workload.body["spec"]["podGroupTemplates"] == [kept]


async def test_both_versions_of_1_37_show_the_same_objects(newer):
    """A group written in one is read in the other, listed and watched by both names."""
    made = await newer.post(f"{ALPHA}/podgroups", named("g", **GANG))
    assert made.body["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    assert made.body["spec"] == {
        **GANG,
        "disruptionMode": {"single": {}},
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
    }
    read = await newer.get(f"{BETA}/podgroups/g")
    assert {**read.body, "apiVersion": ""} == {**made.body, "apiVersion": ""}
    patch = {"metadata": {"labels": {"a": "b"}}}
    patched = await newer.send("PATCH", f"{ALPHA}/podgroups/g", patch, media=MERGE)
    assert patched.body["apiVersion"] == "scheduling.k8s.io/v1alpha3"
    listed = await newer.get(f"{BETA}/podgroups")
    assert [i["metadata"]["labels"] for i in listed.body["items"]] == [{"a": "b"}]
    versions = (await newer.get(GROUP)).body["versions"]
    assert [v["version"] for v in versions] == ["v1", "v1beta1", "v1alpha3"]


async def test_the_size_of_a_gang_may_change_in_1_37(newer):
    """``minCount`` follows, the policy stays what it was; the mode stays too."""
    await newer.post(f"{BETA}/podgroups", named("g", **GANG))

    async def patch(spec):
        return await newer.send("PATCH", f"{BETA}/podgroups/g", {"spec": spec}, media=MERGE)

    grown = await patch({"schedulingPolicy": {"gang": {"minCount": 5}}})
    assert grown.body["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    none = await patch({"schedulingPolicy": {"gang": {"minCount": 0}}})
    assert none.message.endswith("spec.schedulingPolicy.gang.minCount: Required value")
    basic = await patch({"schedulingPolicy": {"gang": None, "basic": {}}})
    assert "spec.schedulingPolicy.basic: Invalid value: null: field is immutable" in basic.message
    assert (
        "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set"
        in basic.message
    )
    mode = await patch({"disruptionMode": {"single": None, "all": {}}})
    assert mode.message.endswith("spec.disruptionMode: Invalid value: null: field is immutable")


async def test_a_put_needs_its_version_in_1_37(newer):
    """Unlike in 1.36, a replacement says what it replaces."""
    made = (await newer.post(f"{BETA}/podgroups", named("g", **GANG))).body
    body = copy.deepcopy(made)
    del body["metadata"]["resourceVersion"]
    assert (await newer.send("PUT", f"{BETA}/podgroups/g", body)).code == 422
    assert (await newer.send("PUT", f"{BETA}/podgroups/g", made)).code == 200


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {**GANG, "disruptionMode": {"single": {}, "all": {}}},
            (
                'spec.disruptionMode: Invalid value: "{single, all}": must specify exactly one of: '
                "`single`, `all`"
            ),
        ),
        (
            {**GANG, "parentCompositePodGroupName": "p"},
            "spec.workloadRef: Required value: must be set when parentCompositePodGroupName is set",
        ),
        (
            {**GANG, "workloadRef": {"workloadName": "w"}},
            "spec.workloadRef.templateName: Required value",
        ),
    ],
)
async def test_groups_of_1_37_are_checked(newer, spec, why):
    """What is wrong with a group is told by its field."""
    assert await refused(newer, f"{BETA}/podgroups", named("g", **spec)) == why


async def test_a_group_preempts_as_its_priority_class_does(newer):
    """Another policy than that of the class is refused, its own is filled in."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    shy = {"metadata": {"name": "shy"}, "value": 7, "preemptionPolicy": "Never"}
    assert (await newer.post(classes, shy)).code == 201
    spec = {**GANG, "priorityClassName": "shy"}
    made = await newer.post(f"{BETA}/podgroups", named("g", **spec, preemptionPolicy="Never"))
    assert made.body["spec"]["priority"] == 7
    other = await newer.post(f"{BETA}/podgroups", named("h", **GANG, preemptionPolicy="Never"))
    assert other.code == 403
    assert "(Never) must not be provided in pod group spec" in other.message


async def test_a_group_may_name_a_workload_that_comes_later_in_1_37(newer):
    """1.36 refused it at admission; 1.37 leaves it to schedulers."""
    link = {"workloadName": "later", "templateName": "t"}
    made = await newer.post(f"{BETA}/podgroups", named("g", **GANG, workloadRef=link))
    assert made.code == 201


async def test_composite_groups_are_served_in_their_one_version(newer):
    """They need a Workload, get defaults, have a status, and their own condition."""
    link = {"workloadName": "w", "templateName": "t"}
    made = await newer.post(f"{ALPHA}/compositepodgroups", named("c", **TREE, workloadRef=link))
    assert made.body["spec"]["disruptionMode"] == {"single": {}}
    assert made.body["spec"]["priority"] == 0
    assert "finalizers" not in made.body["metadata"]
    assert (await newer.get(f"{BETA}/compositepodgroups")).code == 404
    why = await refused(newer, f"{ALPHA}/compositepodgroups", named("d", **TREE))
    assert why == "spec.workloadRef: Required value"
    condition = {
        "type": "CompositePodGroupInitiallyScheduled",
        "status": "False",
        "reason": "Invalid",
        "message": "cycle",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    told = await newer.send(
        "PATCH",
        f"{ALPHA}/compositepodgroups/c/status",
        {"status": {"conditions": [condition]}},
        media=MERGE,
    )
    assert told.body["status"] == {"conditions": [condition]}


def tree(name, *below, depth=0, **more):
    """A template of a composite group, with so many more of its kind below it."""
    whole = {"name": name, **TREE, **more}
    if depth:
        whole["compositePodGroupTemplates"] = [tree(f"{name}-{depth}", *below, depth=depth - 1)]
    else:
        whole["podGroupTemplates"] = [{"name": t, **GANG} for t in below]
    return whole


@pytest.mark.parametrize(
    ("templates", "why"),
    [
        ({}, ('spec: Invalid value: "": must specify one of: `podGroupTemplates`, '
             "`compositePodGroupTemplates`")),
        ({"podGroupTemplates": [{"name": "a", **GANG}],
          "compositePodGroupTemplates": [tree("b", "c")]},
         ('spec: Invalid value: "{podGroupTemplates, compositePodGroupTemplates}": must specify '
         "exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`")),
        ({"compositePodGroupTemplates": [tree("a", "b"), tree("c", "b")]},
         'spec.compositePodGroupTemplates[1].podGroupTemplates[0].name: Duplicate value: "b"'),
        ({"compositePodGroupTemplates": [tree("a")]},
         ('spec.compositePodGroupTemplates[0]: Invalid value: "a": must have at least one child '
         "PodGroupTemplate or CompositePodGroupTemplate")),
        ({"compositePodGroupTemplates": [tree("a", "b", priorityClassName="x")]},
         ("spec: Invalid value: null: all priority and priorityClassName values must be identical, "
         "detected multiple values")),
        ({"podGroupTemplates": [{"name": "a", **GANG}, {"name": "b", **GANG, "priority": 3}]},
         "spec: Invalid value: null: detected multiple priority configurations"),
    ],
)  # fmt: skip
async def test_trees_of_templates_are_checked(newer, templates, why):
    """Names, depth, children and priorities of a Workload's templates."""
    assert await refused(newer, f"{BETA}/workloads", named("w", **templates)) == why


async def test_a_tree_of_templates_has_four_levels_at_most(newer):
    """Three levels of groups above the leaves are taken, a fourth is refused."""
    deep = [tree("a", "leaf", depth=2)]
    made = await newer.post(f"{BETA}/workloads", named("w", compositePodGroupTemplates=deep))
    assert made.code == 201
    deeper = [tree("a", "leaf", depth=3)]
    why = await refused(newer, f"{BETA}/workloads", named("x", compositePodGroupTemplates=deeper))
    assert why.startswith("spec.compositePodGroupTemplates[0]: Invalid value: [{")
    assert why.endswith(": maximum template hierarchy depth is 4")


async def test_templates_of_a_workload_stay_but_for_their_size(newer):
    """None may be added or removed, and ``minCount`` may change, in 1.37."""
    one = {"name": "a", **GANG}
    made = await newer.post(f"{BETA}/workloads", named("w", podGroupTemplates=[one]))
    path = f"{BETA}/workloads/w"
    for templates, why in (
        (
            [one, {"name": "b", **GANG}],
            "spec.podGroupTemplates[1]: Forbidden: item may not be added",
        ),
        ([{"name": "b", **GANG}], "spec.podGroupTemplates: Forbidden: item may not be removed"),
    ):
        reply = await newer.send(
            "PATCH", path, {"spec": {"podGroupTemplates": templates}}, media=MERGE
        )
        assert (reply.code, why in reply.message) == (422, True), reply.message
    grown = [{"name": "a", "schedulingPolicy": {"gang": {"minCount": 9}}}]
    reply = await newer.send("PATCH", path, {"spec": {"podGroupTemplates": grown}}, media=MERGE)
    assert reply.code == 200
    assert made.body["spec"]["podGroupTemplates"][0]["schedulingConstraints"] is None


@pytest.mark.parametrize(
    ("scheduling", "why"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 3}}},
         ("spec.scheduling.schedulingPolicy.gang.minCount: Invalid value: 3: must not be greater "
         "than parallelism (2)")),
        ({"schedulingPolicy": {}},
         'spec.scheduling.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'),
        ({"disruptionMode": {"all": {}}},
         ('spec.scheduling.disruptionMode: Invalid value: "": the disruptionMode `all` is not '
         "supported with the Basic scheduling policy")),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
         "spec.scheduling.schedulingConstraints.topology: Too many: 2: must have at most 1 item"),
    ],
)  # fmt: skip
async def test_scheduling_of_a_job_is_checked(newer, scheduling, why):
    """A Job of 1.37 says what group its pods are, and is refused where that cannot be."""
    body = job(parallelism=2, completions=2, scheduling=scheduling)
    assert await refused(newer, JOBS, body) == why


async def test_scheduling_of_a_job_may_change_in_size_only(newer):
    """It may not be set later, nor cleared, nor become another policy."""
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "suspend": True}
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    await newer.post(JOBS, job("a", **spec, scheduling=gang))
    await newer.post(JOBS, job("b", **spec))

    async def patch(name, scheduling):
        body = {"spec": {"scheduling": scheduling}}
        return await newer.send("PATCH", f"{JOBS}/{name}", body, media=MERGE)

    assert (await patch("a", {"schedulingPolicy": {"gang": {"minCount": 3}}})).code == 200
    cleared = await patch("a", None)
    assert cleared.message.endswith(
        "spec.scheduling: Invalid value: null: field cannot be cleared once set"
    )
    other = await patch("a", {"schedulingPolicy": {"gang": None, "basic": {}}})
    assert "the basic/gang policy variant is immutable after creation" in other.message
    late = await patch("b", gang)
    assert late.message.endswith(
        "spec.scheduling: Invalid value: null: field cannot be set once created"
    )


async def test_scheduling_of_a_job_is_no_field_of_1_36_and_forbidden_with_its_gate_closed(
    start_http,
):
    """Unknown in one release, and refused by the other until the gate is open."""
    body = job(parallelism=2, scheduling={"schedulingPolicy": {"basic": {}}})
    older = await start_http(gangs=all_gates("1.36"))
    strict = await older.post(f"{JOBS}?fieldValidation=Strict", body)
    assert 'unknown field "spec.scheduling"' in strict.message
    closed = await start_http(gangs=read_features("1.37", "WorkloadWithJob=false"))
    assert await refused(closed, JOBS, body) == "spec.scheduling: Forbidden"
    document = await closed.get("/openapi/v3/apis/batch/v1")
    schemas = document.body["components"]["schemas"]
    assert "scheduling" in schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (
            f"{OLDER}/podgroups",
            named("g", schedulingPolicy="gang"),
            (
                "json: cannot unmarshal string into Go struct field PodGroupSpec.spec.schedulingPolicy "
                "of type v1alpha2.PodGroupSchedulingPolicy"
            ),
        ),
        (
            f"{OLDER}/podgroups",
            {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload"},
            "converting (v1alpha2.Workload) to (scheduling.PodGroup): unknown conversion",
        ),
        (
            JOBS,
            {"apiVersion": "batch/v1", "kind": "CronJob"},
            "converting (v1.CronJob) to (batch.Job): unknown conversion",
        ),
    ],
)
async def test_decode_errors_name_types_by_their_package(start_http, path, body, why):
    """As Kubernetes 1.36.2 was seen to: the version stands for the package, not the group."""
    http = await start_http(gangs=all_gates("1.36"))
    reply = await http.post(path, body)
    assert (reply.code, reply.message.partition(": ")[2]) == (400, why)


async def test_what_a_client_says_of_generations_stays_in_kinds_without(start_http):
    """A group keeps the number it was made with, and its deletion counts as a change of it."""
    http = await start_http(gangs=all_gates("1.36"))
    meta = {"name": "g", "generation": 7, "finalizers": ["example.com/x"]}
    made = await http.post(f"{OLDER}/podgroups", {"metadata": meta, "spec": GANG})
    assert made.body["metadata"]["generation"] == 7
    found = await http.delete(f"{OLDER}/podgroups")
    shown = [item["metadata"] for item in found.body["items"]]
    assert [("deletionTimestamp" in m, m["generation"]) for m in shown] == [(False, 7)]
    assert (await http.get(f"{OLDER}/podgroups/g")).body["metadata"]["generation"] == 8


async def test_a_name_that_is_too_long_is_counted_in_two_units(start_http):
    """Declared rules say bytes, those written by hand say characters."""
    http = await start_http(gangs=all_gates("1.36"))
    link = {"workload": {"workloadName": "w" * 254, "podGroupTemplateName": "t"}}
    why = await refused(http, f"{OLDER}/podgroups", named("g", **GANG, podGroupTemplateRef=link))
    assert why.endswith("must be no more than 253 bytes")
    why = await refused(http, f"{OLDER}/podgroups", named("g" * 254, **GANG))
    assert why.endswith("must be no more than 253 characters")
