"""Tests stay on this machine: nothing they do reaches another one."""

import socket

import pytest
import pytest_socket


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_a_test_that_does_not_say_so_opens_no_socket() -> None:
    with pytest.raises(pytest_socket.SocketBlockedError):
        socket.socket(socket.AF_UNIX)


@pytest.mark.loopback
@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_a_test_that_says_so_still_reaches_no_other_machine() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel,
        pytest.raises(pytest_socket.SocketConnectBlockedError),
    ):
        channel.connect(("192.0.2.1", 9))
