"""What ``top`` draws: lines made of a picture, whatever the terminal's size."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.cli.inspect.live.screen.cluster_map import gangs_on_map
from gpusched.cli.inspect.live.screen.compose import (
    ScreenPlace,
    compose_screen,
    move_place,
    settle_place,
)
from gpusched.cli.inspect.live.screen.gpu_map import gang_letter, number_gangs
from gpusched.cli.inspect.live.screen.picture import (
    VIEWS,
    ScreenChoice,
    draw_bar,
    draw_header,
)
from gpusched.cli.inspect.live.screen.screen_table import ScreenColumn, layout_table
from gpusched.cli.inspect.live.screen.views import draw_footer, draw_frame, draw_tabs, draw_view
from gpusched.view.frames import PartsGone
from gpusched.view.model import HolderView, SlotView
from tests.cli.live.shown import (
    ABOUT,
    HOSTILE,
    NOW,
    SHOWN_HOSTILE,
    WHY,
    frames,
    holder,
    picture_of,
    runs,
    store_of,
    waits,
)
from tests.io.serve.page.served_page import decision_made, node_put, queue_put, slot_view

NUMBERS = {"team-a/Job/train": 0, "team-b/Job/web": 1}


def drawn(view, *given, width=120, picture=None, **choice):
    """Lines of a view, without colours."""
    if picture is None:
        picture = picture_of(store_of(*(given or frames())))
    numbers = choice.pop("numbers", NUMBERS)
    asked = ScreenChoice(view=view, width=width, numbers=numbers, **choice)
    found = draw_view(picture, asked)
    return [line.plain for line in (*found.heads, *found.lines)]


def header(width=100, **changes):
    """Lines above each view."""
    return [
        each.plain
        for each in draw_header(
            picture_of(store_of(*frames()), **changes), ScreenChoice(width=width)
        )
    ]


def test_the_header_says_gpus_gangs_and_where_they_were_read():
    """Given a daemon: used, free and stranded GPUs, gangs by state, its name, readiness and moment."""
    assert header() == [
        "GPUs    ████████████░░░░░░░░ 9 of 16 used, 7 free, 3 stranded (3 Fragmented)",
        "Gangs   2 running, 2 waiting · all namespaces",
        f"Daemon  gpusched-0: leader · live, as of its session at {ABOUT.now[11:]}",
    ]


def test_the_header_counts_gangs_that_were_evicted_again():
    """Given one of them: a word in the line of gangs, which is not there otherwise."""
    told = header(about=msgspec.structs.replace(ABOUT, gangs_evicted_again=1))
    assert told[1] == "Gangs   2 running, 2 waiting, 1 evicted again · all namespaces"


def test_the_header_says_what_is_wrong():
    """Given a picture that is old: since when and why, in as many lines as it needs."""
    told = header(lost="the daemon's view at http://10.0.0.1:8081 does not answer", lost_at=NOW)
    assert "live" not in told[2]
    assert told[3].startswith("Old since 08:00:00Z: the daemon's view at")
    assert " ".join(told[3:]).endswith("it is tried again and again.")


def test_a_view_of_the_api_says_so_and_why():
    """Given no daemon, and rights to one namespace: the reason, and that others' GPUs count as free."""
    about = msgspec.structs.replace(
        ABOUT, source="api", namespaces=("team-a",), gpu_totals=None, now="2027-01-15T08:00:00Z"
    )
    told = header(about=about, note="no daemon serves a view")
    assert told[1].endswith("of namespaces that this user may see: team-a")
    assert told[2] == "Source  the API at 08:00:00Z: no daemon serves a view"
    assert told[3] == "GPUs of pods that this user may not list count as free here"
    assert drawn("decisions", picture=picture_of(store_of(), about=about)) == [
        "Decisions are told by a daemon alone; the API does not keep them."
    ]


def test_what_may_not_be_listed_is_a_sentence():
    """Given a user without rights to nodes and queues: a sentence in their place, no numbers."""
    about = msgspec.structs.replace(ABOUT, nodes=False, queues=False, gpu_totals=None)
    picture = picture_of(store_of(runs("train")), about=about)
    assert (
        draw_header(picture, ScreenChoice())[0].plain == "GPUs    nodes are not shown to this user"
    )
    assert drawn("queues", picture=picture) == ["Queues are not shown to this user."]
    assert drawn("map", picture=picture) == ["Nodes are not shown to this user."]


