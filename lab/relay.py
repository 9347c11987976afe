"""A bad wire: frames between two interfaces are lost, doubled, delayed, and overtake each other. For kernels without netem.

Run it in the namespace of both interfaces, with fates as shares of all frames and times in seconds:

    python3 -m lab.relay one=NAME other=NAME loss=0.01 again=0.01 overtaken=0.05 delay=0.01 seed=1

It prints `ready`, relays until a signal, and at SIGTERM prints what it did, as JSON. A seed gives the same sequence of frames the
same fate. The interfaces must leave no work to a card (`ethtool -K … tso off gso off gro off tx off`): frames larger than the MTU of
the other interface are lost, and unfinished checksums stay unfinished.
"""

import heapq
import json
import random
import select
import signal
import socket
import sys
import time

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
# Frames that wait at most: more are lost, as in the queue of a router.
QUEUE = 4096
# Frames that are taken at once from one side, before frames that are due are sent.
BATCH = 64


class Relay:
    def __init__(self, one, other, loss=0.0, again=0.0, overtaken=0.0, delay=0.0, seed=0):
        self.sockets = [self._opened(name) for name in (one, other)]
        self.loss, self.again, self.overtaken, self.delay = float(loss), float(again), float(overtaken), float(delay)
        self.random = random.Random(int(seed))
        self.waiting = []
        self.number = 0
        self.counts = dict.fromkeys(("taken", "lost", "full", "again", "overtaken", "sent", "unsent"), 0)
        self.stopped = False

    @staticmethod
    def _opened(name):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        made.bind((name, ETH_P_ALL))
        made.setblocking(False)
        return made

    def _take(self, side):
        """Frames that have arrived at a side, each with its fate."""
        counts, chance = self.counts, self.random.random
        for _ in range(BATCH):
            try:
                frame, address = self.sockets[side].recvfrom(1 << 16)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING:
                continue
            counts["taken"] += 1
            lost, late, twice = chance() < self.loss, chance() < self.overtaken, chance() < self.again
            later = chance()
            if lost:
                counts["lost"] += 1
                continue
            due = time.monotonic() + self.delay
            if late:
                # Frames behind it that are not late overtake it.
                counts["overtaken"] += 1
                due += self.delay * later
            counts["again"] += twice
            for _ in range(1 + twice):
                if len(self.waiting) >= QUEUE:
                    counts["full"] += 1
                    break
                self.number += 1
                heapq.heappush(self.waiting, (due, self.number, 1 - side, frame))

    def _send(self):
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            _, _, side, frame = heapq.heappop(self.waiting)
            try:
                self.sockets[side].send(frame)
                self.counts["sent"] += 1
            except OSError:
                # The queue of the interface is full, the frame is too large for it, or it is down: lost.
                self.counts["unsent"] += 1

    def _wait(self):
        """At most until the next frame is due."""
        if not self.waiting:
            return 0.2
        return min(0.2, max(0.0, self.waiting[0][0] - time.monotonic()))

    def run(self):
        while not self.stopped:
            readable, _, _ = select.select(self.sockets, [], [], self._wait())
            for end in readable:
                self._take(self.sockets.index(end))
            self._send()

    def stop(self, *_):
        self.stopped = True


def main():
    relay = Relay(**dict(word.split("=", 1) for word in sys.argv[1:]))
    signal.signal(signal.SIGTERM, relay.stop)
    print("ready", flush=True)
    relay.run()
    print(json.dumps(relay.counts), flush=True)


if __name__ == "__main__":
    main()
