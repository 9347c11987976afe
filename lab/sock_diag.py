"""TCP sockets of the current network namespace, by netlink (sock_diag(7), linux/inet_diag.h)."""

import errno
import socket
import struct

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY, SOCK_DESTROY = 20, 21
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
TCP_CLOSE, TCP_LISTEN = 7, 10
# All states but these two.
CONNECTED = 0xFFF & ~(1 << TCP_CLOSE | 1 << TCP_LISTEN)

# struct nlmsghdr; the members of struct inet_diag_req_v2 before its `id`; the same of struct inet_diag_msg; the length of an `id`.
_HEADER, _REQUEST, _MESSAGE, _ID_LEN = struct.Struct("=IHHII"), struct.Struct("=BBxxI"), struct.Struct("=4B"), 48
# Refused for sockets that have ended meanwhile, and in all cases by a kernel without CONFIG_INET_DIAG_DESTROY.
_REFUSED = (errno.ENOENT, errno.EOPNOTSUPP)


def destroy_connections():
    """Ends all connections, with a RST where the state has one."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.bind((0, 0))
        kernel.settimeout(10)
        for family in (socket.AF_INET, socket.AF_INET6):
            for identity in list(_connections(kernel, family)):
                _send(kernel, SOCK_DESTROY, NLM_F_ACK, family, identity)
                for _, body in _answer(kernel):
                    (code,) = struct.unpack_from("=i", body)
                    if code and -code not in _REFUSED:
                        raise OSError(-code, "SOCK_DESTROY")


def _connections(kernel, family):
    """The `id` of each connection."""
    _send(kernel, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family, bytes(_ID_LEN))
    for kind, body in _answer(kernel):
        if kind == NLMSG_ERROR:
            raise OSError(-struct.unpack_from("=i", body)[0], "SOCK_DIAG_BY_FAMILY")
        if kind == SOCK_DIAG_BY_FAMILY:
            yield body[_MESSAGE.size : _MESSAGE.size + _ID_LEN]


def _send(kernel, kind, flags, family, identity):
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, CONNECTED) + identity
    kernel.send(_HEADER.pack(_HEADER.size + len(body), kind, NLM_F_REQUEST | flags, 0, 0) + body)


def _answer(kernel):
    """The messages of an answer: kind and body. An acknowledgement is an error of number zero, and the last one."""
    while True:
        data = kernel.recv(1 << 17)
        while data:
            length, kind, _, _, _ = _HEADER.unpack_from(data)
            if kind == NLMSG_DONE:
                return
            yield kind, data[_HEADER.size : length]
            if kind == NLMSG_ERROR:
                return
            data = data[(length + 3) & ~3 :]
