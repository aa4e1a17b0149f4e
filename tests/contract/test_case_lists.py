"""Cases L1-L9: lists, selectors, pages, watches, bookmarks and forgotten versions."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from .api import Api, Reply, names

case = pytest.mark.case
META_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def _three(api: Api) -> None:
    await api.create_pod("a", labels={"i": "1", "even": "no"})
    await api.create_pod("b", labels={"i": "2", "even": "yes"})
    await api.create_pod("c")


@case("L1")
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("i=1", ["a"]),
        ("i!=1", ["b", "c"]),
        ("i in (1,2)", ["a", "b"]),
        ("i notin (1)", ["b", "c"]),
        ("even", ["a", "b"]),
        ("!even", ["c"]),
        ("even=yes,i=1", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, found: list[str]):
    """Equality, sets and presence; an absent key differs from every value."""
    await _three(api)
    assert names(await api.get(f"{api.pods}?labelSelector={quote(selector)}")) == found


@case("L1")
async def test_an_unreadable_selector_is_400(api: Api):
    """In the words of the parser."""
    reply = await api.get(f"{api.pods}?labelSelector=%3D%3D")
    assert reply.code == 400
    assert "found '==', expected: !, identifier, or 'end of string'" in reply.message


@case("L2")
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=a", ["a"]),
        ("spec.nodeName=", ["a", "b", "c"]),
        ("spec.schedulerName!=nobody", []),
        ("status.phase=Pending,metadata.name!=c", ["a", "b"]),
    ],
)
async def test_field_selectors(api: Api, selector: str, found: list[str]):
    """The fields of pods that select."""
    await _three(api)
    assert names(await api.get(f"{api.pods}?fieldSelector={quote(selector)}")) == found


@case("L2")
async def test_other_fields_do_not_select(api: Api):
    """400, named."""
    reply = await api.get(f"{api.pods}?fieldSelector=spec.priority%3D0")
    assert (reply.code, reply.message) == (400, "field label not supported: spec.priority")


@case("L3")
async def test_pages(api: Api):
    """Pages go by name, tell what remains and hold to their version."""
    await _three(api)
    first = await api.get(f"{api.pods}?limit=2")
    assert (names(first), first.meta["remainingItemCount"]) == (["a", "b"], 1)
    await api.create_pod("d")
    second = await api.get(f"{api.pods}?limit=2&continue={quote(first.meta['continue'])}")
    assert names(second) == ["c"]
    assert second.meta["resourceVersion"] == first.meta["resourceVersion"]
    assert "continue" not in second.meta
    bad = await api.get(f"{api.pods}?limit=2&continue=abc")
    assert bad.code == 400
    assert bad.message.startswith("invalid continue token: continue key is not valid:")


@case("L4")
async def test_lists_at_a_version(api: Api):
    """0 is current enough, Exact is a snapshot, the future times out, text is 400."""
    await api.create_pod("a")
    then = await api.get(api.pods)
    await api.create_pod("b")
    exact = f"resourceVersionMatch=Exact&resourceVersion={then.meta['resourceVersion']}"
    snapshot = await api.get(f"{api.pods}?{exact}")
    assert names(snapshot) == ["a"]
    await api.until(f"{api.pods}?resourceVersion=0", lambda reply: names(reply) == ["a", "b"])
    future = await api.get(f"{api.pods}?resourceVersion=99999999999")
    assert (future.code, future.body["reason"]) == (504, "Timeout")
    assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    bad = await api.get(f"{api.pods}?resourceVersion=abc")
    assert (bad.code, bad.message.split(":")[0]) == (400, "invalid resource version")


@case("L5")
@pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
async def test_a_watch_begins_with_what_is(api: Api, version: str):
    """Without a version, or at 0, objects come as ADDED."""
    await _three(api)
    events = await api.watch(f"{api.pods}?watch=1{version}", 3)
    assert [e["type"] for e in events] == ["ADDED"] * 3
    assert sorted(e["object"]["metadata"]["name"] for e in events) == ["a", "b", "c"]


async def _since(api: Api) -> str:
    return str((await api.get(api.pods)).meta["resourceVersion"])


@case("L6")
async def test_selectors_make_objects_come_and_go(api: Api):
    """Entering is ADDED; leaving is DELETED with the old labels under the new version."""
    await api.create_pod("a", labels={"i": "1"})
    await api.create_pod("b")
    since = await _since(api)
    await api.patch(f"{api.pods}/b", {"metadata": {"labels": {"i": "1"}}})
    left = await api.patch(f"{api.pods}/a", {"metadata": {"labels": {"i": "2"}}})
    events = await api.watch(f"{api.pods}?watch=1&labelSelector=i%3D1&resourceVersion={since}", 2)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    gone = events[1]["object"]["metadata"]
    assert (gone["labels"], gone["resourceVersion"]) == ({"i": "1"}, left.meta["resourceVersion"])


@case("L6")
async def test_an_immediate_deletion_is_two_events(api: Api):
    """MODIFIED with the deletion time, then DELETED under the version of the answer."""
    await api.create_pod("a")
    since = await _since(api)
    answer = await api.delete(f"{api.pods}/a")
    events = await api.watch(f"{api.pods}?watch=1&resourceVersion={since}", 2)
    assert [e["type"] for e in events] == ["MODIFIED", "DELETED"]
    versions = [e["object"]["metadata"]["resourceVersion"] for e in events]
    assert int(versions[0]) < int(versions[1])
    assert versions[1] == answer.meta["resourceVersion"]
    assert events[0]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


@case("L7")
async def test_initial_events_end_with_a_bookmark(api: Api):
    """ADDED for each object, then an annotated BOOKMARK; the version match must be given."""
    await api.create_pod("a")
    how = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
    events = await api.watch(f"{api.pods}?{how}&resourceVersionMatch=NotOlderThan", 2)
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    mark = events[1]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["spec"] == {"containers": None}
    refused = await api.get(f"{api.pods}?watch=1&sendInitialEvents=true")
    assert refused.code == 422
    assert refused.body["details"]["causes"][0]["field"] == "resourceVersionMatch"


@case("L8")
async def test_a_watch_ends_on_time_and_waits_for_the_future(api: Api):
    """A timeout ends it cleanly; a future version gives silence."""
    await api.create_pod("a")
    assert len(await api.watch(f"{api.pods}?watch=1&timeoutSeconds=1")) == 1
    future = f"{api.pods}?watch=1&resourceVersion=99999999999"
    with pytest.raises(TimeoutError):
        await api.watch(future, 1, limit_s=0.3)


@case("L8")
async def test_a_list_of_metadata_only(api: Api):
    """Items are PartialObjectMetadata."""
    await api.create_pod("a", labels={"i": "1"})
    reply = await api.get(api.pods, accept=META_ONLY)
    assert reply.body["kind"] == "PartialObjectMetadataList"
    item = reply.body["items"][0]
    assert (item["kind"], item["metadata"]["labels"]) == ("PartialObjectMetadata", {"i": "1"})
    assert "spec" not in item


@case("L9")
async def test_a_forgotten_version_is_an_error_event(api: Api):
    """Status 200 and one ERROR event of code 410, or the full history where it is kept."""
    await api.create_pod("a")
    events = await api.watch(f"{api.pods}?watch=1&resourceVersion=1", 1)
    if events[0]["type"] == "ERROR":
        told = events[0]["object"]
        assert (told["code"], told["reason"]) == (410, "Expired")
        assert told["message"].startswith("too old resource version: 1 (")
    else:
        assert events[0]["type"] == "ADDED"
    assert names(await api.get(f"{api.pods}?resourceVersion=1")) == ["a"]


@case("L5")
async def test_watch_and_writes_agree_in_order(api: Api):
    """Live events come in the order of versions, each the answer of its write."""
    since = await _since(api)
    watching = asyncio.create_task(api.watch(f"{api.pods}?watch=1&resourceVersion={since}", 3))
    answers: list[Reply] = [await api.post(api.pods, {**_bare(name)}) for name in "xyz"]
    events = await watching
    assert [e["object"]["metadata"]["resourceVersion"] for e in events] == [
        a.meta["resourceVersion"] for a in answers
    ]
    assert [e["object"]["spec"] for e in events] == [a.body["spec"] for a in answers]


def _bare(name: str) -> dict:
    container = {"name": "c", "image": "img"}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}
