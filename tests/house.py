"""The rules of the source tree, checked by `make check`: `python -m tests.house` prints each violation and fails.

- A module whose docstring says `Pure` in its first line, or whose folder's docstring does, imports no I/O, clock, randomness or logging,
  no module of the product that is not pure, and reads no clock.
- A class name is unique in the product.
- A module has at most 400 lines.
- A base name, such as `errors.py`, stands at most twice in the product.
- What the first sentence of a module names stands in the module; a module that a docstring names is there.
- A constructor takes at most six parameters. Those count that are written as `__init__`, and those of dataclasses that keep a state of their
  own in fields with `_`. The fields of other dataclasses are data, as many as a record has.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = (
    *("admin", "changefeed", "cli", "console", "coordination", "credentials", "node", "owner", "processor"),
    *("pyspark_sluice", "schema_store", "sink", "sluice_client", "source", "verify"),
)
_GENERATED = "admin/stubs"
_MESSAGES = "admin.stubs.sluice.admin.v1"
"""Those of the admin API are values. What calls it is in modules below."""
_IMPURE = {
    *("asyncio", "concurrent", "contextvars", "ctypes", "faulthandler", "fcntl", "gc", "http", "io", "logging", "mmap"),
    *("multiprocessing", "os", "pickle", "platform", "queue", "resource", "sched", "secrets", "select"),
    *("selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile", "threading"),
    *("time", "uuid", "weakref", "zoneinfo"),
    *(
        "boto3",
        "botocore",
        "etcd3",
        "grpc",
        "prometheus_client",
        "py4j",
        "pymongo",
        "pyspark",
        "rich",
        "structlog",
        "typer",
    ),
}
_CLOCKS = {"now", "utcnow", "today"}
_FIRST_NAMES = re.compile(r"(?:`\w+`(?:, | and )?)+:")
_MODULE_NAME = re.compile(r"`([\w/]+\.py)`")
_MOST_LINES, _MOST_NAMESAKES, _MOST_PARAMETERS = 400, 2, 6


def main() -> int:
    modules = modules_of((*PRODUCT, "bench", "devstack"))
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    product = modules_of(PRODUCT)
    breaches = [
        *_purity(trees),
        *_class_names(trees),
        *_long_modules(product),
        *_namesakes(product),
        *_constructors({name: trees[name] for name in product}),
        *_names({path: trees[name] for name, path in product.items()}),
    ]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def modules_of(roots: Iterable[str]) -> dict[str, Path]:
    """Without what is generated."""
    paths = (
        path for root in roots for path in sorted((ROOT / root).rglob("*.py")) if _GENERATED not in path.as_posix()
    )
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def _purity(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    said = {name for name, tree in trees.items() if "Pure" in (ast.get_docstring(tree) or "").partition("\n")[0]}
    pure = {name for name in trees if name in said or name.rpartition(".")[0] in said}
    for name in sorted(pure):
        for imported, line in imports_of(trees[name], trees):
            top = imported.partition(".")[0]
            if top in _IMPURE or (top in PRODUCT and imported not in pure and imported != _MESSAGES):
                yield f"{name}:{line}: a pure module imports {imported}"
            elif imported == "pathlib.Path":
                yield f"{name}:{line}: a pure module imports {imported}; a PurePath does"
            elif imported.startswith("random.") and imported != "random.Random":
                yield f"{name}:{line}: a pure module imports {imported}; it is given a random.Random"
        for node in ast.walk(trees[name]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCKS:
                yield f"{name}:{node.lineno}: a pure module asks the clock"


def imports_of(tree: ast.Module, known: Collection[str]) -> Iterator[tuple[str, int]]:
    """The imported modules; for `random` and `pathlib` the imported names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in known or node.module in ("random", "pathlib") else node.module), node.lineno


def _class_names(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    places = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    for name, modules in sorted(places.items()):
        if len(modules) > 1:
            yield f"class {name} stands in {', '.join(modules)}"


def _long_modules(modules: Mapping[str, Path]) -> Iterator[str]:
    for path in modules.values():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > _MOST_LINES:
            yield f"{path.relative_to(ROOT)} has {lines} lines: divide it where a noun ends"


def _namesakes(modules: Mapping[str, Path]) -> Iterator[str]:
    places = defaultdict(list)
    for path in modules.values():
        if path.name != "__init__.py":
            places[path.name].append(path.relative_to(ROOT).parent.as_posix())
    for name, rooms in sorted(places.items()):
        if len(rooms) > _MOST_NAMESAKES:
            yield f"{name} stands in {', '.join(rooms)}: name one by its own noun"


def _constructors(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (count := _parameters(node)) > _MOST_PARAMETERS:
                yield f"{module}:{node.lineno}: the constructor of {node.name} takes {count} parameters"


def _parameters(node: ast.ClassDef) -> int:
    """Zero for a record of data."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return len(part.args.args) + len(part.args.kwonlyargs) - 1
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return 0
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
    public = [part for part in fields if not ast.unparse(part.target).startswith("_")]
    given = [part for part in public if part.value is None or "init=False" not in ast.unparse(part.value)]
    return len(given) if len(public) < len(fields) else 0


def _names(modules: Mapping[Path, ast.Module]) -> Iterator[str]:
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in modules_of((*PRODUCT, "bench", "devstack")).values()]
    for path, tree in modules.items():
        text = path.read_text(encoding="utf-8")
        about = ast.get_docstring(tree, clean=False) or ""
        beginning = _FIRST_NAMES.match(about)
        for name in re.findall(r"`(\w+)`", beginning.group()) if beginning else ():
            if name != path.stem and not re.search(rf"\b{name}\b", text.replace(about, "", 1)):
                yield f"{path.relative_to(ROOT)}: its docstring begins with {name}, which is not there"
        for module in _MODULE_NAME.findall(text):
            if not any(each.endswith(f"/{module}") for each in there):
                yield f"{path.relative_to(ROOT)}: there is no {module}"


if __name__ == "__main__":
    sys.exit(main())
