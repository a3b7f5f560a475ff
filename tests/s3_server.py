"""A server of S3 on this host, by moto."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dropflow.data.remote import file_system, location_of
from tests.lazy_module import LazyModule

moto_server = LazyModule("moto.server")


@contextmanager
def s3_server() -> Iterator[str]:
    """Run one; the value is its address."""
    found = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    found.start()
    host, port = found.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        found.stop()


def make_bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server hold nothing but an empty bucket called ``bucket``, and this process have credentials for it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",  # what moto takes
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    ask(server, "reset", b"")
    import s3fs  # noqa: PLC0415 - an extra

    s3fs.S3FileSystem.clear_instance_cache()
    system, _ = file_system(location_of("s3://bucket", {"endpoint_url": server}))
    system.mkdir("bucket")


def ask(server: str, action: str, body: bytes) -> None:
    """Call the control interface of moto."""
    request = urllib.request.Request(f"{server}/moto-api/{action}", data=body, headers={"Content-Type": "text/plain"})  # noqa: S310 - ours
    urllib.request.urlopen(request).close()  # noqa: S310
