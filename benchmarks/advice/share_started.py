"""The share of suggestions that start their gang, by family."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from benchmarks.advice.carried_out import started_after
from benchmarks.advice.random_clusters import RandomCluster, make_cluster
from gpusched.advice.advisor import advise_gang
from gpusched.advice.proposals.proposal import FAMILY_NAMES, Suggestion
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.gang import Gang
from gpusched.config.model import DEFAULT
from gpusched.engine.schedulers.scheduler import StoppedClock


@attrs.frozen(kw_only=True)
class JudgedSuggestion:
    """A suggestion that was carried out.

    Attributes:
        started: seconds after the change; None for never.
    """

    seed: int
    gang: GangKey
    suggestion: Suggestion
    started: float | None

    @property
    def text(self) -> str:
        """Which one, for people."""
        family = FAMILY_NAMES[self.suggestion.proposal.family]
        return f"seed {self.seed}, {self.gang.name}, {family}: {self.suggestion.proposal.message}"


@attrs.define
class JudgedAdvice:
    """Advice about the gangs of many clusters.

    Attributes:
        cpu_s: of each answer, seconds of this process.
        unadvised: gangs for which no change was found.
        unexplained: those of them of which it was not told what is in the way.
    """

    judged: list[JudgedSuggestion] = attrs.Factory(list)
    cpu_s: list[float] = attrs.Factory(list)
    unadvised: int = 0
    unexplained: int = 0

    @property
    def failed(self) -> list[JudgedSuggestion]:
        """Suggestions that did not start their gang."""
        return [each for each in self.judged if each.started is None]

    def tell_progress(self, seed: int) -> None:
        """What was judged so far, on standard error."""
        print(
            f"before seed {seed}: {len(self.judged)} suggestions for {len(self.cpu_s)} gangs, "
            f"{len(self.failed)} did not start, {time.process_time():.0f} CPU s",
            file=sys.stderr,
            flush=True,
        )

    def by_family(self) -> Iterator[tuple[str, int, int]]:
        """Name, suggestions, and those of them that started."""
        every = Counter(FAMILY_NAMES[each.suggestion.proposal.family] for each in self.judged)
        failed = Counter(FAMILY_NAMES[each.suggestion.proposal.family] for each in self.failed)
        for name, count in sorted(every.items()):
            yield name, count, count - failed[name]


def trial_of(cluster: RandomCluster) -> TrialCluster:
    """The cluster on which changes are tried."""
    return TrialCluster(cluster.objects, DEFAULT, now=cluster.now, clock=StoppedClock())


def waiting_gangs(trial: TrialCluster) -> list[Gang]:
    """Gangs that advice is asked about: they lack members, and have all the pods that they need."""
    return [
        each
        for each in trial.take_snapshot().gangs
        if each.pod_sets and each.missing_members and not each.error[0]
    ]


def spread_over(waiting: Sequence[Gang], count: int) -> Sequence[Gang]:
    """So many of the gangs that wait, as far from each other as can be."""
    return waiting[:: max(1, len(waiting) // count)][:count]


def judge_advice(
    seeds: Iterable[int],
    *,
    gangs: int,
    make: Callable[[int], RandomCluster] = make_cluster,
    enough: int | None = None,
) -> JudgedAdvice:
    """Ask for advice about gangs of random clusters, and carry out every suggestion.

    Args:
        seeds: one cluster each.
        gangs: asked about at most in each.
        make: the cluster of a seed.
        enough: suggestions after which no other cluster is asked about, and progress is told; None for all.
    """
    found = JudgedAdvice()
    for seed in seeds:
        if enough is not None:
            found.tell_progress(seed)
            if len(found.judged) >= enough:
                break
        cluster = make(seed)
        with gpu_resources_in_force(DEFAULT.gpu_resources):
            trial = trial_of(cluster)
            for gang in spread_over(waiting_gangs(trial), gangs):
                began = time.process_time()
                advice = advise_gang(trial, gang)
                found.cpu_s.append(time.process_time() - began)
                nothing = not advice.suggestions and not advice.unchanged.starts
                found.unadvised += nothing
                found.unexplained += nothing and not (advice.in_the_way or advice.contradiction)
                for each in advice.suggestions:
                    started = started_after(cluster, each.proposal.edits, gang.key)
                    found.judged.append(
                        JudgedSuggestion(seed=seed, gang=gang.key, suggestion=each, started=started)
                    )
    return found
