"""The server that a command calls."""

from __future__ import annotations

from pathlib import Path

from cli.connection import ServerAddress


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "sluice" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("server: filed:1\nca: /filed/ca.pem\n")
    home = {"HOME": str(tmp_path)}
    both = home | {"SLUICE_SERVER": "environment:1"}
    assert ServerAddress.found({}, {}).server == "127.0.0.1:8300"
    assert ServerAddress.found({"server": None}, home).server == "filed:1"
    assert ServerAddress.found({"server": None}, both).server == "environment:1"
    assert ServerAddress.found({"server": "flag:1"}, both).server == "flag:1"
    assert ServerAddress.found({"server": "flag:1"}, both).ca == Path("/filed/ca.pem")
