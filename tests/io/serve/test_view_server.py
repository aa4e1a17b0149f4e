"""The server of the view: pages, rights, changes."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from gpusched.api.meta.identity import format_time
from gpusched.io.serve.child import ViewListener
from gpusched.io.serve.forwarding import ViewForwarder
from gpusched.io.serve.reviews import AccessRefused
from gpusched.io.serve.view_server import ViewServer
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.view.access import EVERYTHING, ViewAccess
from gpusched.view.frames import (
    DecisionMade,
    GangPut,
    NodePut,
    PartsGone,
    QueuePut,
    QueueTermsPut,
    TurnPut,
    ViewHead,
    ViewMoment,
    ViewReset,
)
from gpusched.view.model import (
    DecisionView,
    FreeView,
    GangOfEvent,
    GangView,
    HolderView,
    MemberView,
    NodeView,
    OrderTermView,
    PastEvictionView,
    QueueGpus,
    QueueView,
    SlotView,
    ViewName,
)
from gpusched.view.store import ViewStore

TEAM_A = ViewAccess(namespaces=frozenset({"team-a"}), nodes=True, queues=False)
NOBODY = ViewAccess(namespaces=frozenset(), nodes=False, queues=False)
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def gang(name, *, namespace="team-a", state="Waiting", message="", evictions=()):
    view = GangView(
        metadata=ViewName(namespace=namespace, name=name), gang_kind="Job", queue="q", priority=0,
        state=state, placed=0, waiting=1, min_member=1, gpus="8", message=message,
        evictions=evictions,
    )  # fmt: skip
    return GangPut(view=view, members=(MemberView(name=f"{name}-0", phase="Waiting"),))


def node(name, *holders):
    return NodePut(
        view=NodeView(
            metadata=ViewName(name=name),
            state="Ready",
            gpus="1",
            free_gpus="0",
            slots=(SlotView(index=0, island=0, free="0", holders=holders),),
            free=FreeView(cpu="1", memory="1Gi"),
            pods=len(holders),
            gangs=tuple(f"{each.namespace}/Job/{each.name}" for each in holders),
        )
    )


def decision(name, *, namespace="team-a"):
    about = GangOfEvent(namespace=namespace, kind="Job", name=name)
    return DecisionMade(view=DecisionView(time="t", event="waits", message="waits", gang=about))


def holder(name, namespace):
    return HolderView(namespace=namespace, kind="Job", name=name)


def line(*keys):
    """Turns of gangs by ``NAMESPACE/NAME``, in their order, each by the priority of its Job."""
    found = [QueueTermsPut(path=7, terms=(term("fairshare", "of the queue", queue="q"),))]
    for before, key in zip(("", *keys), keys, strict=False):
        put = TurnPut(
            gang=key.replace("/", "/Job/"), before=before.replace("/", "/Job/"), path=7,
            terms=(term("priority", f"of {key}"),), decided_by="priority" if before else "",
            here=f"so is {key}", there=f"so is {before}",
        )  # fmt: skip
        found.append(put)
    return found


def term(policy, message, queue=""):
    return OrderTermView(policy=policy, queue=queue, value="1", message=message)


class Served:
    """A server of a store, asked over HTTP as one user."""

    def __init__(self, url, session, store, server):
        self.url, self.session, self.store, self.server = url, session, store, server

    async def get(self, path):
        """Status and JSON of an answer."""
        async with self.session.get(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    def take(self, *frames):
        """Frames, and the moment that ends them."""
        for frame in (*frames, ViewMoment(now=1e9)):
            self.server.moment(self.store.take(frame))


def served(scenario, *frames, access=EVERYTHING, head=True, source="daemon"):
    """Run a scenario against a server that has been told some frames."""

    async def main(clock):
        store = ViewStore()

        async def authorized(_request, _namespaces):
            if access is None:
                raise AccessRefused(401, "Unauthorized", "say who you are")
            return access

        server = ViewServer(store, clock, authorized, source=source)
        listener = ViewListener(server.application(), clock)
        port = await listener.start([("127.0.0.1", 0)])
        async with aiohttp.ClientSession() as session:
            it = Served(f"http://127.0.0.1:{port}", session, store, server)
            if head:
                it.take(ViewHead(version="1", daemon="d", leading=True), *frames)
            got = await scenario(it)
        await listener.stop()
        return got

    return run_virtual(main)


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_pages_have_every_gang_once(limit):
    """Given five gangs: pages of any size add up to them, in order."""

    async def when(it):
        found, rest = [], ""
        while True:
            status, page = await it.get(f"/v1/gangs?limit={limit}&continue={rest}")
            assert (status, page["total"]) == (200, 5)
            found += [each["metadata"]["name"] for each in page["items"]]
            rest = page["continue"]
            if not rest:
                return found

    names = ["a", "b", "c", "d", "e"]
    assert served(when, *map(gang, reversed(names))) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("namespace=team-b", ["x"]),
        ("state=Running", ["r"]),
        ("queue=none", []),
        ("namespace=team-a&state=Waiting", ["w"]),
    ],
)
def test_gangs_are_chosen(query, names):
    """Given filters: those that match all of them."""
    frames = [gang("w"), gang("r", state="Running"), gang("x", namespace="team-b")]

    async def when(it):
        _, page = await it.get(f"/v1/gangs?{query}")
        return [each["metadata"]["name"] for each in page["items"]]

    assert served(when, *frames) == names


def test_about_counts_gangs_that_were_evicted_again_for_who_sees_them():
    """Given evictions within the configured window and older ones, and another namespace: each user's own."""

    def evicted(name, *ages, namespace="team-a"):
        past = tuple(
            PastEvictionView(time=format_time(1e9 - age), action="preempt", reason="Preempted")
            for age in ages
        )
        return gang(name, namespace=namespace, evictions=past)

    async def when(it):
        return (await it.get("/v1"))[1]["gangsEvictedAgain"]

    frames = [
        evicted("a", 3000, 10), evicted("b", 9000, 10), evicted("c", 10),
        evicted("d", 20, 10, namespace="team-b"),
    ]  # fmt: skip
    assert served(when, *frames) == 2
    assert served(when, *frames, access=TEAM_A) == 1
    head = ViewHead(version="1", daemon="d", leading=True, eviction_window_s=10_000.0)
    assert served(when, *frames, head) == 3
    short = ViewHead(version="1", daemon="d", leading=True, eviction_window_s=600.0)
    assert served(when, *frames, short) == 1


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/gangs?limit=0", 400, "from 1 to 1000"),
        ("/v1/gangs?limit=99999999999999999999", 400, "from 1 to 1000"),
        ("/v1/gangs?colour=red", 400, "known are namespace"),
        ("/v1/gangs/team-a/Job/none", 404, "no such gang"),
        ("/v1/changes?since=yesterday", 400, "since is a revision"),
        ("/page/..%2f..%2fchild.py", 404, "no such page"),
        ("/page/%2e%2e/child.py", 404, ""),
        ("/v2", 404, ""),
    ],
)
def test_what_makes_no_sense_is_answered_in_one_sentence(path, status, words):
    """Given a request that cannot be answered: an object with a sentence, and the server goes on."""

    async def when(it):
        got = await it.get(path)
        assert (await it.get("/v1"))[0] == 200
        return got

    code, body = served(when, gang("a"))
    assert (code, body["kind"], body["code"]) == (status, "Status", status)
    assert words in body["message"]


