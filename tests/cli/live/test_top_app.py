"""Keys of ``top``: each view, one gang's story, filter, namespace, order; what comes and what is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import pytest

from gpusched.base.clock import SystemClock
from gpusched.base.errors import ClusterUnreachable
from gpusched.cli.inspect.live.screen.picture import ScreenChoice
from gpusched.cli.inspect.live.top_app import TopApp, TopScreen
from gpusched.view.frames import PartsGone
from gpusched.view.model import MemberView, OrderTermView, OrderView
from tests.cli.live.shown import (
    ABOUT,
    HOSTILE,
    NOW,
    SHOWN_HOSTILE,
    WHY,
    Source,
    frames,
    runs,
    waits,
    with_members,
)
from tests.io.serve.page.served_page import decision_made

SMALL, WIDE = (80, 24), (200, 60)


class Screen:
    """A screen that somebody looks at and types on."""

    def __init__(self, app, pilot, source):
        self.app, self.pilot, self.source = app, pilot, source

    async def press(self, *keys):
        """Keys, and what stands there then."""
        await self.pilot.press(*keys)
        return await self.text()

    async def text(self):
        """What stands there when all is drawn."""
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()
        self.app.redraw()
        return self.app.query_one(TopScreen).text()


@asynccontextmanager
async def top(*given, size=SMALL, **choice):
    """The screen of a cluster that was told some frames."""
    source = Source(*(given or frames()))
    app = TopApp(source, ScreenChoice(**choice), SystemClock())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Screen(app, pilot, source)


@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_each_view_has_its_key(size):
    """Given a cluster: each number shows its view, which fills the terminal and is no wider."""
    expected = {
        "1": ["Queues", "Waiting", "research"], "2": ["BORROWED", "serving"],
        "3": ["TURN", "team-a/big", WHY[:20]], "4": ["team-b/web", "Running"],
        "5": ["rack r01", "node-2"], "6": ["Job team-a/train starts"],
    }  # fmt: skip
    async with top(size=size) as screen:
        for key, words in expected.items():
            text = await screen.press(key)
            assert [word for word in words if word not in text] == []
            lines = text.splitlines()
            assert (len(lines), max(map(len, lines)) <= size[0]) == (size[1], True)
            assert lines[0].startswith("GPUs")
        assert "[1 overview]" in await screen.press("tab")
        assert "[6 decisions]" in await screen.press("shift+tab")


async def test_enter_shows_a_whole_story_and_escape_goes_back():
    """Given a gang that runs: its standing, nodes on the map, pods, decisions; then the row it was on."""
    train = with_members(
        runs("train"), MemberView(name="train-0", node="node-1", slots="0-7", phase="Running")
    )
    async with top(*frames(), train, size=WIDE, view="running") as screen:
        text = await screen.press("down", "up", "enter")
        for words in (
            "Job team-a/train  Running", "8 of 8 have a node, 8 needed at once", "Its nodes",
            "node-1   A  A  A  A", "train-0  Running  node-1", "starts  Job team-a/train starts",
        ):  # fmt: skip
            assert words in text
        assert "> " in await screen.press("escape")
        assert screen.app.opened == ""


async def test_a_gang_that_waits_says_where_its_place_comes_from():
    """Given an order of the daemon: the place among all, why, and the terms that count."""
    async with top(view="waiting", size=WIDE) as screen:
        screen.source.order = OrderView(
            position=3, total=12, message="is after Job team-a/x because class batch counts 0",
            terms=(OrderTermView(policy="priority", value="0", message="class batch counts 0"),),
        )  # fmt: skip
        text = await screen.press("enter")
        assert "3 of 12 in line, it is after Job team-a/x because class batch counts 0" in text
        assert "priority  0      class batch counts 0" in text


async def test_a_story_is_read_again_when_something_happens_to_its_gang():
    """Given an open story: a decision about another changes nothing, one about it is there; then it goes."""
    async with top(view="waiting", size=WIDE) as screen:
        assert WHY in await screen.press("enter")
        screen.source.take(decision_made("train", event="loses", message="another", now=NOW))
        await screen.text()
        assert screen.source.asked == ["team-a/Job/big"]
        screen.source.take(
            runs("big"), decision_made("big", event="starts", message="it starts", now=NOW)
        )
        text = await screen.text()
        assert "it starts" in await screen.text(), text
        assert "Job team-a/big  Running" in await screen.text()
        screen.source.take(PartsGone(gangs=("team-a/Job/big",)))
        assert "It neither waits nor runs any more." in await screen.text()


async def test_a_story_that_cannot_be_read_is_a_sentence():
    """Given a daemon that went away: the sentence, in place of the story."""
    async with top(view="waiting") as screen:
        screen.source.failure = ClusterUnreachable("no answer from the daemon")
        assert "no answer from the daemon" in await screen.press("enter")


async def test_enter_on_a_queue_shows_what_waits_in_it():
    """Given two queues: the gangs of the one under the cursor, told by the filter."""
    async with top(*frames(), waits("other", 1, queue="serving"), view="queues") as screen:
        text = await screen.press("down", "enter")
        assert "filter: queue:serving" in text
        assert "team-a/other" in text
        assert "team-a/big" not in text
        assert "team-a/big" in await screen.press("escape")


async def test_a_filter_counts_while_it_is_typed_and_escape_forgets_it():
    """Given words: rows with them alone, and keys are letters until the prompt is closed."""
    async with top(view="waiting") as screen:
        await screen.press("slash")
        text = await screen.press(*"small")
        assert "team-a/small" in text
        assert "team-a/big" not in text
        assert "filter: small" in await screen.press("enter")
        assert "Keys" in await screen.press("question_mark")
        await screen.press("question_mark")
        assert "team-a/big" in await screen.press("escape")
        await screen.press("slash", *"zzz")
        assert "team-a/big" in await screen.press("escape")


async def test_a_namespace_is_chosen():
    """Given a namespace that is typed: its gangs alone, until nothing is typed."""
    async with top(view="running") as screen:
        text = await screen.press("n", *"team-b", "enter")
        assert "namespace team-b is listed" in text
        assert "train" not in text
        await screen.press("n", *["backspace"] * 6, "enter")
        assert "team-a/train" in await screen.text()


async def test_rows_are_sorted_and_turned():
    """Given ``s`` and ``r``: the next order, and the other way round; it is told."""
    async with top(view="waiting") as screen:
        assert "by turn" in await screen.text()
        assert "by name" in await screen.press("s")
        text = await screen.press("r")
        assert "by name backwards" in text
        assert text.index("team-a/small") < text.index("team-a/big")


async def test_the_cursor_goes_as_far_as_the_rows_and_why_is_told_below():
    """Given more rows than lines: the last one is reached, with its reason in full."""
    many = [waits(f"w{number:03d}", number) for number in range(1, 200)]
    async with top(*many, waits("last", 500, message="waits for " + "node " * 30)) as screen:
        await screen.press("3", "end")
        text = await screen.text()
        assert ">  500  team-a/last" in text
        assert text.count("node node") > 1
        assert "w198" in await screen.press("k")
        assert "w001" in await screen.press("home")
        assert "below" in await screen.press("pagedown")


async def test_a_gang_that_starts_is_there_by_one_event():
    """Given an event: the gang stands among those that run, without any key."""
    async with top(view="running") as screen:
        screen.source.take(runs("big"), PartsGone(gangs=("team-a/Job/train",)))
        await screen.pilot.pause(0.3)
        text = screen.app.query_one(TopScreen).text()
        assert "team-a/big" in text
        assert "team-a/train" not in text


async def test_a_lost_daemon_leaves_its_picture_and_says_since_when():
    """Given a daemon that dies: the rows stay, one sentence says that they are old; then it is live again."""
    async with top(view="running") as screen:
        screen.source.take(lost="the daemon ended the connection", lost_at=NOW)
        text = await screen.text()
        assert "Old since 08:00:00Z: the daemon ended the connection" in text
        assert "team-a/train" in text
        screen.source.take(lost="")
        assert "live, as of its session" in await screen.text()


async def test_hostile_names_are_shown_and_do_nothing():
    """Given names with markup and control characters: they are text on every view and in the story."""
    evil = with_members(
        waits(HOSTILE, 1, namespace="n", queue=HOSTILE, message=HOSTILE),
        MemberView(name=HOSTILE, phase=HOSTILE, node=HOSTILE, role=HOSTILE, sub_group=HOSTILE),
    )
    about = msgspec.structs.replace(ABOUT, daemon=HOSTILE, ready=HOSTILE)
    async with top(evil, size=WIDE, view="waiting") as screen:
        screen.source.take(about=about, lost=HOSTILE, lost_at=NOW)
        for keys in (("3",), ("enter",), ("escape", "1")):
            text = await screen.press(*keys)
            assert SHOWN_HOSTILE in text
            assert all(each.isprintable() or each == "\n" for each in text)
        assert screen.app.is_running


async def test_a_terminal_that_changes_its_size_is_filled():
    """Given another size: as many lines, none wider."""
    async with top(view="waiting") as screen:
        await screen.pilot.resize_terminal(60, 12)
        lines = (await screen.text()).splitlines()
        assert (len(lines), max(map(len, lines)) <= 60) == (12, True)


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["slash", "q", "ctrl+c"]])
async def test_it_ends_when_asked(keys):
    """Given ``q``, or Ctrl-C wherever somebody types: it ends, and follows nothing any more."""
    async with top() as screen:
        following = screen.app._following
        await screen.pilot.press(*keys)
        await screen.pilot.pause()
    assert following.cancelled()
    assert screen.app.fault is None


async def test_a_bug_while_following_ends_the_screen():
    """Given a following that breaks: the screen ends and the command tells it."""
    source = Source(*frames())

    async def broken():
        raise ZeroDivisionError

    source.run = broken
    app = TopApp(source, ScreenChoice(), SystemClock())
    async with app.run_test() as pilot:
        await pilot.pause()
    assert isinstance(app.fault, ZeroDivisionError)
