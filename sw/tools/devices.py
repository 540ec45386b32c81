"""``ibv_devices`` and ``ibv_devinfo``: which devices there are, and what they tell about themselves."""

import sys

from ..verbs.device import Context, get_device_list
from ..verbs.device_attr import guid_format, speed_to_str, translate_link_layer, width_to_str
from ..verbs.libibverbs_enums import ibv_atomic_cap, ibv_device_cap_flags, ibv_gid_type
from ..verbs.naming import names_of
from ..verbs.pyverbs_error import PyverbsError
from .command import Parser, plain
from .session import ToolError

__all__ = ["devices", "devinfo", "found", "tell"]

STATES = {0: "PORT_NOP", 1: "PORT_DOWN", 2: "PORT_INIT", 3: "PORT_ARMED", 4: "PORT_ACTIVE", 5: "PORT_ACTIVE_DEFER"}
PHYSICAL = {1: "SLEEP", 2: "POLLING", 3: "DISABLED", 4: "PORT_CONFIGURATION TRAINNING", 5: "LINK_UP"}
PHYSICAL |= {6: "LINK_ERROR_RECOVERY", 7: "PHY TEST"}

_FIRST = (("max_mr_size", "#x"), ("page_size_cap", "#x"), ("max_qp", "d"), ("max_qp_wr", "d"))
_NUMBERS = "max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom "
_NUMBERS += "max_qp_init_rd_atom max_ee_init_rd_atom"
_LAST = "max_ee max_rdd max_mw max_raw_ipv6_qps max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach "
_LAST += "max_total_mcast_qp_attach max_ah max_fmr max_srq max_pkeys local_ca_ack_delay"


