"""The page in a browser, before a server of the view: each view shows what the server tells."""

from __future__ import annotations

import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from gpusched.api.meta.identity import format_time
from gpusched.view.frames import PartsGone, QueueTermsPut, TurnPut
from gpusched.view.model import HolderView, OrderTermView, PastEvictionView
from gpusched.view.over_time.future import RoomView

from .served_page import (
    decision_made,
    gang_put,
    node_put,
    page_server,
    populate,
    queue_put,
    sample_past,
    slot_view,
)

pytestmark = [pytest.mark.long, pytest.mark.early]
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m\u200b"
SHOWN = (
    "<img src=x onerror=alert(1)>\u2039U+202E\u203agnp.exe\u2039U+001B\u203a[31m\u2039U+200B\u203a"
)
SCRIPT = "<script>document.title='x'</script>"
PLACE = ("z1", "r1")


def small_cluster(holder="train"):
    """Two nodes with one GPU each, one of them held; a gang that waits; a decision."""
    held = HolderView(namespace="team-a", kind="Job", name=holder)
    return (
        gang_put(holder, state="Running", placed=1, waiting=0, nodes=("n1",)),
        gang_put(
            "big", position=3, reason="NotEnoughResources", message="best rack has room for 1 of 2"
        ),
        node_put("n1", (slot_view(0, held),), place=PLACE),
        node_put("n2", (slot_view(0),), place=PLACE),
        queue_put("research", 5, pending=7),
        decision_made(holder, event="starts", message="Job train starts on n1", now=time.time()),
    )


def open_view(page, server, view=""):
    page.goto(f"{server.url}{view}")
    expect(page.locator("body[data-phase=live]")).to_be_attached()


def test_each_view_shows_what_the_server_tells(page):
    """Given two gangs, two nodes and a queue: when views are opened by keys, then they say so."""
    with page_server(*small_cluster()) as server:
        open_view(page, server)
        figures = page.locator(".figures")
        expect(figures).to_contain_text("1 of 2 GPUs held")
        page.keyboard.press("2")
        row = page.get_by_label("Table of queues").get_by_role("row").filter(has_text="research")
        expect(row.get_by_role("cell").nth(0)).to_have_text("5")
        expect(row.get_by_role("cell").nth(1)).to_have_text("96")
        page.keyboard.press("3")
        expect(page.locator("#gangs .rows")).to_contain_text("best rack has room for 1 of 2")
        expect(page.locator("#gangs .rows .cell").first).to_have_text("3")
        page.keyboard.press("4")
        expect(page.locator("#spans .rows")).to_contain_text("end not known")
        page.keyboard.press("5")
        expect(page.locator("#decisions .rows")).to_contain_text("Job train starts on n1")
        page.get_by_role("link", name="train").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("train")
        expect(page.locator(".story")).to_contain_text("Job train starts on n1")
        expect(page.locator("#pods .rows")).to_contain_text("train-0")


def suggested(change, message, start, *, command="", at="", forbidden=()):
    """One suggestion as the API tells it."""
    whole = {"kind": start, "at": "", "nodes": [], "evicts": [], "reason": "", "message": ""}
    if start == "now":
        whole["nodes"] = [{"name": f"n{each}", "pods": 1} for each in range(6)]
    if start == "afterEvictions":
        whole["evicts"] = [
            {"kind": "Job", "namespace": "team-a", "name": HOSTILE},
            {"hidden": True},
        ]
    return {
        "change": change, "message": message, "command": command, "at": at, "start": whole,
        "forbiddenBy": [
            {"rule": rule, "kind": "Job", "namespace": "team-a", "name": HOSTILE, "message": why}
            for rule, why in forbidden
        ],
        "objects": [],
    }  # fmt: skip


