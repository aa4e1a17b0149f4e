"""docs/why-it-waits.md: each row's sentence is what ``explain`` prints of the world that it is about."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.cli.inspect.listing.api_objects import read_objects
from gpusched.cli.inspect.listing.view_of_api import gang_frames
from gpusched.io.client.api_client import ApiClient
from tests.daemon.sentences.explained import ROWS, explained, facts
from tests.daemon.sentences.kinds_of_waiting import KINDS
from tests.daemon.view.followed import StoreSource, leader

DAEMON_ALONE = {
    "position": 0, "reason": "", "estimated_start_time": "", "metadata": None, "warning": "",
}  # fmt: skip
"""What the objects of gangs without a PodGroup do not say: conditions of pods have reasons of Kubernetes.

Warnings tell which kinds the daemon reads, which it looks for every minute.
"""


async def gangs_of_api(w):
    """Gangs as the API's objects tell them."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        found = await read_objects(api, "", schedulers=["gpusched"], now=w.clock.now(), nodes=True)
    finally:
        await api.close()
    return [frame.view for frame in gang_frames(found)]


def known_to_both(gangs, suspended):
    """Gangs by their keys, but for what only the daemon knows of some of them."""
    found = {}
    for gang in gangs:
        told = msgspec.structs.asdict(gang)
        told["estimate_known_by"] = ""  # what an estimate rests on is in no object
        if gang.gang_kind != "PodGroup":
            told |= DAEMON_ALONE
        if gang.key in suspended:
            told["message"] = ""  # told in an event of the Job alone
        found[gang.key] = told
    return found


def test_there_is_a_row_for_each_kind():
    """Numbered from 1, no sentence twice; the last one is played in ``test_policies_told``."""
    assert sorted(ROWS) == list(range(1, len(KINDS) + 2))
    assert len(set(ROWS.values())) == len(ROWS)


@pytest.mark.parametrize(
    ("number", "kind"), list(enumerate(KINDS, start=1)), ids=[kind.__name__ for kind in KINDS]
)
def test_the_sentence_of_the_page_is_what_explain_prints(play, number, kind):
    """Given what the row is about, then explain says why in the words of the page, and once.

    Where the daemon is asked it is the daemon's own reason and sentence. What the API's objects say of its gangs is
    what the daemon's view says.
    """

    async def scenario(w):
        await w.start(nodes=2)
        store, _ = await leader(w)
        word, name = await kind(w)
        await w.clock.sleep(8)
        lines = await explained(w, word, name)
        assert facts(lines, "why") == [ROWS.get(number)]
        (why,) = facts(await explained(w, word, name, StoreSource(store)), "why")
        said = {f"{gang.reason}: {gang.message}" for gang in store.gangs.values() if gang.reason}
        assert why in said or why == ROWS[number]
        assert why.partition(": ")[2] == ROWS[number].partition(": ")[2]
        of_api = await gangs_of_api(w)
        suspended = {gang.key for gang in of_api if gang.reason == "Suspended"}
        told = known_to_both(store.gangs.values(), suspended)
        assert known_to_both(of_api, suspended) == told

    play(scenario)
