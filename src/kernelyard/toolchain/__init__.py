"""Compilers, headers, sysroot and stubs: what a build needs, without installing anything."""