def test_only_what_a_user_may_list_is_seen():
    """Given rights to one namespace: no name, number or decision of another is in any answer."""
    frames = [
        gang("mine"),
        gang("secret", namespace="team-b"),
        node("n", holder("mine", "team-a"), holder("secret", "team-b")),
        decision("mine"),
        decision("secret", namespace="team-b"),
        QueuePut(view=QueueView(metadata=ViewName(name="hidden"), gpus=QueueGpus())),
    ]

    async def when(it):
        paths = ["gangs", "nodes", "queues", "future", "decisions", "gangs/team-b/Job/secret"]
        return {path: await it.get(f"/v1/{path}") for path in paths}

    got = served(when, *frames, access=TEAM_A)
    assert "secret" not in json.dumps(list(got.values()))
    assert 'hidden"' not in json.dumps(got["queues"])
    assert got["gangs"][1]["total"] == 1
    assert got["queues"][0] == 403
    assert got["gangs/team-b/Job/secret"][0] == 404
    (slot,) = got["nodes"][1]["items"][0]["slots"]
    assert [each["hidden"] for each in slot["holders"]] == [False, True]
    assert got["nodes"][1]["items"][0]["gangs"] == ["team-a/Job/mine"]
    nothing = served(when, *frames, access=NOBODY)
    assert "mine" not in json.dumps(list(nothing.values()))
    assert (nothing["nodes"][0], nothing["gangs"][1]["total"]) == (403, 0)


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_the_order_of_gangs_that_wait(limit):
    """Given turns that name the one before them: pages add up to their order, those in no line last."""
    frames = [gang("a"), gang("b"), gang("c"), gang("d"), gang("r", state="Running")]
    frames += line("team-a/c", "team-a/a", "team-a/b")

    async def when(it):
        found, rest = [], ""
        while True:
            _, page = await it.get(f"/v1/priority?limit={limit}&continue={rest}")
            assert (page["kind"], page["total"]) == ("PriorityList", 4)
            found += page["items"]
            rest = page["continue"]
            if not rest:
                break
        it.take(PartsGone(gangs=("team-a/Job/c",)), *line("team-a/a")[1:])
        after = await it.get("/v1/gangs/team-a/Job/b")
        return found, after[1]["order"], (await it.get("/v1/gangs/team-a/Job/r"))[1]["order"]

    found, after, running = served(when, *frames)
    assert [each["metadata"]["name"] for each in found] == ["c", "a", "b", "d"]
    orders = [each["order"] for each in found]
    assert [(each["position"], each["total"]) for each in orders] == [
        (1, 3),
        (2, 3),
        (3, 3),
        (0, 0),
    ]
    assert orders[1]["message"] == (
        "is after Job team-a/c because so is team-a/a; that one: so is team-a/c"
    )
    assert [each["policy"] for each in orders[1]["terms"]] == ["fairshare", "priority"]
    assert orders[3]["message"] == "is not in line: nothing is decided about it yet"
    assert (after["position"], after["total"], running) == (2, 2, None)


