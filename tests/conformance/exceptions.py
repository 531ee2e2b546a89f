"""What of the tests of the package `kernels` differs here, and why: of release 0.17.2, and of commit 8ac69fc5."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DIFFERENT", "FILES_NOT_RUN", "NOT_ASKED", "OWN_WORDS", "reason_for"]

_BUILD = "the private class that reads build.toml"
_LOCKS = "the private classes of its lock files"

#: Files that import what is not of the loading interface.
FILES_NOT_RUN = {
    "test_benchmarks.py": "benchmarks that need a GPU",
    "test_cli_info.py": "calls private functions of the command `kernels info`; ours is `kernelyard info`",
    "test_dirty_provenance.py": "calls private functions of the importer",
    "test_doctest.py": "runs the examples in that package's own docstrings, which need a GPU",
    "test_func.py": "layers",
    "test_interval_tree.py": "layers: a private tree",
    "test_kernel_locking.py": "layers, and private functions of the command `kernels download`",
    "test_layer.py": "layers",
    "test_resolver.py": "the private classes by which that package resolves",
    "test_status.py": "the private class that reads kernel-status.toml; what it does is in tests/load/test_moved.py",
    "test_user_agent.py": "what that package tells the hub of the machine; nothing is told here",
    "test_verify.py": "the module of `kernels verify-signature`; here it is `kernelyard info --verify`",
    "test_config.py": _BUILD,
    "test_data_config.py": _BUILD,
    "test_data_kernel_lock.py": _LOCKS,
    "test_data_version.py": "a private class for versions of toolkits",
    "test_entry_points.py": "asks what is installed under the name `kernels`",
    "test_importer.py": "calls a private function of the importer",
    "test_kernel_lock.py": _LOCKS,
    "test_validate.py": "the private classes by which that package validates",
}

_LISTS_PARENTS = "goes up two folders from what install_kernel returns; here that is in a content-addressed store"
_ANY_PACKAGE = "expects ValueError for a Python package outside the public list; here any can be needed (ImportError)"
_PRIVATE = "a private name"
_BY_HAND = "names that are made by hand are not checked; those of manifests are"

#: Not run, though the file is.
NOT_ASKED = {
    "test_basic.py::test_version_resolution_offline_missing": _PRIVATE,
    "test_variants.py::test_get_variants": "lists the public kernel on the Hub itself",
    "test_kernels_data.py::test_version_": "versions of toolkits: a private class",
    "test_kernels_data.py::test_kernel_version_": _PRIVATE,
    "test_kernels_data.py::test_kernel_dependency_": "private classes: here a dependency has a version and a revision",
    "test_kernels_data.py::test_kernel_name_invalid": _BY_HAND,
    "test_deps.py::test_resolve_kernel_tree_": "the private tree that it resolves to",
    "test_digest.py::test_validate_": "the classes of violations: here the first file that differs is the error",
    "test_data_digest.py::test_validate_": "the classes of violations: here the first file that differs is the error",
    "test_data_metadata.py::test_kernel_dependency_": "private classes: here a dependency has a version and a revision",
    "test_data_metadata.py::test_kernel_name_invalid": _BY_HAND,
    "test_data_metadata.py::test_kernel_version_": _PRIVATE,
}

#: Run, and expected to fail.
DIFFERENT = {
    "test_archs.py::test_supports_cuda_capability[archs21-capability21-False]": (
        "a spelling that nobody knows, beside a known one, does not refuse a GPU that it may mean"
    ),
    "test_basic.py::test_local_kernel": _LISTS_PARENTS,
    "test_basic.py::test_local_kernel_path_types": _LISTS_PARENTS,
    "test_basic.py::test_version_outdated_warning": "a newer version is not looked for at each load: that is a request",
    "test_basic.py::test_install_kernel_offline_avoids_network": "expects that a function of huggingface_hub is called",
    "test_deps.py::test_illegal_dep": _ANY_PACKAGE,
    "test_deps.py::test_deps_validated_before_download": _ANY_PACKAGE,
    "test_deps.py::test_local_kernel_validates_deps": _ANY_PACKAGE,
    "test_loaded_kernels.py::test_dataclass_shape": "LoadedKernel has further fields, after the three",
    "test_tvm_ffi.py::test_local_load": _LISTS_PARENTS,
    "test_variants.py::test_resolve_metal_darwin_old_macos": (
        "expects that package's words for a reason; and that an unknown macOS refuses, which here nothing unknown does"
    ),
    "test_variants.py::test_resolve_stable_abi_preferred_over_torch": "an exact build goes first here (docs/choice.md)",
    "test_python_deps.py::test_illegal_dep": _ANY_PACKAGE,
    "test_python_deps.py::test_deps_validated_before_download": _ANY_PACKAGE,
    "test_python_deps.py::test_local_kernel_validates_deps": _ANY_PACKAGE,
}

#: The class of the error is the same, its words are ours.
OWN_WORDS = {
    "test_basic.py::test_local_overrides": "",
    "test_basic.py::test_version": "",
    "test_basic.py::test_no_version_or_revision_error": "",
    "test_basic.py::test_trust_remote_code_blocks_untrusted_org": "",
    "test_basic.py::test_install_kernel_offline_uncached_revision": "",
    "test_basic.py::test_get_kernel_with_backend": "",
    "test_deps.py::test_python_deps": "",
    "test_basic.py::test_trust_remote_code_allowlist_blocks_unlisted": "",
    "test_deps.py::test_get_kernel_dep_outside_loading_context": "",
    "test_deps.py::test_get_kernel_dep_unknown_repo_id": "",
    "test_deps.py::test_use_kernel_deps_restores_previous_state": "",
    "test_python_deps.py::test_python_deps": "",
}


def reason_for(table: Mapping[str, str], name: str) -> str | None:
    """Return the reason that a table has for a test: by its name, that without parameters, or how it begins."""
    if name in table:
        return table[name]
    plain = name.partition("[")[0]
    if plain in table:
        return table[plain]
    return next((reason for begin, reason in table.items() if begin.endswith("_") and plain.startswith(begin)), None)
