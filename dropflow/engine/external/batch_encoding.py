"""How batches, their answers and the specs of sessions are sent to the workers of an engine: as msgpack."""

import msgspec

from dropflow.engine.api import ExecutorSpec
from dropflow.engine.external.engine import Batch, BatchAnswer

__all__ = ["decode_answer", "decode_answers", "decode_batch", "decode_spec", "encode"]

encode = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_answer = msgspec.msgpack.Decoder(BatchAnswer).decode
decode_answers = msgspec.msgpack.Decoder(list[BatchAnswer]).decode
decode_spec = msgspec.msgpack.Decoder(ExecutorSpec).decode
