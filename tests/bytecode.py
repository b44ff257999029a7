"""`write_missing`: the bytecode of test files with their assertions rewritten, once for all workers.

To rewrite all of them is two thirds of a first collection. Without this each worker would do it for itself, at the same time.
"""

from __future__ import annotations

import sys

import pytest
from _pytest.assertion import rewrite


def write_missing(config: pytest.Config) -> None:
    """Called before the workers start."""
    if sys.dont_write_bytecode:
        return
    state = config.stash[rewrite.assertstate_key]
    for source in (config.rootpath / "tests").rglob("*.py"):
        if source.name != "conftest.py" and not source.name.startswith("test_"):
            continue
        pyc = rewrite.get_cache_dir(source) / (source.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(source, pyc) is None:
            digest, code = rewrite._rewrite_test(source, config)
            pyc.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(state, code, digest, pyc)
