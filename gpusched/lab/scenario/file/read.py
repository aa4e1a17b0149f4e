"""Scenarios out of files: all of them are right, or everything that is wrong is told at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.errors import ConfigError
from gpusched.base.limits import SCENARIO_FILE_BYTES_MAX
from gpusched.config.values import BadValueError
from gpusched.config.yaml_parser import read_file
from gpusched.config.yaml_tree import YamlNode, quoted
from gpusched.devcluster.registry.gangs.features import OFF, GangFeatures, read_features
from gpusched.devcluster.stages.node_pools import DEVICES_ANNOTATION
from gpusched.lab.scenario.file.checks import check_scenario
from gpusched.lab.scenario.file.configuration import daemon_configuration, says_plays
from gpusched.lab.scenario.file.context import SUFFIXES, ReadContext, yaml_files
from gpusched.lab.scenario.file.expectations import read_expectation, read_table
from gpusched.lab.scenario.file.fields import SCENARIO
from gpusched.lab.scenario.file.mappings import MappingValues
from gpusched.lab.scenario.file.objects import (
    is_scenario,
    read_manifests,
    read_nodes,
    read_object_file,
    read_object_list,
    read_priorities,
    read_queues,
)
from gpusched.lab.scenario.file.timeline import read_entry
from gpusched.lab.scenario.model.scenario import (
    FaultAct,
    Manifest,
    RestartAct,
    Scenario,
    TimelineEntry,
)

FILE: Final = "scenario.yaml"
"""Makes a folder one scenario."""
_MARK: Final = re.compile(
    rb"^(---\s+)?['\"{\s]*(kind['\"]?:\s*['\"]?Scenario\b|apiVersion['\"]?:\s*['\"]?scenario[.]gpusched[.]io/)",
    re.MULTILINE,
)


def read_path(path: Path, *, config: Path | None = None) -> list[Scenario]:
    """Scenarios of one file or folder; see ``read_paths``."""
    return read_paths([path], config=config)


def read_paths(paths: Iterable[Path], *, config: Path | None = None) -> list[Scenario]:
    """The scenarios of files and folders.

    Args:
        paths: files that hold a scenario, folders that are one, and folders that hold some.
        config: of the daemons, instead of the shipped one.

    Raises:
        ConfigError: with a sentence for everything that is wrong, ``FILE:LINE: ...``.
    """
    sentences: list[str] = []
    found: list[Scenario] = []
    for path in paths:
        try:
            files = _files(path)
        except ConfigError as error:
            sentences += error.problems
            continue
        except OSError as error:
            sentences.append(_unreadable(path, error))
            continue
        for file in files:
            try:
                found.append(_scenario(file, config))
            except ConfigError as error:
                sentences += error.problems
            except OSError as error:
                sentences.append(_unreadable(file, error))
    sentences += _doubles(found)
    if sentences:
        raise ConfigError(*sentences)
    return found


def _unreadable(path: Path, error: OSError) -> str:
    """Of a folder, or of something in one, that this user may not look into."""
    return f"{error.filename or path}: cannot be read: {error.strerror or error}"


def _doubles(scenarios: Sequence[Scenario]) -> list[str]:
    first: dict[str, Scenario] = {}
    sentences = []
    for scenario in scenarios:
        other = first.setdefault(scenario.name, scenario)
        if other is not scenario:
            sentences.append(
                f"{scenario.place}: scenario {quoted(scenario.name)} is there twice: "
                f"the first is {other.place}"
            )
    return sentences


def _files(path: Path) -> list[Path]:
    """The files of scenarios under a path, names in order."""
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or folder")
    if not path.is_dir():
        return [path]
    if found := _files_inside(path):
        return found
    raise ConfigError(f"{path}: holds no scenario: no {FILE}, and no file with kind: Scenario")


def _files_inside(folder: Path) -> list[Path]:
    own = folder / FILE
    if own.is_file():
        return [own]
    found: list[Path] = []
    for each in sorted(folder.iterdir()):
        if each.is_dir():
            found += _files_inside(each)
        elif each.suffix in SUFFIXES and _is_one(each):
            found.append(each)
    return found


def _is_one(path: Path) -> bool:
    return _MARK.search(read_file(str(path), most=SCENARIO_FILE_BYTES_MAX)) is not None


# -- one scenario ------------------------------------------------------------------------------
def _scenario(file: Path, config: Path | None) -> Scenario:
    reading = ReadContext(file.parent, str(file))
    documents = reading.documents(file)
    scenario = None
    ones = [node for node in documents if is_scenario(node)]
    if ones:
        for other in ones[1:]:
            reading.problems.add(other.line, "a second scenario begins: one file holds one")
        beside = [node for node in documents if not is_scenario(node)]
        scenario = _read(ones[0], beside, reading, config)
    elif not reading.sentences:
        raise ConfigError(f"{file}: holds no document of kind Scenario")
    if scenario is not None and not reading.sentences:
        with gpu_resources_in_force(scenario.config.gpu_resources):
            check_scenario(scenario, reading.refuse)
    if sentences := reading.sentences:
        raise ConfigError(*sentences)
    assert scenario is not None
    return scenario


def _read(
    node: YamlNode, beside: Sequence[YamlNode], reading: ReadContext, config: Path | None
) -> Scenario | None:
    try:
        found: MappingValues = SCENARIO.read(node, "a scenario", reading.problems)
    except BadValueError as error:
        reading.problems.add(error.line, error.what)
        return None
    metadata, spec = found.get("metadata"), found.get("spec")
    if metadata is None or spec is None:
        return None
    said = daemon_configuration(spec.get("config"), config, reading)
    default = Scenario(
        name=metadata.get("name", ""),
        teaches=spec.get("teaches", ""),
        folder=reading.folder,
        place=reading.place(node.line),
        config=said,
        config_said="config" in spec,
        plays_starts=says_plays(spec.get("config")),
    )
    # Bare numbers of GPUs are of the resource that the configuration names first.
    with gpu_resources_in_force(said.gpu_resources):
        return _with_story(default, spec, beside, reading)


def _with_story(
    default: Scenario, spec: MappingValues, beside: Sequence[YamlNode], reading: ReadContext
) -> Scenario:
    """A scenario with what is there before, what happens, and what is expected."""
    stages = [reading.path(each.value, each.line) for each in spec.get("stages", ())]
    timeline = [made for each in spec.get("timeline", ()) if (made := read_entry(each, reading))]
    expect = [one for each in spec.get("expect", ()) if (one := read_expectation(each, reading))]
    before = [
        *read_nodes(spec.get("nodes", ()), reading),
        *read_queues(spec.get("queues", ()), reading),
        *read_priorities(spec, reading),
        *read_object_list(spec.get("objects", ()), reading),
        *(each for one in beside for each in read_manifests(one, reading)),
    ]
    before += _folder_objects(reading)
    return attrs.evolve(
        default,
        seed=spec.get("seed", default.seed),
        daemons=spec.get("daemons", default.daemons),
        limit_s=spec.get("limit", default.limit_s),
        settle_s=spec.get("settle", default.settle_s),
        slack_s=spec.get("slack", default.slack_s),
        ends_s=spec.get("ends"),
        before=tuple(before),
        gangs=_gangs(spec, reading),
        stages=tuple(path for path in stages if path is not None),
        timeline=tuple(timeline),
        expect=tuple(expect),
        tables=tuple(read_table(each, reading) for each in spec.get("tables", ())),
        embedded_only=_embedded_only(timeline, before),
    )


def _gangs(spec: MappingValues, reading: ReadContext) -> GangFeatures:
    """What the cluster is to serve of Kubernetes' own gangs."""
    said: MappingValues | None = spec.get("cluster")
    if said is None:
        return OFF
    gates = said.get("featureGates", {})
    text = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
    try:
        return read_features(said.get("kubernetesGangs", "off"), text)
    except ConfigError as error:
        reading.problems.add(spec.line_of("cluster"), f"cluster: {error}")
        return OFF


def _folder_objects(reading: ReadContext) -> list[Manifest]:
    """The other files of a folder that is one scenario, but those that something names."""
    own = Path(reading.file)
    if own.name != FILE:
        return []
    taken = {own.resolve(), *reading.used}
    found = []
    for path in yaml_files(reading.folder):
        if path.resolve() not in taken:
            found += read_object_file(path, reading)
    return found


def _embedded_only(timeline: Sequence[TimelineEntry], before: Sequence[Manifest]) -> str:
    for each in timeline:
        if isinstance(each.act, FaultAct):
            return f"{each.place}: a fault of the API server needs the embedded cluster"
        if isinstance(each.act, RestartAct):
            return f"{each.place}: a restart of the {each.act.what} needs the embedded cluster"
    for one in before:
        if DEVICES_ANNOTATION in (one.obj["metadata"].get("annotations") or {}):
            return f"{one.place}: devices of nodes need the embedded cluster, which publishes them"
    return ""