def _field(name, value, indent=1, column=40):
    """A line: name, and value from ``column`` on, by tabs of 8."""
    text = "\t" * indent + name + ":"
    width = 8 * indent + len(name) + 1
    return text + "\t" * max(1, -(-(column - width) // 8)) + str(value)


def _flags(attr):
    yield _field("device_cap_flags", f"{attr.device_cap_flags:#010x}")
    for name in names_of(ibv_device_cap_flags, attr.device_cap_flags):
        yield "\t" * 5 + name.removeprefix("IBV_DEVICE_")


def _device(attr, verbose):
    """Lines about a device, without its ports."""
    yield _field("transport", "InfiniBand (0)")
    yield _field("fw_ver", attr.fw_version)
    yield _field("node_guid", guid_format(attr.node_guid))
    yield _field("sys_image_guid", guid_format(attr.sys_image_guid))
    yield _field("vendor_id", f"{attr.vendor_id:#06x}")
    yield _field("vendor_part_id", attr.vendor_part_id)
    yield _field("hw_ver", f"{attr.hw_ver:#X}".replace("X", "x"))
    yield _field("phys_port_cnt", attr.phys_port_cnt)
    if verbose:
        for name, form in _FIRST:
            yield _field(name, format(getattr(attr, name), form))
        yield from _flags(attr)
        for name in _NUMBERS.split():
            yield _field(name, getattr(attr, name))
        cap = ibv_atomic_cap(attr.atomic_caps)
        yield _field("atomic_cap", f"{cap.name.removeprefix('IBV_')} ({int(cap)})")
        for name in _LAST.split():
            yield _field(name.replace("ipv6_qps", "ipv6_qp"), getattr(attr, name))


def _port(context, number, verbose):
    """Lines about a port."""
    attr = context.query_port(number)

    def field(name, value):
        return _field(name, value, 3, 48)

    yield f"\t\tport:\t{number}"
    yield field("state", f"{STATES.get(int(attr.state), 'invalid state')} ({int(attr.state)})")
    yield field("max_mtu", f"{128 << attr.max_mtu} ({int(attr.max_mtu)})")
    yield field("active_mtu", f"{128 << attr.active_mtu} ({int(attr.active_mtu)})")
    yield field("sm_lid", attr.sm_lid)
    yield field("port_lid", attr.lid)
    yield field("port_lmc", f"{attr.lmc:#04x}")
    yield field("link_layer", translate_link_layer(attr.link_layer))
    if not verbose:
        return
    yield field("max_msg_sz", f"{attr.max_msg_sz:#x}")
    yield field("port_cap_flags", f"{attr.port_cap_flags:#010x}")
    yield field("port_cap_flags2", f"{attr.port_cap_flags2:#06x}")
    yield field("max_vl_num", f"{attr.max_vl_num} ({attr.max_vl_num})")
    yield field("bad_pkey_cntr", f"{attr.bad_pkey_cntr:#x}")
    yield field("qkey_viol_cntr", f"{attr.qkey_viol_cntr:#x}")
    for name in ("sm_sl", "pkey_tbl_len", "gid_tbl_len", "subnet_timeout", "init_type_reply"):
        yield field(name, getattr(attr, name))
    yield field("active_width", width_to_str(attr.active_width))
    yield field("active_speed", speed_to_str(attr.active_speed))
    yield field("phys_state", f"{PHYSICAL.get(attr.phys_state, 'invalid physical state')} ({attr.phys_state})")
    for entry in context.query_gid_table(attr.gid_tbl_len):
        if entry.port_num == number:
            gid = context.query_gid(number, entry.gid_index)
            text = entry.gid_str() if gid.ipv4 is None else f"::ffff:{_dotted(int(gid))}"
            kind = "RoCE v1" if entry.gid_type == ibv_gid_type.IBV_GID_TYPE_ROCE_V1 else "RoCE v2"
            yield f"\t\t\tGID[{entry.gid_index:3}]:\t\t{text}, {kind}"


def _dotted(number):
    return ".".join(str(number >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _describe(name, number, verbose):
    """All lines about the device; of port ``number``, or of all if that is None."""
    with Context(name=name) as context:
        attr = context.query_device()
        if number is not None and not 1 <= number <= attr.phys_port_cnt:
            raise ToolError(f"{name} has no port {number}, but 1 to {attr.phys_port_cnt}")
        yield f"hca_id:\t{name}"
        yield from _device(attr, verbose)
        for port in range(1, attr.phys_port_cnt + 1) if number is None else [number]:
            yield from _port(context, port, verbose)
        yield ""


def found():
    """Names of the devices; ``ToolError`` if there is none."""
    if names := [device.name.decode() for device in get_device_list()]:
        return names
    raise ToolError("no RDMA devices found")


def tell(prog, lines):
    """Prints ``lines`` as they come. The status: 1 if one cannot be had, with the reason on stderr."""
    try:
        for line in lines:
            print(line, flush=True)
    except BrokenPipeError:  # of what is printed
        raise
    except (ToolError, PyverbsError, OSError) as error:
        print(f"{prog}: {plain(error)}", file=sys.stderr)
        return 1
    return 0


def _info(args):
    """All lines of ``ibv_devinfo``."""
    if args.list:
        names = found()
        yield f"{len(names)} HCA{'' if len(names) == 1 else 's'} found:"
        yield "".join(f"\t{name}\n" for name in names)
        return
    for name in found() if args.ib_dev is None else [args.ib_dev]:
        yield from _describe(name, args.ib_port, args.verbose)


def devices(argv=None, *, prog="ibv_devices"):
    """``ibv_devices``: names and node GUIDs."""
    Parser(prog=prog, description="Lists the devices.").parse_args(argv)
    status = 0
    print(f"    {'device':<16}\t   node GUID")
    print(f"    {'------':<16}\t----------------")
    for device in get_device_list():
        try:
            guid = f"{device.guid:016x}"
        except (OSError, ImportError, MemoryError) as error:
            guid, status = f"({plain(error)})", 1
        print(f"    {device.name.decode():<16}\t{guid}")
    return status


def devinfo(argv=None, *, prog="ibv_devinfo"):
    """``ibv_devinfo``: attributes of devices and their ports."""
    parser = Parser(prog=prog, description="Tells attributes of devices and their ports.")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: all")
    parser.add_argument("-i", "--ib-port", metavar="PORT", type=int, help="default: all")
    parser.add_argument("-l", "--list", action="store_true", help="only the names")
    parser.add_argument("-v", "--verbose", action="store_true", help="all attributes")
    return tell(prog, _info(parser.parse_args(argv)))
