"""Bad input: one object that cannot be believed is rejected alone, by name, and still charged."""

from __future__ import annotations

import copy

import pytest

from gpusched.api.meta.identity import ObjectKey, Rejected, RejectedPodUsage
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.codecs import CODECS
from gpusched.base import limits
from gpusched.base.errors import UndecodableObject

NEED = Resources.of(
    {"cpu": 7500, "memory": 64 * 2**30, "nvidia.com/gpu": 4000, "pods": 1},
)
DEEP = "[" * 10_000 + "]" * 10_000  # the parser gives up at a thousand


def put(item, path, value):
    """A copy of the object with one value elsewhere."""
    made = copy.deepcopy(item)
    *parents, last = path.split("/")
    place = made
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[last] = value
    return made


REQUESTS = "spec/containers/0/resources/requests"
BAD_PODS = [
    ("metadata/name", 7, "metadata.name", "Expected str, got int"),
    ("metadata/uid", "", "metadata.uid", "is missing"),
    ("metadata/namespace", "", "metadata.namespace", "is missing"),
    ("metadata/labels", {"a": 1}, "metadata.labels[...]", "Expected str"),
    ("metadata/labels", [], "metadata.labels", "Expected object"),
    ("metadata/creationTimestamp", "yesterday", "time", "'yesterday' is not an RFC 3339 time"),
    ("spec", None, "spec", "Expected object, got null"),
    ("spec/priority", 10**30, "spec.priority", "Expected int <= 2147483647"),
    ("spec/priority", 1.5, "spec.priority", "got float"),
    ("spec/containers", {}, "spec.containers", "Expected array"),
    ("spec/containers", [None], "spec.containers[]", "got null"),
    ("spec/tolerations", "all", "spec.tolerations", "Expected array"),
    ("spec/nodeSelector", {"a": None}, "spec.nodeSelector[...]", "got null"),
    (
        "spec/affinity",
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]
                }
            }
        },
        "spec.affinity.nodeAffinity",
        "operator 'Like' is not known",
    ),
    ("status/phase", "Asleep", "status.phase", "'Asleep' is no phase of a pod"),
    ("metadata/labels/batch.kubernetes.io~job-completion-index", "x", "job-completion-index", "x"),
    (f"{REQUESTS}/cpu", "1e30", "spec.containers[].resources.requests", "limit 2**53"),
    (f"{REQUESTS}/cpu", "9223372036854775808", "spec.containers[].resources.requests", "limit"),
    (f"{REQUESTS}/cpu", "-1", "spec.containers[].resources.requests", "is negative"),
    (f"{REQUESTS}/cpu", "\u0661\u0662", "spec.containers[].resources.requests", "not a quantity"),
    (f"{REQUESTS}/cpu", "1" * 100_000, "spec.containers[].resources.requests", "not a quantity"),
    (f"{REQUESTS}/cpu", None, "spec.containers[].resources.requests[...]", "got null"),
    (f"{REQUESTS}/bad\nname", "x", "spec.containers[].resources.requests", "bad\\nname"),
]


