"""``python -m kernelyard``: the command, where its script is not on the path. The script itself begins here, too."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; Ctrl-C while it is still being imported ends it as quietly as later."""
    try:
        from kernelyard.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
