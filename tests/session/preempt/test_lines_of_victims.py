"""Victims that are alike stand in one line and are asked about once: what is decided is the same."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.session.framework import proposal
from gpusched.session.framework.verdict import ALLOW, deny
from gpusched.session.preempt import eviction_trials
from gpusched.session.preempt.claims.victim_kinds import VictimsInLines
from gpusched.session.preempt.eviction_trials import EvictionSteps, EvictionTrials
from gpusched.session.preempt.preemption import Preemption
from tests.populations import one_of
from tests.session.crowds import Crowd
from tests.session.preempt.test_hooks_for_lists import left, lends

STEPS = 8


@attrs.define
class Singles(Crowd):
    """A crowd of lone pods mostly, from which gangs of several classes of pods take."""

    def submit(self, queue=""):
        """A gang more: three more lone pods with it, of few kinds."""
        super().submit(queue)
        for _ in range(3):
            name = f"g{self.made}"
            self.made += 1
            self.about[name] = {
                "gpus": self.rng.choice((1, 1, 2)),
                "priority": self.rng.choice((0, 0, 10)),
            }
            self.least[name] = 1
            if self.rng.random() < 0.1:
                self.keeps[name] = self.rng.randint(0, 1)
            self.c.group(name, queue=queue or self.rng.choice(self.leaves), min_member=1)
            self._pod(name, 0)

    def _pod(self, gang, rank):
        plain = self.about[gang]
        self.about[gang] = {**plain, "cpu": 1000 + 500 * (rank % 2)}
        super()._pod(gang, rank)
        self.about[gang] = plain


def history(seed):
    """What each session of such a crowd decides and tells."""
    crowd = Singles(random.Random(seed))
    crowd.start()
    told = []
    for _ in range(STEPS):
        for _ in range(2):
            crowd.submit(crowd.rng.choice(crowd.leaves[2:] or crowd.leaves))
        crowd.c.now += crowd.rng.choice((0.3, 5, 60))
        told.append(crowd.step()[0])
        assert crowd.c.decision.faults == ()
    return told


def test_steps_that_may_go_are_those_of_all_victims_in_order(monkeypatch):
    """Lines are left where nobody of them may go any more; without lines the same steps are found."""
    find, stands, counts = EvictionTrials.find_fewest_victims, EvictionSteps._stands_in_line, []
    may_go_ever, never = eviction_trials.may_go_ever, []
    by_kind = []

    def told(*about):
        answer = may_go_ever(*about)
        never.extend([] if answer else [1])
        return answer

    def allowed(self, gangs):
        before = list(self._left), set(self._held_back)
        steps = list(self._allowed_steps(self._steps.steps_for(gangs), self._accounts()))
        self._left, self._held_back = before
        return steps

    def named(steps):
        return [(step.gang.key, [seat.member.pod.uid for seat in step.seats]) for step in steps]

    def compared(self, gangs):
        by_kind.extend(1 for _, line in gangs.lines if len(line) > 1)
        found = allowed(self, gangs)
        each = [(place, gang) for place, gang in gangs.others]
        for number, line in gangs.lines:
            each += [((number, gang.key), gang) for gang in line.youngest(0, len(line))]
        one_by_one = VictimsInLines.one_by_one(gang for _, gang in sorted(each, key=lambda e: e[0]))
        assert named(found) == named(allowed(self, one_by_one))
        monkeypatch.setattr(EvictionSteps, "_stands_in_line", lambda _self, _gang: False)
        assert named(found) == named(allowed(self, one_by_one))
        monkeypatch.setattr(EvictionSteps, "_stands_in_line", stands)
        counts.append(len(found))
        return find(self, gangs)

    monkeypatch.setattr(Preemption, "_serve_by_model", lambda *_about: False)
    monkeypatch.setattr(EvictionTrials, "find_fewest_victims", compared)
    monkeypatch.setattr(eviction_trials, "may_go_ever", told)
    for seed in one_of(20, range(60)):
        history(seed)
    assert sum(counts) > len(counts) > 5  # others would prove nothing
    assert never
    assert by_kind


@pytest.mark.parametrize("seed", one_of(10, range(30)))
def test_plans_are_those_of_policies_that_are_asked_about_each_victim(seed, monkeypatch):
    """What shipped policies say of one of a kind, they would say of all."""
    told = history(seed)

    def each(victims):
        return list(victims), list(range(len(victims)))

    monkeypatch.setattr(proposal, "_one_of_each_kind", each)
    assert told == history(seed)


def test_a_policy_that_says_it_is_alike_is_asked_once():
    """Gangs of one pod that are equal in all that it may read."""
    asked = []

    def each(_claimant, victims, _action):
        asked.append([victim.key.name for victim in victims])
        return [True] * len(victims)

    def allows(*_about):
        return ALLOW

    c = lends(lambda hooks: hooks.victim_filter(allows, for_all=each, alike=True))
    assert left(c) == ["kept"]  # the younger one
    assert [len(names) for names in asked[:1]] == [1]


def test_a_policy_that_is_not_alike_is_told_where_that_is_compared():
    """check-config and tests find one that reads a name."""

    def keeps(_claimant, victim, _action):
        return deny("BackOff", "it is kept") if victim.key.name == "kept" else ALLOW

    def each(claimant, victims, action):
        return [not keeps(claimant, victim, action).refuses for victim in victims]

    c = lends(
        lambda hooks: hooks.victim_filter(keeps, for_all=each, alike=True), compares_lists=True
    )
    assert left(c) == ["free"]
    assert "alike, but says True of gang" in c.decision.faults[0]