@pytest.mark.parametrize("case", BAD_PODS, ids=range(len(BAD_PODS)))
def test_one_bad_pod_is_rejected_alone(wire, pod, case):
    """Its field is named, the reason is one short line, its neighbours are not touched."""
    path, value, field, says = case
    bad = put(pod, path, value)
    if "~" in path:
        bad = copy.deepcopy(pod)
        bad["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = value
    good = put(pod, "metadata/name", "good")
    before, read, after = wire.listed("pods", good, bad, good)
    assert isinstance(before, Pod)
    assert before == after
    assert isinstance(read, Rejected)
    assert read.kind == "Pod"
    assert field in read.field
    assert says in read.why
    assert read.message.isprintable()
    assert len(read.message) < 800
    assert read.resource_version == "1201"
    assert CODECS["pods"].decode_event(wire.event("MODIFIED", bad)).item == read


def test_one_bad_pod_in_a_page_of_500(wire, pod):
    """499 pods arrive, in order, and one rejection that says where it is."""
    pods = [put(pod, "metadata/name", f"p-{number}") for number in range(500)]
    pods[250] = put(pods[250], "spec/containers", "none")
    items = wire.listed("pods", *pods)
    assert [item.key.name for item in items] == [f"p-{number}" for number in range(500)]
    assert [number for number, item in enumerate(items) if isinstance(item, Rejected)] == [250]


def test_sixty_thousand_labels(wire, pod):
    """A pending pod is refused for it; a bound one still takes what it asks for."""
    many = {f"k{number}": "v" for number in range(60_000)}
    pending = wire.read("pods", put(pod, "metadata/labels", many))
    assert pending.field == "metadata.labels"
    assert pending.why == f"has 60000 labels, more than {limits.LABELS_MAX}"
    assert pending.charge is None
    bound = put(put(pod, "metadata/labels", many), "spec/nodeName", "n1")
    assert wire.read("pods", bound).charge == RejectedPodUsage("n1", NEED)
    done = put(bound, "status/phase", "Succeeded")
    assert wire.read("pods", done).charge is None


def test_a_rejected_pod_keeps_the_slots_of_its_binding(wire, pod):
    """What was written with the binding is read, unless it is not as many slots as it asks for."""
    bad = put(put(pod, "spec/nodeName", "n1"), "metadata/labels", {"gpusched.io/role": 3})
    for notes, slots in (
        ({"gpusched.io/slots": "1,3,5,7", "gpusched.io/fence": "7"}, 0b10101010),
        ({"gpusched.io/slots": "1,3,5,7"}, 0b10101010),
        ({"gpusched.io/slots": "1,3"}, 0),
        ({"gpusched.io/slots": "0,1,2,3,4"}, 0),
        ({"gpusched.io/slots": "1,1", "gpusched.io/fence": "7"}, 0),
        ({"gpusched.io/slots": 5, "gpusched.io/fence": "7"}, 0),
    ):
        read = wire.read("pods", put(bad, "metadata/annotations", notes))
        found = (read.charge.node, read.charge.requests, read.charge.slots)
        assert found == ("n1", NEED, slots), notes


def test_as_many_labels_as_allowed(wire, pod):
    """The bound itself is fine."""
    many = {f"k{number}": "v" for number in range(limits.LABELS_MAX)}
    assert wire.read("pods", put(pod, "metadata/labels", many)).labels == many


def test_annotations_of_others_are_not_kept(wire, pod):
    """256 KiB of them change nothing."""
    plain = wire.read("pods", pod)
    fat = put(pod, "metadata/annotations/other", "x" * 2**18)
    assert wire.read("pods", fat) == plain


def test_an_amount_beyond_reading_fills_its_node_with_that_alone(wire, pod):
    """Of a bound pod; all else that it asks for is charged as it is."""
    bound = put(put(pod, "spec/nodeName", "n1"), f"{REQUESTS}/cpu", "lots")
    read = wire.read("pods", bound)
    assert read.charge.requests.get("cpu") == limits.QUANTITY_MAX
    for name in ("nvidia.com/gpu", "memory"):
        assert read.charge.requests.get(name) == NEED.get(name) > 0


def test_a_bound_pod_beyond_reading_fills_its_node(wire, pod):
    """When not even the containers can be read, the charge says so."""
    bound = put(put(pod, "spec/nodeName", "n1"), "spec/containers", "none")
    assert wire.read("pods", bound).charge == RejectedPodUsage("n1", None)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("managedFields", "is nested too deeply"),
        ("labels", "Expected object | null, got array"),
        ("name", "Expected str, got array"),
    ],
)
def test_deep_nesting(wire, pod, part, says):
    """Nesting that exhausts the parser hides neither the neighbours nor who it was."""
    deep = put(pod, f"metadata/{part}", "DEEP")
    deep = put(deep, "spec/nodeName", "n1")
    body = wire.page("pods", pod, deep, pod).replace(b'"DEEP"', DEEP.encode())
    first, read, last = CODECS["pods"].decode_page(body).items
    assert isinstance(first, Pod)
    assert first == last
    assert read.why == says
    assert read.key == ObjectKey("team-a", "" if part == "name" else "train-0-abcde")
    assert (read.uid, read.generation) == ("9f3c7a10-0000-4000-8000-000000000001", 1)
    assert read.charge == RejectedPodUsage("n1", NEED)
    line = wire.event("ADDED", deep).replace(b'"DEEP"', DEEP.encode())
    event = CODECS["pods"].decode_event(line)
    assert event.item == read
    assert event.resource_version == "1201"


