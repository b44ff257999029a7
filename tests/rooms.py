"""Which test files can notice a change in one room: `python -m tests.rooms sink` prints them, `make test ROOM=sink` runs them.

A unit test can notice a change in what it imports, and in what that imports. A component test is taken if it stands in the folder of the
room, or if it, or a module of tests that it imports, imports a module of the room. A room that the simulation runs takes its seeds.
End-to-end tests run all rooms at once and are left to `make test` without a room. A part of a room may be named too: `sink/mongodb/rows`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path

from tests.house import PRODUCT, ROOT, imports_of, modules_of

_SEEDS = "tests/simulation/test_seeds.py"
_COMPONENT, _UNIT = "tests.component.", "tests.unit."


def main() -> int:
    rooms = {room.strip("/").replace("/", ".") for room in sys.argv[1:]}
    modules = modules_of((*PRODUCT, "devstack", "bench", "tests"))
    unknown = [room for room in rooms if not any(_is_in(name, room) for name in modules)]
    if unknown or not rooms:
        print(
            f"{', '.join(unknown) or 'nothing'} is no room: name one of {', '.join(PRODUCT)}, or a folder in it",
            file=sys.stderr,
        )
        return 2
    imports = {name: _imports(path, modules) for name, path in modules.items()}
    print(*sorted(_noticing(rooms, modules, imports)), sep="\n")
    return 0


def _noticing(rooms: Collection[str], modules: Mapping[str, Path], imports: Mapping[str, frozenset[str]]) -> set[str]:
    own = {name for name in modules if any(_is_in(name, room) for room in rooms)}
    below = _closure(imports)
    of_tests = _closure({name: frozenset(filter(_is_test, used)) for name, used in imports.items()})
    found, folders = set(), {room + "." for room in rooms}
    for name in modules:
        if not name.rpartition(".")[2].startswith("test_"):
            continue
        if name.startswith(_COMPONENT):
            notices = any(map(name.removeprefix(_COMPONENT).startswith, folders)) or any(
                not imports[each].isdisjoint(own) for each in (name, *of_tests(name))
            )
        else:
            notices = name.startswith(_UNIT) and not below(name).isdisjoint(own)
        if notices:
            found.add(modules[name].relative_to(ROOT).as_posix())
    if not below("tests.simulation.run").isdisjoint(own):
        found.add(_SEEDS)
    return found


def _imports(path: Path, modules: Collection[str]) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(name for name, _ in imports_of(tree, modules) if name in modules)


def _closure(imports: Mapping[str, frozenset[str]]) -> Callable[[str], frozenset[str]]:
    @cache
    def below(name: str) -> frozenset[str]:
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            for each in imports[ahead.pop()] - seen:
                seen.add(each)
                ahead.append(each)
        return frozenset(seen)

    return below


def _is_in(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def _is_test(name: str) -> bool:
    return _is_in(name, "tests")


if __name__ == "__main__":
    sys.exit(main())
