"""The transport timer and the RNR NAK timer of each QP."""
