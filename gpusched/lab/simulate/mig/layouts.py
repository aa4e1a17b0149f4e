"""Layouts of MIG partitions: which configurations of the MIG manager a node may be labelled with.

A configuration says of each GPU of a node whether it is partitioned and into what. The built-in ones
are those that NVIDIA's GPU operator ships (``all-disabled``, ``all-1g.10gb``, ``all-balanced`` and
so on); others are read from a file in the form of mig-parted, as the operator's ConfigMap holds it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError

SEVENTHS: Final = 7
"""Compute slices of a GPU, the unit in which sizes are compared."""
WHOLE: Final = ""
"""Stands for a GPU that is not partitioned where profiles are named."""
_PROFILE: Final = re.compile(r"(?P<bare>([1-7])g\.[0-9]+gb)(?:[.+](?:me|gfx|me\.all))?")
_COUNT_MAX: Final = 7
_CONFIGS_MAX: Final = 200
_BYTES_MAX: Final = 1 << 20


@frozen
class MigLayout:
    """A configuration of the MIG manager.

    Attributes:
        name: the value of the label ``nvidia.com/mig.config``.
        of_gpus: for single GPUs by number; ``every`` is for those that are not named.
        every: partitions of each GPU by profile, None where GPUs that are not named stay away.
    """

    name: str
    every: Mapping[str, int] | None
    of_gpus: Mapping[int, Mapping[str, int]] = attrs.field(factory=dict)

    def provides(self, gpus: int) -> Counter[str] | None:
        """Pieces by profile on a node with so many GPUs; None where the configuration is for others."""
        if any(number >= gpus for number in self.of_gpus):
            return None
        found: Counter[str] = Counter()
        for number in range(gpus):
            pieces = self.of_gpus.get(number, self.every)
            if pieces is None:
                return None
            found.update(pieces)
        return found


@frozen
class MigProduct:
    """GPUs that are partitioned alike.

    Attributes:
        pattern: of the label ``nvidia.com/gpu.product``.
        most: partitions of each profile that fit one GPU.
        balanced: the partitions of ``all-balanced``.
    """

    name: str
    pattern: re.Pattern[str]
    most: Mapping[str, int]
    balanced: Mapping[str, int]

    def layouts(self) -> tuple[MigLayout, ...]:
        """The operator's own configurations for these GPUs."""
        found = [MigLayout("all-disabled", {WHOLE: 1})]
        found += [MigLayout(f"all-{profile}", {profile: n}) for profile, n in self.most.items()]
        if self.balanced:
            found.append(MigLayout("all-balanced", dict(self.balanced)))
        return tuple(found)


def _sevenths(name: str, pattern: str, memory: tuple[int, int, int, int]) -> MigProduct:
    """A GPU of seven compute slices, from the gigabytes of its partitions of 1, 2, 3 and 7 slices."""
    one, two, three, all_of_it = memory
    most = {
        f"1g.{one}gb": 7, f"1g.{two}gb": 4, f"2g.{two}gb": 3, f"3g.{three}gb": 2,
        f"4g.{three}gb": 1, f"7g.{all_of_it}gb": 1,
    }  # fmt: skip
    balanced = {f"1g.{one}gb": 2, f"2g.{two}gb": 1, f"3g.{three}gb": 1}
    return MigProduct(name, re.compile(pattern), most, balanced)


PRODUCTS: Final = (
    _sevenths("A100 40GB", r".*A(100|800)-(SXM4|PCIE)-40GB.*", (5, 10, 20, 40)),
    _sevenths("A100 80GB", r".*A(100|800)-(SXM4-80GB|80GB-PCIe).*", (10, 20, 40, 80)),
    _sevenths("H100 94GB", r".*H(100|800)-(NVL|SXM5-94GB).*", (12, 24, 47, 94)),
    _sevenths("GH200 96GB", r".*(GH200|H100-96GB).*", (12, 24, 48, 96)),
    _sevenths("H100 80GB", r".*H(100|800)(-80GB-HBM3|-PCIe|-SXM5-80GB).*", (10, 20, 40, 80)),
    _sevenths("H200 141GB", r".*H200.*", (18, 35, 71, 141)),
    _sevenths("B200 180GB", r".*B200.*", (23, 45, 90, 180)),
    MigProduct(
        "A30", re.compile(r".*A30.*"), {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1},
        {"1g.6gb": 2, "2g.12gb": 1},
    ),
)  # fmt: skip
"""Known GPUs, the first whose pattern a node's product has; profiles as NVIDIA's MIG user guide has them."""