def test_what_would_help_is_asked_for_by_a_button(page):
    """Given a gang that waits: when it is asked what would help, then changes are told, or why none is."""
    with page_server(*small_cluster()) as server:
        open_view(page, server, "#/gang/team-a/Job/big")
        card = page.locator("#advice")
        card.get_by_role("button", name="What would help?").click()
        expect(card.locator(".notice")).to_have_text("none here")
        later = format_time(time.time() + 7200)
        server.advice.answer = {
            "gang": {"kind": "Job", "namespace": "team-a", "name": "big", "queue": "research"},
            "asOf": format_time(time.time()), "decisions": 3, "isCut": True,
            "never": {"sentence": "never, even on an empty cluster", "demands": [], "message": ""},
            "unchanged": {"kind": "unknown", "at": "", "nodes": [], "evicts": [], "message": ""},
            "suggestions": [
                suggested("members", "with minMember 1 in place of 2", "now", command="kubectl patch"),
                suggested("endOfOthers", "when team-a/train has ended", "now", at=later),
                suggested("priority", f"with class {SCRIPT}", "afterEvictions",
                          forbidden=[("minRuntime", f"{HOSTILE} is safe")]),
            ],
        }  # fmt: skip
        card.get_by_role("button", name="What would help?").click()
        items = card.locator(".advice li")
        expect(items.nth(0)).to_contain_text(
            "with minMember 1 in place of 2: now, on n0, n1, n2, n3 and 2 more"
        )
        expect(items.nth(0).locator("code")).to_have_text("kubectl patch")
        expect(items.nth(1)).to_contain_text("expected in 1 h 59 min")
        expect(items.nth(2).locator("[data-rule=minRuntime]")).to_have_text(
            f"Forbidden now: {SHOWN} is safe."
        )
        expect(items.nth(2)).to_contain_text(
            f"evicted pods of team-a/{SHOWN}, 1 workload of other namespaces"
        )
        expect(card).to_contain_text("It starts never, even on an empty cluster.")
        expect(card).to_contain_text("After 3 decisions the search was ended")
        assert page.title() != "x"
        assert Axe().run(page).response["violations"] == []


def test_every_gpu_is_told_by_keys(page):
    """Given a map: when it has the focus, then arrow keys tell node, GPU and holder, Enter opens."""
    with page_server(*small_cluster()) as server:
        open_view(page, server)
        told = page.locator(".map-told")
        page.get_by_role("application").focus()
        expect(told).to_contain_text(
            "Node n1, H200, zone z1, rack r1: GPU 0 is held by Job team-a/train"
        )
        page.keyboard.press("ArrowRight")
        expect(told).to_contain_text("Node n2, H200, zone z1, rack r1: GPU 0 is free")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{server.url}#/gang/team-a/Job/train")
        expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_what_changes_is_shown_by_itself(page):
    """Given an open page: when a gang comes and one ends, then the page says so."""
    with page_server(*small_cluster()) as server:
        open_view(page, server, "#/waiting")
        rows = page.locator("#gangs .rows")
        expect(rows).to_contain_text("big")
        server.take(
            gang_put("new", message="waits for its turn"), PartsGone(gangs=("team-a/Job/big",))
        )
        expect(rows).to_contain_text("waits for its turn")
        expect(rows).not_to_contain_text("big")


def test_curves_begin_with_the_past(page):
    """Given samples of queues with a hole of ten minutes: curves begin with them, and not in the hole."""
    with page_server(*small_cluster()) as server:
        sample_past(server.series, {"research": [1, 2]}, until=time.time() - 600)
        sample_past(server.series, {"research": [3, 4]}, until=time.time())
        open_view(page, server, "#/queues")
        expect(page.get_by_text("A point each minute since")).to_be_visible()
        times, held = page.evaluate("document.querySelector('queue-curves').plot.data")
        assert held[:5] == [1, 2, None, 3, 4]
        assert held[-1] == 5  # as the queue is now
        assert times == sorted(times)
        # When the connection is lost and comes back, then what the server noted meanwhile is filled in.
        port = server.port
        server.stop()
        expect(page.get_by_role("alert")).to_contain_text("Connection lost")
        lost = page.evaluate("document.querySelector('queue-curves').plot.data")
        assert lost[1][-1] is None
        page.wait_for_timeout(1500)  # samples have whole seconds
    with page_server(queue_put("research", 8), port=port) as server:
        server.series.take(time.time(), {"research": queue_put("research", 6).view})
        page.get_by_role("button", name="Try now").click()
        expect(page.get_by_role("alert")).to_be_empty()
        page.wait_for_function("document.querySelector('queue-curves').plot.data[1].at(-1) === 8")
        held = page.evaluate("document.querySelector('queue-curves').plot.data[1]")
        assert [each for each in held if each is not None] == [1, 2, 3, 4, 5, 6, 8, 8]


def test_room_that_is_kept_is_in_the_future_and_on_the_map(page):
    """Given a gang that waits for room that is reserved: future and gang say so, and where."""
    room = RoomView(nodes=("n1", "n2"), begins=format_time(time.time() + 4000))
    with page_server(*small_cluster(), gang_put("next", room=room, position=1)) as server:
        open_view(page, server, "#/future")
        row = page.locator("#spans .row").filter(has_text="next")
        expect(row).to_contain_text("2 nodes reserved in 1 h 6 min")
        expect(row.locator(".span-bar.reserved.open")).to_have_count(1)
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Where it is to start")).to_be_visible()
        expect(page.locator("main")).to_contain_text("2 nodes reserved in 1 h 6 min")


