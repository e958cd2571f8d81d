// The network of ../../examples/dumbbell.rs in ns-3: ten TCP flows over one bottleneck. Like that example, it prints how
// many packets hosts received and how many bytes sinks read; the caller (compare.sh) measures the time of both.
//
//   dumbbell [flows] [bottleneck, as 1Gbps] [seconds]

#include <cstdlib>
#include <iostream>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t received = 0;

static void Count(Ptr<const Packet>)
{
    received++;
}

int main(int argc, char** argv)
{
    uint32_t flows = argc > 1 ? std::atoi(argv[1]) : 10;
    std::string rate = argc > 2 ? argv[2] : "1Gbps";
    double seconds = argc > 3 ? std::atof(argv[3]) : 10;

    // As the stack has them: CUBIC, SACK, timestamps, segments of 1448 bytes, an ACK for two, ten to begin with.
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::TcpCubic")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize", QueueSizeValue(QueueSize("1000p")));

    NodeContainer routers;
    routers.Create(2);
    NodeContainer left, right;
    left.Create(flows);
    right.Create(flows);
    InternetStackHelper stack;
    stack.InstallAll();

    auto link = [](std::string dataRate, double delayMs, Ptr<Node> a, Ptr<Node> b) {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", StringValue(dataRate));
        helper.SetChannelAttribute("Delay", TimeValue(MicroSeconds(uint64_t(delayMs * 1000))));
        return helper.Install(a, b);
    };
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.252");
    TrafficControlHelper control;
    auto number = [&](NetDeviceContainer devices) {
        auto interfaces = addresses.Assign(devices);
        addresses.NewNetwork();
        // No queue but the device's.
        control.Uninstall(devices);
        return interfaces;
    };
    number(link(rate, 5, routers.Get(0), routers.Get(1)));
    for (uint32_t i = 0; i < flows; i++)
    {
        auto near = link("10Gbps", 5 + i, left.Get(i), routers.Get(0));
        auto far = link("10Gbps", 0, right.Get(i), routers.Get(1));
        number(near);
        auto interfaces = number(far);
        near.Get(0)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&Count));
        far.Get(0)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&Count));

        InetSocketAddress to(interfaces.GetAddress(0), 5001);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
        sink.Install(right.Get(i)).Start(Seconds(0));
        BulkSendHelper bulk("ns3::TcpSocketFactory", to);
        bulk.SetAttribute("MaxBytes", UintegerValue(0));
        bulk.SetAttribute("SendSize", UintegerValue(65536));
        bulk.Install(left.Get(i)).Start(Seconds(0));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Simulator::Stop(Seconds(seconds));
    Simulator::Run();

    uint64_t bytes = 0;
    for (uint32_t i = 0; i < flows; i++)
    {
        bytes += DynamicCast<PacketSink>(right.Get(i)->GetApplication(0))->GetTotalRx();
    }
    std::cout << "packets " << received << "\n";
    std::cout << "goodput_bytes " << bytes << "\n";
    std::cout << "events " << Simulator::GetEventCount() << "\n";
    Simulator::Destroy();
    return 0;
}
