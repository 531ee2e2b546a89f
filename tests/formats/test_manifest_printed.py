"""Any manifest, printed, is read back equal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import (
    BackendSettings,
    General,
    Generate,
    KernelDependency,
    KernelSection,
    Manifest,
    TorchNoarch,
    TorchSettings,
    TvmFfiSettings,
    When,
)
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.versions import Version


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{written(name)} = {written(member)}" for name, member in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, Version):
        return written(str(value))
    # A string of JSON is one of TOML, but for DEL and for surrogates, which are no characters.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def table(name: str, members: dict[str, Any]) -> str:
    lines = [f"{key} = {written(value)}" for key, value in members.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


def printed(manifest: Manifest) -> str:
    """Return a manifest of edition 5 as text."""
    general = manifest.general
    parts = [
        table(
            "general",
            {
                "name": general.name,
                "version": general.version,
                "edition": 5,
                "license": general.license,
                "backends": general.backends,
                "upstream": general.upstream,
                "source": general.source,
                "python-depends": general.python_depends,
                "kernel-depends": dependencies(general.kernel_depends),
                "hub": {"branch": general.hub_branch} if general.hub_branch is not None else None,
            },
        )
    ]
    for backend, settings_ in general.of_backend.items():
        depends = {} if backend == "tpu" else {"kernel-depends": dependencies(settings_.kernel_depends)}
        bounds = {"minver": settings_.minver, "maxver": settings_.maxver}
        parts.append(table(f"general.{backend}", {**bounds, "python-depends": settings_.python_depends, **depends}))
    parts.append(printed_framework(manifest))
    parts += [printed_section(section) for section in manifest.kernels]
    return "\n".join(parts)


def printed_framework(manifest: Manifest) -> str:
    framework = manifest.framework
    if isinstance(framework, TorchNoarch):
        members = {"pyext": framework.pyext, "cuda-capabilities": framework.cuda_capabilities}
        return table("torch-noarch", {**members, "rocm_archs": framework.rocm_archs})
    members = {"src": framework.src, "include": framework.include, "pyext": framework.pyext}
    members["cxx-flags"] = framework.cxx_flags
    if isinstance(framework, TvmFfiSettings):
        return table("tvm-ffi", members)
    bounds = {"minver": framework.minver, "maxver": framework.maxver}
    return table("torch", {**members, **bounds, "stable-abi": dict(framework.stable_abi)})


def printed_section(section: KernelSection) -> str:
    names = {
        "cuda": ("cuda_capabilities", "cuda_flags", "cuda_minver", "lineinfo", "relocatable_device_code", "link"),
        "rocm": ("rocm_archs", "hip_flags"),
        "xpu": ("sycl_flags",),
    }
    common = ("backend", "depends", "src", "include", "cxx_flags")
    members = {name.replace("_", "-"): getattr(section, name) for name in (*common, *names.get(section.backend, ()))}
    if section.when is not None:
        when = {"cpu": section.when.cpu, "os": section.when.os, "cuda": section.when.cuda}
        members["when"] = {name: value for name, value in when.items() if value is not None}
    members["generate"] = [
        {"command": step.command, "outputs": step.outputs, "inputs": step.inputs} for step in section.generate
    ]
    return table(f"kernel.{section.name}", members)


def dependencies(found: tuple[KernelDependency, ...]) -> list[dict[str, Any]]:
    return [
        {"repo-id": one.repo_id} | ({"version": one.version} if one.revision is None else {"revision": one.revision})
        for one in found
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SOME_TEXTS = st.lists(TEXTS, max_size=3).map(tuple)
PATH = st.from_regex(r"[a-z?\[]{1,4}(/\*\*)?(/[a-z?]{1,4}\.cu)?", fullmatch=True)
PATHS = st.lists(PATH, max_size=3).map(tuple)
VERSIONS = st.lists(st.integers(0, 30), min_size=1, max_size=3).map(lambda parts: Version(".".join(map(str, parts))))
NAMES = st.from_regex(r"[a-z][-a-z0-9]{0,8}[a-z0-9]", fullmatch=True)
REPOSITORIES = st.from_regex(r"[A-Za-z_.-]{1,5}/[A-Za-z_.-]{1,5}", fullmatch=True)
REQUIREMENTS = st.lists(
    st.sampled_from(["einops", "helion", "nki", "numpy>=2,<3", 'x[y]~=1.0 ; python_version >= "3.10"']), max_size=3
).map(tuple)
KERNEL_DEPENDS = st.lists(
    st.builds(KernelDependency, REPOSITORIES, st.integers(0, 9), st.none())
    | st.builds(KernelDependency, REPOSITORIES, st.none(), TEXTS),
    max_size=2,
).map(tuple)
OPTIONAL = st.none() | VERSIONS
GENERALS = st.builds(
    General,
    name=NAMES,
    version=st.integers(0, 2**63 - 1),
    license=TEXTS,
    backends=st.lists(st.sampled_from(BACKENDS), min_size=1, unique=True).map(tuple),
    upstream=st.none() | st.just("https://example.org/x.git"),
    source=st.none() | st.just("git@example.org:x"),
    python_depends=REQUIREMENTS,
    kernel_depends=KERNEL_DEPENDS,
    hub_repo_id=st.none(),
    hub_branch=st.none() | TEXTS,
    of_backend=st.fixed_dictionaries(
        {},
        optional={
            "cuda": st.builds(BackendSettings, OPTIONAL, OPTIONAL, REQUIREMENTS, KERNEL_DEPENDS),
            "xpu": st.builds(BackendSettings, st.none(), st.none(), REQUIREMENTS, KERNEL_DEPENDS),
            "tpu": st.builds(BackendSettings, st.none(), st.none(), REQUIREMENTS),
        },
    ),
)
PYEXT = st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
FRAMEWORKS = (
    st.builds(
        TorchSettings,
        PATHS,
        PATHS,
        PYEXT,
        OPTIONAL,
        OPTIONAL,
        st.dictionaries(st.sampled_from(BACKENDS), VERSIONS),
        SOME_TEXTS,
    )
    | st.builds(TorchNoarch, PYEXT, SOME_TEXTS, SOME_TEXTS)
    | st.builds(TvmFfiSettings, PATHS, PATHS, PYEXT, SOME_TEXTS)
)
STEPS = st.lists(st.builds(Generate, PYEXT, st.tuples(PATH), PATHS), max_size=2).map(tuple)
WHENS = st.builds(When, st.sampled_from([None, "aarch64"]), st.just("linux"), st.none())


@st.composite
def sections(draw: st.DrawFn, name: str) -> KernelSection:
    backend = draw(st.sampled_from(["cpu", "cuda", "metal", "rocm", "xpu"]))
    cuda, rocm = backend == "cuda", backend == "rocm"
    plain = KernelSection(
        name=name,
        backend=backend,
        depends=draw(st.sampled_from([(), ("torch",), ("torch", "cutlass_3_8")])),
        src=draw(PATHS),
        include=draw(PATHS),
        cxx_flags=draw(SOME_TEXTS),
        cuda_capabilities=draw(SOME_TEXTS) if cuda else (),
        cuda_flags=draw(SOME_TEXTS) if cuda else (),
        cuda_minver=draw(OPTIONAL) if cuda else None,
        rocm_archs=draw(SOME_TEXTS) if rocm else (),
        hip_flags=draw(SOME_TEXTS) if rocm else (),
        sycl_flags=draw(SOME_TEXTS) if backend == "xpu" else (),
        when=draw(st.none() | WHENS),
        generate=draw(STEPS),
    )
    if not cuda:
        return plain
    link = draw(st.sampled_from([(), ("cuda", "nvrtc")]))
    return replace(plain, lineinfo=draw(st.booleans()), relocatable_device_code=draw(st.booleans()), link=link)


SECTION_NAMES = st.lists(st.from_regex(r"[A-Za-z_][-A-Za-z0-9_]{0,6}", fullmatch=True), unique=True, max_size=3)
MANIFESTS = st.builds(
    Manifest, GENERALS, FRAMEWORKS, SECTION_NAMES.flatmap(lambda names: st.tuples(*map(sections, names)))
)


@settings(deadline=None, max_examples=150)
@given(MANIFESTS)
def test_a_manifest_that_is_printed_is_read_back_equal(manifest: Manifest) -> None:
    assert read_manifest(printed(manifest)) == manifest