def test_the_order_tells_nothing_of_gangs_that_may_not_be_seen():
    """Given rights to one namespace: places of its gangs, without names, numbers and terms of others."""
    frames = [
        gang("mine"),
        gang("secret", namespace="team-b"),
        *line("team-b/secret", "team-a/mine"),
    ]

    async def when(it):
        return [await it.get(f"/v1/{path}") for path in ("priority", "gangs/team-a/Job/mine")]

    got = served(when, *frames, access=TEAM_A)
    assert "secret" not in json.dumps(got)
    (item,) = got[0][1]["items"]
    assert item["order"] == got[1][1]["order"]
    order = item["order"]
    assert (order["position"], order["total"], order["queueTotal"]) == (2, 0, 0)
    assert order["after"] is None
    assert order["message"] == (
        "is after a gang that this user may not see because so is team-a/mine"
    )


def test_what_the_api_says_has_no_order():
    """Given a view of the API's objects, which do not hold the order: none is told, and that is no empty list."""

    async def when(it):
        return await it.get("/v1/priority"), await it.get("/v1/gangs/team-a/Job/a")

    (status, refused), (_, told) = served(when, gang("a"), source="api")
    assert (status, refused["message"]) == (
        404, "the order of gangs is known to the daemon alone, and this is read from the API",
    )  # fmt: skip
    assert told["order"] is None


@pytest.mark.parametrize("rest", ["-1", "x", "٣"])
def test_a_page_of_the_order_begins_at_a_number(rest):
    """Given another continue than the page before said: it is refused in one sentence."""

    async def when(it):
        return await it.get(f"/v1/priority?continue={rest}")

    status, body = served(when, gang("a"))
    assert (status, body["message"]) == (400, "continue is what the page before said")


def test_without_a_known_token_nothing_is_answered():
    """Given nobody: 401 with what to do, for every path but the page and the description."""

    async def when(it):
        return [(await it.get(f"/v1{path}"))[0] for path in ("", "/gangs", "/changes", "/nodes")]

    assert served(when, gang("a"), access=None) == [401, 401, 401, 401]