def test_a_gang_says_where_its_place_in_the_order_comes_from(page):
    """Given two gangs that wait: the second tells its turn, after whom it comes, and the term that decides."""
    own = OrderTermView(policy="priority", value="0", message="class batch counts 0")
    of_queue = OrderTermView(
        policy="fairshare", queue="research", value="14/16", message="holds 12"
    )
    turns = (
        QueueTermsPut(path=1, terms=(of_queue,)),
        TurnPut(gang="team-a/Job/one", path=1),
        TurnPut(
            gang="team-a/Job/two", before="team-a/Job/one", path=1, terms=(own,),
            decided_by="priority", here="class batch counts 0", there="class training counts 1000",
        ),
    )  # fmt: skip
    with page_server(gang_put("one"), gang_put("two"), *turns) as server:
        open_view(page, server, "#/gang/team-a/Job/two")
        card = page.get_by_role("region", name="Its place in the order")
        expect(card).to_contain_text("2 of 2 of all")
        expect(card.get_by_role("link", name="one")).to_be_visible()
        expect(card).to_contain_text("class training counts 1000")
        terms = card.locator(".terms li")
        assert [each.split("\n")[0] for each in terms.all_inner_texts()] == [
            "fairshare",
            "priority",
        ]
        expect(card.locator(".decided")).to_contain_text("class batch counts 0")
        assert Axe().run(page).response["violations"] == []


def test_gangs_that_are_evicted_again_are_told(page):
    """Given a gang that was evicted twice of late and one long ago: the figures count one, and it tells for whom."""
    now = time.time()
    late, long_ago = (
        tuple(
            PastEvictionView(
                time=format_time(now - since - each), action="reclaim", reason="Reclaimed",
                claimant=f"Job team-b/{name}", gpu_seconds=600,
            )
            for each, name in ((60, "one"), (0, HOSTILE))
        )
        for since in (100, 8000)
    )  # fmt: skip
    gangs = (gang_put("thrown", evictions=late), gang_put("before", evictions=long_ago))
    with page_server(*small_cluster(), *gangs) as server:
        open_view(page, server)
        expect(page.locator(".figures")).to_contain_text("1gang was evicted more than once")
        open_view(page, server, "#/gang/team-a/Job/thrown")
        card = page.get_by_role("region", name="Evicted 2 times")
        expect(card).to_contain_text("1,200 GPU-seconds of work were lost")
        expect(card.locator("li").first).to_contain_text(SHOWN)
        expect(card.locator("li").last).to_contain_text("for Job team-b/one")
        assert Axe().run(page).response["violations"] == []


def test_names_are_text_alone(page):
    """Given a gang, a node and a queue with hostile names: they are shown, and nothing else happens."""
    frames = (
        *small_cluster(HOSTILE),
        gang_put("w", queue=HOSTILE, reason="R", message=SCRIPT, namespace=HOSTILE),
        queue_put(HOSTILE, 3),
        node_put(HOSTILE, (slot_view(0),), place=(HOSTILE, HOSTILE)),
    )
    with page_server(*frames) as server:
        open_view(page, server, "#/waiting?state=any")
        expect(page.locator("#gangs .rows")).to_contain_text(SHOWN)
        expect(page.locator("#gangs .rows")).to_contain_text(SCRIPT)
        for view in ("queues", "cluster?as=table"):
            page.goto(f"{server.url}#/{view}")
            expect(page.locator("main")).to_contain_text(SHOWN)
        page.goto(f"{server.url}#/waiting?state=Running")
        page.locator("#gangs .rows a").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(SHOWN)
        expect(page.locator("#pods .rows")).to_contain_text(SHOWN)
        assert page.title() == f"{SHOWN} · gpusched"


def test_ten_thousand_gangs_are_a_few_rows(page):
    """Given 10,000 gangs: when the table is scrolled to its end, then the last row is there."""
    gangs = [gang_put(f"g{number:05d}", position=number + 1) for number in range(10_000)]
    with page_server(*gangs) as server:
        open_view(page, server, "#/waiting")
        expect(page.locator(".count")).to_have_text("10,000 gangs of 10,000")
        assert page.locator("#gangs .rows .row").count() < 60
        page.locator("#gangs .rows").focus()
        page.keyboard.press("End")
        expect(page.locator("#gangs .rows")).to_contain_text("g09999")
        page.keyboard.press("/")
        page.keyboard.type("g00777")
        expect(page.locator(".count")).to_have_text("1 gang of 10,000")
        expect(page).to_have_url(f"{server.url}#/waiting?text=g00777")


