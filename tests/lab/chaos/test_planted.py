"""Some of the planted faults, found by their scripts; ``planted.py`` plays all of them."""

from __future__ import annotations

import inspect
import logging
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

import pytest

from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.script import read_script
from tests.lab.chaos.planted import PLANTS, SCRIPTS, Plain, found_by
from tests.populations import WHOLE

REACHING = (
    "refused_evictions_are_given_up", "timeouts_are_forgotten", "shares_are_half_as_large",
    "who_leaves_holds_nothing", "devices_in_use_are_free",
)  # fmt: skip
"""Scripts in whose runs everything is used that a plant replaces."""


TOLD_BY_SCRIPTS = [
    ("plans_are_not_checked_again", "I1"),
    ("half_a_gang_stays", "I3"),
    ("evictions_name_no_uid", "I6"),
    ("the_lease_never_lapses", "I8"),
    ("the_lease_is_taken_at_once", "I8"),
    ("a_new_leader_does_not_look_again", "I1"),
    ("shares_are_half_as_large", "I2"),
    ("victims_go_before_the_promise", "I6"),
    ("who_leaves_holds_nothing", "I1"),
    ("assumed_slots_are_free", "I2"),
    ("room_is_held_for_ever", "I7"),
    ("preemptible_false_is_not_read", "I6"),
    ("a_restored_store_is_not_noticed", "I7"),
    ("bindings_go_out_while_watches_are_cut", "I2"),
    ("timeouts_follow_the_wall_clock", "I10"),
    ("reclaim_needs_no_right", "I5"),
    ("devices_in_use_are_free", "I17"),
    ("claims_on_their_way_are_free", "I17"),
    ("pods_are_bound_before_their_claims", "I17"),
    ("devices_of_lost_pods_are_kept", "I18"),
]
"""Protections that are taken away, and the invariant that is broken first then."""
ONE_EACH = [*{told[1]: told for told in reversed(TOLD_BY_SCRIPTS)}.values()]
"""One for each invariant; ``planted.py`` and ``make soak`` play all."""


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("name", "invariant"), TOLD_BY_SCRIPTS if WHOLE else ONE_EACH)
def test_a_script_tells_a_planted_fault_from_a_run_without_it(name, invariant):
    found = found_by(name, (), Plain())
    assert found is not None
    assert (found.by, found.seen.finding.invariant) == ("script", invariant)


def test_a_seed_tells_a_planted_fault_from_a_run_without_it():
    found = found_by("minimum_is_not_read", [0], Plain())
    assert found is not None
    assert (found.by, found.seen.finding.invariant) == (0, "I15")


class NothingHolds(Plain):
    """As if the same were found when every protection is there."""

    def holds(self, name, script):
        """Nothing does."""
        return False


def test_what_is_found_without_the_fault_too_does_not_count():
    assert found_by("shares_are_half_as_large", (), NothingHolds()) is None


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_script_is_of_a_plant_and_can_be_read(script):
    assert script.stem in PLANTS
    assert read_script(script).steps


class CountedHandlers(dict):
    """A table that counts when its entry of a key is looked up."""

    def __init__(self, table, count):
        super().__init__(table)
        self.count = count

    def __getitem__(self, key):
        """Value of a key, counted."""
        self.count(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        """Value of a key, counted."""
        self.count(key)
        return super().get(key, default)


def counted(owner, attribute, replacement, count):
    """A patch that counts each use of what a plant replaces, and changes nothing."""
    raw = inspect.getattr_static(owner, attribute)

    def call(*args, **how):
        count()
        return raw(*args, **how)

    def read(self):
        count()
        return raw.fget(self)

    if isinstance(raw, property):
        return patch.object(owner, attribute, property(read))
    if isinstance(raw, dict):
        changed = {key for key, value in replacement.items() if raw.get(key) is not value}
        table = CountedHandlers(raw, lambda key: count() if key in changed else None)
        return patch.object(owner, attribute, table)
    assert callable(raw)
    return patch.object(owner, attribute, call)


@contextmanager
def counted_reads(module, names, count):
    """Count reads of constants of a module."""
    values = {name: getattr(module, name) for name in names}

    def read(name):
        if name not in values:
            raise AttributeError(name)
        count(name)
        return values[name]

    for name in names:
        delattr(module, name)
    module.__getattr__ = read
    try:
        yield
    finally:
        del module.__getattr__
        for name, value in values.items():
            setattr(module, name, value)


@pytest.fixture(scope="module")
def uses():
    """Uses of whatever plants replace, by owner and attribute, in runs without any fault."""
    logging.disable(logging.CRITICAL)
    found = Counter()
    with ExitStack() as stack:
        constants = defaultdict(set)
        for name in PLANTS:
            for owner, attribute, replacement in PLANTS[name]():
                if isinstance(getattr(owner, attribute), (int, float)):
                    constants[owner].add(attribute)
                    continue
                key = id(owner), attribute
                count = partial(lambda key: found.update([key]), key)
                stack.enter_context(counted(owner, attribute, replacement, count))
        for module, names in constants.items():
            use = partial(lambda owner, name: found.update([(id(owner), name)]), module)
            stack.enter_context(counted_reads(module, names, use))
        for script in REACHING:
            play_script(read_script(SCRIPTS / f"{script}.yaml"))
    return found


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_every_plant_takes_something_away_that_daemons_use(name, uses):
    """What it replaces is used in runs, is another thing while planted, and the old one then."""
    planted = list(PLANTS[name]())
    before = [getattr(owner, attribute) for owner, attribute, _ in planted]
    assert planted
    with ExitStack() as stack:
        for owner, attribute, replacement in planted:
            stack.enter_context(patch.object(owner, attribute, replacement))
        for (owner, attribute, _), original in zip(planted, before, strict=True):
            assert getattr(owner, attribute) is not original
    for (owner, attribute, _), original in zip(planted, before, strict=True):
        assert getattr(owner, attribute) == original
        assert uses[id(owner), attribute], f"nothing uses {attribute}"


def arguments(function):
    """Names of the arguments that a function takes by their place, those by name, and whether it takes any others."""
    kinds = inspect.Parameter
    told = inspect.signature(function).parameters.values()
    by_place = [
        each for each in told if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {each.name for each in told if each.kind is kinds.KEYWORD_ONLY}
    others = {each.kind for each in told} & {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}
    return len(by_place), by_name, others


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_plant_puts_in_place_can_be_called_alike(name):
    """Given a plant, then it takes what it replaces takes: an error of its call would be found in place of the fault."""
    for owner, attribute, replacement in PLANTS[name]():
        raw = inspect.getattr_static(owner, attribute)
        if not inspect.isfunction(raw) or not inspect.isfunction(replacement):
            continue
        takes, names, others = arguments(raw)
        here, here_names, here_others = arguments(replacement)
        if inspect.Parameter.VAR_KEYWORD not in here_others:
            assert names <= here_names
        if inspect.Parameter.VAR_POSITIONAL not in here_others:
            assert takes == here
        assert others <= here_others