def test_queues_have_what_they_hold_and_are_due():
    """Given two queues: a row each, their bars with a line at what is due."""
    title, research, serving = drawn("queues")
    assert title.split() == ["QUEUE", "HELD", "DUE", "BORROWED", "RUNNING", "WAITING", "REQUESTED"]
    assert research.split()[:4] == ["research", "8", "96", "4"]
    assert research.split()[-3:] == ["8", "2", "16"]
    assert "│" in serving


def test_queues_stand_below_their_parents_until_they_are_sorted():
    """Given a tree: children are indented; a parent that is not there, or itself, changes nothing."""
    tree = [
        queue_put("a", 1, parent="root"), queue_put("b", 9), queue_put("c", 3, parent="b"),
        queue_put("d", 2, parent="e"), queue_put("e", 2, parent="d"),
    ]  # fmt: skip
    assert [line.split()[0] for line in drawn("queues", *tree)[1:]] == ["a", "b", "c", "d", "e"]
    assert drawn("queues", *tree)[3].startswith("  c")
    held = drawn("queues", *tree, order="held")[1:]
    assert [line.split()[0] for line in held] == ["b", "c", "d", "e", "a"]


def test_a_queue_with_a_fault_says_it():
    """Given a queue that is not ready: its sentence."""
    fault = queue_put("q", 0, ready=False, message="its parent p is not there")
    assert "its parent p is not there" in drawn("queues", fault)[1]


def test_gangs_wait_in_the_order_of_their_turn():
    """Given two queues: of each the first, then of each the second, with since, start and why."""
    given = [waits("b1", 1, queue="b"), waits("a2", 2, queue="a"), waits("a1", 1, queue="a"),
             waits("none", 0, queue="a")]  # fmt: skip
    title, *rows = drawn("waiting", *given, width=160)
    assert [row.split()[1] for row in rows] == [
        "team-a/a1", "team-a/b1", "team-a/a2", "team-a/none",
    ]  # fmt: skip
    assert title.split() == [
        "TURN", "GANG", "QUEUE", "GPUS", "PODS", "SINCE", "START", "PRIO", "KIND", "WHY",
    ]  # fmt: skip
    first = rows[0]
    assert "10m" in first
    assert "in 20m" in first
    assert f"InsufficientResources: {WHY}" in first
    assert rows[-1].split()[0] == "-"


@pytest.mark.parametrize(
    ("view", "order", "backwards", "names"),
    [
        ("waiting", "", False, ["big", "small"]),
        ("waiting", "gpus", True, ["small", "big"]),
        ("waiting", "name", False, ["big", "small"]),
        ("running", "gpus", False, ["train", "web"]),
        ("running", "name", True, ["web", "train"]),
    ],
)
def test_rows_are_sorted_as_asked(view, order, backwards, names):
    """Given an order, and the other way round."""
    rows = drawn(view, order=order, backwards=backwards)[1:]
    assert [next(name for name in names if f"/{name} " in row) for row in rows] == names


@pytest.mark.parametrize(
    ("view", "typed", "namespace", "names"),
    [
        ("waiting", "BIG", "", ["big"]),
        ("waiting", "queue:research turn", "", ["small"]),
        ("waiting", "queue:none", "", []),
        ("running", "", "team-b", ["web"]),
        ("running", "node-1", "", ["train"]),
        ("decisions", "starts", "", ["train"]),
        ("decisions", "", "team-b", []),
        ("queues", "serv", "", ["serving"]),
    ],
)
def test_rows_are_filtered(view, typed, namespace, names):
    """Given words and a namespace: rows that have them alone, and a sentence where none does."""
    rows = drawn(view, typed=typed, namespace=namespace)
    assert len(rows) == len(names) + 1 if names else len(rows) == 1
    assert all(name in row for name, row in zip(names, rows[1:], strict=True))


