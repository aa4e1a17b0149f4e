"""Places of gangs in an order are changed where few differ, and are what sorting them anew tells."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from gpusched.session.state.order import kept_orders
from gpusched.session.state.order.kept_orders import GangOrder


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("few", [0, 2, 32])
def test_places_are_those_of_sorting_all(seed, few, monkeypatch):
    """Given sets that change, then who is left, with others or without some, is in the order of turns."""
    monkeypatch.setattr(kept_orders, "_FEW", few)
    rng = random.Random(seed)
    names = rng.sample(range(1000), 60)
    order = GangOrder(
        (), [SimpleNamespace(key=name) for name in names], frozenset(names), {}, (), (), None
    )

    def in_turn(some):
        return [name for name in names if name in some]

    looked_at = frozenset(rng.sample(range(1000), 40) + names[:10])
    for _ in range(30):
        looked_at = looked_at ^ frozenset(rng.sample(names, rng.randrange(4)))
        left = order.gangs_not_in(looked_at)
        assert order.keys_at(left.spots) == in_turn(left.names) == in_turn(set(names) - looked_at)
        assert [gang.key for gang in left.in_turn] == order.keys_at(left.spots)
        more = frozenset(rng.sample(names, rng.randrange(12)))
        gone = frozenset(rng.sample(names, rng.randrange(12))) | {-1}
        both = left.with_others(more)
        assert order.keys_at(both.spots) == in_turn(left.names | more)
        assert both.names == left.names | more
        assert order.keys_at(both.without(gone)) == in_turn(both.names - gone)
        assert order.those_at(left.spots, more | {-1}) == more & left.names
