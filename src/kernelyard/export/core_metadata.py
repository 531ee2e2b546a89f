"""``METADATA`` of a wheel: core metadata 2.4, which has SPDX expressions and licence files.

https://packaging.python.org/en/latest/specifications/core-metadata/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.python_depends import package_requirements
from kernelyard.formats.versions import Version

__all__ = ["OLDEST_PYTHON", "render_metadata", "required_packages"]

#: That builds of the ecosystem promise, where a variant does not say.
OLDEST_PYTHON = Version("3.9")


def required_packages(facts: Facts) -> tuple[str, ...]:
    """Return what a variant requires of other packages: what it binds to by the rules of the loader, then its own.

    Raises:
        InputError: A requirement is none (KY803).
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    own = _framework(facts)
    name = Requirement(own).name
    found = [own]
    try:
        for text in package_requirements(facts.requirements or ()):
            requirement = Requirement(text)
            # The bare name of what the first line has with a range says nothing more.
            if str(requirement) != name and canonicalize_name(str(requirement)) != name:
                found.append(str(requirement))
    except InvalidRequirement as error:
        raise InputError(
            "KY803",
            f"not a requirement: {error}",
            hint="mend `python-depends` of the kernel, and build it again",
        ) from None
    return tuple(dict.fromkeys(found))


def _framework(facts: Facts) -> str:
    wanted, floor = facts.framework_version, facts.torch
    if facts.framework == "tvm-ffi":
        return f"apache-tvm-ffi=={wanted.major}.{wanted.minor}.*" if wanted else "apache-tvm-ffi"
    if facts.framework == "torch" and wanted is not None:
        newer = f",>={floor}" if floor is not None and floor > Version(f"{wanted.major}.{wanted.minor}") else ""
        return f"torch=={wanted.major}.{wanted.minor}.*{newer}"
    if facts.framework == "torch-stable-abi":
        floor = max((version for version in (wanted, floor) if version is not None), default=None)
    return f"torch>={floor}" if floor is not None else "torch"


def render_metadata(
    *,
    distribution: str,
    version: str,
    package: str,
    variant: str,
    revision: str,
    metadata: Metadata,
    requires_python: str,
    requires: Sequence[str],
    licences: Iterable[str],
) -> bytes:
    """Return the file.

    Args:
        distribution: Name of the distribution.
        version: Of the wheel.
        package: What is imported.
        variant: Name of the variant.
        revision: Where it comes from, for people.
        metadata: What the variant says of itself.
        requires_python: A specifier.
        requires: Of :func:`required_packages`.
        licences: Paths of licence files below ``licenses``.
    """
    expression = _spdx(metadata.license)
    addresses = {"Source": metadata.source, "Upstream": metadata.upstream}
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", distribution),
        ("Version", version),
        ("Summary", f"The compute kernel {metadata.name}, variant {variant}"),
        ("License-Expression", expression) if expression else ("License", metadata.license or "not known"),
        *(("License-File", path) for path in licences),
        *(
            ("Project-URL", f"{label}, {address}")
            for label, address in addresses.items()
            # Other forms of addresses, as git has them, are none for people who read a package's page.
            if address is not None and address.startswith(("https://", "http://"))
        ),
        ("Requires-Python", requires_python),
        *(("Requires-Dist", requirement) for requirement in requires),
        ("Description-Content-Type", "text/markdown"),
    ]
    # A line feed in a value would begin a field of its own.
    head = "".join(f"{name}: {' '.join(value.split())}\n" for name, value in fields)
    words = {
        "name": metadata.name,
        "package": package,
        "variant": variant,
        "revision": revision,
        "license": expression or metadata.license,
    }
    return f"{head}\n{_description(words)}".encode()


def _description(words: Mapping[str, str]) -> str:
    text = (files("kernelyard.export") / "templates" / "description.md.in").read_text("utf-8")
    for name, value in words.items():
        text = text.replace(f"@{name}@", " ".join(value.split()))
    return text


def _spdx(text: str) -> str | None:
    """Return an SPDX expression as it is normally written, None for what is none: hubs have ``other`` and the like."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None
