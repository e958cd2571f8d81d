// Fetches a page from a server beyond a TUN, by cgo: no wrapper, only the header.
//
//	PKG_CONFIG_PATH=PREFIX/lib/pkgconfig go run client.go taut0 10.9.0.1:8000 /index.html
package main

// #cgo pkg-config: taut
// #include <stdlib.h>
// #include <taut.h>
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

func check(what string, result int) int {
	if result < 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, syscall.Errno(-result))
		os.Exit(1)
	}
	return result
}

func text(s string) *C.char { return C.CString(s) } // freed with the process

func main() {
	tun, server, path := os.Args[1], os.Args[2], os.Args[3]
	config := C.struct_taut_net_config{addresses: text("10.9.0.2/24"), host_addresses: text("10.9.0.1/24"), tun: text(tun)}
	config.size = C.size_t(unsafe.Sizeof(config))
	var net *C.struct_taut_net
	check("stack", int(C.taut_net_new(&config, &net)))

	var storage C.struct_sockaddr_storage
	address, size := (*C.struct_sockaddr)(unsafe.Pointer(&storage)), C.socklen_t(unsafe.Sizeof(storage))
	check("address", int(C.taut_address(text(server), address, &size)))
	var conn *C.struct_taut_socket
	check("connect", int(C.taut_socket_connect(net, address, size, 0, &conn)))

	request := []byte("GET " + path + " HTTP/1.0\r\n\r\n")
	for len(request) > 0 {
		n := C.taut_socket_write(conn, unsafe.Pointer(&request[0]), C.size_t(len(request)))
		request = request[check("write", int(n)):]
	}
	buffer := make([]byte, 65536)
	for {
		n := C.taut_socket_read(conn, unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)))
		if check("read", int(n)) == 0 {
			break
		}
		os.Stdout.Write(buffer[:n])
	}
	C.taut_socket_close(conn)
	C.taut_net_free(net)
}
