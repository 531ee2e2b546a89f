"""A project's kernels: declared, locked to every byte, found by the programs of the project.

Hooks of build back-ends live here, and whatever imports this package imports nothing else by it.
"""
