"""The kit's fake engine as a server's process: SGLang's wire without SGLang, to be killed and stopped.

python fake_server.py ... --host 127.0.0.1 --port 30000 [--seconds 0.2]
"""

import argparse
import asyncio
import socket
import threading

from slime_core.testing.fake_engine import FakeEngine, Slow

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--host")
parser.add_argument("--port", type=int)
given, _ = parser.parse_known_args()

listening = socket.create_server((given.host, given.port))
listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
asyncio.run(FakeEngine(Slow(0.2))._serve(listening, threading.Event(), asyncio.Event()))