def test_before_the_first_session_the_server_says_so():
    """Given no moment yet: 503, to be asked again."""

    async def when(it):
        return await it.get("/v1/gangs")

    code, body = served(when, head=False)
    assert (code, "nothing was decided yet" in body["message"]) == (503, True)


async def events(answer, until):
    """Names and data of events up to one of a name."""
    found, name = [], ""
    async for line in answer.content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            found.append((name, json.loads(text.removeprefix("data: "))))
            if name == until:
                return found
    return found


def test_changes_are_told_as_they_come():
    """Given one that follows: what is new, another or gone, and decisions, in one moment."""

    async def when(it):
        async with it.session.get(f"{it.url}/v1/changes") as answer:
            await answer.content.readline()
            it.take(gang("a", state="Running"), gang("b"), PartsGone(gangs=("team-a/Job/c",)))
            first = await events(answer, "moment")
            it.take(node("n"), decision("b"))
            return first, await events(answer, "moment")

    first, second = served(when, gang("a"), gang("c"))
    assert [name for name, _ in first] == ["gangs", "gone", "moment"]
    assert [(g["metadata"]["name"], g["state"]) for g in first[0][1]["items"]] == [
        ("a", "Running"),
        ("b", "Waiting"),
    ]
    assert first[1][1]["gangs"] == ["team-a/Job/c"]
    assert [name for name, _ in second] == ["nodes", "decision", "moment"]


@pytest.mark.parametrize("since", ["0", "7"])
def test_who_cannot_be_told_what_changed_reads_everything_again(since):
    """Given a revision of another life, or a term that ended: reset."""

    async def when(it):
        it.take(gang("b"))
        it.take(ViewReset(), gang("c"))
        async with it.session.get(f"{it.url}/v1/changes?since={since}") as answer:
            return await events(answer, "reset")

    assert served(when, gang("a"))[-1][0] == "reset"


def test_a_client_that_reads_late_gets_what_it_missed_in_one_piece():
    """Given a hundred changes of one gang before it reads on: it sees the last."""

    async def when(it):
        for number in range(100):
            it.take(gang("a", message=str(number)))
        async with it.session.get(f"{it.url}/v1/changes?since=1") as answer:
            return await events(answer, "moment")

    (name, data), _ = served(when, gang("a"))
    assert (name, [each["message"] for each in data["items"]]) == ("gangs", ["99"])


def test_hostile_names_are_data():
    """Given markup and control characters in a sentence: JSON of a type that no browser renders."""

    async def when(it):
        async with it.session.get(f"{it.url}/v1/gangs") as answer:
            return answer.headers, await answer.text()

    headers, text = served(when, gang("a", message=HOSTILE))
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "\x1b" not in text
    assert json.loads(text)["items"][0]["message"] == HOSTILE


def test_the_description_names_every_path_and_part():
    """Given the OpenAPI: each path that it names is served, and each reference leads somewhere."""

    async def when(it):
        _, described = await it.get("/v1/openapi.json")
        fill = {"namespace": "team-a", "kind": "Job", "name": "a"}
        told = described["paths"].items()
        paths = [p.format(**fill) for p, ways in told if "get" in ways and p != "/v1/changes"]
        return described, {path: (await it.get(path))[0] for path in paths}

    described, statuses = served(when, gang("a"))
    assert statuses.pop("/v1/history") == 404  # none is kept here
    assert statuses.pop("/v1/gangs/team-a/Job/a/advice") == 404  # nor are questions answered
    assert set(statuses.values()) == {200}
    assert [path for path, ways in described["paths"].items() if "post" in ways] == ["/v1/when"]
    text = json.dumps(described)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in described["components"]["schemas"]


def queue(name, held, *, share="4"):
    gpus = QueueGpus(allocated=held, requested="9", fair_share=share, borrowed="0")
    return QueuePut(view=QueueView(metadata=ViewName(name=name), gpus=gpus))


