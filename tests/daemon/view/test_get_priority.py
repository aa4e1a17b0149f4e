"""``get priority``: a row for each gang that waits, with the order in which they then start."""

from __future__ import annotations

import pytest

from gpusched import __version__
from gpusched.base.errors import UsageError
from gpusched.cli.inspect import get
from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.cli.inspect.get import Question
from gpusched.cli.inspect.listing.printed_listing import column_widths, print_changes
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView
from gpusched.view.access import ViewAccess
from tests.daemon.view.followed import leader, serve
from tests.daemon.view.test_commands_of_view import columns
from tests.daemon.view.test_waiting_order import names, pod, priority_class, starts


async def waiting_pods(w, **how):
    """One node that a pod holds for a minute, and four more of two priority classes; all of it is served."""
    await w.start(nodes=1)
    priority_class(w, "training", 1000)
    priority_class(w, "batch", 0)
    store, _ = await leader(w)
    pod(w, "runs", of="training", run_for="60s")
    await w.until(lambda: len(w.running()) == 1)
    for name, of in (("b1", "batch"), ("t1", "training"), ("b0", "batch"), ("t0", "training")):
        await w.clock.sleep(2)
        pod(w, name, of=of)
    await w.until(lambda: len(names(store)) == 4)
    await serve(w, store, **how)
    return store


async def order_listed(w, **how):
    """What ``gpusched get priority`` prints."""
    how = {"sort_by": "position", "scope": "/namespaces/default", "wide": True, **how}
    of = ViewSource(chosen=None, election=DEFAULT.leader_election)
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        return await get.read_listing(api, Question(kind="priority", source=of, **how))
    finally:
        await api.close()


def test_printed_positions_are_the_order_of_starts(play):
    """Given gangs of several classes and ages, then they start in the order of the rows."""

    async def scenario(w):
        store = await waiting_pods(w)
        told = await order_listed(w)
        rows = columns(told, "POSITION", "INQUEUE", "PRIORITY", "BY", "WHY")
        assert rows == {
            "t1": ("1", "1", "1000", "", "is the first in line"),
            "t0": ("2", "2", "1000", "since", rows["t0"][4]),
            "b1": ("3", "3", "0", "priority", rows["b1"][4]),
            "b0": ("4", "4", "0", "since", rows["b0"][4]),
        }
        assert rows["b1"][4] == (
            "is after Pod default/t0 because class batch counts 0; that one: class training counts 1000"
        )
        assert told.header[3:] == (
            "POSITION", "INQUEUE", "FAIRSHARE", "PRIORITY", "GANG", "SINCE", "BY", "WHY",
        )  # fmt: skip
        found, _ = await starts(w, store, 4)
        assert found == [line[0] for line in told.lines]

    play(scenario, limit_s=3000)


def test_one_gang_is_told_in_full(play):
    """Given KIND NAME, then its row alone, and below it each term; one that does not wait is not found."""

    async def scenario(w):
        await waiting_pods(w)
        told = await order_listed(w, about=("pods", "b1"), wide=False)
        assert [line[0] for line in told.lines] == ["b1"]
        first, place, *terms = told.footer
        assert first.startswith(
            "Pod default/b1 is after Pod default/t0 because class batch counts 0"
        )
        assert place == "It is 3 of 4 of all that wait in line, 3 of 4 of queue default."
        assert [each.split(":")[0].split(". ")[1] for each in terms][-3:] == [
            "priority", "gang", "since",
        ]  # fmt: skip
        with pytest.raises(UsageError, match="no gang pod runs waits in namespace default"):
            await order_listed(w, about=("pod", "runs"))

    play(scenario, limit_s=3000)


