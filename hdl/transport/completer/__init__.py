"""From ACKs, NAKs and responses to completions and retries."""
