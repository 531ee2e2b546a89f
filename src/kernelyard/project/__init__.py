"""Manifest to CMake project: the plan of what is compiled how, and the files that CMake and the compiler read."""
