// Connections to any address by gVisor's forwarder: it accepts each and echoes, over the TUN interface that it is given.
//
//	taut-gvisor INTERFACE ADDRESS/PREFIX
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	nic         = 1
	mtu         = 1500
	maxInFlight = 65536
	echoBytes   = 2048
)

func echo(stream io.ReadWriteCloser) {
	defer stream.Close()
	buffer := make([]byte, echoBytes)
	for {
		count, err := stream.Read(buffer)
		if err != nil {
			return
		}
		if _, err := stream.Write(buffer[:count]); err != nil {
			return
		}
	}
}

func accept(request *tcp.ForwarderRequest) {
	var queue waiter.Queue
	endpoint, err := request.CreateEndpoint(&queue)
	if err != nil {
		request.Complete(true)
		return
	}
	request.Complete(false)
	go echo(gonet.NewTCPConn(&queue, endpoint))
}

func serve(name, address string) error {
	fd, err := tun.Open(name)
	if err != nil {
		return err
	}
	for _, arguments := range [][]string{{"addr", "add", address, "dev", name}, {"link", "set", name, "up"}} {
		if output, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", arguments, err, output)
		}
	}
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: mtu, PacketDispatchMode: fdbased.Readv})
	if err != nil {
		return err
	}
	all := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	if err := all.CreateNIC(nic, link); err != nil {
		return fmt.Errorf("CreateNIC: %v", err)
	}
	if err := all.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("SetPromiscuousMode: %v", err)
	}
	if err := all.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("SetSpoofing: %v", err)
	}
	all.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	forwarder := tcp.NewForwarder(all, 0, maxInFlight, accept)
	all.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	all.Wait()
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: taut-gvisor INTERFACE ADDRESS/PREFIX")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "taut-gvisor:", err)
		os.Exit(1)
	}
}
