"""Ethernet besides RoCE: ARP and ICMP echo are answered here, and the MAC."""
