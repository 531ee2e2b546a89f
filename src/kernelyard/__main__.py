"""``python -m kernelyard``: the command, where its script is not on the path."""

from kernelyard.cli import main

main()
