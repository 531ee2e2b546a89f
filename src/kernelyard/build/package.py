"""From an extension to a variant directory: files, facts, metadata, checks, and only then its place in ``build/``."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernelyard.check import Evidence, Finding, check_variant, gather
from kernelyard.check.symbols import python_stable_abi
from kernelyard.errors import CheckError, EnvironmentProblemError, Place
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.manifest import KernelDependency, Manifest
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import hash_tree
from kernelyard.project.generate import MOVE_PROJECT, render_ops
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project
from kernelyard.store import writing
from kernelyard.toolchain.assemble import Toolchain
from kernelyard.toolchain.floor import forbidden_archive_members

__all__ = ["UnfitError", "package_variant"]


class UnfitError(CheckError):
    """A build is refused by the checks; ``findings`` says why."""

    def __init__(self, variant: str, findings: tuple[Finding, ...]) -> None:
        shown = "\n".join(f"  {finding}" for finding in findings[:_MOST_SHOWN])
        more = f"\n  and {len(findings) - _MOST_SHOWN} more" if len(findings) > _MOST_SHOWN else ""
        super().__init__("KY421", f"the build is not fit to be shipped:\n{shown}{more}", place=Place(variant))
        self.findings = findings


_MOST_SHOWN = 12


def package_variant(
    project: Project, plan: VariantPlan, toolchain: Toolchain, *, name: str, built: Path, aside: Path
) -> Path:
    """Make the variant directory and move it to its place.

    Args:
        project: The author's.
        plan: Of the variant.
        toolchain: That it was built with.
        name: The unique name of the build.
        built: The folder with the linked ``extension.abi3.so`` and the linker's map.
        aside: A folder on the same file system as ``build/``, for what is not finished.

    Returns:
        ``build/<variant>``.

    Raises:
        UnfitError: A check refuses the build; ``build/`` is as it was.
        EnvironmentProblemError: The disk is full or a folder cannot be written.
    """
    final = project.root / "build" / plan.name
    with writing(project.root, elsewhere=MOVE_PROJECT):
        work = aside / uuid.uuid4().hex / plan.name
        work.mkdir(parents=True)
        try:
            _copy_files(project, name, built, work)
            refused = _check_archive_members(built, name)
            evidence = _describe(project, plan, toolchain, name, work)
            findings = (*refused, *check_variant(evidence))
            if findings:
                raise UnfitError(plan.name, findings)
            _replace_folder(work, final)
        finally:
            shutil.rmtree(work.parent, ignore_errors=True)
    return final


def _copy_files(project: Project, name: str, built: Path, work: Path) -> None:
    for inside, path in project.python_files().items():
        target = work / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    work.joinpath("_ops.py").write_text(render_ops(name), "utf-8")
    work.joinpath(f"{name}.abi3.so").write_bytes((built / "extension.abi3.so").read_bytes())


def _describe(project: Project, plan: VariantPlan, toolchain: Toolchain, name: str, work: Path) -> Evidence:
    """Write ``metadata.json`` and return what the folder then shows."""
    general = project.manifest.general
    metadata = Metadata(
        name=general.name,
        id=name,
        version=general.version,
        license=general.license,
        backend=plan.backend,
        archs=plan.capabilities or None,
        python_depends=_python_depends(project.manifest, plan.backend),
        kernel_depends=tuple(map(_dependency, _kernel_depends(project.manifest, plan.backend))),
        upstream=general.upstream,
        source=general.source,
        digest_algorithm="sha256",
        digest=hash_tree(work),
    )
    path = work / "metadata.json"
    path.write_bytes(metadata.to_json())
    facts = _facts(gather(work), plan, toolchain)
    path.write_bytes(replace(metadata, facts=facts).to_json())
    return gather(work)


def _facts(evidence: Evidence, plan: VariantPlan, toolchain: Toolchain) -> Facts:
    """Return what is true of the binaries, not what was intended."""
    libraries = evidence.libraries
    undefined = {symbol.name for library in libraries for symbol in library.elf.undefined}
    images = {
        DeviceImage(code.kind, code.capability, Version(code.ptx_isa) if code.ptx_isa else None)
        for library in libraries
        for code in library.device_code
        if code.runnable
    }
    known = python_stable_abi()
    python = max((known[symbol] for symbol in undefined if symbol in known), default=(3, 2))
    torch = Version(plan.stable_abi or plan.torch)
    return replace(
        Facts.of_name(VariantName.parse(plan.name)),
        glibc=_newest_glibc(evidence),
        torch=torch,
        # The binary may run on something older; the Python files beside it are written for the floor.
        python=Version("3.9") if python <= (3, 9) else Version(f"{python[0]}.{python[1]}"),
        driver=toolchain.cuda.driver if toolchain.cuda else None,
        images=tuple(sorted(images, key=lambda image: (image.kind, image.capability))),
        needed=tuple(sorted({name for library in libraries for name in library.elf.needed})),
        undefined=tuple(sorted(undefined)),
        requirements=evidence.metadata.python_depends,
    )


def _newest_glibc(evidence: Evidence) -> Version | None:
    versions = [
        Version(version.removeprefix("GLIBC_"))
        for library in evidence.libraries
        for wanted in library.elf.version_needs.values()
        for version in wanted
        if version.startswith("GLIBC_") and version[6:7].isdigit()
    ]
    return max(versions, default=None)


def _check_archive_members(built: Path, name: str) -> tuple[Finding, ...]:
    members = forbidden_archive_members((built / "extension.map").read_text("utf-8", errors="replace"))
    return tuple(
        Finding(
            "KY114",
            f"would carry a hidden second copy of libstdc++'s {member}, which a process must have once",
            f"{name}.abi3.so",
            "avoid the feature, or build with an older g++ (set CXX)",
        )
        for member in members
    )


def _replace_folder(work: Path, final: Path) -> None:
    final.parent.mkdir(exist_ok=True)
    if final.parent.stat().st_dev != work.stat().st_dev:
        raise EnvironmentProblemError(
            "KY414",
            "this folder is on another file system than the project, so a build cannot be moved there in one step",
            hint="make `build` a plain folder of the project",
            place=Place(str(final.parent)),
        )
    if final.exists():
        # Two renames: a kill between them leaves no variant at all, never a mixture.
        final.rename(work.parent / "replaced")
    work.rename(final)


def _python_depends(manifest: Manifest, backend: str) -> tuple[str, ...]:
    of_backend = manifest.general.of_backend.get(backend)
    both = (*manifest.general.python_depends, *(of_backend.python_depends if of_backend else ()))
    return tuple(dict.fromkeys(both))


def _kernel_depends(manifest: Manifest, backend: str) -> Iterable[KernelDependency]:
    of_backend = manifest.general.of_backend.get(backend)
    return (*manifest.general.kernel_depends, *(of_backend.kernel_depends if of_backend else ()))


def _dependency(dependency: KernelDependency) -> dict[str, object]:
    if dependency.version is not None:
        return {"repo-id": dependency.repo_id, "version": dependency.version}
    return {"repo-id": dependency.repo_id, "revision": dependency.revision}
