"""What the points of a sweep are played on: traces, snapshots and scenarios, read once and sent to workers."""

from __future__ import annotations

import argparse
import copyreg
import hashlib
import io
import json
import pickle
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.lab.simulate.inputs import SimulationInput, read_input
from gpusched.config.model import Config
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.simulate.traces.rows import check_trace_size

FILES: Final = ("snapshot", "philly", "csv")
"""Keys of inputs that name a file whose bytes are all of it."""
SEEDED: Final = ("generate", "scenario")
"""Inputs that another seed changes; of the others there is one point whatever seeds there are."""
OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({
    "snapshot": None, "openb": None, "philly": None, "csv": None, "generate": None, "half": None, "jobs": 2000,
    "days": 7.0, "nodes": None, "first": 0, "suspend": False, "strict": False, "span": None,
    "assume_duration": None, "grace": None, "start_delay": "1s", "step": None,
})  # fmt: skip
"""Options of ``gpusched simulate`` that describe an input, with their defaults."""

Playable: TypeAlias = SimulationInput | Scenario


@frozen(kw_only=True)
class SweepInput:
    """One input as a sweep names it.

    Attributes:
        options: by the names of ``OPTIONS``, and ``scenario``; what is left out has its default.
        place: where it is written, for sentences.
    """

    name: str
    options: Mapping[str, Any]
    place: str

    @property
    def seeded(self) -> bool:
        """Whether another seed makes another run of it."""
        return any(self.options.get(key) for key in SEEDED)

    @property
    def is_scenario(self) -> bool:
        """Whether it is a scenario, which daemons on an embedded cluster play."""
        return "scenario" in self.options

    def fingerprint(self) -> str:
        """Hash of what it says and of the files that it names.

        Raises:
            ConfigError: a file cannot be read.
        """
        if self.is_scenario:  # it may name other files: what was read of all of them counts
            return hashlib.sha256(repr(self._scenario(0)).encode()).hexdigest()
        said = {key: value for key, value in self.options.items() if key not in (*FILES, "openb")}
        kind = [key for key in (*FILES, "openb") if key in self.options]
        digest = hashlib.sha256(json.dumps([kind, said], sort_keys=True).encode())
        for path in self._files():
            try:
                digest.update(_file_digest(path))
            except OSError as error:
                raise ConfigError(
                    f"{self.place}: {path} cannot be read: {error.strerror or error}"
                ) from error
        return digest.hexdigest()

    def _files(self) -> list[Path]:
        named = [self.options[key] for key in FILES if self.options.get(key)]
        found = []
        for path in map(Path, [*named, *(self.options.get("openb") or ())]):
            check_trace_size(path)
            with suppress(OSError):  # whoever reads it says why it cannot
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise ConfigError(
                        f"{self.place}: {path} is a pipe or a device: name a file, which is read several times"
                    )
            found.append(path)
        return found

    def load(self, seed: int, config: Config) -> Playable:
        """Read it.

        Args:
            seed: of what is drawn.
            config: names the GPU resources that a trace does not name.

        Raises:
            ConfigError: it cannot be used.
        """
        if self.is_scenario:
            return self._scenario(seed)
        values = {**OPTIONS, **self.options, "seed": seed}
        try:
            with gpu_resources_in_force(config.gpu_resources):
                return read_input(argparse.Namespace(**values))
        except UsageError as error:
            raise ConfigError(f"{self.place}: {error}") from error

    def _scenario(self, seed: int) -> Scenario:
        found = read_path(Path(self.options["scenario"]))
        if len(found) != 1:
            raise ConfigError(
                f"{self.place}: {self.options['scenario']} holds {len(found)} scenarios; an input is one"
            )
        (scenario,) = found
        if scenario.config_said:
            raise ConfigError(
                f"{self.place}: scenario {scenario.name} names its own configuration, so that no "
                "other can be tried on it: take spec.config out of it"
            )
        return attrs.evolve(scenario, seed=seed)


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


class _Pickler(pickle.Pickler):
    """Mappings that cannot be changed are sent as what they hold."""

    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[MappingProxyType] = lambda given: (frozen_mapping, (dict(given),))


def frozen_mapping(entries: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A mapping that cannot be changed; the type itself has no name by which it could be sent."""
    return MappingProxyType(entries)


def pack(value: object) -> bytes:
    """The value for another process."""
    out = io.BytesIO()
    _Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()
