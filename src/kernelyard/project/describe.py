"""What the manifest says of a build, as its ``metadata.json`` has it."""

from __future__ import annotations

from kernelyard.formats.manifest import KernelDependency, Manifest
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.python_depends import bare_names
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project

__all__ = ["describe_build", "requirements"]


def describe_build(project: Project, plan: VariantPlan, name: str) -> Metadata:
    """Return the metadata of a build; what only the finished files can tell is left out.

    Args:
        project: The author's.
        plan: Of the variant.
        name: The unique name of the build.
    """
    manifest, general = project.manifest, project.manifest.general
    return Metadata(
        name=general.name,
        id=name,
        version=general.version,
        license=general.license,
        backend=plan.backend,
        archs=plan.capabilities or None,
        python_depends=bare_names(requirements(manifest, plan.backend), plan.backend),
        kernel_depends=tuple(map(_dependency, _kernel_depends(manifest, plan.backend))),
        upstream=general.upstream,
        source=general.source,
    )


def requirements(manifest: Manifest, backend: str) -> tuple[str, ...]:
    """Return what a kernel depends on for a backend, as its manifest writes it."""
    of_backend = manifest.general.of_backend.get(backend)
    both = (*manifest.general.python_depends, *(of_backend.python_depends if of_backend else ()))
    return tuple(dict.fromkeys(both))


def _kernel_depends(manifest: Manifest, backend: str) -> tuple[KernelDependency, ...]:
    of_backend = manifest.general.of_backend.get(backend)
    return (*manifest.general.kernel_depends, *(of_backend.kernel_depends if of_backend else ()))


def _dependency(dependency: KernelDependency) -> dict[str, object]:
    if dependency.version is not None:
        return {"repo-id": dependency.repo_id, "version": dependency.version}
    return {"repo-id": dependency.repo_id, "revision": dependency.revision}
