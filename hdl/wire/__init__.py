"""RoCE on the wire: header and opcode tables, ICRC, packetizer and depacketizer."""
