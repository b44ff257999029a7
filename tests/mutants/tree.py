"""`ScratchTree`: a copy of the working tree, into which faults are put. `place_of`: where the product has a fault's text."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.house import PRODUCT, ROOT
from tests.mutants.fault import Fault

_LINKED = (".venv", ".mongod")
"""What is large, and is only read."""


class MisplacedFault(Exception):
    """Its text does not stand exactly once in the product, or changes nothing."""


@cache
def product_texts() -> Mapping[Path, str]:
    """Each module of the product by its path below the root."""
    paths = (path for room in PRODUCT for path in sorted((ROOT / room).rglob("*.py")))
    return {
        path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for path in paths
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    }


def place_of(fault: Fault) -> Path:
    counts = {path: text.count(fault.text) for path, text in product_texts().items() if fault.text in text}
    if sum(counts.values()) != 1:
        places = ", ".join(f"{path} ({count})" for path, count in counts.items()) or "nowhere"
        raise MisplacedFault(f"{fault.name}: expected its text once in the product, found it {places}")
    if fault.replacement == fault.text:
        raise MisplacedFault(f"{fault.name}: its replacement is its text")
    return next(iter(counts))


class ScratchTree:
    """Its modules are found before the ones of the working tree, which `.venv` has by an editable installation."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (source := ROOT / name).is_file():
                target = directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        for name in _LINKED:
            if (ROOT / name).exists():
                (directory / name).symlink_to(ROOT / name)
        self._refuse_other_modules()

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "", "PYTHONHASHSEED": "0"}

    def _refuse_other_modules(self) -> None:
        """A fault in a module that nobody imports would never be seen; one that is imported from elsewhere neither."""
        code = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]), sep='\\n')"
        command = [sys.executable, "-c", code, *PRODUCT, "tests.house"]
        found = subprocess.run(
            command, cwd="/", env=dict(self.environment), check=True, capture_output=True, text=True
        ).stdout
        strange = [path for path in found.split() if not Path(path).is_relative_to(self.root)]
        if strange:
            raise RuntimeError(f"expected all modules from {self.root}, found {strange[0]}")

    def unit_tests_of(self, module: Path) -> tuple[str, ...]:
        """The unit tests in the folder nearest to a module, those of the module itself first."""
        folders = (Path("tests/unit") / folder for folder in module.parents)
        nearest = next(folder for folder in folders if any((self.root / folder).glob("test_*.py")))
        names = [test.name for test in (self.root / nearest).glob("test_*.py")]
        return tuple(
            str(nearest / name) for name in sorted(names, key=lambda name: (name != f"test_{module.name}", name))
        )

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        place = place_of(fault)
        path, whole = self.root / place, product_texts()[place]
        try:
            _write(path, whole.replace(fault.text, fault.replacement))
            yield
        finally:
            _write(path, whole)


def _write(path: Path, text: str) -> None:
    """Bytecode is found stale by the size and the second of its source, which may both be those of the fault before."""
    path.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
