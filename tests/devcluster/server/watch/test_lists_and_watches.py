"""Lists and watches: selectors, pages, versions, and what a watcher sees in which order."""

import asyncio

import pytest

PODS = "/api/v1/namespaces/default/pods"


async def _five(http):
    for i in range(5):
        await http.create_pod(f"w-{i}", labels={"i": str(i), "even": str(i % 2 == 0).lower()})


def _names(reply):
    return [item["metadata"]["name"] for item in reply.body["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=even%3Dtrue", ["w-0", "w-2", "w-4"]),
        ("labelSelector=i+in+(1,2)", ["w-1", "w-2"]),
        ("labelSelector=!even", []),
        ("labelSelector=even!%3Dtrue", ["w-1", "w-3"]),
        ("fieldSelector=metadata.name%3Dw-1", ["w-1"]),
        ("fieldSelector=status.phase!%3DPending", []),
        ("fieldSelector=spec.nodeName%3D", ["w-0", "w-1", "w-2", "w-3", "w-4"]),
    ],
)
async def test_selectors_pick(http, query, expected):
    """Label and field selectors select as on a real server."""
    await _five(http)
    assert _names(await http.get(f"{PODS}?{query}")) == expected


async def test_pages_show_one_moment(http):
    """A later page shows the state of the first, whatever was written in between."""
    await _five(http)
    first = await http.get(f"{PODS}?limit=2")
    assert first.body["metadata"]["remainingItemCount"] == 3
    await http.delete(f"{PODS}/w-3")
    await http.create_pod("w-2a")
    token = first.body["metadata"]["continue"]
    rest = await http.get(f"{PODS}?limit=9&continue={token}")
    assert _names(rest) == ["w-2", "w-3", "w-4"]
    assert rest.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


async def test_a_past_version_can_be_listed_exactly(http):
    """An Exact list is the snapshot of that version; a future one is a timeout."""
    await http.create_pod("old")
    version = (await http.get(PODS)).body["metadata"]["resourceVersion"]
    await http.create_pod("new")
    past = await http.get(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert _names(past) == ["old"]
    future = await http.get(f"{PODS}?resourceVersion=99999999")
    assert (future.code, future.headers["Retry-After"]) == (504, "1")


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=%3D%3D",
        "fieldSelector=spec.priority%3D0",
        "resourceVersion=abc",
        "continue=abc",
        "limit=x",
    ],
)
async def test_a_query_that_cannot_be_read_is_400(http, query):
    """Each bad query is a BadRequest with a sentence, never a 500."""
    reply = await http.get(f"{PODS}?{query}")
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")


async def test_a_watch_starts_with_what_is_there(http):
    """Without a version the current objects come first, as ADDED."""
    await http.create_pod("a")
    watching = asyncio.create_task(http.watch(f"{PODS}?watch=1", 2))
    await http.create_pod("b")
    events = await watching
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


async def test_leaving_a_selector_shows_the_state_before(http):
    """A bound pod leaves spec.nodeName= as DELETED: old state, new version."""
    empty = (await http.get(PODS)).body["metadata"]["resourceVersion"]
    await http.create_pod("p")
    await http.bind("p", "n1")
    path = f"{PODS}?watch=1&fieldSelector=spec.nodeName%3D&resourceVersion={empty}"
    _, left = await http.watch(path, 2)
    assert left["type"] == "DELETED"
    assert "nodeName" not in left["object"]["spec"]
    now = (await http.get(f"{PODS}/p")).body
    assert left["object"]["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"]


async def test_deleting_an_unbound_pod_is_two_events(http):
    """Watchers see the mark, then the deletion, under two versions."""
    made = await http.create_pod("p")
    version = made["metadata"]["resourceVersion"]
    await http.delete(f"{PODS}/p")
    marked, gone = await http.watch(f"{PODS}?watch=1&resourceVersion={version}", 2)
    assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
    assert marked["object"]["metadata"]["deletionTimestamp"]
    assert gone["object"]["metadata"]["resourceVersion"] == str(int(version) + 2)


async def test_a_watch_from_too_long_ago_ends_with_410(http):
    """A version before the window is HTTP 200 with one ERROR event."""
    events = await http.watch(f"{PODS}?watch=1&resourceVersion=1", 2)
    assert [(e["type"], e["object"]["code"]) for e in events] == [("ERROR", 410)]


async def test_initial_events_end_with_a_bookmark(http):
    """A streaming list marks its end, so that a client knows it is complete."""
    await http.create_pod("p")
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
    events = await http.watch(f"{PODS}?{query}&resourceVersionMatch=NotOlderThan", 2)
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    mark = events[1]["object"]["metadata"]["annotations"]
    assert mark == {"k8s.io/initial-events-end": "true"}
    alone = await http.get(f"{PODS}?watch=1&sendInitialEvents=true")
    assert (alone.code, alone.body["details"]["kind"]) == (422, "ListOptions")


async def test_a_watch_ends_at_its_timeout(http):
    """A timeout ends the stream cleanly, with no error event."""
    assert await http.watch(f"{PODS}?watch=1&timeoutSeconds=1", 1) == []


async def test_tables_and_metadata_are_served_on_request(http):
    """Columns for kubectl and metadata-only lists come from the same objects."""
    await http.create_pod("p")
    table = await http.get(PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.body["kind"] == "Table"
    assert table.body["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]
    wanted = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    bare = await http.get(PODS, accept=wanted)
    assert bare.body["kind"] == "PartialObjectMetadataList"
    assert "spec" not in bare.body["items"][0]
