"""What is told of a kernel whose own code has failed while it was imported."""

from __future__ import annotations

from pathlib import Path

from kernelyard.errors import KernelyardError, LoadError, Place, printable

__all__ = ["failure_of"]

#: Where this package is.
_PACKAGE = Path(__file__).parents[2]


def failure_of(error: BaseException, root: Path) -> KernelyardError:
    """Return what an import ends with: the error itself where it is ours, else one that names the kernel's own line.

    Args:
        error: What came out of the import.
        root: The folder of the kernel.
    """
    if isinstance(error, KernelyardError) and _is_ours(error):
        return error
    # A program ends by its own will, not because a kernel said so and with the status that it liked.
    return LoadError(
        "KY604",
        f"the kernel could not be imported: {type(error).__name__}: {printable(_text(error))}",
        hint="the line is the kernel's own; in a program, the whole traceback comes with the error",
        place=_place_of(error, root),
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - it is the kernel's own code too
        return f"(its text cannot be had: {type(failure).__name__})"


def _is_ours(error: BaseException) -> bool:
    """Return whether this package has raised an error, about these files or another kernel, and not the kernel."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is None or Path(step.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE)


def _place_of(error: BaseException, root: Path) -> Place:
    """Return the innermost line of a kernel's own files at which something failed; its folder where there is none."""
    place = Place(str(root))
    step = error.__traceback__
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        if Path(path).is_relative_to(root):
            place = Place(path, step.tb_lineno)
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(root):
        return Place(error.filename, error.lineno)
    return place
