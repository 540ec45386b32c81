"""What both sides of a connection share: PSNs, AETHs, the layouts that blocks exchange, and the QP lookup."""
