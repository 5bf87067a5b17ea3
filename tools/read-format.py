#!/usr/bin/env python3
"""Reads what Dalsegno keeps, without Dalsegno: a portable file, or the folder of a store's log.

    tools/read-format.py FILE.dalsegno         check a portable file
    tools/read-format.py FOLDER                check a log, and the events in it
    tools/read-format.py --events PATH         the same, and print every event

Written from docs/format.md alone, in plain Python, to show that the page is enough. It is slow, and meant to be read.
The standard library has no zstd, so compressed leaves are counted and not looked into.

Prints one line per fact, the heads of streams last. Exits with 1 and a line "error: ..." if anything is not right.
"""

import struct
import sys
from pathlib import Path

MASK64 = (1 << 64) - 1


class Wrong(Exception):
    """Bytes that are not as the page says."""


def need(condition, what):
    if not condition:
        raise Wrong(what)


# --- Checksums and hashes -----------------------------------------------------------------------------------------

CRC_TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    CRC_TABLE.append(value)


def crc32c(data, so_far=0):
    crc = so_far ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
CHUNK_START, CHUNK_END, PARENT, ROOT, KEYED = 1, 2, 4, 8, 16
# Which words of a block each of the seven rounds takes, in order.
SCHEDULES = [tuple(range(16))]
for _ in range(6):
    SCHEDULES.append(tuple(SCHEDULES[-1][i] for i in PERMUTATION))


def compress(chaining, block, counter, length, flags):
    words = struct.unpack("<16I", block.ljust(64, b"\0"))
    v = [*chaining, *IV[:4], counter & 0xFFFFFFFF, counter >> 32, length, flags]
    for schedule in SCHEDULES:
        for at, (a, b, c, d) in enumerate(QUARTERS):
            va, vb, vc, vd = v[a], v[b], v[c], v[d]
            va = (va + vb + words[schedule[2 * at]]) & 0xFFFFFFFF
            vd ^= va
            vd = (vd >> 16 | vd << 16) & 0xFFFFFFFF
            vc = (vc + vd) & 0xFFFFFFFF
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & 0xFFFFFFFF
            va = (va + vb + words[schedule[2 * at + 1]]) & 0xFFFFFFFF
            vd ^= va
            vd = (vd >> 8 | vd << 24) & 0xFFFFFFFF
            vc = (vc + vd) & 0xFFFFFFFF
            vb ^= vc
            vb = (vb >> 7 | vb << 25) & 0xFFFFFFFF
            v[a], v[b], v[c], v[d] = va, vb, vc, vd
    return tuple(v[i] ^ v[i + 8] for i in range(8))


