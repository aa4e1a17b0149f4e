"""What the simulation writes without the codecs is what they would have read."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.serializer.codecs import CODECS
from gpusched.engine.objects import KINDS, key_of
from gpusched.engine.simulation import Simulation, SimulationCase
from gpusched.lab.simulate.traces.workload import JobShape, job_arrivals
from tests.engine.engine_cases import QUICK, cluster, job

_SHAPES = {
    "pods of eight GPUs": JobShape(),
    "suspended": JobShape(suspend=True),
}


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_cache_holds_what_the_codecs_read(shape):
    """Given gangs that wait, run and end, at each change every entity is that of the object as it is written."""
    jobs = [
        job(f"j{n}", 10.0 * n, 100 + 60 * n, (1, 8, 16, 24)[n % 4], "ab"[n % 2]) for n in range(12)
    ]
    seen: set[bool] = set()

    def compare() -> None:  # what it raised would be taken for a fault of the object
        objects = simulation.world.objects
        for plural in KINDS:
            for obj in objects.all(plural):
                line = msgspec.json.encode({"type": "MODIFIED", "object": obj})
                item = CODECS[plural].decode_event(line).item
                seen.add(objects._decoded[plural][key_of(obj)] == item)

    simulation = Simulation(
        SimulationCase(
            name="test",
            config=QUICK,
            objects=cluster(3, deserved={"a": 8, "b": 16}),
            arrivals=job_arrivals(jobs, _SHAPES[shape]),
        )
    )
    simulation.cache.on_change.append(compare)
    record = simulation.run()
    assert {each.end for each in record.jobs} == {"Succeeded"}
    assert seen == {True}
