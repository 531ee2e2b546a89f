"""Reading binaries: what a shared library needs and offers, and which device code it carries.

Only the standard library, nothing is executed, and any bytes give either data or a :class:`BinaryError`: the same code
runs in the build's checks and in a user's process before a kernel is opened.
"""

from __future__ import annotations

# As in the package: who asks for one of these pays for no other.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from kernelyard.binary.elf import DynamicSymbol, Elf, exported_names, parse_elf, read_elf
    from kernelyard.binary.fatbin import DeviceCode, parse_device_code, read_device_code
    from kernelyard.binary.image import BinaryError

__all__ = [
    "BinaryError",
    "DeviceCode",
    "DynamicSymbol",
    "Elf",
    "exported_names",
    "parse_device_code",
    "parse_elf",
    "read_device_code",
    "read_elf",
]

_MODULES = {
    "image": ("BinaryError",),
    "elf": ("DynamicSymbol", "Elf", "exported_names", "parse_elf", "read_elf"),
    "fatbin": ("DeviceCode", "parse_device_code", "read_device_code"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
