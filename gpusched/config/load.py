"""The configuration from its files: what is believed, or every problem with its place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import CONFIG_BYTES_MAX
from gpusched.config.gpu_layouts import catalog_path, load_layouts
from gpusched.config.model import Config
from gpusched.config.read import read_config
from gpusched.config.yaml_parser import file_too_large_message, parse_yaml, read_file
from gpusched.config.yaml_tree import ConfigProblems

MOUNTED: Final = Path("/etc/gpusched/gpusched.yaml")
"""Where the Deployment mounts the configuration; used when it is there and none is named."""


@frozen
class ConfigFiles:
    """What was read.

    Attributes:
        raw: the configuration.
        layouts: the catalogue of GPU layouts beside it; None where there is none.
    """

    raw: bytes
    layouts: bytes | None = None

    @property
    def digest(self) -> str:
        """What tells two contents apart: SHA-256 in hexadecimal; of one file, or of both."""
        if self.layouts is None:
            return content_digest(self.raw)
        return content_digest(self.raw + b"\0" + self.layouts)


def configuration_path(named: str | None) -> str | None:
    """The file of ``--config``, else the mounted one; None where neither is there."""
    return named or (str(MOUNTED) if MOUNTED.exists() else None)


def load_file(path: str) -> Config:
    """Read a configuration file, and the catalogue of GPU layouts beside it.

    Raises:
        ConfigError: see ``read_files`` and ``load_files``.
    """
    return load_files(read_files(path), source=path)


def read_files(path: str) -> ConfigFiles:
    """The content of a configuration file and of the catalogue beside it.

    Raises:
        ConfigError: one of them cannot be opened, or is too large.
    """
    raw = read_file(path)
    catalogue = catalog_path(path)
    return ConfigFiles(raw, read_file(str(catalogue)) if catalogue.exists() else None)


def load_files(files: ConfigFiles, *, source: str) -> Config:
    """Read a configuration with its catalogue.

    Args:
        files: as they were read.
        source: the configuration's name for sentences.

    Raises:
        ConfigError: with one sentence a problem in either.
    """
    problems: list[str] = []
    config = layouts = None
    try:
        config = load_raw(files.raw, source=source)
    except ConfigError as error:
        problems += error.problems
    if files.layouts is not None:
        try:
            layouts = load_layouts(files.layouts, source=str(catalog_path(source)))
        except ConfigError as error:
            problems += error.problems
    if config is None or problems:
        raise ConfigError(*problems)
    return attrs.evolve(config, layouts=layouts, digest=files.digest)


def content_digest(raw: bytes) -> str:
    """What tells two contents apart: SHA-256 in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def load_raw(raw: bytes, *, source: str) -> Config:
    """Read a configuration from the bytes of a file.

    Raises:
        ConfigError: they are no UTF-8 text, or see ``load``.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{source}:{line}: is not UTF-8 text") from error
    return attrs.evolve(load_config(text, source=source), digest=content_digest(raw))


def load_config(text: str, *, source: str) -> Config:
    """Read a configuration.

    Args:
        text: YAML.
        source: the file's name for sentences.

    Raises:
        ConfigError: with one sentence a problem, each beginning ``source:line:``.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigError(f"{source}:{line}: holds a character that YAML does not allow") from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise file_too_large_message(source)
    problems = ConfigProblems(source)
    root = parse_yaml(raw, problems)
    if root is None:
        raise problems.error()
    config = read_config(root, problems)
    if problems or config is None:
        raise problems.error()
    return attrs.evolve(config, digest=content_digest(raw))
