"""Configurations to compare, as the command line names them: ``--config`` and ``--set``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.api.meta.duration import parse_duration
from gpusched.base.classes import define, frozen
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.inspect.listing.printed_listing import print_notes
from gpusched.config.model import DEFAULT, Config
from gpusched.config.yaml_parser import parse_yaml
from gpusched.config.yaml_tree import ConfigProblems
from gpusched.lab.scenario.file.configuration import daemon_configuration
from gpusched.lab.scenario.file.context import ReadContext
from gpusched.lab.simulate.played_shards import shards_notes
from gpusched.lab.simulate.variations import (
    ChangeableNames,
    Variations,
    fifo_config,
    wrong_changes,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
FIRST: Final = "now"
_QUEUE_AMOUNTS: Final = ("deserved", "capability", "guarantee")
_QUEUE_NUMBERS: Final = (*_QUEUE_AMOUNTS, "weight", "priority")
_QUEUE_TIMES: Final = ("minRuntime", "maxRuntime", "maxWait")
_ORDERINGS: Final = ("Priority", "Fifo", "StrictFifo", "FairShare")
QUEUE_FIELDS: Final = (*_QUEUE_NUMBERS, *_QUEUE_TIMES, "ordering", "reclaimable")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"walltimes": ("truth", "nothing"), "fifo": ("true", "false")}
)
_CONFIG_PARTS: Final = ("placement", "cycle", "limits", "actions", "plugins")
RUNS_MAX: Final = 6


@frozen(kw_only=True)
class SimulationSetting:
    """One configuration with what else is different under it.

    Attributes:
        places: where each key of ``--set`` is written, for sentences.
    """

    name: str
    config: Config
    changes: Variations
    places: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)


@define
class _SettingDraft:
    file: str | None = None
    config: dict[str, Any] = attrs.Factory(dict)
    queues: list[tuple[str, str, Any]] = attrs.Factory(list)
    topology: dict[str, str] = attrs.Factory(dict)
    told: bool | None = None
    fifo: bool = False
    places: dict[str, str] = attrs.Factory(dict)


def settings(configs: Iterable[str], sets: Iterable[str]) -> list[SimulationSetting]:
    """The configurations, in the order in which they were first named; ``now`` where none is.

    A configuration that only ``--set`` names begins as the first ``--config``, else as the shipped
    one; where no ``--config`` is given, the shipped one, ``now``, is the first to compare with.

    Raises:
        UsageError: what cannot be understood.
        ConfigError: a file or a value is wrong.
    """
    drafts: dict[str, _SettingDraft] = {}
    for text in configs:
        name, file = _named(text, "--config", "NAME=FILE", "=")
        if name in drafts:
            raise UsageError(f"--config {text}: there is a configuration {name} already")
        drafts[name] = _SettingDraft(file=file)
    base = next(iter(drafts.values())).file if drafts else None
    if not drafts:
        drafts[FIRST] = _SettingDraft()
    for text in sets:
        name, rest = _named(text, "--set", "NAME:KEY=VALUE", ":")
        _set(drafts.setdefault(name, _SettingDraft(file=base)), rest, f"--set {text}")
    if len(drafts) > RUNS_MAX:
        raise UsageError(
            f"{len(drafts)} configurations are more than the {RUNS_MAX} that fit a page"
        )
    return [_setting(name, draft, f"--set {name}") for name, draft in drafts.items()]


def print_shards_note(
    chosen: Iterable[SimulationSetting], objects: Iterable[Mapping[str, Any]] = ()
) -> None:
    """Say on stderr of configurations with shards how they are played.

    Args:
        chosen: configurations.
        objects: of the cluster, of which nodes are named that belong to no shard, or to several.
    """
    there = [*objects]
    for each in chosen:
        notes = shards_notes(each.config, there)
        print_notes([f"configuration {each.name}: {note}" for note in notes])


def check_changes(chosen: Iterable[SimulationSetting], names: ChangeableNames) -> None:
    """Look at what changes are about, before anything is played.

    Raises:
        ConfigError: at a queue or level that is not there.
    """
    wrong = [
        f"{each.places.get(key, key)}: {sentence}"
        for each in chosen
        for key, sentence in wrong_changes(each.changes, names)
    ]
    if wrong:
        raise ConfigError(*wrong)


def setting_of(
    name: str,
    file: str | None,
    changes: Sequence[tuple[str, str]],
    *,
    place: str,
    places: Mapping[str, str] = MappingProxyType({}),
) -> SimulationSetting:
    """One configuration with changes to it.

    Args:
        name: of the setting.
        file: the configuration to begin with; None for the shipped one.
        changes: keys of ``--set`` with their values.
        place: where they are written, for sentences.
        places: the same of single keys, where it is known.

    Raises:
        UsageError: a key or value that cannot be understood.
        ConfigError: the file, or a value of the configuration, is wrong.
    """
    spoken = [f"{places.get(key, place)} {key}={value}" for key, value in changes]
    draft = _SettingDraft(file=file)
    for (key, value), text in zip(changes, spoken, strict=True):
        _set(draft, f"{key}={value}", text)
    try:
        return _setting(name, draft, "")
    except ConfigError as error:
        where = _first_wrong(file, changes, spoken)
        raise ConfigError(*(f"{where}{each}" for each in error.problems)) from error


def _first_wrong(
    file: str | None, changes: Sequence[tuple[str, str]], spoken: Sequence[str]
) -> str:
    """The change with which a configuration becomes wrong, as it begins a sentence; empty where its file is."""
    draft = _SettingDraft(file=file)
    for (key, value), text in zip((("", ""), *changes), ("", *spoken), strict=True):
        if key:
            _set(draft, f"{key}={value}", text)
        try:
            _setting("", draft, "")
        except ConfigError:
            return text and f"{text}: "
    return ""


def _named(text: str, option: str, form: str, mark: str) -> tuple[str, str]:
    name, found, rest = text.partition(mark)
    if not found or not rest or _NAME.fullmatch(name) is None:
        raise UsageError(f"{option} takes {form}, not {text!r}")
    return name, rest


def _set(draft: _SettingDraft, rest: str, text: str) -> None:
    key, found, value = rest.partition("=")
    draft.places[key] = text
    path = key.split(".")
    if not found or not value or not all(path):
        raise UsageError(f"{text}: --set takes NAME:KEY=VALUE")
    if path[0] == "queue":
        _set_queue(draft, path[1:], value, text)
    elif path[0] == "topology" and path[1:] in (["required"], ["preferred"]):
        draft.topology[path[1]] = value
    elif key in _WORDS:
        if value not in _WORDS[key]:
            raise UsageError(f"{text}: {key} is {' or '.join(_WORDS[key])}")
        if key == "walltimes":
            draft.told = value == "truth"
        else:
            draft.fifo = value == "true"
    elif path[0] in _CONFIG_PARTS:
        _set_config(draft, path, value, text)
    else:
        raise UsageError(
            f"{text}: there is no {key!r}; keys begin with queue., topology.required, "
            "topology.preferred, walltimes (truth, nothing), fifo (true, false), placement., cycle., "
            "limits., actions, plugins."
        )


def _set_queue(draft: _SettingDraft, path: list[str], value: str, text: str) -> None:
    if len(path) < 2 or path[-1] not in QUEUE_FIELDS:
        raise UsageError(f"{text}: it takes queue.NAME.FIELD; fields are {', '.join(QUEUE_FIELDS)}")
    name, field = ".".join(path[:-1]), path[-1]
    found: Any = value
    if field in _QUEUE_NUMBERS:
        if _WHOLE.fullmatch(value) is None:
            unit = " of GPUs" if field in _QUEUE_AMOUNTS else ""
            raise UsageError(f"{text}: {field} is a whole number{unit} from 0 to 999,999,999")
        found = int(value)
    elif field in _QUEUE_TIMES:
        try:
            parse_duration(value)
        except ValueError as error:
            raise UsageError(f"{text}: {error}") from None
    elif field == "ordering" and value not in _ORDERINGS:
        raise UsageError(f"{text}: orderings are {', '.join(_ORDERINGS)}")
    elif field == "reclaimable":
        if value not in ("true", "false"):
            raise UsageError(f"{text}: reclaimable is true or false")
        found = value == "true"
    draft.queues.append((name, field, found))


def _set_config(draft: _SettingDraft, path: list[str], value: str, text: str) -> None:
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    if path == ["actions"]:
        found = [each.strip() for each in value.split(",")]
    inner = draft.config
    for step in path[:-1]:
        inner = inner.setdefault(step, {})
        if not isinstance(inner, dict):
            raise UsageError(f"{text}: {step} has a value already")
    inner[path[-1]] = found


def _setting(name: str, draft: _SettingDraft, place: str) -> SimulationSetting:
    """The configuration of a draft; sentences about what is set in it begin with its place, if there is one."""
    said = dict(draft.config)
    reading = ReadContext(Path(), place)
    problems = ConfigProblems(place)
    node = parse_yaml(json.dumps(said).encode(), problems) if said else None
    if problems:
        raise _placed(problems.error().problems, place)
    given = Path(draft.file) if draft.file is not None else None
    config = daemon_configuration(node, given, reading) if node or given else DEFAULT
    if reading.sentences:
        raise _placed(reading.sentences, place)
    changes = Variations(
        queues=tuple(draft.queues),
        topology=draft.topology,
        told=None if draft.told and draft.fifo else draft.told,
        fifo=draft.fifo,
    )
    if draft.fifo:
        config = fifo_config(config)
    return SimulationSetting(name=name, config=config, changes=changes, places=draft.places)


def _placed(sentences: Iterable[str], place: str) -> ConfigError:
    """Without the number of a line, as what is set is written in one."""
    begin = f"{place}: " if place else ""
    line = re.compile(rf"{re.escape(place)}:[0-9]+: ")
    return ConfigError(
        *(line.sub(begin, each, count=1) if line.match(each) else each for each in sentences)
    )
