"""The binder against an API server that misbehaves on demand, in virtual time."""

from __future__ import annotations



from gpusched.commit.model import Phase

NAMES = ("a", "b", "c")


def test_a_gang_is_bound_with_its_signature(play, gang):
    """Three pods, one barrier read, three bindings at once, and the ledger knows."""

    async def scenario(given):
        given.cluster.add(*NAMES)
        given.cluster.group()
        decided = gang(NAMES)
        given.binder.submit(decided)
        await given.rest()
        assert [s.phase for s in given.settled] == [Phase.BOUND]
        assert set(given.ledger.confirmed) == {"u-a", "u-b", "u-c"}
        assert given.ledger.confirmed["u-a"] == ("n-a", 0b11, decided.plan_id)
        assert given.ledger.forgotten == []
        first = given.cluster.bodies("POST", "/a/binding")[0]
        assert first["metadata"]["uid"] == "u-a"
        assert first["metadata"]["annotations"] == {
            "gpusched.io/fence": "me/1", "gpusched.io/plan": decided.plan_id,
            "gpusched.io/rank": "0", "gpusched.io/slots": "0,1",
        }  # fmt: skip
        assert len(given.cluster.calls("GET")) == 1
        assert not given.binder.knows(decided.gang)
        assert given.binder.in_flight == 0

    play(scenario)
