"""Records that several threads decode for the first time."""

import subprocess
import sys

import pytest

_RACE = """
import sys, threading
import msgspec
from dropflow.api.rest_server import prepare_records

sys.setswitchinterval(1e-5)
records = []
for _ in range(40):
    inner = msgspec.defstruct("Inner", [(f"a{k}", int, 0) for k in range(20)])
    record = msgspec.defstruct("Record", [(f"f{k}", list[inner] | None, None) for k in range(20)])
    records.append((record, msgspec.msgpack.encode(record([inner()]))))
prepare_records()
for record, data in records:
    ready = threading.Barrier(4)
    def decode():
        ready.wait()
        msgspec.msgpack.decode(data, type=record)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
def test_records_are_prepared_before_threads_decode_them() -> None:
    """Without that, the process ends with a segmentation fault within the first ten records."""
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