def test_the_order_is_sorted_and_chosen_as_asked(play):
    """Given a sort, labels and data, then as for the other lists."""

    async def scenario(w):
        await waiting_pods(w)
        by_name = await order_listed(w, sort_by="name")
        assert [line[0] for line in by_name.lines] == ["b0", "b1", "t0", "t1"]
        by_age = await order_listed(w, sort_by="age", scope="")
        assert [line[1] for line in by_age.lines] == ["b1", "t1", "b0", "t0"]
        assert by_age.header[0] == "NAMESPACE"
        assert by_age.names[0] == "pod/b1"
        assert by_age.items[0]["order"]["decidedBy"] == "priority"
        w.pod("labelled", labels={"team": "x"})
        await w.clock.sleep(3)
        assert [line[0] for line in (await order_listed(w, selector="team=x")).lines] == [
            "labelled"
        ]

    play(scenario, limit_s=3000)


def test_what_leaves_the_line_is_told_once_more(play, capsys):
    """Given a gang that starts while the order is followed: the new rows, and its last one as gone."""

    async def scenario(w):
        await waiting_pods(w)
        before = await order_listed(w, wide=False)
        await w.until(lambda: len(w.running()) == 2)
        await w.clock.sleep(3)
        print_changes(before, await order_listed(w, wide=False), None, widths=column_widths(before))
        told = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
        assert told == [
            ["t0", "Pod", "default", "1"], ["b1", "Pod", "default", "2"],
            ["b0", "Pod", "default", "3"], ["t1", "Pod", "default", "Gone"],
        ]  # fmt: skip

    play(scenario, limit_s=3000)


def test_who_sees_one_namespace_sees_no_other(play):
    """Given rights to another namespace, then nothing waits that this user may see."""

    async def scenario(w):
        tenant = ViewAccess(namespaces=frozenset({"team-b"}), nodes=False, queues=False)
        await waiting_pods(w, access=tenant)
        told = await order_listed(w, scope="")
        assert told.lines == ()
        assert told.empty == "Nothing waits."

    play(scenario, limit_s=3000)


async def explained(w, name, source=None):
    """Lines of ``gpusched explain pod NAME``, and what is noted beside."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    of = ViewSource(chosen=source, election=DEFAULT.leader_election)
    try:
        found = await gather_objects(api, namespace="default", name=name, kinds=("Pod",), source=of)
    finally:
        await api.close()
    text = explanation_text.render_explanation(explanation.explain_gang(found))
    return [line.strip() for line in text.splitlines()], found.notes


def test_explain_says_why_a_gang_is_at_its_place(play):
    """Given one that waits in line, then one line of its place; none for one that runs, and none of the API's objects."""

    async def scenario(w):
        await waiting_pods(w)
        lines, notes = await explained(w, "b1")
        assert notes == ()
        (place,) = [line for line in lines if line.startswith("place ")]
        assert place.removeprefix("place").strip() == (
            "3 of 4 in line, 3 of 4 in its queue: is after Pod default/t0 because class batch counts 0; "
            "that one: class training counts 1000"
        )
        for name, source in (("runs", None), ("b1", "api")):
            lines, notes = await explained(w, name, source)
            assert [line for line in lines if line.startswith("place ")] == []
            assert notes == ()

    play(scenario, limit_s=3000)


def test_explain_beside_an_older_daemon_names_its_version(play):
    """Given a view that tells no order, then all else is explained, and one sentence says which version that is."""

    async def scenario(w):
        store = await waiting_pods(w)
        store.order = lambda _gang, _access: None
        lines, notes = await explained(w, "b1")
        assert [line for line in lines if line.startswith("place ")] == []
        assert any(line.startswith("why ") for line in lines)
        assert notes == (
            f"the daemon is of version 1, which does not tell the place in the order; this is {__version__}",
        )

    play(scenario, limit_s=3000)


def test_without_a_daemon_one_sentence_says_so(play):
    """Given nobody who serves a view, then the order is not to be had, and that is no empty list."""

    async def scenario(w):
        await w.start(nodes=1)
        with pytest.raises(NoView) as refused:
            await order_listed(w)
        assert str(refused.value) == (
            "the order of gangs is known to the daemon alone: no daemon serves a view"
        )
        assert refused.value.exit_status == 69

    play(scenario, limit_s=3000)