def test_the_map_has_every_gpu_by_domain():
    """Given two racks: letters of gangs and free GPUs, and below who they are."""
    lines = drawn("map", width=120)
    assert lines[:2] == [
        "zone z1, rack r01                   zone z1, rack r02",
        "node-1   A  A  A  A  A  A  A  A     node-2   B  ·  ·  ·  ·  ·  ·  ·",
    ]
    assert [line.split() for line in lines[4:6]] == [
        ["A", "team-a/train", "research", "8", "1", "Job"],
        ["B", "team-b/web", "serving", "1", "1", "Job"],
    ]
    assert lines[-1] == "· free: 7"


def test_the_map_tells_what_is_no_gang_of_ours():
    """Given shares, hidden holders, pods of others and a node that takes none: a mark and what it means."""
    slots = (
        SlotView(index=0, island=0, free="0"),
        SlotView(index=1, island=0, free="0", holders=(HolderView(hidden=True, share=""),)),
        SlotView(index=2, island=0, free="0", holders=(holder("a"), holder("b"))),
        SlotView(index=3, island=0, free="500m", holders=(holder("train"),)),
        slot_view(4),
    )
    lines = drawn("map", node_put("n", slots, place=("z", "r"), state="NotReady"), width=160)
    assert lines[1] == "n !   #  ?  2  A~ · "[: len(lines[1])]
    assert lines[-1] == (
        "· free: 1 · # pods of other schedulers · ? gangs that are not shown to this user · "
        "2-9 so many gangs share it · ~ part of it is free · ! takes no pods"
    )


def test_letters_stay_while_gangs_come_and_go():
    """Given gangs with letters: they keep them; who comes takes the first that is free."""
    first = number_gangs({}, ["a", "b", "c"])
    assert first == {"a": 0, "b": 1, "c": 2}
    assert number_gangs(first, ["d", "c", "a"]) == {"a": 0, "c": 2, "d": 1}


def test_letters_are_first_for_those_with_most_gpus():
    """Given more gangs than letters: whoever shares a letter is small."""
    slots = tuple(slot_view(index, holder(f"g{index:02d}")) for index in range(60))
    large = tuple(slot_view(index, holder("zz-large")) for index in range(8))
    nodes = [
        put.view for put in (
            node_put("n", slots, place=("z", "r")), node_put("m", large, place=("z", "r")),
        )
    ]  # fmt: skip
    numbers = number_gangs({}, gangs_on_map(nodes))
    assert (numbers["team-a/Job/zz-large"], len(numbers)) == (0, 61)
    assert gang_letter(numbers["team-a/Job/g59"]) == "+"


def test_decisions_are_the_newest_first():
    """Given two decisions: the last one on top, with what it opens."""
    found = draw_view(picture_of(store_of(*frames())), ScreenChoice(view="decisions"))
    assert [line.plain.split()[1] for line in found.lines] == ["waits", "starts"]
    assert found.keys == ["gang team-a/Job/big", "gang team-a/Job/train"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (200, 60), (40, 8), (12, 4), (2, 2), (1, 1)]
)
def test_nothing_is_wider_or_higher_than_the_terminal(view, width, height):
    """Given any size: so many lines, none wider than it or than the cursor and a letter."""
    given = [*frames(), *(waits(f"w{number}", number + 3) for number in range(100))]
    picture = picture_of(store_of(*given), lost="no answer " * 20, lost_at=NOW)
    choice = ScreenChoice(view=view, width=max(1, width - 2), numbers=NUMBERS)
    whole = ScreenChoice(view=view, width=width)
    above = [*draw_header(picture, whole), draw_tabs(picture, whole)]
    found = draw_view(picture, choice)
    place = settle_place(ScreenPlace(), found, room=max(1, height - len(above) - 2))
    lines = compose_screen(above, found, [draw_footer(whole)], place, height=height)
    assert len(lines) == height
    assert max((line.cell_len for line in lines[:-1]), default=0) <= max(3, width)


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_names_are_shown_as_text(view):
    """Given names with markup, control characters and marks of direction: no such character, all else as it is."""
    evil = HolderView(namespace=HOSTILE, kind="Job", name=HOSTILE)
    slots = (slot_view(0, evil),)
    given = [
        waits(HOSTILE, 1, namespace=HOSTILE, queue=HOSTILE, message=HOSTILE, reason=HOSTILE),
        runs(HOSTILE + "2", namespace=HOSTILE, queue=HOSTILE, nodes=(HOSTILE,), gpu_type=HOSTILE),
        queue_put(HOSTILE, 1, ready=False, message=HOSTILE),
        node_put(HOSTILE, slots, place=(HOSTILE, HOSTILE), state="NotReady"),
        decision_made(HOSTILE, event=HOSTILE, message=HOSTILE, now=NOW),
    ]
    about = msgspec.structs.replace(ABOUT, daemon=HOSTILE, ready=HOSTILE)
    picture = picture_of(store_of(*given), about=about, lost=HOSTILE, lost_at=NOW)
    choice = ScreenChoice(view=view, width=900)
    text = "\n".join(line.plain for line in draw_frame(picture, choice))
    assert all(each.isprintable() or each == "\n" for each in text)
    assert SHOWN_HOSTILE in text.partition("\n\n")[2]


