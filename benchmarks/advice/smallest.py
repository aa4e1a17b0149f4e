"""Is a suggestion larger than needed? In small clusters all smaller changes of its kind are decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from benchmarks.advice.random_clusters import make_cluster
from benchmarks.advice.share_started import trial_of, waiting_gangs
from gpusched.advice.advisor import Advice, advise_gang
from gpusched.advice.proposals.cluster_proposals import ClusterProposals
from gpusched.advice.proposals.own_proposals import OwnProposals
from gpusched.advice.proposals.proposal import FAMILY_NAMES, ChangeProposal, Family, Suggestion
from gpusched.advice.start_answer import start_answer
from gpusched.advice.trial import TrialCluster
from gpusched.advice.workload import find_workload
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.cache.gangs.gang import Gang
from gpusched.config.model import DEFAULT

NODES: Final = 6
GANGS: Final = 10
_ENDED_MAX: Final = 5
"""Ended gangs of which all smaller sets are decided."""


def judge_smallness(seeds: Iterable[int], *, gangs: int) -> tuple[int, list[str]]:
    """Suggestions that were checked, and those of them for which something smaller is enough.

    Args:
        seeds: one cluster each.
        gangs: asked about at most in each.
    """
    checked, larger = 0, []
    for seed in seeds:
        cluster = make_cluster(seed, nodes=NODES, gangs=GANGS)
        with gpu_resources_in_force(DEFAULT.gpu_resources):
            trial = trial_of(cluster)
            for gang in waiting_gangs(trial)[:gangs]:
                advice = advise_gang(trial, gang)
                for each in advice.suggestions:
                    smaller = list(_smaller(trial, gang, each))
                    checked += bool(smaller)
                    found = next((less for less in smaller if _starts(trial, gang, less)), None)
                    if found is not None:
                        name = FAMILY_NAMES[each.proposal.family]
                        larger.append(
                            f"seed {seed}, {gang.key.name}, {name}: {each.proposal.message}; "
                            f"enough: {found.message}"
                        )
                larger += _included(seed, advice)
    return checked, larger


def _starts(trial: TrialCluster, gang: Gang, proposal: ChangeProposal) -> bool:
    with trial.changed(proposal.edits):
        starts = start_answer(trial.decide(), gang.key).starts
        return starts and trial.starts_when_played(gang.key)


def _smaller(trial: TrialCluster, gang: Gang, suggestion: Suggestion) -> Iterator[ChangeProposal]:
    """All smaller changes of the same kind."""
    snapshot = trial.take_snapshot()
    own = OwnProposals(trial, gang, find_workload(trial, gang), snapshot)
    around = ClusterProposals(trial, gang, snapshot)
    proposal, size = suggestion.proposal, int(suggestion.proposal.size)
    if proposal.family is Family.MEMBERS:
        yield from (own.fewer_members(less) for less in range(1, size))
    elif proposal.family is Family.NODES:
        for shape in around.node_shapes():
            yield from (around.more_nodes(shape, less) for less in range(1, size))
    elif proposal.family is Family.PRIORITY:
        yield from own.higher_classes()[: size - 1]
    elif proposal.family is Family.TOPOLOGY:
        yield from (each for each in own.other_levels() if each.size < size)
    elif proposal.family is Family.END_OF_OTHERS and size <= _ENDED_MAX:
        ended = {(edit.plural, edit.key) for edit in proposal.edits}
        gangs = [
            each
            for each in around.running()
            if any(("pods", member.pod.key) in ended for member in each.placed)
        ]
        for count in range(1, len(gangs)):
            yield from (around.ended(some) for some in combinations(gangs, count))


def _included(seed: int, advice: Advice) -> Iterator[str]:
    """Suggestions that do all that another one does."""
    edits = [
        {(edit.plural, edit.key): edit.becomes for edit in each.proposal.edits}
        for each in advice.suggestions
    ]
    for number, mine in enumerate(edits):
        for other, theirs in enumerate(edits):
            if number != other and all(
                name in mine and mine[name] == made for name, made in theirs.items()
            ):
                message = advice.suggestions[number].proposal.message
                yield f"seed {seed}, {advice.gang.name}: {message} includes another suggestion"
