"""The search itself: Optuna proposes values, points are played, and what came of them is told to it.

Settings are proposed in rounds of one size, whatever the number of workers, and the sampler has a seed: the
same search gives the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from gpusched import __version__
from gpusched.base.classes import frozen
from gpusched.base.errors import NotInstalled
from gpusched.cli.lab.sweep.results import SweepRow
from gpusched.cli.lab.sweep.settings_drawn import Values
from gpusched.cli.lab.tune.search_space import SearchedArgument
from gpusched.lab.report.statistics.asked import AskedStatistic

ROUND: Final = 6
"""Settings that are proposed at a time: enough for the processors of a workstation."""
_RANDOM: Final = 12
"""Settings that are drawn before the sampler begins to learn."""


def load_optuna() -> Any:
    """The library.

    Raises:
        NotInstalled: the extra is missing.
    """
    try:
        optuna = import_module("optuna")
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"gpusched tune needs {error.name}, which is not installed: "
            f'run pip install ".[tune]" in a checkout of gpusched {__version__}'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def search_settings(
    space: Sequence[SearchedArgument],
    objectives: Sequence[AskedStatistic],
    *,
    settings: int,
    seed: int,
    measure: Callable[[Sequence[Values]], list[tuple[float, ...] | None]],
) -> None:
    """Propose so many settings, round after round.

    Args:
        space: what is varied.
        objectives: what is measured, with what is better.
        settings: how many are proposed.
        seed: of the sampler.
        measure: the objectives of each setting of a round, None for one that failed.

    Raises:
        NotInstalled: Optuna is missing.
    """
    optuna = load_optuna()
    study = optuna.create_study(
        directions=["maximize" if each.better > 0 else "minimize" for each in objectives],
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM),
    )
    ranges = {each.path: _distribution(optuna, each) for each in space}
    for first in range(0, settings, ROUND):
        trials = [study.ask(ranges) for _ in range(min(ROUND, settings - first))]
        found = measure([_values(space, trial.params) for trial in trials])
        for trial, figures in zip(trials, found, strict=True):
            if figures is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, list(figures))


def _distribution(optuna: Any, argument: SearchedArgument) -> Any:
    kinds = optuna.distributions
    if argument.words:
        return kinds.CategoricalDistribution(argument.words)
    return kinds.IntDistribution(argument.low, argument.high, log=argument.by_size)


def _values(space: Sequence[SearchedArgument], proposed: dict[str, Any]) -> Values:
    return tuple((each.path, each.text(proposed[each.path])) for each in space)


# -- what is best ----------------------------------------------------------------------------------
def objective_means(
    row: SweepRow, objectives: Sequence[AskedStatistic]
) -> tuple[float, ...] | None:
    """Means over seeds; None where one is not known or a point was not played."""
    found = [row.mean(each.text) for each in objectives]
    if len(row.results) < row.points or any(each is None for each in found):
        return None
    return tuple(each for each in found if each is not None)


def choose_setting(
    shipped: SweepRow, rows: Sequence[SweepRow], objectives: Sequence[AskedStatistic]
) -> SweepRow | None:
    """The setting that gains most over the shipped one and is worse in nothing; None for no such.

    A gain is a part of what the shipped one has; parts of all objectives are added up.
    """
    before = objective_means(shipped, objectives)
    if before is None:
        return None
    best, most = None, 0.0
    for row in rows:
        after = objective_means(row, objectives)
        if after is None:
            continue
        gains = list(_gains(before, after, objectives))
        if min(gains) >= 0 and sum(gains) > most:
            best, most = row, sum(gains)
    return best


def _gains(
    before: Sequence[float], after: Sequence[float], objectives: Sequence[AskedStatistic]
) -> Iterator[float]:
    for old, new, each in zip(before, after, objectives, strict=True):
        yield each.better * (new - old) / (abs(old) or 1.0)


@frozen(kw_only=True)
class UnseenObjective:
    """One objective on what was not seen while tuning.

    Attributes:
        before, after: means of the shipped and of the tuned configuration.
        wins, losses: inputs and seeds on which the tuned one is better, and worse, of ``of``.
    """

    asked: AskedStatistic
    before: float
    after: float
    wins: int
    losses: int
    of: int

    @property
    def gain(self) -> float:
        """How much better the mean is; below 0 is worse."""
        return self.asked.better * (self.after - self.before)


def compare_unseen(
    shipped: SweepRow, tuned: SweepRow, objectives: Sequence[AskedStatistic]
) -> tuple[UnseenObjective, ...] | None:
    """Objective by objective, point by point; None where a point was not played."""
    before, after = objective_means(shipped, objectives), objective_means(tuned, objectives)
    if before is None or after is None:
        return None
    found = []
    for turn, each in enumerate(objectives):
        gains = [
            each.better * (new["statistics"][each.text] - old["statistics"][each.text])
            for old, new in zip(shipped.results, tuned.results, strict=True)
        ]
        found.append(
            UnseenObjective(
                asked=each,
                before=before[turn],
                after=after[turn],
                wins=sum(gain > 0 for gain in gains),
                losses=sum(gain < 0 for gain in gains),
                of=len(gains),
            )
        )
    return tuple(found)


def is_beaten(unseen: Sequence[UnseenObjective]) -> bool:
    """Whether the shipped configuration is beaten: no mean is worse, one is better more often than not."""
    return all(each.gain >= 0 for each in unseen) and any(
        each.gain > 0 and 2 * each.wins > each.of for each in unseen
    )
