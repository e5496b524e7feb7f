"""Fields of numbers, in the envelope of a GRIB2 message: the first section and its end.

What is inside is NumPy's own format. Real messages are packed in many ways, which is a decoder's work
(ecCodes), and not what this example is about.
"""

import io
import struct

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
_HEAD = struct.Struct(
    ">4sHBBQ"
)  # "GRIB", reserved, discipline, edition, length of the whole message
_END = b"7777"


class BadGrib(Exception):
    """Not a complete message. It may have been cut off, so it is retried."""


def encode(field: Field) -> bytes:
    inside = io.BytesIO()
    np.save(inside, field, allow_pickle=False)
    body = inside.getvalue() + _END
    return _HEAD.pack(b"GRIB", 0xFFFF, 0, 2, _HEAD.size + len(body)) + body


def check(message: bytes) -> None:
    """Raise BadGrib if the message is not complete."""
    if len(message) < _HEAD.size or not message.startswith(b"GRIB"):
        raise BadGrib(f"{message[:16]!r}...: does not begin like a GRIB message")
    _, _, _, edition, length = _HEAD.unpack_from(message)
    if edition != 2 or length != len(message) or not message.endswith(_END):
        raise BadGrib(f"{len(message)} bytes came, of {length}: the download was cut off")


def decode(message: bytes) -> Field:
    check(message)
    inside = io.BytesIO(message[_HEAD.size : -len(_END)])
    field: Field = np.load(inside, allow_pickle=False)
    return field