def test_deep_nesting_in_what_we_read(wire, pod):
    """The same inside the spec: what it asks for is read without that part."""
    deep = put(put(pod, "spec/affinity", "DEEP"), "spec/nodeName", "n1")
    body = wire.page("pods", deep).replace(b'"DEEP"', DEEP.encode())
    (read,) = CODECS["pods"].decode_page(body).items
    assert isinstance(read, Rejected)
    assert read.charge.requests.get("nvidia.com/gpu") == NEED.get("nvidia.com/gpu") > 0


@pytest.mark.parametrize("item", ["null", "7", '"pod"', "[]", "{}", '{"metadata": []}'])
def test_items_that_are_no_objects(item):
    """They are counted, without a name."""
    body = f'{{"metadata": {{"resourceVersion": "1"}}, "items": [{item}]}}'.encode()
    (read,) = CODECS["pods"].decode_page(body).items
    assert isinstance(read, Rejected)
    assert read.key == ObjectKey("", "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"items": []}',
        b'{"metadata": {}, "items": []}',
        b'{"metadata": {"resourceVersion": "1"}}',
        b'{"metadata": {"resourceVersion": "1"}, "items": {}}',
        b'{"metadata": {"resourceVersion": "1"}, "items": [}',
        b'{"metadata": {"resourceVersion": "1"}, "items": []',
        b'{"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []}',
        b'{"kind": "Status", "metadata": {}, "status": "Failure"}',
        b"<html>502</html>",
        DEEP.encode(),
        b'{"metadata": ' + DEEP.encode() + b', "items": []}',
        b'{"metadata": {"resourceVersion": "1"}, "items": ' + b"[" * 5000,
    ],
)
def test_what_is_no_list_is_not_believed(body):
    """Half a list, another list or an error page never looks like an empty cluster."""
    with pytest.raises(UndecodableObject):
        CODECS["pods"].decode_page(body)


def test_null_items_are_an_empty_list():
    """As a server in Go writes it."""
    page = CODECS["pods"].decode_page(b'{"metadata": {"resourceVersion": "9"}, "items": null}')
    assert (page.items, page.resource_version, page.continue_token) == ((), "9", "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"{}",
        b'{"type": "ADDED"}',
        b'{"type": "BOOKMARK", "object": []}',
        b'{"type": "ERROR", "object": {"code": "x"}}',
    ],
)
def test_what_is_no_event_is_not_believed(line):
    """The reflector then lists again."""
    with pytest.raises(UndecodableObject):
        CODECS["pods"].decode_event(line)


def test_events_other_than_changes(wire, pod):
    """Bookmarks have a version, errors a code and a message, unknown words nothing."""
    decode = CODECS["pods"].decode_event
    mark = decode(
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"88",'
        b'"creationTimestamp":null},"spec":{"containers":null},"status":{}}}'
    )
    assert (mark.type, mark.item, mark.resource_version) == ("BOOKMARK", None, "88")
    gone = decode(
        b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure",'
        b'"message":"too old","reason":"Expired","code":410}}'
    )
    assert (gone.type, gone.code, gone.message, gone.item) == ("ERROR", 410, "too old", None)
    assert decode(wire.event("RENAMED", pod)).item is None
    deleted = decode(wire.event("DELETED", pod))
    assert (deleted.type, deleted.item.key.name) == ("DELETED", "train-0-abcde")
    assert deleted.resource_version == "1201"