def test_wide_letters_take_their_columns():
    """Given letters that are two columns wide: cells are cut by columns, not by characters."""
    table = layout_table(
        [ScreenColumn(title="A", widest=7), ScreenColumn(title="B")],
        ["\u8a9e" * 9],
        lambda row: [row, "x"],
        width=20,
    )
    assert table[0].plain == "\u8a9e" * 3 + "…  x"
    assert table.titles().plain == "A        B"


def test_columns_that_matter_least_go_first():
    """Given less and less room: the least important columns are left out, the last one stays."""
    columns = [
        ScreenColumn(title="NAME", importance=9), ScreenColumn(title="MIDDLE", importance=5),
        ScreenColumn(title="LEAST", importance=1),
    ]  # fmt: skip
    row = ["name", "middle", "least"]
    told = {
        width: layout_table(columns, [row], lambda each: each, width=width)[0].plain
        for width in (19, 18, 12, 3)
    }
    assert told == {19: "name  middle  least", 18: "name  middle", 12: "name  middle", 3: "na…"}


@pytest.mark.parametrize(
    ("held", "due", "bar"),
    [
        (0, None, "░░░░░░░░"), (4, None, "████░░░░"), (1, 4, "█░░░│░░░"), (8, 4, "████│███"),
        (9, 99, "███████│"), (1, 0, "│░░░░░░░"),
    ],
)  # fmt: skip
def test_a_bar_has_a_line_where_what_is_due_ends(held, due, bar):
    """Given amounts of eight: so many blocks, and the line."""
    assert draw_bar(held, 8, columns=8, due=due).plain == bar


def test_the_cursor_stays_on_its_row_while_others_come_and_go():
    """Given a row that moves down: the cursor goes with it; one that goes leaves it nearby."""
    before = draw_view(
        picture_of(store_of(waits("m", 1), waits("z", 2))), ScreenChoice(view="waiting")
    )
    place = move_place(settle_place(ScreenPlace(), before, room=9), before, 1, room=9)
    assert place.key == "gang team-a/Job/z"
    more = [waits("z", 9), *(waits(f"a{n}", n) for n in range(1, 6))]
    after = draw_view(picture_of(store_of(*more)), ScreenChoice(view="waiting"))
    moved = settle_place(place, after, room=3)
    assert (moved.row, moved.key, moved.first) == (5, "gang team-a/Job/z", 3)
    store = store_of(*more)
    store.take(PartsGone(gangs=("team-a/Job/z",)))
    gone = settle_place(
        moved, draw_view(picture_of(store_of(*more[1:])), ScreenChoice(view="waiting")), room=3
    )
    assert (gone.row, gone.key) == (4, "gang team-a/Job/a5")


def test_the_overview_says_how_much_is_left():
    """Given more gangs than its part of the overview: the first ones, and where the others are."""
    given = [waits(f"w{number:02d}", number) for number in range(1, 31)]
    lines = drawn("overview", *given, rows_max=20)
    assert "and 10 more: key 3, or --view waiting" in lines


def test_nothing_at_all_is_told_in_sentences():
    """Given an empty cluster: each view says so."""
    assert [drawn(view, picture=picture_of(store_of())) for view in VIEWS[1:]] == [
        ["There are no queues."], ["Nothing waits."], ["Nothing runs."], ["No node has GPUs."],
        ["Nothing was decided yet."],
    ]  # fmt: skip
