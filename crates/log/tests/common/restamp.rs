//! Makes the checksums of changed bytes right again, so that a test gets past them.
//!
//! Written from the tables of the file format, independently of the log's own code.
//!
//! | what | where | over |
//! |---|---|---|
//! | segment header | 40..44 | bytes 0..40 |
//! | frame payload | 32..36 of the frame | the payload |
//! | frame header | 36..40 of the frame | log id, segment number, offset, bytes 0..36 |

const SEGMENT_HEADER_BYTES: usize = 512;
const FRAME_HEADER_BYTES: usize = 40;

/// The segment number in a file name.
pub fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".seg")?.parse().ok()
}

pub fn file_name(number: u64) -> String {
    format!("{number:016}.seg")
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Makes the header's checksum right.
pub fn header(bytes: &mut [u8]) {
    if bytes.len() >= SEGMENT_HEADER_BYTES {
        let crc = crc32c::crc32c(&bytes[..40]);
        put(bytes, 40, crc);
    }
}

/// Makes the checksums of the frame at `at` right, in segment `number`, whatever the frame says.
pub fn frame(bytes: &mut [u8], number: u64, at: usize) {
    if bytes.len() < SEGMENT_HEADER_BYTES || at + FRAME_HEADER_BYTES > bytes.len() {
        return;
    }
    let payload_at = at + FRAME_HEADER_BYTES;
    let payload_bytes = u32_at(bytes, at + 4) as usize;
    if let Some(payload) = bytes.get(payload_at..payload_at.saturating_add(payload_bytes)) {
        let crc = crc32c::crc32c(payload);
        put(bytes, at + 32, crc);
    }
    let mut crc = crc32c::crc32c(&bytes[16..24]);
    crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &(at as u64).to_le_bytes());
    crc = crc32c::crc32c_append(crc, &bytes[at..at + 36]);
    put(bytes, at + 36, crc);
}

/// Where frames begin, if their lengths are to be believed.
pub fn frame_offsets(bytes: &[u8]) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES;
    while at + FRAME_HEADER_BYTES <= bytes.len() && bytes[at] != 0 {
        offsets.push(at);
        let payload_bytes = u32_at(bytes, at + 4) as usize;
        at += (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(8);
    }
    offsets
}

/// Makes every checksum of a segment right.
pub fn segment(bytes: &mut [u8], number: u64) {
    header(bytes);
    for at in frame_offsets(bytes) {
        frame(bytes, number, at);
    }
}
