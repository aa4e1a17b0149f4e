"""How the CPU of a session grows with the cluster: exponents, and a picture of the curves.

``python -m benchmarks.growth [FOLDER]`` prints the table; with a folder it draws ``scale.svg`` there.
One number doubles at a time, the others stay at those of ``BASE``. An exponent of 1 is work in
proportion to the number, 0 work that does not depend on it (least squares of the logarithms).
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import attrs
import numpy as np

from benchmarks.change import Sessions, full_cluster
from benchmarks.figures import Figure
from gpusched.io.observe.process_limits import collect_garbage_rarely, leave_objects_alone
from gpusched.lab.report.pages.svg_file import svg_document
from gpusched.lab.report.plots.svg import TALL, LegendEntry, Plot, number_text

BASE: Final = {"nodes": 1000, "pods_a_node": 8, "waiting": 1000, "shapes": 100, "queues": 20}
SIZES: Final[Mapping[str, Sequence[int]]] = {
    "nodes": (500, 1000, 2000, 4000),
    "pods_a_node": (4, 8, 16, 32),
    "waiting": (1000, 2000, 4000, 8000),
    "shapes": (50, 100, 200, 400),
    "queues": (10, 20, 40, 80),
}
NODES_DRAWN: Final = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
EXPONENT_MAX: Final = 1.1
ENDS: Final = 15
SESSIONS: Final = ("first", "quiet", "pod ended")
_WIDE: Final = 10_000


@attrs.frozen
class Costs:
    """Milliseconds of CPU of one size.

    Attributes:
        first: a session of a daemon that has just started.
        quiet: the middle of some sessions in which nothing changed, of a cluster at rest.
        ended: the middle of some sessions that follow the end of a pod, until which the cluster was at rest.
    """

    first: float
    quiet: float
    ended: float

    def of(self, session: str) -> float:
        """One of ``SESSIONS``."""
        return {"first": self.first, "quiet": self.quiet, "pod ended": self.ended}[session]


def costs(**sizes: int) -> Costs:
    """Measure one size; what is not given is as in ``BASE``."""
    gc.unfreeze()  # the clusters before
    sessions = Sessions(full_cluster(**{**BASE, **sizes}))
    gc.collect()
    first, _, _ = sessions.hold()
    sessions.until_rest()
    leave_objects_alone()
    quiet = median(sessions.quiet_ms())
    ended = median(sessions.after_an_end(number * 7)[0] for number in range(ENDS))
    return Costs(first, quiet, ended)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the logarithms, by least squares."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def measure() -> list[Figure]:
    """The exponent of each session in each number."""
    collect_garbage_rarely()
    figures = []
    for name, sizes in SIZES.items():
        seen = [costs(**{name: size}) for size in sizes]
        for session in SESSIONS:
            values = [each.of(session) for each in seen]
            grows = exponent(sizes, values)
            figures.append(
                Figure(
                    name=f"growth of a session ({session}) with {name.replace('_', ' ')}, {sizes[0]} to {sizes[-1]:,}",
                    measured=grows,
                    unit="exponent",
                    spread=" ".join(map(_ms_text, values)) + " ms",
                    target=f"<= {EXPONENT_MAX}",
                    met=grows <= EXPONENT_MAX,
                )
            )
    return figures


def _ms_text(value: float) -> str:
    return number_text(value, 0 if value >= 10 else 2)


def _line(points: Sequence[tuple[int, float]], low: float, high: float) -> str:
    across = [math.log(size / NODES_DRAWN[0]) for size, _ in points]
    up = [math.log(value / low) / math.log(high / low) for _, value in points]
    widest = math.log(NODES_DRAWN[-1] / NODES_DRAWN[0])
    return "M" + "L".join(
        f"{round(_WIDE * x / widest)} {round(TALL * (1 - y))}"
        for x, y in zip(across, up, strict=True)
    )


def picture(seen: Mapping[int, Costs]) -> str:
    """The text of an SVG file: CPU of each session by nodes, both axes logarithmic."""
    all_ms = [each.of(session) for each in seen.values() for session in SESSIONS]
    low, high = (
        10.0 ** math.floor(math.log10(min(all_ms))),
        10.0 ** math.ceil(math.log10(max(all_ms))),
    )
    decades = round(math.log10(high / low))
    widest = math.log(NODES_DRAWN[-1] / NODES_DRAWN[0])
    lines = [
        f'<path class="line l{turn}" d="{_line([(n, c.of(session)) for n, c in seen.items()], low, high)}"/>'
        for turn, session in enumerate(SESSIONS)
    ]
    note = (
        f"{BASE['pods_a_node']} pods a node run, {BASE['waiting']:,} gangs of {BASE['shapes']} shapes wait in "
        f"{BASE['queues']} queues; both axes are logarithmic"
    )
    plot = Plot(
        ident="growth", title="CPU of one session by nodes", note=note, wide=_WIDE, tall=320, timed=False,
        drawing="".join(lines), y_name="milliseconds of CPU (up) by nodes (across)",
        keys=[LegendEntry(mark=f"l{turn}", text=session) for turn, session in enumerate(SESSIONS)],
        x_ticks=[(math.log(size / NODES_DRAWN[0]) / widest, number_text(size)) for size in NODES_DRAWN],
        y_ticks=[(turn / decades, number_text(low * 10.0**turn, 3)) for turn in range(decades + 1)],
        alt="CPU of a session by nodes; the table has the numbers",
    )  # fmt: skip
    return svg_document([plot], title="CPU of one session by nodes, from 100 to 20,000")


def main(folder: str = "") -> None:
    """Measure what is drawn, print it as a table in Markdown, and draw it."""
    collect_garbage_rarely()
    seen = {}
    print("| nodes | " + " | ".join(f"{session}, ms" for session in SESSIONS) + " |")
    print("|---|" + "---|" * len(SESSIONS))
    for size in NODES_DRAWN:
        seen[size] = costs(nodes=size)
        print(
            f"| {size:,} | "
            + " | ".join(_ms_text(seen[size].of(each)) for each in SESSIONS)
            + " |",
            flush=True,
        )
    if folder:
        Path(folder, "scale.svg").write_text(picture(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
