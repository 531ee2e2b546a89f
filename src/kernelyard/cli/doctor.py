"""``kernelyard doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelyard.cli.output import emit_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelyard.author.doctor import Examination
    from kernelyard.load.system.description import System

__all__ = ["command"]


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, for `--system FILE` of other commands.")
def command(*, as_json: bool) -> None:
    """Say what is on this machine for kernels, what is missing, and what to do.

    Nothing is changed and no hub is asked. What is printed as JSON has all installed packages with their versions, and
    paths; it has no passwords and tokens.
    """
    from kernelyard.author.doctor import examine

    found = examine()
    if as_json:
        emit_json(found.to_json())
        return
    for name, text in _lines(found):
        click.echo(f"{name:10} {text}".rstrip())
    click.echo()
    if not found.advice:
        click.echo("Nothing is missing.")
    for advice in found.advice:
        click.echo(f"{'!' if advice.serious else '-'} {advice.what}")
        if advice.step:
            click.echo(f"    {advice.step}")


def _lines(found: Examination) -> Iterator[tuple[str, str]]:
    system = found.system
    libraries = {"glibc": system.glibc, "musl": system.musl, "macOS": system.macos}
    library = "".join(f", {name} {version}" for name, version in libraries.items() if version is not None)
    threads = ", free-threaded" if system.free_threaded else ""
    yield "system", f"{system.platform}{library}, Python {system.python[0]}.{system.python[1]}{threads}"
    yield "torch", _torch(system)
    yield from _gpus(system)
    yield "hub", found.hub or "none"
    for path, said in found.policies.items():
        yield "policy", f"{path}, which {said}"
    yield "store", found.store or "none"
    for layer in found.layers:
        there = "which is only read" if Path(layer).is_dir() else "which is not there"
        yield "", f"above {layer}, {there}"
    for name, version in found.programs.items():
        yield name, version or "not installed"
    for name, text in (found.author or {}).items():
        yield name, text
    for name, value in found.variables.items():
        yield "variable", f"{name}={value}"


def _torch(system: System) -> str:
    torch = system.torch
    if torch is None:
        return "not installed"
    made_for = {"CUDA": torch.cuda, "ROCm": torch.hip, "XPU": torch.xpu}
    for_ = ", ".join(f"for {name} {version}" for name, version in made_for.items() if version is not None)
    abi = {True: ", C++11 ABI", False: ", C++ ABI from before C++11", None: ""}[torch.cxx11_abi]
    return f"{torch.version}, {for_ or 'CPU-only'}{abi}{'' if torch.release else ', no release'}, {torch.folder}"


def _gpus(system: System) -> Iterator[tuple[str, str]]:
    from kernelyard.load.choice.device_code import newest_ptx

    if system.driver is not None:
        yield "driver", f"{system.driver}, takes PTX up to {newest_ptx(system.driver) or 'what is older than 7.1'}"
    for number, gpu in enumerate(system.gpus):
        first = ", CUDA's first" if number == 0 and system.gpus_in_order and len(system.gpus) > 1 else ""
        yield "GPU", f"{gpu.index}: {gpu.name or gpu.uuid} ({gpu.capability[0]}.{gpu.capability[1]}){first}"
    for architecture in system.amd_gpus:
        yield "GPU", f"AMD, {architecture}"
    if not system.gpus and not system.amd_gpus:
        yield "GPU", "none that is visible"