def blake3(data, key=None):
    """BLAKE3, 32 bytes, with a key or without."""
    start = struct.unpack("<8I", key) if key else IV
    mode = KEYED if key else 0

    def chunk(at, data, root):
        chaining = start
        blocks = [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
        for i, block in enumerate(blocks):
            flags = mode | (CHUNK_START if i == 0 else 0)
            if i == len(blocks) - 1:
                flags |= CHUNK_END | root
            chaining = compress(chaining, block, at, len(block), flags)
        return chaining

    def parent(left, right, root):
        return compress(start, struct.pack("<16I", *left, *right), 0, 64, mode | PARENT | root)

    chunks = [data[i : i + 1024] for i in range(0, len(data), 1024)] or [b""]
    if len(chunks) == 1:
        return struct.pack("<8I", *chunk(0, data, ROOT))
    # The tree over the chunks: neighbours are joined whenever both sides are equally many.
    stack = []
    for at, part in enumerate(chunks):
        joined, size = chunk(at, part, 0), 1
        while stack and stack[-1][1] == size and at < len(chunks) - 1:
            left, _ = stack.pop()
            joined, size = parent(left, joined, 0), size * 2
        stack.append((joined, size))
    joined, _ = stack.pop()
    while stack:
        left, _ = stack.pop()
        joined = parent(left, joined, 0 if stack else ROOT)
    return struct.pack("<8I", *joined)


# --- CBOR ---------------------------------------------------------------------------------------------------------


class Other(bytes):
    """A value of a type that the page does not use, as it was."""


def read_head(data, at):
    """Major type, the number in the head, where it ends."""
    need(at < len(data), "CBOR that ends too early")
    major, low = data[at] >> 5, data[at] & 31
    at += 1
    if low < 24:
        return major, low, at
    need(low < 28, f"CBOR of indefinite or unknown length ({low})")
    size = 1 << low - 24
    need(at + size <= len(data), "CBOR that ends too early")
    number = int.from_bytes(data[at : at + size], "big")
    # Behind major type 7 come other things than numbers.
    least = 24 if size == 1 else 1 << 4 * size
    need(major == 7 or number >= least, "a number that is not in its shortest form")
    return major, number, at + size


def read_item(data, at, depth=0):
    need(depth <= 16, "CBOR nested too deep")
    start = at
    first = data[at] if at < len(data) else 0
    major, number, at = read_head(data, at)
    if major == 0:
        return number, at
    if major in (2, 3):
        need(number <= len(data) - at, "a string longer than what is there")
        value = bytes(data[at : at + number])
        return (value if major == 2 else value.decode()), at + number
    if major == 4:
        items = []
        for _ in range(number):
            item, at = read_item(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == 5:
        fields, last = {}, -1
        for _ in range(number):
            key, at = read_item(data, at, depth + 1)
            need(isinstance(key, int) and key > last, "keys that do not ascend")
            fields[key], at = read_item(data, at, depth + 1)
            last = key
        return fields, at
    if major == 6:
        _, at = read_item(data, at, depth + 1)
    if major == 7 and first in (0xF4, 0xF5):
        return first == 0xF5, at
    return Other(data[start:at]), at


def numbered_fields(data):
    fields, end = read_item(data, 0)
    need(isinstance(fields, dict), "something else than numbered fields")
    need(end == len(data), "bytes behind the fields")
    return fields


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_hash(value):
    return isinstance(value, bytes) and len(value) == 32


# --- Streams and events -------------------------------------------------------------------------------------------

STREAM_ORDER = {"run": 0, "memory": 1, "store": 2}


def stream_key(stream):
    """Checks the name of a stream, and gives its place in the order of streams."""
    need(isinstance(stream, str), "a stream whose name is no text")
    kind, slash, name = stream.partition("/")
    need(kind in STREAM_ORDER and slash, f"{stream!r} is no stream")
    need(1 <= len(name.encode()) <= 200, f"the name of {stream!r} is empty or too long")
    for c in name:
        need(not (c < " " or "\x7f" <= c <= "\x9f" or "\u202a" <= c <= "\u202e"), f"{stream!r} has {c!r} in it")
    return STREAM_ORDER[kind], name.encode()


def is_pair(value, first, second):
    return isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def is_text(value):
    return isinstance(value, str)


def read_event(data):
    event = numbered_fields(data)
    for key in range(1, 6):
        need(key in event, f"an event without field {key}")
    stream_key(event[1])
    for key in (2, 3, 4):
        need(is_number(event[key]), f"field {key} of an event is no number")
    need(is_number(event[5]) or is_text(event[5]), "a kind that is neither number nor text")
    if 6 in event:
        need(is_pair(event[6], is_number, is_hash), "a memory that is no version")
    for key in (7, 8):
        if key in event:
            body = event[key][1] if is_pair(event[key], is_text, lambda _: True) else None
            inline = isinstance(body, bytes) and not isinstance(body, Other)
            need(inline or is_pair(body, is_hash, is_number), f"field {key} of an event is no payload")
    if 9 in event:
        need(event[9] and all(map(is_text, event[9])), "sources that are no texts")
    if 10 in event:
        need(is_pair(event[10], is_text, is_number), "a cause that is no event")
        stream_key(event[10][0])
    if 11 in event:
        event[11] = numbered_fields(event[11])
        need(event[11], "fields of a kind that are empty")
    if 12 in event:
        need(is_pair(event[12], is_text, is_number), "a letter that is none")
    return event


# --- Pieces -------------------------------------------------------------------------------------------------------

LEAF_KEY = b"dalsegno payload leaf, format 01"
NODE_KEY = b"dalsegno payload node, format 01"


def read_piece(hash, stored):
    """Length, children (hash and length), content: nothing for a node, and None if it is compressed."""
    need(stored, "an empty piece")
    tag, rest = stored[0], stored[1:]
    if tag == 1:
        need(len(rest) <= 4096, "a leaf that is too long")
        need(blake3(rest, LEAF_KEY) == hash, f"leaf {hash.hex()} has another hash")
        return len(rest), [], rest
    if tag == 2:
        need(len(rest) >= 2, "a compressed leaf without a length")
        length = int.from_bytes(rest[:2], "little")
        need(length <= 4096, "a leaf that is too long")
        return length, [], None
    need(tag == 3, f"a piece with the tag {tag}")
    need(blake3(rest, NODE_KEY) == hash, f"node {hash.hex()} has another hash")
    children, at = [], 0
    while at < len(rest):
        child, at = rest[at : at + 32], at + 32
        length, shift = 0, 0
        while True:
            need(at < len(rest), "a node that ends too early")
            byte, at = rest[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        need(0 < length <= MASK64 and (byte or shift == 7), "a child with a length of no use")
        children.append((child, length))
    need(2 <= len(children) <= 32, f"a node of {len(children)}")
    return sum(length for _, length in children), children, b""


def gear_table():
    table, seed = [], 0
    for _ in range(256):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK64
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
        table.append(z ^ z >> 31)
    return table


GEAR = gear_table()


def leaf_length(data):
    if len(data) <= 512:
        return len(data)
    gear = 0
    for byte in data[448:512]:
        gear = gear * 2 + GEAR[byte] & MASK64
    for i in range(512, min(len(data), 4096)):
        gear = gear * 2 + GEAR[data[i]] & MASK64
        if gear < (1 << 52 if i < 1024 else 1 << 56):
            return i + 1
    return min(len(data), 4096)


def leb128(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def root_of(payload):
    """The hash of the root that a writer would give to this payload."""
    level, at = [], 0
    while at < len(payload) or not level:
        end = at + leaf_length(payload[at : at + 4096])
        level.append((blake3(payload[at:end], LEAF_KEY), end - at))
        at = end
    while len(level) > 1:
        above, node = [], []
        for at, piece in enumerate(level):
            node.append(piece)
            k, h = len(node), int.from_bytes(piece[0][:8], "little")
            ends = k >= 4 and (h < (1 << 59 if k < 8 else 1 << 63) or k == 32)
            if not ends and at < len(level) - 1:
                continue
            if k == 1:
                above.append(piece)
            else:
                listed = b"".join(hash + leb128(length) for hash, length in node)
                above.append((blake3(listed, NODE_KEY), sum(length for _, length in node)))
            node = []
        level = above
    return level[0][0]


# --- What has been read -------------------------------------------------------------------------------------------


class History:
    """Pieces and events in their order, from whichever file they come."""

    def __init__(self, print_events):
        self.print_events = print_events
        self.pieces = {}
        self.heads = {}
        self.events = 0
        self.compressed = 0
        self.recut = set()
        self.missing = {}

    def piece(self, hash, stored, once=True):
        need(not once or hash not in self.pieces, f"piece {hash.hex()} comes twice")
        length, children, content = read_piece(hash, stored)
        height = 0
        for child, child_length in children:
            need(child in self.pieces, f"piece {child.hex()} has not come before {hash.hex()}")
            known = self.pieces[child]
            need(known[0] == child_length, f"piece {child.hex()} has {known[0]} bytes, not {child_length}")
            height = max(height, known[3] + 1)
        need(height <= 16, f"piece {hash.hex()} has {height} levels below it")
        self.compressed += content is None and hash not in self.pieces
        self.pieces[hash] = (length, children, content, height)

    def event(self, data):
        event = read_event(data)
        stream = event[1]
        sequence, chain = self.heads.get(stream, (0, bytes(32)))
        need(event[2] == sequence + 1, f"event {event[2]} of {stream} where {sequence + 1} should be")
        for key in (7, 8):
            if key in event and isinstance(event[key][1], list):
                root = event[key][1][0]
                if root not in self.pieces and stream.startswith("memory/"):
                    self.missing[(stream, event[2])] = root
                else:
                    self.payload(*event[key][1])
        if event[5] == 88 and stream.startswith("memory/") and 11 in event:
            named = event[11].get(1, [])
            for forgotten in named if isinstance(named, list) else []:
                if isinstance(forgotten, int) and forgotten < event[2]:
                    self.missing.pop((stream, forgotten), None)
        chain = blake3(chain + data)
        self.heads[stream] = (event[2], chain)
        self.events += 1
        if self.print_events:
            print("event", stream, event[2], chain.hex(), event)

    def payload(self, root, length):
        need(root in self.pieces, f"piece {root.hex()} has not come before the event that needs it")
        need(self.pieces[root][0] == length, f"payload {root.hex()} has not {length} bytes")
        parts, ahead = [], [root]
        while ahead:
            _, children, content, _ = self.pieces[ahead.pop()]
            if content is None:
                return
            parts.append(content)
            ahead.extend(child for child, _ in reversed(children))
        if root not in self.recut:
            need(root_of(b"".join(parts)) == root, f"payload {root.hex()} would be cut otherwise")
            self.recut.add(root)

    def complete(self):
        for (stream, sequence), root in self.missing.items():
            need(False, f"piece {root.hex()} has not come before event {sequence} of {stream}, and is not forgotten")

    def report(self):
        print("events", self.events)
        print("pieces", len(self.pieces))
        print("payloads-cut-again", len(self.recut))
        print("leaves-not-looked-into", self.compressed)
        for stream in sorted(self.heads, key=stream_key):
            sequence, chain = self.heads[stream]
            print("head", stream, sequence, chain.hex())


# --- The portable file --------------------------------------------------------------------------------------------

ABOUT, PIECE, EVENT, HEADS, END = range(1, 6)
FRAME_LIMITS = {ABOUT: 1048576, PIECE: 16384, EVENT: 1048576, HEADS: 1048576, END: 1024}


def read_portable(data, history):
    need(len(data) >= 24 and data[:16] == b"dalsegno export\n", "not a portable file")
    version, crc = struct.unpack_from("<II", data, 16)
    need(crc32c(data[:20]) == crc, "the head has another checksum")
    need(version == 1, f"format {version}, which is not known")
    at, last, about, heads, done = 24, 0, None, [], False
    while at < len(data):
        need(not done, f"bytes behind the end, at {at}")
        need(at + 9 <= len(data), f"a frame that ends too early, at {at}")
        tag, length, crc = struct.unpack_from("<BII", data, at)
        need(tag in FRAME_LIMITS and length <= FRAME_LIMITS[tag], f"no frame at {at}")
        content = data[at + 9 : at + 9 + length]
        need(len(content) == length, f"a frame that ends too early, at {at}")
        need(crc32c(content, crc32c(data[at : at + 5])) == crc, f"the frame at {at} has another checksum")
        need((tag == ABOUT) == (last == 0), f"about is not the first frame, at {at}")
        need(last < HEADS or tag >= HEADS, f"a piece or an event behind heads, at {at}")
        if tag == ABOUT:
            about = read_about(content)
        elif tag == PIECE:
            history.piece(content[:32], content[32:])
        elif tag == EVENT:
            history.event(content)
        elif tag == HEADS:
            fields = numbered_fields(content)
            need(list(fields) == [1] and fields[1], "heads that are none")
            heads.extend(fields[1])
        else:
            counts = {1: history.events, 2: len(history.pieces), 3: len(history.heads), 4: blake3(data[:at])}
            need(numbered_fields(content) == counts, "the end says something else")
            done = True
        last, at = tag, at + 9 + length
    need(done, "the file has no end")
    streams = sorted(history.heads, key=stream_key)
    need(heads == [[stream, *history.heads[stream]] for stream in streams], "the heads are others")
    if about is not None:
        need(about == streams, "the file holds other streams than it says")


def read_about(content):
    """The list of streams, or None for a whole store."""
    about = numbered_fields(content)
    need(all(is_number(about.get(key)) for key in (2, 3, 4)), "about lacks a number")
    need(about[3] == 1 and about[4] == 1, "a format that is not known")
    if about.get(1) == 0:
        return None
    need(isinstance(about.get(1), list) and about[1], "about says nothing of what the file holds")
    need(sorted(set(about[1]), key=stream_key) == about[1], "streams out of their order")
    return about[1]


# --- The log ------------------------------------------------------------------------------------------------------

RECORD, START, SEAL, OPENED, CLOSED, DROPPED, GAP = range(1, 8)
PAYLOAD_BYTES = {START: (24,), SEAL: (16, 32), OPENED: (8,), CLOSED: (0,), DROPPED: (8,), GAP: (16,)}


class Segment:
    """One file of a log, its header checked."""

    def __init__(self, path):
        self.number = int(path.name[:16])
        self.data = data = path.read_bytes()
        where = f"segment {self.number}"
        need(len(data) >= 512 and data[:8] == b"DALSEGNO", f"{where} is none")
        version, flying, self.log_id, number, self.size, crc = struct.unpack_from("<IIQQQI", data, 8)
        need(crc32c(data[:40]) == crc, f"the header of {where} has another checksum")
        need(version == 1, f"{where} has format {version}, which is not known")
        need(number == self.number and flying in (0, 1) and not any(data[44:512]), f"the header of {where} is wrong")
        self.rewritten = flying == 0
        # Where the last byte is that is not zero; most of an unfinished segment is.
        self.written_until = len(data.rstrip(b"\0"))
        self.used = self.rewritten or self.written_until > 512
        self.place = crc32c(struct.pack("<QQ", self.log_id, self.number))

    def frame(self, at):
        """The valid frame at this place, or None."""
        header = self.data[at : at + 40]
        if len(header) < 40 or not 1 <= header[0] <= 7:
            return None
        kind, flags, zero, length, lsn, group, epoch, payload_crc, crc = struct.unpack("<BBHIQQQII", header)
        if crc32c(header[:36], crc32c(struct.pack("<Q", at), self.place)) != crc or flags > 3 or zero:
            return None
        payload = self.data[at + 40 : at + 40 + length]
        if len(payload) < length or crc32c(payload) != payload_crc:
            return None
        return kind, flags, lsn, group, epoch, payload, crc

    def later_frame(self, at, group):
        frames = (self.frame(place) for place in range(at, self.written_until, 8))
        return any(frame and frame[3] > group for frame in frames)


def read_log(folder, history):
    paths = [p for p in folder.glob("*.seg") if len(p.stem) == 16 and p.stem.isascii() and p.stem.isdigit()]
    segments = [Segment(path) for path in sorted(paths)]
    need(segments, "no segments in the folder")
    last = max((s.number for s in segments if s.used), default=segments[0].number)
    records, state, ending, first = [], (1, 0, True, 0), (0, 0), 1
    # The last segment that begins with a whole frame knows which one is the oldest: its marks are read first.
    for segment in segments:
        if segment.used and segment.frame(512):
            first = oldest_of(segment)
    segments = [segment for segment in segments if segment.number >= first]
    if first > 1:
        state, ending = None, None
    for at, segment in enumerate(segments):
        need(segment.number == first + at, f"segment {first + at} is missing")
        need(segment.log_id == segments[0].log_id, f"segment {segment.number} is of another log")
        if segment.number > last:
            need(len(segment.data) >= segment.size, f"segment {segment.number} is shorter than it was made")
            continue
        state, ending = read_segment(segment, segment.number == last, state, ending, records)
    print("segments", len(segments))
    print("records", len(records))
    for record in records:
        need(record and record[0] in (1, 2), "a record that is neither event nor piece")
        if record[0] == 1:
            history.event(record[1:])
        else:
            history.piece(record[1:33], record[33:], once=False)


def oldest_of(segment):
    at, oldest = 512, 1
    while frame := segment.frame(at):
        kind, payload = frame[0], frame[5]
        if kind in (START, OPENED, DROPPED):
            oldest = int.from_bytes(payload[-8:], "little")
        at += (40 + len(payload) + 7) // 8 * 8
    return oldest


def follows(segment, at, frame, state):
    """Whether a valid frame goes on where the one before ended."""
    kind, flags, lsn, group, epoch, payload, _ = frame
    if (kind == START) != (at == 512) or (kind != RECORD and not flags & 1) or (kind == GAP and not segment.rewritten):
        return False
    if kind in PAYLOAD_BYTES and len(payload) not in PAYLOAD_BYTES[kind]:
        return False
    if not all(1 <= number < 1 << 62 for number in (lsn, group, epoch)):
        return False
    end = at + 40 + len(payload)
    padding = -end % 8
    if segment.data[end : end + padding] != bytes(padding):
        return False
    if state is None:
        return True
    next_lsn, last_group, group_ended, last_epoch = state
    in_order = group == last_group + 1 or (group == last_group and not group_ended)
    if at == 512 and segment.rewritten:
        in_order = in_order or group > last_group
    return lsn == next_lsn and in_order and epoch >= last_epoch


def read_segment(segment, is_last, state, ending, records):
    """Adds the records of a segment; gives what its last frame leaves, and how it ended."""
    where = f"segment {segment.number}"
    at, whole_until, chain, batch, sealed, original, first_lsn = 512, 512, 0, [], False, None, None
    while not sealed:
        frame = segment.frame(at)
        if not frame or not follows(segment, at, frame, state):
            break
        kind, flags, lsn, group, epoch, payload, crc = frame
        stands_for = 0
        if kind == RECORD:
            batch.append(payload)
            stands_for = 1
        elif kind == START:
            first_lsn = lsn
            before = struct.unpack_from("<QI", payload)
            need(ending in (None, before), f"{where} says that the one before ended at {before}, not {ending}")
        elif kind == SEAL:
            need(struct.unpack_from("<QI", payload) == (first_lsn, chain), f"the seal of {where} says something else")
            need((len(payload) == 32) == segment.rewritten, f"the seal of {where} has another length")
            original = struct.unpack_from("<QI", payload, 16) if segment.rewritten else None
            sealed = True
        elif kind == GAP:
            stands_for, why = struct.unpack_from("<QI", payload)
            need(stands_for and why in (1, 2), f"a gap that is none in {where}, at {at}")
            print("gap", lsn, lsn + stands_for - 1, {1: "removed", 2: "lost"}[why])
        chain = crc32c(struct.pack("<I", crc), chain)
        at += (40 + len(payload) + 7) // 8 * 8
        state = (lsn + stands_for, group, bool(flags & 2), epoch)
        if flags & 1:
            records.extend(batch)
            batch, whole_until = [], at
    if sealed and segment.written_until <= at:
        return state, original or (at, chain)
    need(is_last and not segment.rewritten, f"{where} is damaged at {at}")
    _, group, group_ended, _ = state or (0, 0, True, 0)
    need(not segment.later_frame(at, group + group_ended), f"{where} is damaged at {at}: a later group follows")
    long_enough = len(segment.data) >= segment.size or len(segment.data) == whole_until + 56 or sealed
    need(long_enough, f"{where} is shorter than it was made")
    if whole_until < at or segment.written_until > at:
        print("torn", segment.number, whole_until)
    return state, None


# --- The command --------------------------------------------------------------------------------------------------


def self_test():
    """The building blocks against numbers from outside."""
    need(crc32c(b"123456789") == 0xE3069283, "CRC32C is not right")
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    need(blake3(b"").hex() == empty, "BLAKE3 is not right")


def main(arguments):
    print_events = "--events" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--events"]
    if len(paths) != 1:
        print(__doc__.strip())
        return 2
    history = History(print_events)
    try:
        self_test()
        if paths[0].is_dir():
            read_log(paths[0], history)
        else:
            read_portable(paths[0].read_bytes(), history)
        history.complete()
    except (Wrong, OSError, UnicodeDecodeError) as error:
        print(f"error: {error}")
        return 1
    history.report()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
