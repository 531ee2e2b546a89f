"""Names of variants, as the public kernel ecosystem writes them: ``torch-stable-abi211-cu130-x86_64-linux``."""

from __future__ import annotations

import re
from typing import Literal, get_args

from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["BACKENDS", "Backend", "Framework", "InvalidVariantName", "VariantName"]

Framework = Literal["torch", "torch-stable-abi", "tvm-ffi", "torch-noarch"]
Backend = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]

BACKENDS: tuple[Backend, ...] = get_args(Backend)

#: Backend -> how its name begins in a variant; those with a version are followed by it.
_COMPUTE = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu", "cann": "cann"}
_BACKEND_OF = {prefix: backend for backend, prefix in _COMPUTE.items()}
#: The ecosystem calls Ascend's noarch variants `npu`; `universal` serves every backend.
_NOARCH_NAMES: dict[str, str] = {**{name: name for name in BACKENDS}, "npu": "cann", "universal": "universal"}

_ARCH = (
    r"(?a)(?P<framework>torch-stable-abi|torch|tvm-ffi)(?P<version>\d{2,})(?:-(?P<abi>cxx11|cxx98))?"
    r"-(?P<compute>cpu|metal|neuron|tpu|(?:cu|rocm|xpu|cann)\d{2,})-(?P<cpu>[^-]+)-(?P<os>[^-]+)"
)


class InvalidVariantName(ValueError):  # noqa: N818 - after packaging's InvalidWheelFilename
    """A text is not the name of a variant."""


@record(frozen=True, slots=True)
class VariantName:
    """One build of a kernel, for one framework version, backend version, CPU and operating system.

    Attributes:
        framework: How the variant binds.
        framework_version: Of torch or tvm-ffi; for the stable ABI the oldest torch. None for noarch.
        cxx11_abi: Of libstdc++, where the name tells (full ABI on Linux).
        backend: ``universal`` stands for all backends (noarch only).
        backend_version: Of the toolkit, where the backend has one.
        cpu: ``x86_64``, ``aarch64``; empty for noarch.
        os: ``linux``, ``darwin``, ``windows``; empty for noarch.
    """

    framework: Framework
    framework_version: Version | None
    cxx11_abi: bool | None
    backend: str
    backend_version: Version | None
    cpu: str
    os: str

    @classmethod
    def parse(cls, text: str) -> VariantName:
        """Read a name.

        A concatenated version such as ``211`` is read as one digit and the rest (2.11); for backends the last digit is
        the minor (``cu130`` is 13.0). This is the reading of the public loader.

        Raises:
            InvalidVariantName: The text is not a variant's name.
        """
        if text.startswith("torch-") and text[6:] in _NOARCH_NAMES:
            return cls("torch-noarch", None, None, _NOARCH_NAMES[text[6:]], None, "", "")
        match = re.fullmatch(_ARCH, text)
        if match is None or (match["abi"] and match["framework"] != "torch"):
            raise InvalidVariantName(f"not the name of a variant: {text!r}")
        digits = match["version"]
        framework: Framework = match["framework"]  # type: ignore[assignment]
        compute = re.fullmatch(r"([a-z]+)(\d+)?", match["compute"])
        assert compute is not None  # noqa: S101 - the pattern above has just matched it
        name, number = compute.groups()
        return cls(
            framework=framework,
            framework_version=Version(f"{digits[0]}.{digits[1:]}"),
            cxx11_abi=None if match["abi"] is None else match["abi"] == "cxx11",
            backend=_BACKEND_OF.get(name, name),
            backend_version=Version(f"{number[:-1]}.{number[-1]}") if number else None,
            cpu=match["cpu"],
            os=match["os"],
        )

    @property
    def platform(self) -> str:
        """CPU and operating system: ``x86_64-linux``."""
        return f"{self.cpu}-{self.os}" if self.cpu else ""

    @property
    def compute(self) -> str:
        """Backend and its version, as in the name: ``cu130``, ``cpu``."""
        if self.backend_version is None:
            return self.backend
        return f"{_COMPUTE[self.backend]}{self.backend_version.major}{self.backend_version.minor}"

    def __str__(self) -> str:
        if self.framework == "torch-noarch":
            return f"torch-{'npu' if self.backend == 'cann' else self.backend}"
        version = self.framework_version
        assert version is not None  # noqa: S101 - only noarch has none
        abi = {None: "", True: "-cxx11", False: "-cxx98"}[self.cxx11_abi]
        return f"{self.framework}{version.major}{version.minor}{abi}-{self.compute}-{self.cpu}-{self.os}"