def product_of(label: str) -> MigProduct | None:
    """The known GPU that a product label names; None for others."""
    bare = label.partition("-MIG-")[0].removesuffix("-SHARED")
    return next((each for each in PRODUCTS if each.pattern.fullmatch(bare)), None)


def size_of(profile: str) -> int:
    """Compute slices of a profile, in sevenths of a GPU; a whole GPU has all."""
    match = _PROFILE.fullmatch(profile)
    return int(match[2]) if match else SEVENTHS


def read_layouts(path: Path) -> tuple[MigLayout, ...]:
    """Configurations in a mig-parted file, in its order.

    Raises:
        ConfigError: the file cannot be read, or is none of mig-parted.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if len(text) > _BYTES_MAX:
        raise ConfigError(f"{path} is larger than 1 MiB: no configuration of mig-parted is")
    try:
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is no YAML: {str(error).splitlines()[0]}") from error
    named = found.get("mig-configs") if isinstance(found, dict) else None
    if not isinstance(named, dict) or not named:
        raise ConfigError(f"{path} has no mig-configs; the operator's ConfigMap shows the form")
    if len(named) > _CONFIGS_MAX:
        raise ConfigError(f"{path} has {len(named)} configurations; {_CONFIGS_MAX} can be read")
    return tuple(_layout(path, str(name), entries) for name, entries in named.items())


def _layout(path: Path, name: str, entries: Any) -> MigLayout:
    every: Mapping[str, int] | None = None
    of_gpus: dict[int, Mapping[str, int]] = {}
    for entry in _listed(path, name, entries):
        pieces = _pieces(path, name, entry)
        devices = entry.get("devices")
        if devices == "all":
            every = pieces
        elif isinstance(devices, list) and all(type(each) is int and each >= 0 for each in devices):
            of_gpus.update(dict.fromkeys(devices, pieces))
        else:
            raise _wrong(path, name, "devices are 'all' or a list of numbers")
    return MigLayout(name, every, of_gpus)


def _listed(path: Path, name: str, entries: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise _wrong(path, name, "a configuration is a list of mappings")
    yield from entries


def _pieces(path: Path, name: str, entry: Mapping[str, Any]) -> Mapping[str, int]:
    if not entry.get("mig-enabled"):
        return {WHOLE: 1}
    devices = entry.get("mig-devices") or {}
    if not isinstance(devices, dict):
        raise _wrong(path, name, "mig-devices are numbers by profile")
    for profile, count in devices.items():
        if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
            raise _wrong(path, name, f"{profile!r} is no profile such as 1g.10gb")
        if type(count) is not int or not 0 <= count <= _COUNT_MAX:
            raise _wrong(path, name, f"{profile}: {count!r} is no number from 0 to {_COUNT_MAX}")
    if sum(size_of(profile) * count for profile, count in devices.items()) > SEVENTHS:
        raise _wrong(path, name, "more than the seven compute slices of a GPU")
    return {profile.replace("+", "."): count for profile, count in devices.items()}


def _wrong(path: Path, name: str, why: str) -> ConfigError:
    return ConfigError(f"{path}, configuration {name}: {why}")


def layouts_for(
    product: MigProduct | None, given: Sequence[MigLayout], gpus: int
) -> list[tuple[MigLayout, Counter[str]]]:
    """Layouts that a node may get, each with what it then provides.

    Args:
        product: of its GPUs, None where it is not known.
        given: configurations of a file, empty for the built-in ones of the product.
        gpus: of the node.
    """
    known = given or (product.layouts() if product is not None else ())
    found = []
    for each in known:
        pieces = each.provides(gpus)
        if pieces is not None and (product is None or _are_of(product, pieces)):
            found.append((each, pieces))
    return found


def _are_of(product: MigProduct, pieces: Mapping[str, int]) -> bool:
    return all(name == WHOLE or _bare(name) in product.most for name in pieces)


def _bare(profile: str) -> str:
    """A profile without its media extensions, which change no size."""
    match = _PROFILE.fullmatch(profile)
    return match["bare"] if match else profile
