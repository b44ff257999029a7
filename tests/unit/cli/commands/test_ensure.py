"""What `sluice changefeed ensure` leaves behind when something goes wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.commands import ensure
from cli.output import ExitCode, Failure

TEXT = "id: {id}\nsource: mongodb://a\nsink: mongodb://b\n"


class Server:
    """Its changefeeds all run, and differ from what is asked for. `refuses`: the ids whose update it refuses."""

    def __init__(self, refuses: str) -> None:
        self.refuses = refuses
        self.asked: list[str] = []
        names = ("CompareChangefeed", "CreateChangefeed", "PauseChangefeed", "UpdateChangefeed", "ResumeChangefeed")
        self.changefeeds = SimpleNamespace(**{name: name for name in names})

    def ask(self, method: str, request: Any, **_: float) -> Any:
        if method == "CompareChangefeed":
            id = request.configuration.split()[1]
            present = pb.Changefeed(id=id, state=pb.CHANGEFEED_STATE_NORMAL, desired=pb.DESIRED_STATE_RUNNING)
            return pb.CompareChangefeedResponse(present=present, differences=["apply_limit"])
        self.asked.append(f"{method.removesuffix('Changefeed')} {request.id}")
        if method == "UpdateChangefeed" and request.id == self.refuses:
            raise Failure(ExitCode.FAILED, "the sink does not answer")
        return pb.Changefeed(id=request.id)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(ensure, "until", lambda *_: None)  # the server obeys at once
    paths = [tmp_path / f"{id}.yaml" for id in ("one", "two")]
    for path in paths:
        path.write_text(TEXT.format(id=path.stem))
    return paths


def test_a_changefeed_whose_update_is_refused_runs_on_and_the_next_one_is_updated(files: list[Path]) -> None:
    server = Server(refuses="one")
    failures = list(ensure._failures(server, files, 1.0, update=True))  # type: ignore[arg-type]  # has what is asked
    assert failures == [f"{files[0]}: the sink does not answer"]
    both = [[f"{verb} {id}" for verb in ("Pause", "Update", "Resume")] for id in ("one", "two")]
    assert server.asked == [*both[0], *both[1]]


def test_a_mistake_in_one_file_hides_none_of_the_others(files: list[Path]) -> None:
    files[0].write_text("id: one\nsource: nothing\n")
    missing = files[0].with_name("missing.yaml")
    server = Server(refuses="")
    failures = list(ensure._failures(server, [missing, *files], 1.0, update=True))  # type: ignore[arg-type]  # as above
    assert {failure.partition(":")[0] for failure in failures} == {str(missing), str(files[0])}
    assert server.asked == ["Pause two", "Update two", "Resume two"]