def test_the_last_day_of_queues_is_told_minute_by_minute():
    """Given queues that change and one that comes later: each minute has how they stood then."""

    async def when(it):
        for moment, frames in enumerate(
            [(), (queue("a", "1500m"), queue("b", "2")), (PartsGone(queues=("b",)),)]
        ):
            it.take(*frames, gang(f"g{moment}"))
            for _ in range(6):
                it.server.sample_queues()
                await asyncio.sleep(10)
        whole = (await it.get("/v1/queues/series"))[1]
        first = (await it.get("/v1/queues/series?limit=1"))[1]
        rest = (await it.get("/v1/queues/series?queue=b&queue=c&continue=a"))[1]
        return whole, first, rest, (await it.get("/v1/queues/series?limit=51"))[0]

    whole, first, rest, too_many = served(when, queue("a", "0", share=""))
    names = [(each["name"], each["allocated"], each["due"]) for each in whole["items"]]
    assert names == [("a", [0, 1.5, 1.5], [None, 4, 4]), ("b", [None, 2, None], [None, 4, None])]
    assert (len(whole["times"]), whole["periodSeconds"], whole["total"]) == (3, 60, 2)
    assert ([each["name"] for each in first["items"]], first["continue"]) == (["a"], "a")
    assert ([each["name"] for each in rest["items"]], rest["continue"]) == (["b"], "")
    assert too_many == 400


def test_the_past_of_queues_is_for_those_who_may_list_them():
    """Given a user who may not list queues: their past is refused as they are."""

    async def when(it):
        it.server.sample_queues()
        return (await it.get("/v1/queues/series"))[0]

    assert served(when, queue("a", "1"), access=TEAM_A) == 403


def test_a_daemon_that_stands_by_notes_no_past():
    """Given a daemon that does not lead: what it was told once is no sample of now."""

    async def when(it):
        it.take(ViewHead(version="1", daemon="d", leading=False))
        it.server.sample_queues()
        return (await it.get("/v1/queues/series"))[1]["times"]

    assert served(when, queue("a", "1")) == []


def test_silent_connections_are_closed():
    """Given a connection that never asks: it is closed after a while, and others are answered."""

    async def when(it):
        host, port = it.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(60)
        ended = await reader.read()
        writer.close()
        return ended, (await it.get("/v1"))[0]

    assert served(when, gang("a")) == (b"", 200)


def test_a_page_that_is_closed_is_no_error(caplog):
    """Given one that follows and goes away in the middle: nothing is logged, and others are answered."""

    async def when(it):
        async with it.session.get(f"{it.url}/v1/changes") as answer:
            await answer.content.readline()
        for number in range(3):
            it.take(gang("a", message=str(number)))
            await asyncio.sleep(1)
        return (await it.get("/v1"))[0]

    assert served(when, gang("a")) == 200
    assert [each.getMessage() for each in caplog.records] == []


def test_who_loses_its_rights_is_told_nothing_more():
    """Given one that follows and whose token ends: the stream ends, and asking again is refused."""

    async def when(it):
        async with it.session.get(f"{it.url}/v1/changes") as answer:
            await answer.content.readline()
            it.server._authorized = _refused
            it.take(gang("b"))
            return await answer.content.read(), (await it.get("/v1/gangs"))[0]

    rest, again = served(when, gang("a"))
    assert (b"gangs" in rest, again) == (False, 401)


async def _refused(_request, _namespaces):
    raise AccessRefused(401, "Unauthorized", "say who you are")


def test_daemons_that_take_each_other_for_the_leader_answer_at_once():
    """Given one that leads no more and is still told of as the leader: it asks itself once, not for ever."""

    async def main(clock):
        store, forwarder = ViewStore(), ViewForwarder(aiohttp.ClientSession())
        asked = []

        async def pass_on(request, address):
            asked.append(request.path)
            return await forwarder.pass_on(request, address)

        async def authorized(_request, _namespaces):
            return EVERYTHING

        listener = ViewListener(
            ViewServer(store, clock, authorized, forward=pass_on).application(), clock
        )
        url = f"http://127.0.0.1:{await listener.start([('127.0.0.1', 0)])}"
        store.take(ViewHead(version="1", daemon="d", leading=False, leader=url))
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/gangs") as answer:
            got = answer.status, (await answer.json())["message"]
        await forwarder.close()
        await listener.stop()
        return got, len(asked)

    (status, message), times = run_virtual(main)
    assert (status, times) == (503, 2)
    assert message == "this daemon stands by, and so does the one that asked it: try again soon"
