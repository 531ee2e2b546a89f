"""Build, check, hub: publishing a project's variants."""

from kernelyard.publish.push import Pushed, push_project

__all__ = ["Pushed", "push_project"]
