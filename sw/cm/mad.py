"""The header of a MAD of the communication management class (IBA 13.4.2, 16.7.1)."""

from .layout import Layout

__all__ = ["BASE_VERSION", "CLASS", "CLASS_VERSION", "HEADER", "METHOD_SEND", "concerns_cm"]

BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND = 1, 0x07, 2, 0x03

HEADER = Layout(
    "MAD header",
    [
        ("base_version", 8),
        ("management_class", 8),
        ("class_version", 8),
        ("response", 1),
        ("method", 7),
        ("status", 16),
        ("class_specific", 16),
        ("tid", 64),
        ("attribute", 16),
        ("_", 16),
        ("modifier", 32),
    ],
)


def concerns_cm(header):
    """Whether a MAD with these fields is one of ours; others are dropped in silence, as Linux does."""
    return (
        header["base_version"],
        header["management_class"],
        header["class_version"],
        header["response"],
        header["method"],
    ) == (BASE_VERSION, CLASS, CLASS_VERSION, 0, METHOD_SEND)
