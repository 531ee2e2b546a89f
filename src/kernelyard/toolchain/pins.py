"""What is pinned: the releases that parts of a toolchain are taken from (``pins.toml``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import tomli

__all__ = ["known_cuda", "known_headers", "known_tools", "known_torch"]


def known_cuda() -> Mapping[str, Mapping[str, Any]]:
    """Return what is pinned of each CUDA version (``pins.toml``)."""
    table: Mapping[str, Mapping[str, Any]] = _pins()["cuda"]
    return table


def known_torch() -> Mapping[str, Mapping[str, Any]]:
    """Return what is pinned of each torch version (``pins.toml``)."""
    table: Mapping[str, Mapping[str, Any]] = _pins()["torch"]
    return table


def known_headers() -> Mapping[str, Mapping[str, Any]]:
    """Return what is pinned of each library of headers (``pins.toml``)."""
    table: Mapping[str, Mapping[str, Any]] = _pins()["headers"]
    return table


def known_tools() -> Mapping[str, Mapping[str, Any]]:
    """Return what is pinned of each program that builds from a lock run (``pins.toml``)."""
    table: Mapping[str, Mapping[str, Any]] = _pins()["tools"]
    return table


@cache
def _pins() -> Mapping[str, Any]:
    return tomli.loads(files("kernelyard.toolchain").joinpath("pins.toml").read_text("utf-8"))
