"""``/v1/history``: what became of gangs, within the rights of who asks, and when the file is broken."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.clock import SystemClock
from gpusched.io.history.gang_run import GangRun, run_as_row
from gpusched.io.history.history_store import HistoryStore
from gpusched.io.serve.answers.served_history import ServedHistory
from gpusched.io.serve.view_server import ViewServer
from gpusched.view.access import EVERYTHING, ViewAccess
from gpusched.view.frames import ViewHead, ViewMoment
from gpusched.view.store import ViewStore

TEAM_A = ViewAccess(namespaces=frozenset({"team-a"}), nodes=False, queues=False)
NOBODY = ViewAccess(namespaces=frozenset(), nodes=False, queues=False)
BEGAN = 1_700_000_000.0


@pytest.fixture
def file(tmp_path):
    """Ten runs of two teams, whose gangs are all gone."""
    store = HistoryStore(tmp_path / "history.db")
    runs = [
        GangRun(
            gang=GangKey("Job", "team-a" if number % 2 else "team-b", f"g{number}"),
            uid=UID(f"u{number}"), seen=BEGAN, queue="q", priority=0, min_member=1, members=1,
            gpus=1_000, created=BEGAN, since=BEGAN, started=BEGAN + 60,
            ended=BEGAN + 3660 + number, outcome="Succeeded", gpu_seconds={"H100": 3600.0},
        )
        for number in range(10)
    ]  # fmt: skip
    store.put([run_as_row(run) for run in runs])
    store.close()
    return tmp_path / "history.db"


@pytest.fixture
async def ask(file):
    """Status and JSON of an answer, for a user with some rights; namespaces that were asked about."""
    clients = []

    async def get(path, access=EVERYTHING, *, named=file):
        store, asked = ViewStore(), []

        async def authorized(_request, namespaces):
            asked.extend(sorted(namespaces))
            return access

        clock = SystemClock()
        history = ServedHistory(str(named), clock)
        server = ViewServer(store, clock, authorized, history=history)
        for frame in (ViewHead(version="1", daemon="d", leading=True), ViewMoment(now=BEGAN)):
            server.moment(store.take(frame))
        client = TestClient(TestServer(server.application()))
        clients.append(client)
        await client.start_server()
        answer = await client.get(path)
        return answer.status, await answer.json(), asked

    yield get
    for client in clients:
        await client.close()


async def test_for_whom_a_run_ended_is_told_to_those_who_may_see_it(ask, file):
    """Given a run that ended for a gang of another team, then its own team reads the kind alone."""
    run = GangRun(
        gang=GangKey("Job", "team-a", "lost"), uid=UID("lost"), seen=BEGAN, queue="q", priority=0,
        min_member=1, created=BEGAN, since=BEGAN, started=BEGAN, ended=BEGAN + 9_999,
        outcome="Preempted", ended_by="PodGroup team-b/secret",
    )  # fmt: skip
    store = HistoryStore(file)
    store.put([run_as_row(run)])
    store.close()
    told = {}
    for access in (EVERYTHING, TEAM_A):
        _, page, _ = await ask("/v1/history?state=Preempted", access)
        (told[access],) = (each["endedBy"] for each in page["items"])
    assert told == {
        EVERYTHING: "PodGroup team-b/secret", TEAM_A: "PodGroup of another namespace",
    }  # fmt: skip


async def test_an_administrator_gets_pages_of_all(ask):
    """Given pages of four, then ten runs, the latest end first, each once."""
    found, rest = [], ""
    while True:
        status, page, _ = await ask(f"/v1/history?limit=4&continue={rest}")
        assert (status, page["kind"]) == (200, "HistoryList")
        found += [each["metadata"]["name"] for each in page["items"]]
        rest = page["continue"]
        if not rest:
            break
    assert found == [f"g{number}" for number in reversed(range(10))]


@pytest.mark.parametrize("path", ["/v1/history", "/v1/history?by=queue"])
async def test_nothing_of_others_is_seen_not_even_counts(ask, path):
    """Given rights on team-a or on nothing, then runs and sums are of these alone."""
    _, seen, asked = await ask(path, TEAM_A)
    if "by=" in path:
        assert [each["runs"] for each in seen["items"]] == [5]
    else:
        names = {each["metadata"]["namespace"] for each in seen["items"]}
        assert names == {"team-a"}
    assert asked == ["team-a", "team-b"]  # though no gang of theirs waits or runs
    _, nothing, _ = await ask(path, NOBODY)
    assert nothing["items"] == []


@pytest.mark.parametrize("more", ["", "&by=queue"])
@pytest.mark.parametrize("namespace", ["team-b", "none-such"])
async def test_a_namespace_that_may_not_be_seen_is_refused(ask, namespace, more):
    """Given a namespace of others, or none, then the answer is no: "no record" would be a word about it."""
    status, told, _ = await ask(f"/v1/history?namespace={namespace}{more}", TEAM_A)
    assert (status, told["message"]) == (
        403,
        f"what became of gangs of namespace {namespace} may be seen by who may list its pods",
    )


async def test_sums_have_hours(ask):
    """Given sums by GPU type, then GPU-hours and seconds."""
    status, told, _ = await ask("/v1/history?by=gpu-type")
    (total,) = told["items"]
    assert (status, told["kind"]) == (200, "HistorySumList")
    assert (total["name"], total["runs"], total["gpuHours"]) == ("H100", 10, 10.0)
    assert total["waitSeconds"] == 600.0


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "by=weather",
            "history is added up by queue, namespace, user, gpu-type, day, not by weather",
        ),
        ("since=soon", "since: time: 'soon' is not an RFC 3339 time"),
        ("limit=0", "limit is a number from 1 to 1000"),
        ("continue=x", "continue 'x' is none that an answer gave"),
        ("colour=red", "unknown parameter 'colour'"),
    ],
)
async def test_bad_questions_are_400_and_one_sentence(ask, query, sentence):
    """Given what means nothing, then a Status that says what would."""
    status, told, _ = await ask(f"/v1/history?{query}")
    assert (status, told["reason"]) == (400, "BadRequest")
    assert sentence in told["message"]


async def test_without_a_file_and_with_a_broken_one(ask, tmp_path):
    """Given no history, 404; given one that cannot be read, 503, and its path is not told."""
    status, told, _ = await ask("/v1/history", named="")
    assert (status, told["message"]) == (
        404, "this daemon keeps no history: gpusched run --history FILE keeps one",
    )  # fmt: skip
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    status, told, _ = await ask("/v1/history", named=tmp_path / "broken.db")
    assert status == 503
    assert str(tmp_path) not in told["message"]
