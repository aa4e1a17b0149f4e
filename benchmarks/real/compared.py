"""What a scenario came to on a real cluster, beside what it came to in virtual time: pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from gpusched.cli.lab.scenario.scenario_report import expectation_text, failures
from gpusched.lab.scenario.judge.tolerance import NOTED
from gpusched.lab.scenario.play.run import ScenarioRun


@attrs.frozen(kw_only=True)
class Compared:
    """One scenario on both grounds.

    Attributes:
        virtual_s, real_s: how long it lasted there; None where it was not played.
        needed_slack: sentences of what held only because real time is allowed to be late.
        differs: sentences of what was judged otherwise than in virtual time, or went wrong.
    """

    name: str
    virtual: str
    real: str
    virtual_s: float | None
    real_s: float | None
    needed_slack: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def compared(virtual: ScenarioRun, real: ScenarioRun) -> Compared:
    """The two runs of one scenario, verdict by verdict."""
    slack, differs = [], []
    for here, there in zip(real.verdicts, virtual.verdicts, strict=False):
        said = expectation_text(here.expectation)
        if here.ok != there.ok:
            differs.append(f"{said}: {here.seen}, in virtual time {there.seen}")
        elif NOTED in here.seen:
            slack.append(f"{said}: {here.seen}")
    differs += failures(real)
    return Compared(
        name=real.scenario.name,
        virtual=outcome(virtual),
        real=outcome(real),
        virtual_s=virtual.record.seconds if virtual.record else None,
        real_s=real.record.seconds if real.record else None,
        needed_slack=tuple(slack),
        differs=tuple(differs),
    )


def outcome(run: ScenarioRun) -> str:
    """One word for a run: ok, FAIL, not played."""
    if run.skipped:
        return "not played"
    return "ok" if run.ok else "FAIL"


def rows(found: Sequence[Compared]) -> list[tuple[str, ...]]:
    """The summary, a line a scenario, with its head."""
    head = ("scenario", "virtual", "real", "virtual s", "real s", "within slack", "differs")
    return [
        head,
        *(
            (
                each.name,
                each.virtual,
                each.real,
                _seconds(each.virtual_s),
                _seconds(each.real_s),
                str(len(each.needed_slack) or "-"),
                str(len(each.differs) or "-"),
            )
            for each in found
        ),
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