def test_without_a_token_it_asks_for_one(page):
    """Given a server that wants a token: then it is asked for, kept in this tab, and can be left."""
    with page_server(*small_cluster()) as server:
        server.token = "secret"
        page.goto(server.url)
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        refusal = page.locator(".sign-in").get_by_role("alert")
        expect(refusal).to_have_text("The server wants to know who you are.")
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(refusal).to_contain_text("This token is not known here")
        page.get_by_label("Token").fill("secret")
        page.keyboard.press("Enter")
        expect(page.locator(".figures")).to_contain_text("1 of 2 GPUs held")
        assert page.evaluate("Object.values(localStorage).includes('secret')") is False
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("big")


def test_a_lost_connection_is_told_and_comes_back(page):
    """Given a server that ends and comes back at its port: the page says both."""
    with page_server(*small_cluster()) as server:
        open_view(page, server, "#/waiting")
        port = server.port
        server.stop()
        expect(page.get_by_role("alert")).to_contain_text("Connection lost")
        expect(page.locator("#gangs .rows")).to_contain_text("big")
    with page_server(gang_put("later"), port=port):
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#gangs .rows")).to_contain_text("later")
        expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, "a proxy says no", "ask for the right to list pods, or open the address again"),
        (429, '{"message": "too many"}', "wait, and close pages that nobody reads"),
        (503, '{"message": "nothing was decided yet."}', "now: nothing was decided yet. If that"),
        (504, "", "see whether the daemon runs"),
        (200, "<html>Log in</html>", "the log-in page of a proxy: reload this page"),
        (418, '{"message": "no\u202e"}', "answers 418: no\u2039U+202E\u203a: its log says more"),
        (0, "", "see whether the daemon runs, and whether your network or kubectl port-forward"),
    ],
)
def test_what_is_refused_is_said_in_words(page, status, body, words):
    """Given a server, or something before it, that refuses: the page says in a sentence what to do."""

    def refuse(route):
        route.fulfill(status=status, body=body) if status else route.abort()

    with page_server(*small_cluster()) as server:
        page.route("**/v1", refuse)
        page.goto(server.url)
        expect(page.get_by_role("alert")).to_contain_text(words)
        assert page.get_by_role("alert").inner_text().count("Connection lost.") == 1


def test_a_gang_that_is_not_there_is_told(page):
    """Given the address of a gang that nobody sees: the page says where to ask about it."""
    with page_server(*small_cluster()) as server:
        open_view(page, server, "#/gang/team-a/Job/gone")
        expect(page.locator("main .notice")).to_contain_text("gpusched get history tells")


def test_single_keys_can_be_switched_off(page):
    """Given the help of the page: it opens by a key, and there keys are switched off for good."""
    with page_server(*small_cluster()) as server:
        open_view(page, server)
        page.keyboard.press("?")
        help_of_page = page.get_by_role("dialog", name="Keys")
        expect(help_of_page).to_contain_text("go to the field for text")
        assert Axe().run(page).response["violations"] == []
        page.keyboard.press("2")  # the views behind it stay as they are
        page.get_by_label("Single keys").uncheck()
        page.keyboard.press("Escape")
        expect(help_of_page).to_be_hidden()
        page.reload()
        page.keyboard.press("2")
        page.keyboard.press("?")
        expect(help_of_page).to_be_hidden()
        expect(page.get_by_role("heading", level=1)).to_have_text("Cluster")
        page.get_by_role("button", name="Keys and help").click()
        page.get_by_label("Single keys").check()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("2")
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")


@pytest.mark.parametrize("shade", ["dark", "light"])
def test_axe_finds_nothing(page, shade):
    """Given a busy cluster, also with long names: no view breaks a rule of axe-core, nor is wider than 400 pixels."""
    page.emulate_media(color_scheme=shade)
    long = "a-very-long-name-" * 6
    frames = (
        queue_put(long, 3),
        gang_put(long, namespace=long, queue=long, position=1, reason=long, message="w " * 300),
        node_put(long, (slot_view(0),), place=(long, long)),
    )
    with page_server(*populate(32, 40, now=time.time()), *frames) as server:
        open_view(page, server)
        views = ["cluster", "cluster?as=table", "queues", "waiting", "future", "changes"]
        found = {}
        for view in [*views, "gang/team-a/Job/train-00000"]:
            page.goto(f"{server.url}#/{view}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".empty", has_text="being read")).to_have_count(0)
            broken = Axe().run(page).response["violations"]
            page.set_viewport_size({"width": 400, "height": 800})
            width = page.evaluate("document.documentElement.scrollWidth")
            page.set_viewport_size({"width": 1280, "height": 800})
            found[view] = ([f"{each['id']}: {each['nodes'][0]['html']}" for each in broken], width)
        assert {view: each for view, each in found.items() if each != ([], 400)} == {}
