"""Framed messages on two pipes: 4-byte header length, 4-byte body length, JSON header, raw body."""

import json
import os
import struct


class Pipe:
    """The control connection, on descriptors that no child inherits."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def receive(self):
        """The next request as (header, body); raises EOFError when the host has gone."""
        head, body = struct.unpack(">II", self._exactly(8))
        return json.loads(self._exactly(head)), self._exactly(body)

    def send(self, header, body=b""):
        text = json.dumps(header).encode()
        data = memoryview(struct.pack(">II", len(text), len(body)) + text + body)
        while data:
            data = data[os.write(self.writer, data[: 1 << 20]) :]

    def _exactly(self, size):
        parts = []
        while size:
            part = os.read(self.reader, min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
