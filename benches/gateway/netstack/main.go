// Carries ports of the loopback through a WireGuard tunnel by gVisor's TCP, as wireproxy does: with wireguard-go's
// tun/netstack.
//
//	netstack ADDRESS CONFIGURATION SERVER PORT...
//
// CONFIGURATION is the text of wireguard-go's IpcSet. Connections to 127.0.0.1:PORT go to SERVER:PORT.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

type half interface {
	net.Conn
	CloseWrite() error
}

func carry(from, to half) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

func main() {
	address, configuration, server, ports := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{netip.MustParseAddr(address)}, nil, 1420)
	if err != nil {
		log.Fatal(err)
	}
	tunnel := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "netstack: "))
	if err := tunnel.IpcSet(configuration); err != nil {
		log.Fatal(err)
	}
	if err := tunnel.Up(); err != nil {
		log.Fatal(err)
	}
	for _, port := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			log.Fatal(err)
		}
		go serve(listener, stack, server+":"+port)
	}
	select {}
}

func serve(listener net.Listener, stack *netstack.Net, server string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer client.Close()
			far, err := stack.DialContext(context.Background(), "tcp", server)
			if err != nil {
				return
			}
			defer far.Close()
			go carry(far.(half), client.(half))
			carry(client.(half), far.(half))
		}()
	}
}
