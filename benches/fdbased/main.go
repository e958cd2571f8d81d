// gVisor's network stack on an Ethernet interface by its endpoint `fdbased`, for benches/devices.sh: one connection that sends or
// receives in bulk until this process is ended or the peer closes.
//
//	fdbased INTERFACE ADDRESS/PREFIX PEER:PORT send|receive
//
// The socket and the endpoint are set up as gVisor's own sandbox does it (runsc): a packet socket with the virtio-net header, so
// that the kernel takes and gives super-packets, buffers of 4 MB, recvmmsg; SACK, and receive buffers that follow the rate. CUBIC
// rather than its default, Reno, because the other stacks of the run have it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nic         = 1
	socketBytes = 4 << 20
	superPacket = 65536
	// As the other stacks of the run write and read.
	chunkBytes = 128 << 10
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: fdbased INTERFACE ADDRESS/PREFIX PEER:PORT send|receive")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "fdbased:", err)
		os.Exit(1)
	}
}

func run(name, address, peer, way string) error {
	own, err := netip.ParsePrefix(address)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(peer)
	if err != nil {
		return err
	}
	s, err := open(name, own)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	full := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(to.Addr().AsSlice()), Port: to.Port()}
	conn, err := gonet.DialContextTCP(ctx, s, full, ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	chunk := make([]byte, chunkBytes)
	for err == nil {
		switch way {
		case "send":
			_, err = conn.Write(chunk)
		case "receive":
			_, err = conn.Read(chunk)
		default:
			err = fmt.Errorf("%q is neither send nor receive", way)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// open makes a stack with this address on the interface.
func open(name string, own netip.Prefix) (*stack.Stack, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := socket(iface.Index)
	if err != nil {
		return nil, err
	}
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{fd},
		MTU:                uint32(iface.MTU),
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(iface.HardwareAddr),
		PacketDispatchMode: fdbased.RecvMMsg,
		GSOMaxSize:         superPacket,
		RXChecksumOffload:  true,
	})
	if err != nil {
		return nil, err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack, moderate, cubic := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true), tcpip.CongestionControlOption("cubic")
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &cubic} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, errors.New(err.String())
		}
	}
	if err := s.CreateNIC(nic, link); err != nil {
		return nil, errors.New(err.String())
	}
	with := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(own.Addr().AsSlice()), PrefixLen: own.Bits()},
	}
	if err := s.AddProtocolAddress(nic, with, stack.AddressProperties{}); err != nil {
		return nil, errors.New(err.String())
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s, nil
}

// socket opens a packet socket on the interface.
func socket(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot open a packet socket: %w", err)
	}
	// The protocol in network byte order.
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return 0, fmt.Errorf("cannot bind a packet socket: %w", err)
	}
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBytes},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return 0, fmt.Errorf("option %d of a packet socket: %w", option.name, err)
		}
	}
	return fd, nil
}
