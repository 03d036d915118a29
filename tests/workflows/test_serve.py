"""What a service is started with: one request type for the command line, the application and its workers."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from xmtc.cli.serve import serve
from xmtc.core.errors import ConfigError, DataError
from xmtc.workflows.serve import ServeRequest


def test_the_options_of_the_command_are_the_fields_of_the_request() -> None:
    parameters = dict(inspect.signature(serve).parameters)
    del parameters["quiet"]  # which every command has
    fields = {field.name: field for field in dataclasses.fields(ServeRequest) if field.name != "api_key"}
    assert list(parameters) == list(fields)
    for name, parameter in parameters.items():
        if fields[name].default is dataclasses.MISSING:
            assert parameter.default is inspect.Parameter.empty
        else:
            assert parameter.default == (fields[name].default or parameter.default)


def test_a_worker_gets_what_its_supervisor_has(tmp_path: Path) -> None:
    request = ServeRequest(
        folders=(tmp_path / "a", tmp_path / "b"),
        hostname=("tags.example", "*.example.org"),
        trusted_proxy=("10.0.0.0/8",),
        feedback=tmp_path,
        api_key="correct-horse",
        api_key_file=tmp_path / "key",
        window=0.5,
        workers=2,
    )
    assert ServeRequest.from_json(request.to_json()) == request
    assert ServeRequest.from_json(ServeRequest(folders=()).to_json()) == ServeRequest(folders=())


def test_the_key_is_not_shown() -> None:
    assert "correct-horse" not in repr(ServeRequest(folders=(), api_key="correct-horse"))


def test_names_under_which_it_answers() -> None:
    local = ("localhost", "127.0.0.1", "::1")
    assert ServeRequest(folders=()).allowed_hosts == (*local, "127.0.0.1")
    assert ServeRequest(folders=(), host="0.0.0.0").allowed_hosts is None
    open_to_one = ServeRequest(folders=(), host="0.0.0.0", hostname=("tags.example",))
    assert open_to_one.allowed_hosts == (*local, "0.0.0.0", "tags.example")


def test_values_that_make_no_sense_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--port must be from 0 to 65535\. Got 65536\.$"):
        ServeRequest(folders=(), port=65536)
    with pytest.raises(ConfigError, match=r"^--hostname a\*b: use a wildcard only as the first part"):
        ServeRequest(folders=(), hostname=("a*b",))
    with pytest.raises(ConfigError, match=r"^--trusted-proxy must be an IP address or a network .* Got 'proxy'\.$"):
        ServeRequest(folders=(), trusted_proxy=("10.0.0.1", "proxy"))
    with pytest.raises(ConfigError, match=r"^--max-client-connections must be an integer ≥ 1\. Got 0\.$"):
        ServeRequest(folders=(), max_client_connections=0)
    with pytest.raises(DataError, match=r"nowhere: no such folder\. Create it first\.$"):
        ServeRequest(folders=(), feedback=tmp_path / "nowhere")
