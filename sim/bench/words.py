"""How a row is told in words: what was sent, what is read off, and what is aimed at."""

from .goals import AT_MOST

__all__ = ["aim_text", "name_of", "value_text"]

UNITS = {
    "events_per_completion": " events a CQE",
    "slowdown": " ×",
    "ratio_to_one_entry": " ×",
    "ratio_to_answering": " ×",
    "ratio_to_one_slot": " ×",
    "cost_cycles": " cycles",
    "latency_cycles": " cycles",
}


def name_of(row):
    """The operation and what is special about the row."""
    words = [row["op"] if row["transport"] == "RC" else f"{row['transport']} {row['op']}"]
    words[0] += (" inline" if row.get("inline") else "") + (" pushed" if row.get("push") else "")
    if row["direction"] != "one way":
        words.append(row["direction"])
    if "words" in row:
        words.append(f"{row['words']} words")
    if "key" in row:
        words.append(f"by the key of a {row['key']}")
    if "own_qps" in row:
        words.append("QPs of their own" if row["own_qps"] else "the same QPs")
        words.append(f"{row['messages_per_ack']:g} an ACK")
    if "ratio_to_one_entry" in row:
        words.append(f"{row['entries']} entries")
    if "wqe" in row:
        words.append(f"WQEs of {row['wqe']} bytes")
    if "beside" in row:
        words.append(f"beside {row['beside']}")
    if "slowdown" in row:
        words.append("itself hits")
    elif "pages" in row:
        words.append(f"{row['pages']} random pages of {row['page_size'] >> 10} KiB")
    if "cq_count" in row:
        words.append(f"events for {row['cq_count']} CQEs or {row['cq_period']} us" if row["cq_period"] else "events")
    if "loss" in row:
        words.append(f"{100 * row['loss']:g} % lost")
    if "lost_messages" in row:
        words.append("one is lost")
    if "silent" in row:
        words.append(f"drawn at random, beside {row['silent']} silent" if row["silent"] else "drawn at random")
    if row.get("retries") and "loss" not in row:
        words.append(f"{row['retries']} retries")
    if row["group"] == "memory latency":
        words.append(f"memory {row['memory_latency']}/{row['write_latency']}")
    if row["group"] == "memory latency" or row["engine_latency"] != row["memory_latency"]:
        words.append(f"engine for {row['engine_latency']}")
    return ", ".join(words)


def _told(row, value):
    if row["figure"] == "wire_fraction":
        return f"{value:.1%}"
    if row["figure"] == "cycles_per_message":
        return f"{value:g}"
    return f"{value:g}{UNITS[row['figure']]}"


def value_text(row):
    """The value that the row is read for, unless it is the cycles a message."""
    if row["figure"] == "cycles_per_message":
        return ""
    if "ideal_cost_cycles" in row:
        return f"{_told(row, row['value'])} (ideal {row['ideal_cost_cycles']})"
    return _told(row, row["value"])


def aim_text(row):
    """The aim, with a mark where it is missed; nothing if there is none."""
    if row["aim"] is None:
        return ""
    return f"{'≤' if row['bound'] == AT_MOST else '≥'} {_told(row, row['aim'])}{'' if row['met'] else ' ✗'}"
