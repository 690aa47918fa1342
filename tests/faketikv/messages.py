"""The messages between TiKV and PD that a fake needs, by field number, made without a compiler.

Only the fields used are declared: the wire format skips the rest. Names and numbers are those of TiKV's protocol.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_U64, _U32, _I64, _STR, _BYTES, _BOOL, _MSG = "uint64", "uint32", "int64", "string", "bytes", "bool", ""

#: message → (field, number, type); a type in capitals is a message, a leading * repeats.
_SHAPES = {
    "RequestHeader": [("cluster_id", 1, _U64)],
    "Error": [("type", 1, _U32), ("message", 2, _STR)],
    "ResponseHeader": [("cluster_id", 1, _U64), ("error", 2, "Error")],
    "Label": [("key", 1, _STR), ("value", 2, _STR)],
    "Store": [
        ("id", 1, _U64),
        ("address", 2, _STR),
        ("state", 3, _U32),
        ("labels", 4, "*Label"),
        ("version", 5, _STR),
        ("peer_address", 6, _STR),
        ("status_address", 7, _STR),
        ("start_timestamp", 9, _I64),
        ("deploy_path", 10, _STR),
    ],
    "RegionEpoch": [("conf_ver", 1, _U64), ("version", 2, _U64)],
    "Peer": [("id", 1, _U64), ("store_id", 2, _U64), ("role", 3, _U32)],
    "Region": [
        ("id", 1, _U64),
        ("start_key", 2, _BYTES),
        ("end_key", 3, _BYTES),
        ("region_epoch", 4, "RegionEpoch"),
        ("peers", 5, "*Peer"),
    ],
    "Member": [("name", 1, _STR), ("member_id", 2, _U64), ("client_urls", 4, "*string")],
    "GetMembersRequest": [("header", 1, "RequestHeader")],
    "GetMembersResponse": [("header", 1, "ResponseHeader"), ("members", 2, "*Member"), ("leader", 3, "Member")],
    "BootstrapRequest": [("header", 1, "RequestHeader"), ("store", 2, "Store"), ("region", 3, "Region")],
    "BootstrapResponse": [("header", 1, "ResponseHeader")],
    "PutStoreRequest": [("header", 1, "RequestHeader"), ("store", 2, "Store")],
    "PutStoreResponse": [("header", 1, "ResponseHeader")],
    "TimeInterval": [("start_timestamp", 1, _U64), ("end_timestamp", 2, _U64)],
    "StoreStats": [
        ("store_id", 1, _U64),
        ("capacity", 2, _U64),
        ("available", 3, _U64),
        ("region_count", 4, _U32),
        ("start_time", 7, _U32),
        ("used_size", 10, _U64),
        ("interval", 15, "TimeInterval"),
    ],
    "StoreHeartbeatRequest": [("header", 1, "RequestHeader"), ("stats", 2, "StoreStats")],
    "StoreHeartbeatResponse": [("header", 1, "ResponseHeader")],
    "PeerStats": [("peer", 1, "Peer"), ("down_seconds", 2, _U64)],
    "RegionHeartbeatRequest": [
        ("header", 1, "RequestHeader"),
        ("region", 2, "Region"),
        ("leader", 3, "Peer"),
        ("down_peers", 4, "*PeerStats"),
        ("pending_peers", 5, "*Peer"),
        ("approximate_size", 10, _U64),
        ("interval", 12, "TimeInterval"),
        ("approximate_keys", 13, _U64),
        ("term", 14, _U64),
    ],
    "ChangePeer": [("peer", 1, "Peer"), ("change_type", 2, _U32)],
    "TransferLeader": [("peer", 1, "Peer"), ("peers", 2, "*Peer")],
    "Merge": [("target", 1, "Region")],
    "SplitRegion": [("policy", 1, _U32), ("keys", 2, "*bytes")],
    "ChangePeerV2": [("changes", 1, "*ChangePeer")],
    "RegionHeartbeatResponse": [
        ("header", 1, "ResponseHeader"),
        ("change_peer", 2, "ChangePeer"),
        ("transfer_leader", 3, "TransferLeader"),
        ("region_id", 4, _U64),
        ("region_epoch", 5, "RegionEpoch"),
        ("target_peer", 6, "Peer"),
        ("merge", 7, "Merge"),
        ("split_region", 8, "SplitRegion"),
        ("change_peer_v2", 9, "ChangePeerV2"),
    ],
}

_PLAIN = {
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
}


def _build():
    file = descriptor_pb2.FileDescriptorProto(name="faketikv.proto", package="faketikv", syntax="proto3")
    for name, fields in _SHAPES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            made = message.field.add(name=field, number=number)
            made.label = made.LABEL_REPEATED if repeated else made.LABEL_OPTIONAL
            if kind in _PLAIN:
                made.type = _PLAIN[kind]
            else:
                made.type = made.TYPE_MESSAGE
                made.type_name = f".faketikv.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"faketikv.{name}")) for name in _SHAPES}


_MADE = _build()


def __getattr__(name):
    """`messages.Store(id=1, …)` and so on."""
    try:
        return _MADE[name]
    except KeyError:
        raise AttributeError(name) from None
