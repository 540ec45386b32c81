"""The queue of packets to be sent, and the transmitter that gives them header and payload."""
