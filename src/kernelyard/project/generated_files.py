"""Where the files stand that a section's ``generate`` steps write, and what a step's files depend on.

The files of a step are kept in a folder of their own that is named by a hash of the command and of everything that the
command is given. So the plan can name them before they exist, and they are made once for each state of the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

from kernelyard.errors import InputError, Place
from kernelyard.formats.fields import canonical_json
from kernelyard.formats.manifest import Generate, KernelSection
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.named_files import matching_files
from kernelyard.records import record

__all__ = ["GENERATED_FOLDER", "Step", "section_steps"]

#: Below the project.
GENERATED_FOLDER = ".kernelyard/generated"
_KEY_LENGTH = 16


@record(frozen=True, slots=True)
class Step:
    """One ``generate`` of a section, in one state of the project.

    Attributes:
        section: The name of the section.
        generate: What the manifest says.
        inputs: Path in the folder that the command runs in -> file, relative to the project.
        key: Of the command and the contents of all inputs.
    """

    section: str
    generate: Generate
    inputs: Mapping[str, str]
    key: str

    @property
    def folder(self) -> str:
        """Where the outputs are kept, relative to the project."""
        return f"{GENERATED_FOLDER}/{self.key}"

    @property
    def outputs(self) -> Mapping[str, str]:
        """Output as the manifest names it -> where it is kept, relative to the project."""
        return {output: f"{self.folder}/{PurePosixPath(output)}" for output in self.generate.outputs}


def section_steps(root: Path, section: KernelSection) -> tuple[Step, ...]:
    """Return the steps of a section, in the order in which they run. A step may read what an earlier one writes.

    Args:
        root: The project's folder.
        section: Of its manifest.

    Raises:
        InputError: A file that a step reads is not there (KY208).
    """
    steps: list[Step] = []
    made: dict[str, str] = {}
    keys: dict[str, str] = {}
    for generate in section.generate:
        named = [word for word in generate.command if word in made or _is_file_of(root, word)]
        listed = [
            file for entry in generate.inputs for file in ([entry] if entry in made else matching_files(root, entry))
        ]
        inputs = {str(PurePosixPath(name)): made.get(name, name) for name in sorted({*named, *listed})}
        digests = {
            # What an earlier step writes is determined by that step's key, and need not exist yet.
            name: keys.get(name) or _digest(root, file, section)
            for name, file in inputs.items()
        }
        described = {"command": generate.command, "outputs": generate.outputs, "inputs": digests}
        key = sha256(canonical_json(described)).hexdigest()[:_KEY_LENGTH]
        step = Step(section.name, generate, inputs, key)
        made |= step.outputs
        keys |= dict.fromkeys(step.outputs, f"written by {key}")
        steps.append(step)
    return tuple(steps)


def _is_file_of(root: Path, word: str) -> bool:
    """Whether a word of a command names a file of the project."""
    path = PurePosixPath(word)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in word:
        return False
    try:
        return (root / word).is_file()
    except OSError:  # too long for a name
        return False


def _digest(root: Path, file: str, section: KernelSection) -> str:
    try:
        return sha256((root / file).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(
            "KY208",
            f"a step of `generate` reads {file!r}, which cannot be read: {error.strerror}",
            hint="see `inputs`; paths start at the project",
            place=Place(shown_path(root / "build.toml"), key=f"kernel.{section.name}.generate"),
        ) from None
