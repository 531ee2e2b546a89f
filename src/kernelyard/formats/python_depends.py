"""What a kernel asks of Python: the bare names that every tool of the ecosystem knows, and whole requirements.

``metadata.json`` has the names of a fixed list and nothing else, for other loaders refuse any other. Facts have
requirements as pip understands them, for the loader of Kernelyard.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PACKAGES", "bare_names", "package_requirements"]

#: Curated name -> the package that it means, where the two differ.
PACKAGES = {"onednn": "onednn-devel", "tvm-ffi": "apache-tvm-ffi"}


def bare_names(requirements: Iterable[str], backend: str) -> tuple[str, ...]:
    """Return the curated names among requirements of a variant, each once, in the order of the requirements.

    A requirement of a curated package with a range counts by its name. One with a marker does not: other loaders
    would ask for the package where the marker says that it is not needed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    from kernelyard.formats.editions.keys import CURATED

    curated = (*CURATED[""], *CURATED.get(backend, ()))
    names = {canonicalize_name(package): name for name in curated for package in (name, PACKAGES.get(name, name))}
    parsed = map(Requirement, requirements)
    found = (names.get(canonicalize_name(one.name)) for one in parsed if one.marker is None)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def package_requirements(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return requirements as pip understands them, each once: curated names are replaced by those of packages."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found = []
    for text in requirements:
        requirement = Requirement(text)
        package = PACKAGES.get(canonicalize_name(requirement.name))
        if package is not None:
            requirement.name = package
        # What names a package is kept as the author wrote it.
        found.append(text if package is None else str(requirement))
    return tuple(dict.fromkeys(found))
