"""Fetches a page from a server beyond a TUN, by ctypes: no wrapper, only the header.

    LD_LIBRARY_PATH=PREFIX/lib python3 client.py taut0 10.9.0.1:8000 /index.html
"""
import ctypes as c
import os
import sys

taut = c.CDLL("libtaut.so.0")
for name in ("read", "write"):
    function = getattr(taut, f"taut_socket_{name}")
    function.restype, function.argtypes = c.c_ssize_t, (c.c_void_p, c.c_char_p, c.c_size_t)


class Config(c.Structure):
    """struct taut_net_config"""

    _fields_ = [
        ("size", c.c_size_t), ("addresses", c.c_char_p), ("tun", c.c_char_p), ("host_addresses", c.c_char_p),
        ("fd", c.c_int), ("mtu", c.c_uint16), ("flags", c.c_uint32), ("control", c.c_char_p),
    ]


def check(what, result):
    if result < 0:
        sys.exit(f"{what}: {os.strerror(-result)}")
    return result


def main(tun, server, path):
    config = Config(c.sizeof(Config), b"10.9.0.2/24", tun.encode(), b"10.9.0.1/24")
    net, conn = c.c_void_p(), c.c_void_p()
    check("stack", taut.taut_net_new(c.byref(config), c.byref(net)))
    address, size = c.create_string_buffer(128), c.c_uint32(128)
    check("address", taut.taut_address(server.encode(), address, c.byref(size)))
    check("connect", taut.taut_socket_connect(net, address, size, 0, c.byref(conn)))
    request = f"GET {path} HTTP/1.0\r\n\r\n".encode()
    while request:
        request = request[check("write", taut.taut_socket_write(conn, request, len(request))):]
    buffer = c.create_string_buffer(65536)
    while count := check("read", taut.taut_socket_read(conn, buffer, len(buffer))):
        sys.stdout.buffer.write(buffer[:count])
    taut.taut_socket_close(conn)
    taut.taut_net_free(net)


main(*sys.argv[1:])
