"""A bad wire: frames between two interfaces are lost, doubled, delayed and overtake each other. For kernels without netem.

Run in the namespace of both interfaces: `python3 -m lab.relay one=NAME other=NAME loss=0.01 again=0.01 overtaken=0.05 delay=0.02 seed=1`. It prints
`ready`, and ends with a signal. A seed gives the same fate to the same sequence of frames.
"""

import heapq
import random
import select
import socket
import sys
import time

ETH_P_ALL = 3
# Frames that wait at most: more are lost, as in a queue of a router.
QUEUE = 4096


class Relay:
    def __init__(self, one, other, loss=0.0, again=0.0, overtaken=0.0, delay=0.0, seed=0):
        self.sockets = [self._opened(name) for name in (one, other)]
        self.loss, self.again, self.overtaken, self.delay = float(loss), float(again), float(overtaken), float(delay)
        self.random = random.Random(int(seed))
        self.waiting = []
        self.number = 0

    @staticmethod
    def _opened(name):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        made.bind((name, ETH_P_ALL))
        made.setblocking(False)
        return made

    def _take(self, side):
        """All frames that have arrived at a side, each with its fate."""
        while True:
            try:
                frame, address = self.sockets[side].recvfrom(65_536)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING:
                continue
            now, fate = time.monotonic(), self.random.random()
            if fate < self.loss or len(self.waiting) >= QUEUE:
                continue
            due = now + self.delay
            if fate > 1 - self.overtaken:
                due += self.delay * self.random.random()
            for _ in range(2 if self.random.random() < self.again else 1):
                self.number += 1
                heapq.heappush(self.waiting, (due, self.number, 1 - side, frame))

    def _send(self):
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            _, _, side, frame = heapq.heappop(self.waiting)
            try:
                self.sockets[side].send(frame)
            except (BlockingIOError, OSError):
                # The queue of the interface is full, or the frame too large for it: lost.
                pass

    def run(self):
        while True:
            wait = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else 0.2
            readable, _, _ = select.select(self.sockets, [], [], min(wait, 0.2))
            for end in readable:
                self._take(self.sockets.index(end))
            self._send()


if __name__ == "__main__":
    relay = Relay(**dict(word.split("=", 1) for word in sys.argv[1:]))
    print("ready", flush=True)
    relay.run()
