"""Many seeds, several at a time, and a summary of what did not hold."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.config.model import DEFAULT, Config
from gpusched.lab.chaos.invariant_checker import TimedFinding
from gpusched.lab.chaos.play import ChaosRun, play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.scripts.script import ChaosScript
from gpusched.lab.chaos.scripts.shrink import shrink_script
from gpusched.lab.chaos.seed_processes import SeedProcesses
from gpusched.testing.invariants.model import Finding

_WORDS_ALIKE: Final = 6


def play_seed(seed: int, config: Config = DEFAULT) -> ChaosRun:
    """The run of a seed."""
    return play_or_report(draw_script(seed), config)


def play_or_report(script: ChaosScript, config: Config = DEFAULT) -> ChaosRun:
    """The run of a script; a fault of the simulation itself is a finding too."""
    try:
        return play_script(script, config=config)
    except Exception as error:  # noqa: BLE001 - one broken run must not end thousands
        place = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__}: {error} at {place.filename}:{place.lineno}"
        return _broken(script, sentence)


def _broken(script: ChaosScript, sentence: str) -> ChaosRun:
    """A run that was not played to its end."""
    finding = Finding(invariant="simulation", kind="Run", name="", sentence=sentence[:400])
    seen = (TimedFinding(at=0.0, finding=finding),)
    return ChaosRun(script=script, seen=seen, digest="", writes=0, virtual_s=0.0, counts={})


def shortest_script(failed: ChaosRun, config: Config = DEFAULT) -> ChaosScript:
    """The shortest script found that breaks the invariant that a run broke first."""
    first = failed.seen[0].finding

    def fails(script: ChaosScript) -> bool:
        return any(
            each.finding.invariant == first.invariant and _alike(each.finding, first)
            for each in play_or_report(script, config).seen
        )

    return shrink_script(failed.script, fails)


def _alike(one: Finding, other: Finding) -> bool:
    """Whether two findings are of one kind: the same sentence but for names and numbers."""
    return _kind(one.sentence) == _kind(other.sentence)


def _kind(sentence: str) -> str:
    words = [word for word in sentence.split() if word.isalpha()]
    return " ".join(words[:_WORDS_ALIKE])


def _parts_of_mapping(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    """What a read-only mapping of a configuration is made of again in another process."""
    return _read_only, (dict(mapping),)


def _read_only(parts: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(parts)


ForkingPickler.register(MappingProxyType, _parts_of_mapping)


@frozen
class _Worker:
    """Plays one seed in another process; policies are loaded there."""

    config: Config

    def __call__(self, seed: int) -> ChaosRun:
        return play_seed(seed, self.config)


def run_campaign(
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    config: Config = DEFAULT,
    tell: Callable[[ChaosRun], None] = lambda _played: None,
) -> Iterator[ChaosRun]:
    """Play seeds and yield those that broke something, as they come.

    Args:
        seeds: in the order in which they are played.
        jobs: how many are played at a time, each in a process of its own.
        config: of the daemons.
        tell: given every run.
    """
    if jobs <= 1:
        for seed in seeds:
            run = play_seed(seed, config)
            tell(run)
            if not run.ok:
                yield run
        return
    processes = SeedProcesses(jobs, _Worker(config), _lost)
    try:
        for run in processes.play(seeds):
            tell(run)
            if not run.ok:
                yield run
    finally:
        processes.close()


def _lost(seed: int, why: str) -> ChaosRun:
    """The run of a seed whose process went away."""
    return _broken(draw_script(seed), f"the process that played it {why}")
