"""Users of the control socket: none can lock root out."""

import contextlib
import os
import socket

import pytest

from lab.process import wait_until

from .test_control import connect

# User ids that no user of a test machine has. The test sets their access rights.
OTHER_USERS = range(64_100, 64_108)

# More than the client slots of the daemon.
CLIENTS = 300


@pytest.fixture
def open_to_all(mmb):
    """The socket, with access for every user."""
    before = os.stat(mmb.socket).st_mode
    folder = os.stat(mmb.socket.parent).st_mode
    os.chmod(mmb.socket, 0o666)
    os.chmod(mmb.socket.parent, 0o755)
    yield mmb
    os.chmod(mmb.socket, before)
    os.chmod(mmb.socket.parent, folder)


@contextlib.contextmanager
def as_user(number, folder):
    """Runs the block as another user, in a folder that this user could not reach by its path."""
    here = os.getcwd()
    os.chdir(folder)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.chdir(here)


def busy_clients(mmb, user, size):
    """This number of clients of a user, each in the middle of a request."""
    clients = []
    with as_user(user, mmb.socket.parent):
        for _ in range(size):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(10)
            client.connect(mmb.socket.name)
            with contextlib.suppress(OSError):
                client.sendall(b"{")
            clients.append(client)
    return clients


def is_refused(clients, message):
    """Whether the last of the clients that got no slot received an error."""
    client = clients[-1]
    client.setblocking(False)
    try:
        return message in client.recv(4096).decode()
    except BlockingIOError:
        return False


def test_users_who_take_every_place_do_not_keep_root_out(open_to_all):
    mmb = open_to_all
    clients = []
    try:
        for user in OTHER_USERS:
            clients += busy_clients(mmb, user, CLIENTS // len(OTHER_USERS) + 1)
        wait_until(lambda: is_refused(clients, "clients are connected and busy"), "it is full")
        assert mmb.ask("show version")
        assert mmb.ask("list")["rules"] == []
    finally:
        for client in clients:
            client.close()


def test_one_user_who_takes_all_that_it_can_does_not_keep_another_out(open_to_all):
    mmb = open_to_all
    clients = busy_clients(mmb, OTHER_USERS[0], CLIENTS)
    try:
        wait_until(lambda: is_refused(clients, "clients of this user"), "it has enough")
        (other,) = busy_clients(mmb, OTHER_USERS[1], 1)
        other.sendall(b'"v":1,"do":"run","commands":["show version"]}\n')
        assert b'"version"' in other.recv(4096)
        other.close()
    finally:
        for client in clients:
            client.close()


def test_another_user_may_not_open_the_socket(mmb):
    with as_user(OTHER_USERS[0], "/"), pytest.raises(PermissionError):
        connect(mmb)
