"""``explain queue`` and ``get jobs -o wide`` tell of users and budgets, where there are any."""

from __future__ import annotations

from gpusched.cli.inspect.explaining.queue_story import describe_queue, render_queue
from gpusched.cli.inspect.listing.view_table import job_rows, queue_rows
from gpusched.view.model import (
    RUNNING,
    WAITING,
    BudgetUserView,
    BudgetView,
    GangView,
    QueueGpus,
    QueueView,
    ViewName,
)

BUDGET = BudgetView(
    used="16", available="16", percent=100, next_period="2026-02-01T00:00:00Z",
    reason="BudgetExhausted", message="all is used", users=(BudgetUserView(name="ann", used="16"),),
)  # fmt: skip


def gang(name: str, user: str, state: str, gpus: str) -> GangView:
    return GangView(
        metadata=ViewName(namespace="team", name=name), gang_kind="PodGroup", queue="q",
        priority=0, state=state, placed=int(state == RUNNING), waiting=int(state == WAITING),
        min_member=1, gpus=gpus, user=user,
    )  # fmt: skip


def queue(budget: BudgetView | None, warning: str = "") -> QueueView:
    return QueueView(
        metadata=ViewName(name="q"), state="Open", gpus=QueueGpus(allocated="8"),
        budget=budget, warning=warning,
    )  # fmt: skip


def story(told: QueueView, *gangs: GangView) -> list[list[str]]:
    """The words of each line."""
    found = describe_queue("q", [told], gangs)
    assert found is not None
    return [line.split() for line in render_queue(found, 0.0).splitlines()]


def test_a_queue_tells_what_each_user_holds_and_has_used():
    lines = story(
        queue(BUDGET, "limits by user are not safe"),
        gang("a", "ann", RUNNING, "8"), gang("b", "bob", WAITING, "4"), gang("c", "", RUNNING, "2"),
    )  # fmt: skip
    told = [" ".join(line) for line in lines]
    assert (
        "budget 16 of 16 GPU-hours used, 100 percent; nothing with GPUs starts before "
        "2026-02-01T00:00:00Z"
    ) in told
    assert "warning limits by user are not safe" in told
    first = lines.index(["USER", "GPUS", "RUNNING", "WAITING", "USED"])
    assert lines[first + 1 : first + 4] == [
        ["<not", "known>", "2", "1", "0"],
        ["ann", "8", "1", "0", "16"],
        ["bob", "0", "0", "1"],
    ]


def test_without_users_there_is_no_table_of_them():
    lines = story(queue(None), gang("a", "", RUNNING, "8"))
    assert not any(line[:1] == ["USER"] or line[:1] == ["budget"] for line in lines)


def test_users_are_a_column_where_any_is_known():
    gangs = [gang("a", "ann", RUNNING, "8"), gang("b", "", RUNNING, "8")]
    header, *rows = job_rows(gangs, 0.0, start=False, wide=True, everywhere=True)
    assert [row[header.index("USER")] for row in rows] == ["ann", ""]
    for known, wide in ((gangs, False), (gangs[1:], True)):
        assert "USER" not in job_rows(known, 0.0, start=False, wide=wide, everywhere=True)[0]


def test_queues_list_what_is_used_of_their_budgets():
    header, *rows = queue_rows([queue(BUDGET), queue(None)], 0.0, wide=True)
    used, there = header.index("USED"), header.index("BUDGET")
    assert [(row[used], row[there]) for row in rows] == [("16", "16"), ("", "")]
