"""Strategic merge patch by the schema of pods, as recorded in status-and-patch."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.devcluster.apiserver.patching.strategic import PatchError, strategic_merge
from gpusched.devcluster.schema.schema import load_builtin

POD = load_builtin("", "v1", "Pod")

names = st.sampled_from("abcde")
containers = st.lists(
    st.fixed_dictionaries({"name": names, "image": st.sampled_from(["i", "j"])}),
    unique_by=lambda c: c["name"],
    max_size=5,
)
pods = st.builds(
    lambda labels, cs, fin: {
        "metadata": {"labels": labels, "finalizers": fin},
        "spec": {"containers": cs},
    },
    st.dictionaries(names, names, max_size=3),
    containers,
    st.lists(names, unique=True, max_size=4),
)


def merge(doc, patch):
    return strategic_merge(doc, patch, POD)


def containers_of(*pairs):
    return {"spec": {"containers": [{"name": n, "image": i} for n, i in pairs]}}


@given(pods)
def test_identity(pod):
    """A pod merged with itself, or with nothing, is itself, order included."""
    assert merge(pod, pod) == pod
    assert merge(pod, {}) == pod


@given(pods, pods)
def test_merge_is_idempotent_and_pure(pod, patch):
    """The same patch twice is the patch once, and inputs survive."""
    kept = copy.deepcopy((pod, patch))
    once = merge(pod, patch)
    assert merge(once, patch) == once
    assert (pod, patch) == kept


@given(pods, pods)
def test_elements_are_told_apart_by_name(pod, patch):
    """Every name of either side is there once, with the patch's image where it gives one."""
    merged = merge(pod, patch)["spec"]["containers"]
    given_ = {c["name"]: c["image"] for c in patch["spec"]["containers"]}
    had = {c["name"]: c["image"] for c in pod["spec"]["containers"]}
    assert {c["name"]: c["image"] for c in merged} == {**had, **given_}
    assert len(merged) == len({**had, **given_})


def test_new_conditions_come_first():
    """W1: an element new to a keyed list stands before the ones the patch does not name."""
    pod = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    patched = merge(pod, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    assert [c["type"] for c in patched["status"]["conditions"]] == ["Ready", "PodScheduled"]


def test_named_elements_keep_their_place():
    """Patching an element that exists does not move it."""
    pod = containers_of(("a", "1"), ("b", "1"), ("c", "1"))
    patched = merge(pod, containers_of(("b", "2")))
    assert patched == containers_of(("a", "1"), ("b", "2"), ("c", "1"))


def test_delete_directive_and_element_order():
    """$patch: delete removes one element; $setElementOrder arranges the rest."""
    pod = containers_of(("a", "1"), ("b", "1"), ("c", "1"))
    patch = {
        "spec": {
            "containers": [{"name": "a", "$patch": "delete"}],
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
        }
    }
    assert merge(pod, patch) == containers_of(("c", "1"), ("b", "1"))


def test_order_without_a_list():
    """$setElementOrder alone rearranges."""
    pod = containers_of(("a", "1"), ("b", "1"))
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert merge(pod, patch) == containers_of(("b", "1"), ("a", "1"))


def test_replace_directives():
    """$patch: replace takes the patch's map or list as it is."""
    pod = {"metadata": {"labels": {"a": "1"}}, **containers_of(("a", "1"))}
    patch = {
        "metadata": {"labels": {"$patch": "replace", "b": "2"}},
        "spec": {"containers": [{"$patch": "replace"}, {"name": "z", "image": "2"}]},
    }
    assert merge(pod, patch) == {"metadata": {"labels": {"b": "2"}}, **containers_of(("z", "2"))}


def test_primitive_lists():
    """Finalizers merge as a set; $deleteFromPrimitiveList takes away."""
    pod = {"metadata": {"finalizers": ["a", "b"]}}
    assert merge(pod, {"metadata": {"finalizers": ["b", "c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    assert merge(pod, {"metadata": {"finalizers": ["c"]}}) == {
        "metadata": {"finalizers": ["c", "a", "b"]}
    }
    gone = merge(pod, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert gone == {"metadata": {"finalizers": ["b"]}}


def test_atomic_lists_are_replaced():
    """A list without a merge strategy is one value: tolerations, args."""
    pod = {"spec": {"tolerations": [{"key": "a"}]}}
    assert merge(pod, {"spec": {"tolerations": [{"key": "b"}]}}) == {
        "spec": {"tolerations": [{"key": "b"}]}
    }


def test_retain_keys():
    """$retainKeys drops what it does not list, so one kind of volume replaces another."""
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {
        "spec": {
            "volumes": [
                {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
            ]
        }
    }
    assert merge(pod, patch) == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}


def test_nulls_remove_and_are_never_stored():
    """A null removes; where nothing was it leaves nothing."""
    pod = {"metadata": {"labels": {"a": "1"}}}
    assert merge(pod, {"metadata": {"labels": {"a": None}, "annotations": {"x": None}}}) == {
        "metadata": {"labels": {}, "annotations": {}}
    }


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"containers": [{"name": "a", "$patch": "spin"}]}},
        {"spec": {"$patch": "spin"}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$setElementOrder/containers": "x"}},
        {"spec": {"$deleteFromPrimitiveList/containers": "x"}},
    ],
)
def test_malformed_patches(patch):
    """A directive that makes no sense is the client's mistake."""
    with pytest.raises(PatchError) as fault:
        merge(containers_of(("a", "1")), patch)
    assert fault.value.kind == "malformed"
