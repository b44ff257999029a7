"""The admin API as any gRPC client sees it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from admin import CODE_KEY, DETAILS_KEY
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import admin_pb2_grpc as rpc
from tests.component.node.server_process import Server
from tests.until import PATIENCE_SECONDS, until

_SERVING = health_pb2.HealthCheckResponse.SERVING


def _refusal(call: Any) -> Any:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value


def test_a_client_that_knows_only_reflection_can_call(channel: Any) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert {"sluice.admin.v1.ChangefeedService", "grpc.health.v1.Health"} <= services
    service = DescriptorPool(database).FindServiceByName("sluice.admin.v1.ClusterService")
    method = service.methods_by_name["GetCluster"]
    ask, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = channel.unary_unary(
        f"/{service.full_name}/{method.name}",
        request_serializer=ask.SerializeToString,
        response_deserializer=answer.FromString,
    )
    cluster = call(ask(), timeout=PATIENCE_SECONDS)
    assert (cluster.nodes, cluster.changefeeds) == (1, 0)


def test_health_says_that_it_serves(channel: Any) -> None:
    health = health_pb2_grpc.HealthStub(channel)

    def serves(service: str) -> bool:
        asked = health_pb2.HealthCheckRequest(service=service)
        return bool(health.Check(asked, timeout=PATIENCE_SECONDS).status == _SERVING)

    for service in ("", "sluice.admin.v1.ChangefeedService"):
        until(partial(serves, service), f"{service or 'the server'} serves")


def test_an_error_has_its_stable_code_and_details(channel: Any) -> None:
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    request = pb.CreateChangefeedRequest(configuration="id: f\nsource: nowhere\nroutse: []\n")
    error = _refusal(lambda: stub.CreateChangefeed(request, timeout=PATIENCE_SECONDS))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    trailing = dict(error.trailing_metadata())
    assert trailing[CODE_KEY] == "configuration_invalid"
    problems = list(pb.ErrorDetails.FromString(trailing[DETAILS_KEY]).problems)
    assert [problem.partition(":")[0] for problem in problems] == ["source", "sink", "routse"]


def test_thousands_of_problems_still_fit_into_an_answer(channel: Any) -> None:
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    text = "id: f\n" + "".join(f"mistaken_{number}: 1\n" for number in range(3_000))
    error = _refusal(
        lambda: stub.CreateChangefeed(pb.CreateChangefeedRequest(configuration=text), timeout=PATIENCE_SECONDS)
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().splitlines()[-1].endswith("more")


def test_an_oversized_request_is_refused_before_it_is_read(channel: Any) -> None:
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    request = pb.CreateChangefeedRequest(configuration="x" * (2 << 20))
    error = _refusal(lambda: stub.CreateChangefeed(request, timeout=PATIENCE_SECONDS))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff", b"\x0a\xff", b"\x0a\x02\xc3\x28"])
def test_a_malformed_request_is_refused(channel: Any, body: bytes) -> None:
    call = channel.unary_unary("/sluice.admin.v1.ChangefeedService/GetChangefeed")
    error = _refusal(lambda: call(body, timeout=PATIENCE_SECONDS))
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
    assert "Traceback" not in error.details()


@pytest.mark.parametrize(
    "text", ["", "\0", "[", "- a\n- b\n", "id: &a [*a]\n", "!!python/object:os.system {}", "x: " + "[" * 5_000]
)
def test_a_configuration_that_is_none_is_refused_in_words(channel: Any, text: str) -> None:
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    error = _refusal(
        lambda: stub.CreateChangefeed(pb.CreateChangefeedRequest(configuration=text), timeout=PATIENCE_SECONDS)
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()


@pytest.mark.parametrize("id", ["", "/", "a/b", "../nodes", "f" * 10_000, "ä", "\x7f"])
def test_an_id_that_can_be_nobodys_is_not_found(channel: Any, id: str) -> None:
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    for call in (
        lambda: stub.GetChangefeed(pb.GetChangefeedRequest(id=id), timeout=PATIENCE_SECONDS),
        lambda: stub.PauseChangefeed(pb.PauseChangefeedRequest(id=id), timeout=PATIENCE_SECONDS),
    ):
        assert _refusal(call).code() is grpc.StatusCode.NOT_FOUND


def test_two_hundred_calls_at_once_are_all_answered(channel: Any) -> None:
    changefeeds = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    nodes = rpc.NodeServiceStub(channel)  # type: ignore[no-untyped-call]  # generated

    def call(number: int) -> str:
        try:
            if number % 2:
                return f"{len(nodes.ListNodes(pb.ListNodesRequest(), timeout=PATIENCE_SECONDS).nodes)} node"
            changefeeds.GetChangefeed(pb.GetChangefeedRequest(id="nope"), timeout=PATIENCE_SECONDS)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "found"

    with ThreadPoolExecutor(200) as threads:
        answers = Counter(threads.map(call, range(200)))
    assert answers == {"1 node": 100, "NOT_FOUND": 100}


def test_streams_leave_threads_for_other_calls(channel: Any, server: Server, database: str, source_uri: str) -> None:
    """`--no-wait`: otherwise the command would open a watch stream too."""
    flags = ("--id", database, "--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*")
    assert server.sluice("changefeed", "create", *flags, "--no-wait").returncode == 0
    stub = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    request = pb.WatchChangefeedRequest(id=database)
    streams = [stub.WatchChangefeed(request, timeout=PATIENCE_SECONDS) for _ in range(100)]
    answers = Counter(_first(stream) for stream in streams)
    assert answers == {"shown": 32, "UNAVAILABLE": 68}
    assert len(stub.ListChangefeeds(pb.ListChangefeedsRequest(), timeout=PATIENCE_SECONDS).changefeeds) == 1
    for stream in streams:
        stream.cancel()
    assert server.sluice("changefeed", "remove", database, "--yes", "--no-wait").returncode == 0


def _first(stream: Any) -> str:
    try:
        next(stream)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "shown"
